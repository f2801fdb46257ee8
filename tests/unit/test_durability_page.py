"""docs/durability.md names tests for each failure, and each of them is there."""

import pytest
from support.proofs import Proofs
from unit.test_conformance_table import CHECKOUT, named_in_this_checkout, script

HEADER = ("failure", "the run", "its caller", "tools", "test")
PAGE = Proofs("docs/durability.md", HEADER, script.cells_of)


@pytest.mark.slow
def test_every_failure_has_a_test_that_is_there() -> None:
    _, heading, table = (CHECKOUT / PAGE.page).read_text("utf-8").partition("\n## What each failure does\n")
    assert heading
    table = table.partition("\n## ")[0]
    assert len(list(PAGE.rows(table))) > 30
    assert PAGE.problems(table, named_in_this_checkout()) == []
