"""What holds for the suite itself: in CI nothing is skipped, no unit test listens, no loop is busy, no wait
is short."""

import ast
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
SKIPPING = """
import pytest

def test_that_passes():
    pass

@pytest.mark.skipif(True, reason="tmux is not installed")
def test_that_lacks_a_program():
    pass

def test_that_gives_up():
    pytest.skip("no chromium")

@pytest.mark.skipif(True, reason="no reference files beside this checkout")
def test_of_what_stands_beside():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ci", "reference", "outcome"),
    [
        ("true", False, "1 failed, 1 passed, 1 skipped, 1 error"),
        ("true", True, "1 failed, 1 passed, 2 errors"),
        ("", True, "1 passed, 3 skipped"),
    ],
)
# Two processes are that of pytest and one worker.
@pytest.mark.parametrize("workers", [(), ("-p", "xdist.plugin", "-n", "1")], ids=["one", "two"])
def test_in_ci_a_test_that_is_skipped_fails(
    tmp_path: Path, workers: tuple[str, ...], ci: str, reference: bool, outcome: str
) -> None:
    tests = tmp_path / "checkout" / "tests"
    tests.mkdir(parents=True)
    if reference:
        (tmp_path / "shared").mkdir()
    shutil.copy(TESTS / "conftest.py", tests)
    (tests / "pytest.ini").write_text("[pytest]\n")
    (tests / "test_skipping.py").write_text(SKIPPING)
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *workers, str(tests)],
        cwd=tests,
        env={**others, "CI": ci, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert outcome in done.stdout, done.stdout + done.stderr
    assert done.returncode == (1 if ci else 0)
    assert ("tmux is not installed" in done.stdout) is bool(ci)


LISTENING = """
import asyncio, socket

import pytest

def test_that_listens():
    with socket.create_server(("127.0.0.1", 0)):
        pass

def test_that_serves_and_hides_it():
    with pytest.raises(AssertionError):
        asyncio.run(asyncio.start_server(None, "127.0.0.1", 0))

def test_that_has_a_socket_of_its_own(tmp_path):
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(tmp_path / "s"))
        sock.listen()
"""


@pytest.mark.slow
def test_a_unit_test_that_listens_on_a_port_fails(tmp_path: Path) -> None:
    shutil.copy(TESTS / "unit" / "conftest.py", tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_listening.py").write_text(LISTENING)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-p",
            "pytest_asyncio",
            str(tmp_path),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 failed, 2 passed, 1 error" in done.stdout, done.stdout + done.stderr


# The next piece of a stream: nothing is asked again, it comes when it is there.
NEXT_PIECE = re.compile(r"(?<!database)\.(read\w*|receive|piece)$|^receive$")


def busy_loops(text: str) -> list[int]:
    """The lines with a ``while`` that awaits an answer again and again without a pause."""
    return [
        loop.lineno
        for loop in ast.walk(ast.parse(text))
        if isinstance(loop, ast.While) and all(isinstance(each, ast.Pass) for each in loop.body)
        for wait in ast.walk(loop.test)
        if isinstance(wait, ast.Await)
        and not (isinstance(wait.value, ast.Call) and NEXT_PIECE.search(ast.unparse(wait.value.func)))
    ]


@pytest.mark.parametrize(
    ("condition", "is_busy"),
    [
        ("not await held()", True),
        ("(await fleet.get('/readyz')).status_code != 200", True),
        ("await ledger.database.read(count) != 2", True),
        ("(await receive())['type'] != 'http.disconnect'", False),
        ("'running' not in (line := await process.stdout.readline())", False),
        ("not done()", False),
    ],
)
def test_a_loop_that_only_asks_is_busy_and_one_that_reads_on_is_not(condition: str, is_busy: bool) -> None:
    assert busy_loops(f"async def f():\n    while {condition}:\n        pass\n") == [2] * is_busy


@pytest.mark.slow
def test_no_test_asks_again_and_again_without_a_pause() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in busy_loops(path.read_text("utf-8"))
    ]
    assert not found, (
        "such a loop takes a core from what it waits for: poll() of tests/support/waiting.py pauses"
    )


LONG_S = 30
"""Seconds below which a wait may end too early on a slow machine."""
EXCEPTION = "# subject: "
"""Says behind such a limit that the test is about it, or that slowness makes the test pass."""
# The limit is any of their arguments. ``select`` is not one of them: its limit is the pause of a loop.
WAIT = re.compile(
    r"(^|\.)(timeout|wait_for|wait|wait_ended|join|result|exception|settimeout|create_connection|Timeout"
    r"|fail_after|move_on_after|until|until_(ready|true)|poll)$"
)
# These take it by its name.
NAMED_WAIT = re.compile(
    r"(^|\.)((Async)?Client|get|put|post|patch|delete|request|stream|urlopen|call_and_validate|acquire"
    r"|get_server_certificate|communicate|says|logs|ended"
    r"|(subprocess|pallas_process)\.(run|call|check_call|check_output))$"
)
# Without a limit, five seconds is theirs.
HTTPX = re.compile(r"^httpx2?\.((Async)?Client|get|put|post|patch|delete|request|stream)$")
STEADY_CLOCK = re.compile(r"(^|\.)(monotonic|perf_counter|loop(\(\))?\.time)\(\)$")


def limits(node: ast.AST) -> list[ast.expr | None]:
    """The limits that ``node`` may name: arguments of a wait, defaults, what is added to a clock."""
    match node:
        case ast.Call(func=called, args=placed, keywords=keywords):
            named = [each.value for each in keywords if each.arg == "timeout"]
            name = ast.unparse(called)
            if HTTPX.search(name) and not named:
                return [ast.Constant(5, lineno=node.lineno)]
            if WAIT.search(name):
                return [*placed, *named]
            return [*named] if NAMED_WAIT.search(name) else []
        case ast.arguments(posonlyargs=first, args=then, kwonlyargs=last):
            placed = zip([*first, *then][::-1], node.defaults[::-1], strict=False)
            pairs = [*placed, *zip(last, node.kw_defaults, strict=True)]
            return [value for each, value in pairs if each.arg in ("timeout", "deadline")]
        case ast.BinOp(left=clock, op=ast.Add(), right=limit) if STEADY_CLOCK.search(ast.unparse(clock)):
            return [limit]
    return []


def short_waits(text: str) -> list[int]:
    """The lines with a limit below 30 s, a number or a constant of the module. One of 0 is no wait."""
    tree, lines = ast.parse(text), text.splitlines()
    constants = {
        each.targets[0].id: each.value
        for each in tree.body
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name)
    }
    found = set()
    for limit in (each for node in ast.walk(tree) for each in limits(node) if each is not None):
        match constants.get(limit.id) if isinstance(limit, ast.Name) else limit:
            case ast.Constant(value=int() | float() as seconds) if 0 < seconds < LONG_S:
                found.add(limit.lineno)
    return sorted(line for line in found if EXCEPTION not in lines[line - 1])


@pytest.mark.parametrize(
    ("line", "is_short"),
    [
        ("async with asyncio.timeout(5): pass", True),
        ("async with asyncio.timeout(WAIT_S): pass", True),
        ("async with asyncio.timeout(30): pass", False),
        ("await asyncio.wait_for(call, 20)", True),
        ("await asyncio.wait_for(call, timeout=29.5)", True),
        ("await asyncio.wait({task}, timeout=0.05)", True),
        ("await asyncio.wait({task}, timeout=0.05)  # subject: nothing comes", False),
        ("process.wait(10)", True),
        ("process.wait()", False),
        ("signals.wait(0)", False),
        ("thread.join(5)", True),
        ("', '.join(names)", False),
        ("queue.get(timeout=2)", True),
        ("answers.get(2)", False),
        ("process.communicate(timeout=10)", True),
        ("subprocess.run(command, timeout=20)", True),
        ("await kernel.run('hi', timeout=0.5)", False),  # a limit of the product
        ("httpx2.AsyncClient(trust_env=False, timeout=20)", True),
        ("httpx2.AsyncClient(trust_env=False)", True),
        ("httpx2.get(url, timeout=60)", False),
        ("await until(lambda: found, pilot, 5)", True),
        ("await poll(ask, bool, timeout=5)", True),
        ("await poll(ask, bool)", False),
        ("deadline = monotonic() + 10", True),
        ("deadline = monotonic() + timeout", False),
        ("expires_at = time() + 10", False),
        ("def ready(url, timeout=20): pass", True),
        ("def ready(url, *, deadline: float = 20, size=3): pass", True),
        ("def ready(url, timeout=60, size=3): pass", False),
    ],
)
def test_a_wait_is_short_below_thirty_seconds(line: str, is_short: bool) -> None:
    assert short_waits(f"WAIT_S = 20\nasync def f():\n    {line}\n") == [3] * is_short


@pytest.mark.slow
def test_no_test_waits_less_than_thirty_seconds() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in short_waits(path.read_text("utf-8"))
    ]
    assert not found, f"wait 30 s and more, or say behind the limit why not ({EXCEPTION}...): {found}"


CLOCK = re.compile(r"(^|\.)(monotonic|perf_counter|process_time|thread_time|time)(_ns)?\(\)$")
MEASURES = re.compile(r"(monotonic|perf_counter|time)(_ns)?\(\)|\.elapsed")
"""In each file with a duration; the others need not be parsed."""


def is_now(node: ast.AST) -> bool:
    """Whether it asks a clock."""
    return isinstance(node, ast.Call) and not node.args and CLOCK.search(ast.unparse(node)) is not None


def assigned(function: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The names in it, each with what is assigned to it or appended to its list."""
    for node in ast.walk(function):
        match node:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=value)
                | ast.NamedExpr(target=ast.Name(id=name), value=value)
                | ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[value])
            ):
                yield name, value


def bounds(comparison: ast.Compare) -> Iterator[ast.expr]:
    """What it says to be at most something."""
    sides = [comparison.left, *comparison.comparators]
    for left, operator, right in zip(sides, comparison.ops, sides[1:], strict=False):
        if isinstance(operator, ast.Lt | ast.LtE):
            yield left
        elif isinstance(operator, ast.Gt | ast.GtE):
            yield right


def bounded_durations(text: str) -> list[int]:
    """The lines that say how long something may take at most."""
    return sorted(
        {
            line
            for function in ast.walk(ast.parse(text if MEASURES.search(text) else ""))
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for line in bounded_in(function)
        }
    )


def bounded_in(function: ast.AST) -> list[int]:
    """The lines of one function that do so."""
    values = list(assigned(function))
    moments = {name for name, value in values if is_now(value)}
    taken: set[str] = set()

    def is_duration(node: ast.AST) -> bool:
        match node:
            case ast.BinOp(left=ast.Name(id=name), op=ast.Sub()) if name in moments:
                return True
            case ast.BinOp(left=now, op=ast.Sub()) if is_now(now):
                return True
            case ast.Name(id=name):
                return name in taken
        return isinstance(node, ast.Attribute) and node.attr == "elapsed"

    taken |= {name for name, value in values if any(map(is_duration, ast.walk(value)))}
    return [
        node.lineno
        for node in ast.walk(function)
        if isinstance(node, ast.Compare)
        if any(is_duration(part) for bound in bounds(node) for part in ast.walk(bound))
    ]


@pytest.mark.parametrize(
    ("line", "is_bounded"),
    [
        ("assert monotonic() - began < 5", True),
        ("assert loop.time() - began <= 5", True),
        ("assert ended - began < 5", True),
        ("assert took < 5", True),
        ("assert 5 > took", True),
        ("assert 0.2 <= took < 5", True),
        ("assert 0.2 <= took", False),
        ("assert took >= 0.2", False),
        ("assert max(each) < 5", True),
        ("assert sorted(each)[9] < 5", True),
        ("assert len(found) < 5", False),
        ("assert answer.elapsed < limit", True),
        ("assert time() - began > 0.2", False),
        ("assert before <= stamp <= time()", False),
        ("assert monotonic() < deadline", False),
        ("assert due - monotonic() <= 600", False),
    ],
)
def test_a_duration_is_bounded_by_the_most_that_it_may_be(line: str, is_bounded: bool) -> None:
    before = "    ended = monotonic()\n    took = ended - began\n    each.append(monotonic() - began)\n"
    assert bounded_durations(f"def f():\n{before}    {line}\n") == [5] * is_bounded


@pytest.mark.slow
def test_no_test_says_how_long_something_may_take() -> None:
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in bounded_durations(path.read_text("utf-8"))
    ]
    assert not found, f"prove it by an order, a count or a clock of the test: {found}"


def test_what_marks_tests_as_slow_from_elsewhere_is_known_by_its_name() -> None:
    # `make test-slow` does not import a file that says neither "slow" nor one of these names.
    shared = [*(TESTS / "support").rglob("*.py"), *TESTS.rglob("conftest.py")]
    marks = [line for file in shared for line in file.read_text("utf-8").splitlines() if "mark.slow" in line]
    assert [line.partition(" = ")[0] for line in marks] == ["MODERN_FIRST", "SQLITE_FIRST"]
    known = re.search(
        r'^NAMES_SLOW_TESTS = re.compile\(rb"(.+)"\)$',
        (TESTS / "conftest.py").read_text("utf-8"),
        re.MULTILINE,
    )
    assert known is not None
    slow = slow_fixtures(shared)
    assert slow >= {"database_url", "ledger", "fleets"}
    others = [
        path for path in sorted(TESTS.rglob("test_*.py")) if not re.search(known[1], path.read_text("utf-8"))
    ]
    unknown = [
        path.name for path in others if slow & {name for _, names in functions_of(path) for name in names}
    ]
    assert not unknown


def functions_of(path: Path) -> Iterator[tuple[ast.AsyncFunctionDef | ast.FunctionDef, list[str]]]:
    """The functions of a file, each with the names of its parameters."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef):
            yield node, [each.arg for each in node.args.args]


def slow_fixtures(files: list[Path]) -> set[str]:
    """The fixtures of which some parameters are slow, and those that take one of them."""
    fixtures = [
        (node, names)
        for file in files
        for node, names in functions_of(file)
        if any("fixture" in ast.unparse(each) for each in node.decorator_list)
    ]
    found: set[str] = set()
    while True:
        more = {
            node.name
            for node, names in fixtures
            if found.intersection(names) or any("_FIRST" in ast.unparse(each) for each in node.decorator_list)
        }
        if more <= found:
            return found
        found |= more


@pytest.mark.slow
def test_only_files_with_slow_tests_are_imported_for_them(tmp_path: Path) -> None:
    tests = tmp_path / "checkout" / "tests"
    tests.mkdir(parents=True)
    shutil.copy(TESTS / "conftest.py", tests)
    (tests / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tests / "test_quick.py").write_text("raise RuntimeError('imported')")
    (tests / "test_both.py").write_text(
        "import pytest\ndef test_one(): pass\n@pytest.mark.slow\ndef test_two(): pass\n"
    )
    others = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "slow", str(tests)],
        cwd=tests,
        env={**others, "PYTHONPATH": str(TESTS), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert "1 passed, 1 deselected" in done.stdout, done.stdout + done.stderr
