"""When something that failed is started again, by a clock that the test moves."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from pallas.config.models import RestartConfig
from pallas.fleet.supervisor.restart_policy import JITTER, AfterFailure, RestartDecision, RestartPolicy

SHORT = RestartConfig(backoff=1.0, backoff_max=8.0, crashes=4, within=100.0)
PATIENT = RestartConfig(backoff=1.0, backoff_max=8.0, crashes=1_000, within=100.0)


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        self.now += seconds


def policy(config: RestartConfig = SHORT, chance: float = 0.0) -> tuple[RestartPolicy, Clock]:
    clock = Clock()
    return RestartPolicy(config, clock=clock, chance=lambda: chance), clock


def test_the_delay_doubles_up_to_its_cap() -> None:
    tried, clock = policy(PATIENT)
    delays = []
    for _ in range(6):
        delays.append(tried.failed().delay_s)
        clock.pass_by(1)
    assert delays == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_chance_takes_a_tenth_off_at_most_and_never_adds() -> None:
    whole, _ = policy(PATIENT, chance=0.0)
    least, _ = policy(PATIENT, chance=1.0)
    for _ in range(6):
        assert abs(least.failed().delay_s - whole.failed().delay_s * (1 - JITTER)) < 1e-9


def test_so_many_failures_in_the_window_are_a_crash_loop() -> None:
    tried, clock = policy()
    decisions = []
    for _ in range(4):
        decisions.append(tried.failed())
        clock.pass_by(10)
    assert [each.after for each in decisions] == [
        AfterFailure.RESTART,
        AfterFailure.RESTART,
        AfterFailure.RESTART,
        AfterFailure.CRASH_LOOP,
    ]
    assert [each.crashes for each in decisions] == [1, 2, 3, 4]
    assert decisions[-1].delay_s == 0


def test_one_failure_is_a_crash_loop_where_one_is_too_many() -> None:
    tried, _ = policy(RestartConfig(crashes=1))
    assert tried.failed().after is AfterFailure.CRASH_LOOP


def test_failures_that_are_longer_ago_than_the_window_do_not_count() -> None:
    tried, clock = policy()
    for _ in range(3):
        tried.failed()
    clock.pass_by(99.9)
    assert tried.crashes == 3
    clock.pass_by(0.1)
    assert tried.crashes == 0
    assert tried.failed().after is AfterFailure.RESTART


def test_failures_far_apart_never_are_a_crash_loop_but_wait_longer_each_time() -> None:
    tried, clock = policy()
    delays = []
    for _ in range(20):
        decision = tried.failed()
        assert decision.after is AfterFailure.RESTART
        delays.append(decision.delay_s)
        clock.pass_by(40)
        tried.well()
        clock.pass_by(10)
    assert delays[:5] == [1.0, 2.0, 4.0, 8.0, 8.0]


def test_a_stable_run_forgets_the_backoff() -> None:
    tried, clock = policy(PATIENT)
    for _ in range(4):
        tried.failed()
    tried.well()
    clock.pass_by(100)
    assert tried.failed() == RestartDecision(AfterFailure.RESTART, 1, 1.0)


def test_a_run_that_is_not_long_enough_forgets_nothing() -> None:
    tried, clock = policy(PATIENT)
    tried.failed()
    tried.well()
    clock.pass_by(99)
    assert tried.failed().delay_s == 2.0


def test_time_that_passes_while_it_is_down_is_no_stable_run() -> None:
    tried, clock = policy(PATIENT)
    tried.well()
    clock.pass_by(10)
    tried.failed()
    clock.pass_by(1_000)
    assert tried.failed().delay_s == 2.0


def test_never_leaves_it_and_counts_all_the_same() -> None:
    tried, _ = policy(RestartConfig(policy="never", crashes=2))
    assert tried.failed() == RestartDecision(AfterFailure.STAY_DOWN, 1)
    assert tried.failed() == RestartDecision(AfterFailure.STAY_DOWN, 2)
    assert tried.ended().after is AfterFailure.STAY_DOWN


def test_what_ends_well_is_started_again_only_by_always() -> None:
    tried, _ = policy()
    assert tried.ended() == RestartDecision(AfterFailure.STAY_DOWN, 0)
    always, clock = policy(RestartConfig(policy="always", backoff=1.0, crashes=3, within=100.0))
    assert always.ended() == RestartDecision(AfterFailure.RESTART, 1, 1.0)
    clock.pass_by(1)
    assert always.failed() == RestartDecision(AfterFailure.RESTART, 2, 2.0)
    assert always.ended().after is AfterFailure.CRASH_LOOP


def test_who_mends_it_by_hand_begins_anew() -> None:
    tried, _ = policy()
    for _ in range(4):
        tried.failed()
    tried.reset()
    assert tried.crashes == 0
    assert tried.failed() == RestartDecision(AfterFailure.RESTART, 1, 1.0)


def test_another_configuration_counts_from_the_next_failure_on() -> None:
    tried, _ = policy()
    tried.failed()
    tried.config = RestartConfig(policy="never")
    assert tried.failed().after is AfterFailure.STAY_DOWN


steps = st.lists(
    st.tuples(st.sampled_from(("fail", "well", "end", "reset")), st.floats(0, 200)), min_size=1, max_size=60
)
configs = st.builds(
    lambda policy, backoff, more, crashes, within: RestartConfig(
        policy, backoff, backoff + more, crashes, within
    ),
    st.sampled_from(("on-failure", "always", "never")),
    st.floats(0.05, 60),
    st.floats(0, 3_600),
    st.integers(1, 12),
    st.floats(1, 500),
)


@given(configs, steps, st.floats(0, 1))
def test_whatever_happens_delays_and_counts_stay_within_their_bounds(
    config: RestartConfig, story: list[tuple[str, float]], chance: float
) -> None:
    tried, clock = policy(config, chance)
    for what, seconds in story:
        clock.pass_by(seconds)
        assert 0 <= tried.crashes <= config.crashes
        if what == "reset":
            tried.reset()
            assert tried.crashes == 0
        elif what == "well":
            tried.well()
        else:
            decision = tried.failed() if what == "fail" else tried.ended()
            assert decision.crashes == tried.crashes <= config.crashes
            if config.policy == "never":
                assert decision.after is AfterFailure.STAY_DOWN
            if decision.after is AfterFailure.RESTART:
                assert config.backoff * (1 - JITTER) * 0.999 <= decision.delay_s <= config.backoff_max
                assert decision.crashes < config.crashes
            else:
                assert decision.delay_s == 0
            if decision.after is AfterFailure.CRASH_LOOP:
                assert decision.crashes == config.crashes


@given(configs, st.lists(st.floats(0, 20), min_size=2, max_size=40))
def test_without_a_stable_run_no_delay_is_shorter_than_the_one_before(
    config: RestartConfig, gaps: list[float]
) -> None:
    tried, clock = policy(config)
    delays = []
    for gap in gaps:
        decision = tried.failed()
        if decision.after is AfterFailure.RESTART:
            delays.append(decision.delay_s)
        clock.pass_by(gap)
    assert all(before <= after for before, after in pairwise(delays))
