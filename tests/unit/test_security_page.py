"""docs/security.md names a test for each promise, and each of them is there."""

import pytest
from support.proofs import Proofs
from unit.test_conformance_table import CHECKOUT, script

PAGE = Proofs("docs/security.md", ("promise", "proof"), script.cells_of)


def test_every_promise_has_a_test_that_is_there() -> None:
    tests, unread = script.read_tests(CHECKOUT)
    assert unread == []
    text = (CHECKOUT / PAGE.page).read_text("utf-8")
    assert len(list(PAGE.rows(text))) > 20
    assert PAGE.problems(text, set(tests)) == []


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("| safe | |", "no test beside: safe"),
        ("| safe | surely |", "more than tests"),
        ("| safe | `tests/unit/test_x.py::test_gone` |", "there is no tests/unit/test_x.py::test_gone"),
        ("| safe | `tests/unit/test_x.py::test_here` |", ""),
    ],
)
def test_what_is_wrong_with_the_page_is_found(row: str, says: str) -> None:
    text = f"| promise | proof |\n|---|---|\n{row}\n"
    found = "\n".join(PAGE.problems(text, {"tests/unit/test_x.py::test_here"}))
    assert says in found
    assert bool(found) == bool(says)
