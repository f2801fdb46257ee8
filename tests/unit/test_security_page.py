"""docs/security.md names a test for each promise, and each of them is there."""

import pytest
from support.proofs import Proofs
from unit.test_conformance_table import CHECKOUT, named_in_this_checkout, script

PAGE = Proofs("docs/security.md", ("promise", "proof"), script.cells_of)
LIMITS = Proofs("docs/security.md", ("what, from whom", "limit", "module", "proof"), script.cells_of)


def parts() -> tuple[str, str]:
    """The page without its table of limits, and that table."""
    text = (CHECKOUT / PAGE.page).read_text("utf-8")
    before, _, rest = text.partition("\n## Limits\n")
    limits, heading, after = rest.partition("\n## ")
    return before + heading + after, limits


@pytest.mark.slow
def test_every_promise_and_every_limit_has_a_test_that_is_there() -> None:
    tests = named_in_this_checkout()
    promises, limits = parts()
    assert len(list(PAGE.rows(promises))) > 20
    assert PAGE.problems(promises, tests) == []
    assert LIMITS.problems(limits, tests) == []


def test_every_limit_names_a_module_that_is_there() -> None:
    rows = list(LIMITS.rows(parts()[1]))
    assert rows
    for number, cells in rows:
        for module in cells[2].split(", "):
            name = module.strip("`")
            assert (CHECKOUT / "runtime" / "pallas" / name).is_file(), f"{number}: there is no {name}"


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
