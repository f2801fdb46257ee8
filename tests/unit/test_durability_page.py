"""tests/integration/failures.md names tests for each failure of docs/durability.md, and each is there."""

import pytest
from support.proofs import Proofs
from unit.test_conformance_table import CHECKOUT, named_in_this_checkout, script

PROOFS = Proofs("tests/integration/failures.md", ("failure", "test"), script.cells_of)
PAGE = Proofs("docs/durability.md", ("failure", "the run", "its caller", "tools"), script.cells_of)


def text_of(page: Proofs) -> str:
    return (CHECKOUT / page.page).read_text("utf-8")


def test_the_page_has_the_failures_that_are_tested() -> None:
    _, heading, table = text_of(PAGE).partition("\n## What each failure does\n")
    assert heading
    failures = [cells[0] for _, cells in PAGE.rows(table.partition("\n## ")[0])]
    assert len(failures) > 30
    assert failures == [cells[0] for _, cells in PROOFS.rows(text_of(PROOFS))]


@pytest.mark.slow
def test_every_failure_has_a_test_that_is_there() -> None:
    assert PROOFS.problems(text_of(PROOFS), named_in_this_checkout()) == []
