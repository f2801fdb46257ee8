"""The script behind docs/conformance.md, on small trees of its own."""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

CHECKOUT = Path(__file__).parents[2]
TABLE = "docs/conformance.md"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_conformance", CHECKOUT / "docs/check_conformance.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


script = load_script()


@cache
def named_in_this_checkout() -> frozenset[str]:
    """The tests that a page may name. Fails where a file cannot be read."""
    tests, unread = script.read_tests(CHECKOUT)
    assert unread == []
    return frozenset(tests)


class Tree:
    """A checkout with a complete table, all of it open, and whatever tests are written into it."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self._capsys = capsys
        (root / "docs").mkdir(parents=True)
        rows = "\n".join(f"| {row_id} | what {row_id} asks | open |" for row_id in script.expected_ids())
        self.write(TABLE, f"# Conformance\n\n| id | requirement | proof |\n|---|---|---|\n{rows}\n")

    def write(self, file: str, text: str) -> None:
        path = self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def table(self) -> str:
        return (self.root / TABLE).read_text(encoding="utf-8")

    def line(self, row_id: str) -> int:
        return next(
            n for n, line in enumerate(self.table().splitlines(), 1) if line.startswith(f"| {row_id} |")
        )

    def set_row(self, row_id: str, *lines: str) -> int:
        """Put lines where a row is; returns the number of the first."""
        number = self.line(row_id)
        text = self.table().splitlines()
        text[number - 1 : number] = lines
        self.write(TABLE, "\n".join(text) + "\n")
        return number

    def set_proof(self, row_id: str, proof: str) -> int:
        return self.set_row(row_id, f"| {row_id} | what {row_id} asks | {proof} |")

    def proof(self, row_id: str) -> str:
        return str(script.cells_of(self.table().splitlines()[self.line(row_id) - 1])[2])

    def run(self, *arguments: str) -> tuple[int, str, str]:
        """Exit status, stdout and stderr of the script on this tree."""
        status = script.main(["--root", str(self.root), *arguments])
        out, err = self._capsys.readouterr()
        return status, out, err


@pytest.fixture
def tree(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Tree:
    return Tree(tmp_path / "checkout", capsys)


def test_a_complete_table_with_nothing_tested_passes(tree: Tree) -> None:
    status, out, err = tree.run()
    assert (status, err) == (0, "")
    assert "167 rows, 0 tested, 167 open" in out


def test_a_row_and_the_test_that_carries_its_id_agree(tree: Tree) -> None:
    tree.write("tests/unit/test_x.py", "async def test_a():\n    # PI-18, PI-19\n    assert True\n")
    tree.set_proof("PI-18", "`tests/unit/test_x.py::test_a`")
    tree.set_proof("PI-19", "tests/unit/test_x.py::test_a")
    status, out, err = tree.run()
    assert (status, err) == (0, "")
    assert "167 rows, 2 tested, 165 open" in out


def test_all_that_is_wrong_is_told_at_once_and_counted(tree: Tree) -> None:
    first = tree.set_proof("PI-1", "tests/test_gone.py::test_a")
    second = tree.set_proof("UN-6", "tests/test_gone.py::test_a")
    status, _, err = tree.run()
    assert status == 1
    assert [line.split(" ")[0] for line in err.splitlines()] == [
        f"{TABLE}:{first}:",
        f"{TABLE}:{second}:",
        "conformance:",
    ]
    assert "2 to fix" in err


@pytest.mark.parametrize(
    ("lines", "where", "problem"),
    [
        ([], 1, "PR-7 is missing"),
        (["| PR-7 | one | open |", "| PR-7 | again | open |"], "second", "PR-7 is already on line"),
        (["| PR-07 | one | open |"], "first", "malformed id 'PR-07'"),
        (["| PR_7 | one | open |"], "first", "malformed id 'PR_7'"),
        (["| QQ-7 | one | open |"], "first", "malformed id 'QQ-7'"),
        (["| PR-7 | one | open |", "| PR-37 | more | open |"], "second", "PR-37 does not exist"),
        (["| PR-7 |  | open |"], "first", "PR-7 has no requirement"),
        ([f"| PR-7 | {'x' * 111} | open |"], "first", "PR-7 has a sentence of 111 characters"),
        (["| PR-7 | one |  |"], "first", "PR-7 has no proof"),
        (["| | | |"], "first", "malformed id ''"),
        (["| PR-7 | one | or two | open |"], "first", "4 cells where 3 belong"),
        (["| PR-7 | one | to do |"], "first", "'to do' is no test"),
    ],
)
def test_a_bad_row_is_told_with_its_place(
    tree: Tree, lines: list[str], where: int | str, problem: str
) -> None:
    number = tree.set_row("PR-7", *lines)
    status, _, err = tree.run()
    line = {"first": number, "second": number + 1}.get(str(where), where)
    assert status == 1
    assert re.search(rf"^{TABLE}:{line}: .*{re.escape(problem)}", err, re.MULTILINE)


def test_a_border_inside_a_cell_is_escaped_and_stays(tree: Tree) -> None:
    tree.set_row("PR-7", r"| PR-7 | one \| two | open |")
    tree.write("tests/test_x.py", "def test_a():\n    # PR-7\n    assert True\n")
    assert tree.run("--fix")[0] == 0
    assert r"| PR-7 | one \| two | `tests/test_x.py::test_a` |" in tree.table()


@pytest.mark.parametrize(
    ("proof", "problem"),
    [
        ("tests/test_y.py::test_a", "there is no file tests/test_y.py"),
        ("tests/test_x.py::test_b", "there is no test test_b in tests/test_x.py"),
        ("tests/test_x.py::TestX::test_b", "there is no test TestX::test_b"),
        ("tests/test_x.py::test_a", "does not carry the id; add the comment '# PI-2'"),
        ("tests/test_x.py::helper", "there is no test helper"),
        ("tests/test_x.py", "is no test; write"),
        ("`tests/test_x.py::test_c`<br>`tests/test_x.py::test_a`", "test_a does not carry the id"),
        ("tests/test_x.py::test_c, tests/test_x.py::test_d", "there is no test test_d"),
    ],
)
def test_a_proof_must_be_there_and_carry_the_id(tree: Tree, proof: str, problem: str) -> None:
    tree.write(
        "tests/test_x.py",
        "def test_a():\n    # PI-1\n    assert True\n\n\n"
        "def helper():\n    # PI-2\n    return 1\n\n\n"
        "def test_c():\n    # PI-2\n    assert True\n",
    )
    tree.set_proof("PI-1", "tests/test_x.py::test_a")
    number = tree.set_proof("PI-2", proof)
    status, _, err = tree.run()
    assert status == 1
    assert re.search(rf"^{TABLE}:{number}: PI-2: .*{re.escape(problem)}", err, re.MULTILINE)


def test_a_method_of_a_class_can_be_the_proof(tree: Tree) -> None:
    tree.write(
        "tests/test_x.py", 'class TestX:\n    def test_a(self):\n        """PI-2."""\n        assert 1\n'
    )
    tree.set_proof("PI-2", "tests/test_x.py::TestX::test_a")
    assert tree.run()[0] == 0


def test_a_row_that_says_open_although_a_test_carries_it_is_an_error_at_the_test(tree: Tree) -> None:
    tree.write("tests/test_x.py", "def test_a():\n    assert True  # DR-3\n")
    status, _, err = tree.run()
    assert status == 1
    assert (
        f"tests/test_x.py:2: test_a: DR-3 is 'open' in {TABLE}; run python docs/check_conformance.py --fix"
        in err
    )


@pytest.mark.parametrize("unknown", ["DR-33", "DR-0", "PI-018"])
def test_an_id_that_no_row_has_is_an_error_at_the_test(tree: Tree, unknown: str) -> None:
    tree.write("tests/test_x.py", f"def test_a():\n    # {unknown}\n    assert True\n")
    status, _, err = tree.run("--fix")
    assert status == 1
    assert f"tests/test_x.py:2: test_a: {unknown} does not exist" in err


@pytest.mark.parametrize(
    "text",
    [
        "PR-10..PR-14",
        "PR-10 ... PR-14",
        "PR-10…PR-14",
        "PR-10..14",
        "PR-10-PR-14",
        "PR-10 – PR-14",
        "PR-10–14",
        "PR-10-14",
        "PR-10 to PR-14",
        "PR-10/11",
    ],
)
def test_a_range_of_ids_is_rejected(tree: Tree, text: str) -> None:
    tree.write("tests/test_x.py", f"def test_a():\n    # {text}\n    assert True\n")
    status, _, err = tree.run("--fix")
    assert status == 1
    assert f"tests/test_x.py:2: test_a: {text!r} is a range; list the ids one by one" in err


@pytest.mark.parametrize(
    "text",
    ["PR-10, PR-14", "PR-10/PR-14", "PR-10 and PR-14", "PR-10: 14 callers; PR-14 - slow", "(PR-10) PR-14."],
)
def test_ids_written_one_by_one_are_no_range(tree: Tree, text: str) -> None:
    tree.write("tests/test_x.py", f"def test_a():\n    # {text}\n    assert True\n")
    status, _, err = tree.run("--fix")
    assert (status, err) == (0, "")
    assert tree.proof("PR-10") == tree.proof("PR-14") == "`tests/test_x.py::test_a`"


CARRIERS = {
    "in_a_comment": "def test_a():\n    # PI-5\n    assert True\n",
    "after_a_statement": "def test_a():\n    assert True  # PI-5\n",
    "after_the_last_statement": "def test_a():\n    assert True\n    # PI-5\n",
    "on_the_def_line": "def test_a():  # PI-5\n    assert True\n",
    "in_the_docstring": 'def test_a():\n    """One.\n\n    SPEC PI-5.\n    """\n',
    "directly_above": "# PI-5\n# more\ndef test_a():\n    assert True\n",
    "above_the_decorator": "import pytest\n\n\n# PI-5\n@pytest.mark.pty\ndef test_a():\n    assert True\n",
    "in_the_decorator": "import pytest\n\n\n@pytest.mark.parametrize('n', [\n    1,  # PI-5\n])\n"
    "def test_a(n):\n    assert n\n",
    "in_a_nested_function": "def test_a():\n    def f():\n        # PI-5\n        return 1\n    assert f()\n",
    "under_a_condition": "if True:\n\n    def test_a():\n        # PI-5\n        assert True\n",
}


@pytest.mark.parametrize("source", CARRIERS.values(), ids=CARRIERS.keys())
def test_an_id_counts_wherever_it_belongs_to_the_test(tree: Tree, source: str) -> None:
    tree.write("tests/test_x.py", source)
    status, _, err = tree.run("--fix")
    assert (status, err) == (0, "")
    assert tree.proof("PI-5") == "`tests/test_x.py::test_a`"


STRANGERS = {
    "a_string": "def test_a():\n    assert '# PI-5'\n",
    "a_module_docstring": '"""PI-5."""\n\n\ndef test_a():\n    assert True\n',
    "a_helper": "def helper():\n    # PI-5\n    return 1\n\n\ndef test_a():\n    assert helper()\n",
    "a_heading_above_a_gap": "# PI-5\n\n\ndef test_a():\n    assert True\n",
    "the_code_before": "X = 1  # PI-5\ndef test_a():\n    assert True\n",
    "a_comment_of_the_module_below": "def test_a():\n    assert True\n# PI-5\n",
    "another_word": "def test_a():\n    # API-5, PI-5x, pi-5\n    assert True\n",
    "a_class_not_collected": "class Other:\n    def test_a(self):\n        # PI-5\n        pass\n",
}


@pytest.mark.parametrize("source", STRANGERS.values(), ids=STRANGERS.keys())
def test_an_id_that_belongs_to_no_test_counts_for_none(tree: Tree, source: str) -> None:
    tree.write("tests/test_x.py", source)
    assert tree.run("--fix")[0] == 0
    assert tree.proof("PI-5") == "open"


def test_files_that_pytest_does_not_collect_are_not_read(tree: Tree) -> None:
    tree.write("tests/conftest.py", "def test_a():\n    # PI-5\n    assert True\n")
    tree.write("tests/helpers.py", "this is no Python\n")
    status, _, err = tree.run()
    assert (status, err) == (0, "")


def test_fix_shows_one_test_of_a_folder_and_three_at_most(tree: Tree) -> None:
    tree.write(
        "tests/unit/test_z.py",
        "def test_c():\n    # PI-3\n    pass  # PI-3\n\n\ndef test_b():\n    pass  # PI-3\n\n\n"
        "def test_a():\n    pass  # PI-3, PI-5\n",
    )
    tree.write(
        "tests/pilot/test_y.py", 'class TestY:\n    async def test_a(self):\n        """PI-3, PI-4."""\n'
    )
    tree.set_proof("PI-3", "tests/gone.py::test_old")
    tree.set_proof("PI-9", "tests/gone.py::test_old")
    status, _, err = tree.run("--fix")
    assert (status, err) == (0, "")
    # Of a folder the test that is about this row alone; of equals the first by name.
    assert tree.proof("PI-3").split("<br>") == [
        "`tests/unit/test_z.py::test_b`",
        "`tests/pilot/test_y.py::TestY::test_a`",
    ]
    assert tree.proof("PI-4") == "`tests/pilot/test_y.py::TestY::test_a`"
    assert tree.proof("PI-9") == "open"

    for folder in ("snapshot", "integration", "security"):
        tree.write(f"tests/{folder}/test_{folder}.py", "def test_a():\n    # PI-3\n    assert True\n")
    assert tree.run("--fix")[0] == 0
    assert tree.proof("PI-3").split("<br>") == [
        "`tests/integration/test_integration.py::test_a`",
        "`tests/security/test_security.py::test_a`",
        "`tests/unit/test_z.py::test_b`",
    ]


def test_a_test_that_is_not_shown_counts_all_the_same(tree: Tree) -> None:
    for name in ("a", "b"):
        tree.write(f"tests/unit/test_{name}.py", "def test_it():\n    # PI-3\n    assert True\n")
    assert tree.run("--fix")[0] == 0
    assert tree.proof("PI-3") == "`tests/unit/test_a.py::test_it`"
    (tree.root / "tests/unit/test_a.py").unlink()
    assert tree.run()[0] == 1
    assert tree.run("--fix")[0] == 0
    assert tree.proof("PI-3") == "`tests/unit/test_b.py::test_it`"
    tree.set_proof("PI-3", "open")
    assert tree.run()[0] == 1


def test_fix_changes_nothing_but_proofs_and_nothing_at_all_the_second_time(tree: Tree) -> None:
    before = tree.table()
    tree.write("tests/test_x.py", "def test_a():\n    # PI-3\n    assert True\n")
    tree.run("--fix")
    after = tree.table()
    assert after == before.replace(
        "| PI-3 | what PI-3 asks | open |", "| PI-3 | what PI-3 asks | `tests/test_x.py::test_a` |"
    )
    tree.run("--fix")
    assert tree.table() == after


def test_the_reason_that_a_row_is_open_outlives_a_fix_until_there_is_a_test(tree: Tree) -> None:
    tree.set_proof("PI-3", "open: waits for the schema")
    assert tree.run("--fix")[0] == 0
    assert tree.proof("PI-3") == "open: waits for the schema"
    tree.write("tests/test_x.py", "def test_a():\n    # PI-3\n    assert True\n")
    assert tree.run()[0] == 1
    assert tree.run("--fix")[0] == 0
    assert tree.proof("PI-3") == "`tests/test_x.py::test_a`"


@pytest.mark.parametrize("content", [b"def test_a(:\n", b"# \xff\n", b"x = '\0'\n"])
def test_a_test_file_that_cannot_be_read_is_told_and_fix_leaves_the_table_alone(
    tree: Tree, content: bytes
) -> None:
    tree.write("tests/test_x.py", "")
    (tree.root / "tests/test_x.py").write_bytes(content)
    tree.set_proof("PI-3", "tests/test_x.py::test_a")
    before = tree.table()
    status, _, err = tree.run("--fix")
    assert status == 1
    assert re.search(r"^tests/test_x.py:\d+: cannot be (parsed|read): ", err, re.MULTILINE)
    assert tree.table() == before


def test_the_ids_are_compared_with_the_specification_where_it_is_at_hand(tree: Tree) -> None:
    rows = [f"| {row_id} | what it asks |" for row_id in script.expected_ids()]
    spec = tree.root.parent / "shared" / "SPEC.md"
    spec.parent.mkdir()
    spec.write_text("\n".join(rows) + "\n", encoding="utf-8")
    status, out, _ = tree.run()
    assert status == 0
    assert "skipped" not in out

    rows[0] = "| UN-7 | something new |"
    spec.write_text("\n".join(rows) + "\n", encoding="utf-8")
    status, _, err = tree.run()
    assert status == 1
    assert "../shared/SPEC.md:1: UN-7 is not in ROWS" in err
    assert "../shared/SPEC.md:1: PI-1 is in ROWS" in err


def test_a_comparison_that_was_not_made_is_told(tree: Tree) -> None:
    assert "skipped" in tree.run()[1]


def test_the_summary_counts_each_part_and_all(tree: Tree) -> None:
    tree.write("tests/test_x.py", "def test_a():\n    # PI-3, UN-1\n    assert True\n")
    status, out, _ = tree.run("--fix", "--summary")
    counts = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line[:1].isalpha()}
    assert status == 0
    assert counts["PI"] == ["1", "25", "26"]
    assert counts["PR"] == ["0", "36", "36"]
    assert counts["UN"] == ["1", "5", "6"]
    assert counts["all"] == ["2", "165", "167"]


def test_a_folder_without_a_table_is_refused_without_a_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(["--root", str(tmp_path)]) == 2
    assert "give the checkout with --root" in capsys.readouterr().err


def test_the_table_of_this_checkout_has_every_row_once() -> None:
    rows, problems = script.read_table((CHECKOUT / TABLE).read_text(encoding="utf-8"))
    problems += script.check_completeness(rows)
    assert problems == []
    assert len(rows) == 167


def test_the_rows_of_this_script_are_those_of_the_specification() -> None:
    spec = CHECKOUT.parent / "shared" / "SPEC.md"
    if not spec.is_file():
        pytest.skip("no ../shared/SPEC.md beside this checkout")
    assert list(script.check_spec(spec.read_text(encoding="utf-8"), "SPEC.md")) == []


def test_an_id_in_the_source_is_that_of_a_row() -> None:
    rows = set(script.expected_ids())
    kinds = "|".join(sorted({each.partition("-")[0] for each in rows}))
    unknown = set()
    for room in ("runtime/pallas", "pallas_tui"):
        for file in (CHECKOUT / room).rglob("*.py"):
            text = file.read_text("utf-8")
            named = set(re.findall(rf"\b(?:{kinds})-\d+\b", text)) | set(re.findall(r"\b[CX]\d{1,2}\b", text))
            unknown |= {(file.name, each) for each in named - rows}
    assert unknown == set()
