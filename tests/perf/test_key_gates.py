"""Keys are answered whatever the fleet does. How soon, `make bench ARGS=keys` tells.

A key that is not painted within half a minute is an error of ``typed``.
"""

import pytest

from benchmarks import keys

pytestmark = pytest.mark.pty


@pytest.mark.slow
def test_keys_show_while_the_fleet_says_two_hundred_thousand_things_a_second() -> None:
    _, offered = keys.under_flood(keys.RATE, 10)
    assert offered > 20_000  # what a slow machine still offers; a widget per event stands still at 10,000


@pytest.mark.slow
def test_keys_show_while_an_agent_blocks_the_fleet_and_leaving_takes_no_longer_than_its_deadlines() -> None:
    # The block ends after the last key: a screen that waits for the fleet's loop paints none.
    _, leaving = keys.while_blocked(10)
    assert leaving < 10  # the fleet's own deadline is 5 s
