"""Pages whose tables name a test in the last cell of each row: whether each row has one that is there."""

import re
from collections.abc import Callable, Iterator, Set
from dataclasses import dataclass

_REF = re.compile(r"`(tests/[\w/]+\.py::\w+)`")


@dataclass(frozen=True, slots=True)
class Proofs:
    """The rows of a page. ``header`` are the cells of a table's first row, the last one is the proof's."""

    page: str
    header: tuple[str, ...]
    cells_of: Callable[[str], list[str]]

    def rows(self, text: str) -> Iterator[tuple[int, list[str]]]:
        """The line and the cells of each row of the page's tables."""
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("|"):
                cells = self.cells_of(line)
                if cells != list(self.header) and not set("".join(cells)) <= {"-", ":"}:
                    most = len(self.header)
                    assert len(cells) == most, f"{self.page}:{number}: {most} cells, not {len(cells)}"
                    yield number, cells

    def problems(self, text: str, tests: Set[str]) -> list[str]:
        """Rows without a test, and tests that are not there."""
        found = []
        for number, cells in self.rows(text):
            where, proof = f"{self.page}:{number}", cells[-1]
            named = _REF.findall(proof)
            if not named:
                found.append(f"{where}: no test beside: {cells[0]}")
            if proof != "<br>".join(f"`{ref}`" for ref in named):
                found.append(f"{where}: more than tests in the last cell")
            found += [f"{where}: there is no {ref}" for ref in named if ref not in tests]
        return found
