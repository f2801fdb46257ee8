"""The filter of handles: it never denies one that it has."""

from hypothesis import given
from hypothesis import strategies as st

from pallas.ledger.known_handles import HandleFilter, KnownHandles

handles = st.lists(st.text(max_size=40), max_size=50)


@given(handles)
def test_it_has_all_that_were_added(some: list[str]) -> None:
    held = HandleFilter(some)
    assert all(each in held for each in some)


def test_of_handles_that_it_does_not_have_it_claims_few() -> None:
    held = HandleFilter(f"used {number}" for number in range(10_000))
    claimed = sum(f"new {number}" in held for number in range(10_000))
    assert claimed < 10  # one in a million is expected


def test_any_handle_may_be_there_until_the_stored_ones_are_read() -> None:
    known = KnownHandles()
    known.add("mine")
    assert known.may_have("anything")
    known.are(HandleFilter(["stored"]))
    assert [known.may_have(each) for each in ("mine", "stored", "new")] == [True, True, False]
    known.add("new")
    assert known.may_have("new")
