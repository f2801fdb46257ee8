"""Keys are answered whatever the fleet does. The ceilings are wide: `make bench ARGS=keys` has figures."""

import pytest

from benchmarks import keys

pytestmark = pytest.mark.pty


def test_keys_show_while_the_fleet_says_two_hundred_thousand_things_a_second() -> None:
    quiet, _ = keys.under_flood(0, 20)
    flood, offered = keys.under_flood(keys.RATE, 40)
    assert offered > 20_000  # what a slow machine still offers; a widget per event stands still at 10,000
    assert flood.p95 < max(500, 25 * quiet.p95), (quiet, flood)


def test_keys_show_while_an_agent_blocks_the_fleet_and_leaving_takes_no_longer_than_its_deadlines() -> None:
    latency, leaving = keys.while_blocked(4.0)
    # A screen that waits for the fleet's loop would take most of the four seconds.
    assert latency.most < 1500, latency
    assert leaving < 10  # the fleet's own deadline is 5 s
