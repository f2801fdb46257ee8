"""What is shown of something that is looked at again and again."""

import pytest

from pallas.health.probe import CONFIRMATIONS, Steady


def _shown(looks: str, **options: bool) -> str:
    """What is shown after each look: ``+`` good, ``-`` bad beyond doubt, ``?`` perhaps bad."""
    steady: Steady[str] = Steady(**options)
    shown = ""
    for look in looks:
        good = look == "+"
        shown += steady.take("+" if good else "-", good, good=good, certain=look != "?")
    return shown


@pytest.mark.parametrize(
    ("looks", "shown"),
    [
        ("?", "-"),  # never seen well: no reason to wait
        ("-", "-"),
        ("+", "+"),
        ("+?+?+?+?", "++++++++"),
        ("+?+", "+++"),
        ("+??+", "++--"),
        ("+??++", "++--+"),
        ("+-", "+-"),
        ("+-+-+-+", "+------"),
        ("+-++", "+--+"),
        ("-+?+?+?", "-------"),
        ("+?-", "++-"),
        ("-++??", "--++-"),
    ],
)
def test_one_look_that_may_be_wrong_changes_nothing_and_two_in_a_row_do(looks: str, shown: str) -> None:
    assert CONFIRMATIONS == 2
    assert _shown(looks) == shown


def test_what_recovers_at_once_still_needs_two_looks_to_go_wrong() -> None:
    assert _shown("+?+??+-+", recovers_at_once=True) == "++++-+-+"


def test_a_changed_detail_of_the_same_state_is_shown_at_once() -> None:
    steady: Steady[str] = Steady()
    assert steady.take("HTTP 500", "down", good=False, certain=True) == "HTTP 500"
    assert steady.take("HTTP 503", "down", good=False, certain=False) == "HTTP 503"


def test_it_says_while_something_waits_to_be_confirmed() -> None:
    steady: Steady[str] = Steady()
    said = []
    for good in (True, False, True, False, False):
        steady.take("x", good, good=good, certain=False)
        said.append(steady.unconfirmed)
    assert said == [False, True, False, True, False]
