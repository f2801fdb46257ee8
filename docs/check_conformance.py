"""Does docs/conformance.md agree with the tests? ``make lint`` asks this; ``--fix`` makes it so.

A test says which rows it proves by carrying their ids: in a comment or the docstring of the test
function, or in the comment lines that touch it from above. Strings and helpers do not count.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROWS = {"PI": 26, "PR": 36, "HC": 36, "AG": 31, "DR": 32, "UN": 6}
"""How many rows each part of the SPEC has; they are numbered from 1 without a gap."""

TABLE = "docs/conformance.md"
FOLDERS = ("integration", "security", "unit", "contract", "pilot", "pty", "snapshot")
"""Folders of ``tests/`` in the order in which their tests are shown as proofs."""
MOST_SHOWN = 3
"""Proofs that the table shows of a row; its other tests count, but are not shown."""
MOST_CHARACTERS = 110
"""Characters of a sentence of a requirement: one line."""
HEADER = ["id", "requirement", "proof"]
OPEN = "open"
SEPARATOR = "<br>"

_PREFIX = f"(?:{'|'.join(ROWS)})"
_ID = re.compile(rf"\b{_PREFIX}-\d+\b")
_SPEC_ROW = re.compile(rf"^\| ({_PREFIX}-\d+) \|", re.MULTILINE)
# Two ids with a dash, dots or "to" between them, or an id and a bare number joined to it.
_RANGE = re.compile(
    rf"\b{_PREFIX}-\d+(?:\s*(?:\.{{2,}}|…|[-–—]|\bto\b)\s*{_PREFIX}-\d+|\s*(?:\.{{2,}}|…)\s*\d+|[-–—/]\d+)"
)
_CELL_BORDER = re.compile(r"(?<!\\)\|")

type Node = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong, printed as ``file:line: text``."""

    file: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.text}"


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; ``proof`` is the cell as it is written, ``line`` counts from 1."""

    line: int
    id: str
    requirement: str
    proof: str

    @property
    def is_open(self) -> bool:
        """Whether no test is named: ``open``, or ``open: reason``."""
        return self.proof == OPEN or self.proof.startswith(f"{OPEN}:")

    @property
    def refs(self) -> tuple[str, ...]:
        """The tests named, as ``file::name`` or ``file::Class::name``; none when the row is open."""
        if self.is_open:
            return ()
        return tuple(ref.strip().strip("`") for ref in re.split(rf"{SEPARATOR}|,", self.proof))

    def with_proof(self, proof: str) -> str:
        """The line of the table with another proof."""
        return f"| {self.id} | {self.requirement} | {proof} |"


@dataclass(frozen=True, slots=True)
class Marked:
    """A test function; ``ids`` and ``ranges`` are what it carries, each with the line it stands on."""

    file: str
    name: str
    ids: tuple[tuple[str, int], ...]
    ranges: tuple[tuple[str, int], ...]

    @property
    def ref(self) -> str:
        """How the table names it."""
        return f"{self.file}::{self.name}"

    def carries(self, row_id: str) -> bool:
        """Whether it says that it proves that row."""
        return any(found == row_id for found, _ in self.ids)


def expected_ids() -> tuple[str, ...]:
    """Every id of the SPEC, in its order."""
    return tuple(f"{prefix}-{number}" for prefix, last in ROWS.items() for number in range(1, last + 1))


# --- the table


def cells_of(line: str) -> list[str]:
    """The cells of one table line, stripped; an escaped border stays in its cell."""
    return [cell.strip() for cell in _CELL_BORDER.split(line.strip())[1:-1]]


def read_table(text: str) -> tuple[list[Row], list[Problem]]:
    """The rows under every ``id | requirement | proof`` header, and the lines that are no row."""
    rows: list[Row] = []
    problems: list[Problem] = []
    known = set(expected_ids())
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.startswith("|"):
            inside = False
            continue
        cells = cells_of(line)
        if [cell.lower() for cell in cells] == HEADER:
            inside = True
        elif inside and not all(re.fullmatch(":?-+:?", cell) for cell in cells):
            fault = _row_fault(cells, known)
            if fault:
                problems.append(Problem(TABLE, number, fault))
            else:
                rows.append(Row(number, *cells))
    return rows, problems


def _row_fault(cells: Sequence[str], known: set[str]) -> str:
    if len(cells) != len(HEADER):
        problem = f"{len(cells)} cells where {len(HEADER)} belong: {', '.join(HEADER)}"
        return f"{problem}; a border inside one is written \\|"
    row_id, requirement, proof = cells
    if not re.fullmatch(rf"{_PREFIX}-[1-9]\d*", row_id):
        return f"malformed id {row_id!r}; an id is one of {', '.join(ROWS)}, a dash and a number, as in PI-18"
    if row_id not in known:
        return f"{row_id} does not exist; the last one is {row_id.split('-')[0]}-{ROWS[row_id.split('-')[0]]}"
    if not requirement:
        return f"{row_id} has no requirement"
    if (longest := max(map(len, requirement.split(". ")))) > MOST_CHARACTERS:
        return f"{row_id} has a sentence of {longest} characters; {MOST_CHARACTERS} fit a line"
    if not proof:
        return f"{row_id} has no proof; name its tests or write {OPEN!r}"
    return ""


def check_completeness(rows: Sequence[Row]) -> Iterator[Problem]:
    """Ids that appear twice, and ids that do not appear."""
    first: dict[str, int] = {}
    for row in rows:
        if row.id in first:
            yield Problem(TABLE, row.line, f"{row.id} is already on line {first[row.id]}")
        first.setdefault(row.id, row.line)
    for row_id in expected_ids():
        if row_id not in first:
            yield Problem(TABLE, 1, f"{row_id} is missing from the table")


def check_spec(spec: str, name: str) -> Iterator[Problem]:
    """Where the ids of the SPEC's text differ from those this script expects."""
    found = {match[1]: spec.count("\n", 0, match.start()) + 1 for match in _SPEC_ROW.finditer(spec)}
    for row_id, line in found.items():
        if row_id not in expected_ids():
            yield Problem(name, line, f"{row_id} is not in ROWS of docs/check_conformance.py")
    for row_id in expected_ids():
        if row_id not in found:
            yield Problem(name, 1, f"{row_id} is in ROWS of docs/check_conformance.py but no longer here")


# --- the tests


def read_tests(root: Path) -> tuple[dict[str, Marked], list[Problem]]:
    """Every test function under ``tests/`` by its ref, and the files that cannot be read."""
    tests: dict[str, Marked] = {}
    problems: list[Problem] = []
    for path in sorted((root / "tests").rglob("*.py")):
        if not re.fullmatch(r"test_.*|.*_test", path.stem):
            continue
        file = path.relative_to(root).as_posix()
        try:
            source = path.read_text(encoding="utf-8")
            tests |= {test.ref: test for test in marked_tests(file, source)}
        except SyntaxError as error:
            problems.append(Problem(file, error.lineno or 1, f"cannot be parsed: {error.msg}"))
        except UnicodeDecodeError:
            problems.append(Problem(file, 1, "cannot be read: it is not UTF-8"))
    return tests, problems


def marked_tests(file: str, source: str) -> Iterator[Marked]:
    """The test functions of one file with what they carry. Raises SyntaxError."""
    tree = ast.parse(source)
    comments = {
        token.start[0]: (token.start[1], token.string, not token.line[: token.start[1]].strip())
        for token in (tokenize.generate_tokens(io.StringIO(source).readline) if _ID.search(source) else ())
        if token.type == tokenize.COMMENT
    }
    for name, node in _test_functions(tree, ""):
        pieces = [*_comments_of(node, comments), *_docstring_of(node)]
        yield Marked(file, name, _all(_ID, pieces), _all(_RANGE, pieces))


def _test_functions(parent: ast.AST, prefix: str) -> Iterator[tuple[str, Node]]:
    for child in ast.iter_child_nodes(parent):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if child.name.startswith("test"):
                yield prefix + child.name, child
        elif isinstance(child, ast.ClassDef):
            if child.name.startswith("Test"):
                yield from _test_functions(child, f"{prefix}{child.name}::")
        else:
            yield from _test_functions(child, prefix)


def _comments_of(node: Node, comments: Mapping[int, tuple[int, str, bool]]) -> Iterator[tuple[int, str]]:
    """Comments between the decorators and the last line, and those that touch the function."""

    def stands_alone(line: int, *, deeper: bool) -> bool:
        column, _, alone = comments.get(line, (0, "", False))
        return alone and (column > node.col_offset if deeper else column == node.col_offset)

    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    last = node.end_lineno or node.lineno
    while stands_alone(first - 1, deeper=False):
        first -= 1
    while stands_alone(last + 1, deeper=True):
        last += 1
    for line, (_, text, _) in comments.items():
        if first <= line <= last:
            yield line, text


def _docstring_of(node: Node) -> Iterator[tuple[int, str]]:
    if ast.get_docstring(node, clean=False) is not None:
        statement = node.body[0]
        yield from enumerate((ast.get_docstring(node, clean=False) or "").split("\n"), start=statement.lineno)


def _all(pattern: re.Pattern[str], pieces: Sequence[tuple[int, str]]) -> tuple[tuple[str, int], ...]:
    return tuple((match[0], line) for line, text in sorted(pieces) for match in pattern.finditer(text))


# --- both


def check_refs(root: Path, rows: Sequence[Row], tests: Mapping[str, Marked]) -> Iterator[Problem]:
    """Proofs that are not there, or that do not carry the id of their row."""
    for row in rows:
        for ref in row.refs:
            file, _, name = ref.partition("::")
            if not name:
                text = f"{ref!r} is no test; write tests/.../test_x.py::test_name, or {OPEN!r}"
            elif not (root / file).is_file():
                text = f"there is no file {file}"
            elif ref not in tests:
                text = f"there is no test {name} in {file}"
            elif not tests[ref].carries(row.id):
                text = f"{ref} does not carry the id; add the comment '# {row.id}' to it"
            else:
                continue
            yield Problem(TABLE, row.line, f"{row.id}: {text}")


def check_marks(rows: Sequence[Row], tests: Mapping[str, Marked]) -> Iterator[Problem]:
    """Ids in tests that do not exist, that stand for a range, or whose row still says ``open``."""
    known = set(expected_ids())
    still_open = {row.id for row in rows if row.is_open}
    for test in tests.values():
        for text, line in test.ranges:
            yield Problem(test.file, line, f"{test.name}: {text!r} is a range; list the ids one by one")
        for row_id, line in dict(test.ids).items():
            if row_id not in known:
                yield Problem(test.file, line, f"{test.name}: {row_id} does not exist")
            elif row_id in still_open:
                text = f"{row_id} is {OPEN!r} in {TABLE}; run python docs/check_conformance.py --fix"
                yield Problem(test.file, line, f"{test.name}: {text}")


def shown_proofs(row_id: str, tests: Mapping[str, Marked]) -> list[str]:
    """The tests that the table shows of those that carry the id: one of a folder, in the order of FOLDERS.

    The test that carries the fewest other ids is the one about this row; among equals the name decides.
    """
    best: dict[str, tuple[int, str]] = {}
    for ref, test in tests.items():
        if test.carries(row_id):
            folder = ref.split("/")[1]
            rank = len({found for found, _ in test.ids}), ref
            best[folder] = min(rank, best.get(folder, rank))
    folders = sorted(best, key=lambda each: (FOLDERS.index(each) if each in FOLDERS else len(FOLDERS), each))
    return [best[folder][1] for folder in folders[:MOST_SHOWN]]


def fixed(text: str, tests: Mapping[str, Marked]) -> str:
    """The table with the proofs that the tests carry; a row without any keeps its reason or is open."""
    lines = text.splitlines()
    for row in read_table(text)[0]:
        shown = shown_proofs(row.id, tests)
        proof = SEPARATOR.join(f"`{ref}`" for ref in shown) or (row.proof if row.is_open else OPEN)
        lines[row.line - 1] = row.with_proof(proof)
    return "\n".join(lines) + "\n"


def summary(rows: Sequence[Row]) -> str:
    """Rows with a test and rows without, for each prefix and in all."""
    lines = [f"{'':6}{'tested':>7}{'open':>7}{'rows':>7}"]
    for prefix in (*ROWS, "all"):
        part = [row for row in rows if prefix in (row.id.split("-")[0], "all")]
        lacking = sum(row.is_open for row in part)
        lines.append(f"{prefix:6}{len(part) - lacking:7}{lacking:7}{len(part):7}")
    return "\n".join(lines)


def check(root: Path, tests: Mapping[str, Marked]) -> list[Problem]:
    """Everything wrong between the table, the tests and, where it is at hand, the SPEC."""
    rows, problems = read_table((root / TABLE).read_text(encoding="utf-8"))
    problems += check_completeness(rows)
    problems += check_refs(root, rows, tests)
    problems += check_marks(rows, tests)
    spec = root.parent / "shared" / "SPEC.md"
    if spec.is_file():
        problems += check_spec(spec.read_text(encoding="utf-8"), "../shared/SPEC.md")
    else:
        print("conformance: no ../shared/SPEC.md here, the comparison of ids with it is skipped")
    return problems


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 when table and tests agree, 1 when not, 2 when the table is not there."""
    parser = argparse.ArgumentParser(description="Check docs/conformance.md against the tests.")
    parser.add_argument("--fix", action="store_true", help="rewrite the proof column from the tests")
    parser.add_argument("--summary", action="store_true", help="print how many rows have a test")
    parser.add_argument("--root", type=Path, default=Path(__file__).parents[1], help="the checkout")
    options = parser.parse_args(argv)
    root: Path = options.root.resolve()
    table = root / TABLE
    if not table.is_file():
        print(f"{TABLE}: not found under {root}; give the checkout with --root", file=sys.stderr)
        return 2
    tests, problems = read_tests(root)
    # With a test file unread, its proofs would be taken for gone.
    if options.fix and not problems:
        table.write_text(fixed(table.read_text(encoding="utf-8"), tests), encoding="utf-8")
    problems += check(root, tests)
    for problem in problems:
        print(problem, file=sys.stderr)
    rows, _ = read_table(table.read_text(encoding="utf-8"))
    if options.summary:
        print(summary(rows))
    if problems:
        print(f"conformance: {len(problems)} to fix", file=sys.stderr)
        return 1
    lacking = sum(row.is_open for row in rows)
    print(f"conformance: {len(rows)} rows, {len(rows) - lacking} tested, {lacking} open")
    return 0


if __name__ == "__main__":
    sys.exit(main())
