"""docs/reliability.md names a test for each failure, and each of them is there."""

import pytest
from support.proofs import Proofs
from unit.test_conformance_table import CHECKOUT, named_in_this_checkout, script

HEADER = ("failure", "what happens", "test")
PAGE = Proofs("docs/reliability.md", HEADER, script.cells_of)


@pytest.mark.slow
def test_every_failure_has_a_test_that_is_there() -> None:
    text = (CHECKOUT / PAGE.page).read_text("utf-8").partition("\n## What is not covered\n")[0]
    assert len(list(PAGE.rows(text))) > 50
    assert PAGE.problems(text, named_in_this_checkout()) == []


def test_a_failure_without_a_test_is_found() -> None:
    found = PAGE.problems("| disk full | nothing | `tests/unit/test_x.py::test_gone` |", set())
    assert found == ["docs/reliability.md:1: there is no tests/unit/test_x.py::test_gone"]
    assert "no test beside: disk full" in PAGE.problems("| disk full | - | |", set())[0]
