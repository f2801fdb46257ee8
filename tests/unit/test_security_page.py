"""tests/security/promises.md names tests for each promise and limit of docs/security.md; they are there."""

import re

import pytest
from support.proofs import Proofs
from unit.test_conformance_table import CHECKOUT, named_in_this_checkout, script

PROOFS = "tests/security/promises.md"
PROMISES = Proofs(PROOFS, ("promise", "proof"), script.cells_of)
LIMITS = Proofs(PROOFS, ("what, from whom", "module", "proof"), script.cells_of)
PAGE = Proofs("docs/security.md", ("what, from whom", "limit"), script.cells_of)
LINK = re.compile(r"\[([^]]*)\]\([^)]*\)")


def parts() -> tuple[str, str]:
    """The tables of promises and of limits."""
    promises, _, limits = (CHECKOUT / PROOFS).read_text("utf-8").partition("\n## Limits\n")
    return promises, limits


def first_cells(page: Proofs, text: str) -> list[str]:
    return [cells[0] for _, cells in page.rows(text)]


def test_the_page_has_the_promises_and_limits_that_are_proved() -> None:
    promises, limits = parts()
    page = LINK.sub(r"\1", (CHECKOUT / PAGE.page).read_text("utf-8"))
    _, _, sections = page.partition("\n## ")
    said = re.findall(r"^- (.*?)\n(?=- |\n|\Z)", sections, re.MULTILINE | re.DOTALL)
    assert len(said) > 70
    assert [" ".join(each.split()).removesuffix(".") for each in said] == [
        each.removesuffix(".") for each in first_cells(PROMISES, promises)
    ]
    assert first_cells(PAGE, page) == first_cells(LIMITS, limits)


@pytest.mark.slow
def test_every_promise_and_every_limit_has_a_test_that_is_there() -> None:
    tests = named_in_this_checkout()
    promises, limits = parts()
    assert PROMISES.problems(promises, tests) == []
    assert LIMITS.problems(limits, tests) == []


def test_every_limit_names_a_module_that_is_there() -> None:
    rows = list(LIMITS.rows(parts()[1]))
    assert rows
    for number, cells in rows:
        for module in cells[1].split(", "):
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
    found = "\n".join(PROMISES.problems(text, {"tests/unit/test_x.py::test_here"}))
    assert says in found
    assert bool(found) == bool(says)
