"""docs/security.md names a test for each promise, and each of them is there."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from unit.test_conformance_table import CHECKOUT, script

PAGE = "docs/security.md"
_REF = re.compile(r"`(tests/[\w/]+\.py::\w+)`")


def promises(text: str) -> Iterator[tuple[int, str, str]]:
    """The line, the promise and the proof of each row of the page's tables."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("|"):
            cells = script.cells_of(line)
            if cells != ["promise", "proof"] and not set("".join(cells)) <= {"-", ":"}:
                assert len(cells) == 2, f"{PAGE}:{number}: two cells, not {len(cells)}"
                yield number, cells[0], cells[1]


def problems(text: str, tests: set[str]) -> list[str]:
    """Promises without a test, and tests that are not there."""
    found = []
    for number, promise, proof in promises(text):
        named = _REF.findall(proof)
        if not named:
            found.append(f"{PAGE}:{number}: no test beside: {promise}")
        if proof != "<br>".join(f"`{ref}`" for ref in named):
            found.append(f"{PAGE}:{number}: more than tests in the second cell")
        found += [f"{PAGE}:{number}: there is no {ref}" for ref in named if ref not in tests]
    return found


def test_every_promise_has_a_test_that_is_there() -> None:
    tests, unread = script.read_tests(CHECKOUT)
    assert unread == []
    text = Path(CHECKOUT / PAGE).read_text("utf-8")
    assert len(list(promises(text))) > 20
    assert problems(text, set(tests)) == []


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
    found = "\n".join(problems(text, {"tests/unit/test_x.py::test_here"}))
    assert says in found
    assert bool(found) == bool(says)
