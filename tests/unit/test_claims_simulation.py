"""The simulation of the claim protocol: nothing is found with all rules, something without each of them."""

import pytest

from benchmarks.claims_simulation import rules
from benchmarks.claims_simulation.faults import Rates
from benchmarks.claims_simulation.rules import RULES
from benchmarks.claims_simulation.simulation import Options, Simulation
from pallas.ledger import advisory_locks

EVERYTHING = Rates(kill=40, stop=60, cut=60, lock=60, drain=200, restart=40, failover=25)
LOCKS = Rates(kill=60, stop=40, cut=0, lock=15, drain=0, restart=0, failover=0)
KILLS = Rates(kill=6, stop=0, cut=0, lock=0, drain=0, restart=0, failover=0)
STOPS = Rates(kill=0, stop=20, cut=0, lock=0, drain=0, restart=0, failover=0)
STARTS = Rates(kill=6, stop=0, cut=0, lock=0, drain=0, restart=0, failover=30)
RESTARTS = Rates(kill=0, stop=0, cut=0, lock=0, drain=0, restart=20, failover=0)
FAILOVERS = Rates(kill=20, stop=0, cut=60, lock=60, drain=0, restart=0, failover=20)

# What is left out, the rates of faults, the seed, and the invariant that does not hold then.
BROKEN = [
    ({"fence"}, Options(1, rates=EVERYTHING), "I3"),
    ({"gate"}, Options(3, rates=LOCKS), "gate"),
    ({"beats"}, Options(2, rates=STOPS), "I5"),
    ({"grace", "settled judge"}, Options(1, rates=RESTARTS), "alive"),
    ({"recheck"}, Options(4, rates=KILLS), "gate"),
    ({"take"}, Options(1, rates=KILLS), "I4"),
    ({"fenced results"}, Options(1, rates=LOCKS), "I3"),
    ({"fenced progress"}, Options(1, rates=LOCKS), "I3"),
    ({"gap"}, Options(1, rates=LOCKS), "gate"),
    ({"short gate"}, Options(3, rates=LOCKS), "gate"),
    ({"enrolled alive", "known lives", "queued life", "settled judge"}, Options(2, rates=STARTS), "alive"),
    ({"queued life"}, Options(7, rates=KILLS), "I5"),
    ({"quick lock"}, Options(1, rates=LOCKS), "alive"),
    ({"settled judge"}, Options(1, rates=FAILOVERS), "alive"),
    ({"settled start"}, Options(1, rates=FAILOVERS), "alive"),
    ({"claim in fence", "settled judge"}, Options(8, rates=FAILOVERS, is_synchronous=False), "I3"),
    ({"own runs"}, Options(2, rates=KILLS, loss=0.03), "I5"),
    ({"own runs", "each claim counts"}, Options(1, rates=KILLS, loss=0.03), "I5"),
    ({"own runs", "patient start"}, Options(3, rates=KILLS, loss=0.03), "I5"),
    ({"own runs", "sure leave"}, Options(3, rates=LOCKS, loss=0.02), "I5"),
]


def _id(without: set[str], options: Options, invariant: str) -> str:
    return f"{'+'.join(sorted(without))}-{invariant}"


SMALL = {"steps": 40_000, "replicas": 40}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("is_synchronous", [True, False])
def test_with_all_rules_the_invariants_hold(seed: int, is_synchronous: bool) -> None:
    options = Options(seed, is_synchronous=is_synchronous, rates=EVERYTHING)._replace(**SMALL)
    audit = Simulation(options).run()
    assert not audit.violations, audit.told
    assert audit.counts["claims"] > 20
    assert audit.counts["tool calls"] > 200


@pytest.mark.slow
@pytest.mark.parametrize(("without", "options", "invariant"), BROKEN, ids=[_id(*each) for each in BROKEN])
def test_without_a_rule_an_invariant_breaks(without: set[str], options: Options, invariant: str) -> None:
    audit = Simulation(options._replace(without=frozenset(without), **SMALL)).run()
    assert audit.violations[invariant]
    assert any(each.invariant == invariant and each.story for each in audit.told)


def test_a_seed_gives_the_same_events_again() -> None:
    options = Options(5, rates=EVERYTHING)._replace(steps=10_000, replicas=20)
    assert Simulation(options).run().counts == Simulation(options).run().counts


def test_nearly_each_rule_is_one_that_is_missed() -> None:
    broken = {rule for without, *_ in BROKEN for rule in without}
    # They need two failures at the same moment, which a short simulation does not have.
    assert broken == RULES.keys() - {"fenced retry", "fresh judge"}


@pytest.mark.parametrize(
    "name",
    ["BEAT_SECONDS", "MISSED_SECONDS", "STALE_SECONDS", "SETTLED_SECONDS", "FRESH_SHARE", "JUDGE_SECONDS"],
)
def test_it_has_the_times_of_the_code(name: str) -> None:
    assert getattr(rules, name) == getattr(advisory_locks, name)
