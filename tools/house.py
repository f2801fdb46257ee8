"""Signs of how easily a newcomer finds a behaviour in the source; ``make house`` prints them with targets.

The files are read as text; nothing is imported. A number is a sign, not a law: a good name may end in -ing.
``--list SIGN`` prints the places behind one sign, which the beginning of its name is enough for.
"""

import argparse
import ast
import gc
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PACKAGES = {"pallas": "runtime/pallas", "pallas_tui": "pallas_tui"}
SMALL_MODULE = 80
LONG_MODULE = 500
LONG_FUNCTION = 40
NOUNS_IN_ING = {"logging", "messaging", "pricing", "ring", "routing", "string", "tracing"}
IDIOMS = re.compile(
    r"\b(nobody|somebody|whoever|whatever|anew|thereof|wherein|(?:is|are) told|is so|who asks"
    r"|comes to nothing|meanwhile|what (?:is|was|stands|lasts|answers|comes|came) "
    r"|stands (?:in|before|below|between)"
    r"|in its stead|at its end|mended|mends|beside)\b",
    re.IGNORECASE,
)
# Documented attributes of libraries: of named tuples, of ``os`` and ``sys``, of rows of SQLAlchemy.
DOCUMENTED = {"_asdict", "_current_frames", "_exit", "_fields", "_make", "_mapping", "_replace"}
LOOKED_AT = (
    ast.Module
    | ast.ClassDef
    | ast.FunctionDef
    | ast.AsyncFunctionDef
    | ast.Import
    | ast.ImportFrom
    | ast.Attribute
)

type Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class SourceFile:
    """One module of a package."""

    path: Path
    module: str
    text: str
    nodes: Sequence[ast.AST]
    """Those of its syntax that a sign looks at, from the outside in."""

    @property
    def lines(self) -> int:
        """How many lines the file has."""
        return self.text.count("\n")


@dataclass(frozen=True)
class Sign:
    """One measured property of the source."""

    name: str
    value: float
    target: float | None = None
    """The most that is good, in the unit of ``value``; None where it is only shown."""
    unit: str = ""
    places: Sequence[str] = ()
    """What ``--list`` prints, a line each."""

    def __str__(self) -> str:
        shown = f"{self.value:g}{self.unit}"
        if self.target is None:
            return f"{self.name:<48} {shown:>9}"
        verdict = "" if self.value <= self.target else "  over"
        return f"{self.name:<48} {shown:>9}  target {self.target:g}{self.unit}{verdict}"


def read_sources(root: Path) -> list[SourceFile]:
    """Every module of Pallas below ``root``, sorted by path."""
    found = []
    with _no_garbage():
        for package, folder in PACKAGES.items():
            for path in sorted((root / folder).rglob("*.py")):
                parts = [package, *path.relative_to(root / folder).with_suffix("").parts]
                module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
                text = path.read_text()
                nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, LOOKED_AT)]
                found.append(SourceFile(path.relative_to(root), module, text, nodes))
    return found


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Look for none meanwhile: to look through the trees again and again takes as long as to make them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def imported_modules(source: SourceFile, known: Mapping[str, SourceFile]) -> set[str]:
    """The modules of Pallas that one imports: at import time, for type checkers, and inside functions."""
    package = source.module if source.path.name == "__init__.py" else source.module.rpartition(".")[0]
    found: set[str] = set()
    for node in source.nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                base = ".".join([*parts[: len(parts) - node.level + 1], *filter(None, [node.module])])
            whole = {f"{base}.{alias.name}" for alias in node.names}
            found |= (whole & known.keys()) or {base}
    return (found & known.keys()) - {source.module}


def import_circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """The groups of modules that import each other, each sorted (Tarjan's algorithm)."""
    index: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []

    def visit(module: str) -> None:
        index[module] = lowest[module] = len(index)
        stack.append(module)
        for other in graph.get(module, ()):
            if other not in index:
                visit(other)
                lowest[module] = min(lowest[module], lowest[other])
            elif other in stack:
                lowest[module] = min(lowest[module], index[other])
        if lowest[module] == index[module]:
            at = stack.index(module)
            if len(stack) - at > 1:
                groups.append(sorted(stack[at:]))
            del stack[at:]

    sys.setrecursionlimit(10_000)
    for module in graph:
        if module not in index:
            visit(module)
    return groups


def functions(sources: Sequence[SourceFile]) -> Iterator[tuple[SourceFile, Function]]:
    """Every function and method."""
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield source, node


def file_signs(sources: Sequence[SourceFile]) -> list[Sign]:
    """Signs of how the source is cut into files, and of what the files are called."""
    lines = [source.lines for source in sources]
    long = [f"{source.lines} {source.path}" for source in sources if source.lines > LONG_MODULE]
    top = Path(PACKAGES["pallas"])
    flat = [source.module for source in sources if source.path.parent == top and source.module != "pallas"]
    stems = Counter(source.path.stem for source in sources if not source.path.stem.startswith("__"))
    shared = [f"{stem} x{count}" for stem, count in sorted(stems.items()) if count > 1]
    twins = sum(count for count in stems.values() if count > 1)
    gerunds = [
        str(s.path) for s in sources if s.path.stem.endswith("ing") and s.path.stem not in NOUNS_IN_ING
    ]
    return [
        Sign("files", len(sources)),
        Sign("lines", sum(lines)),
        Sign("lines of a file, on average", round(sum(lines) / max(len(lines), 1))),
        Sign(f"files above {LONG_MODULE} lines", len(long), 0, places=long),
        Sign("modules flat in pallas/", len(flat), 10, places=flat),
        Sign("files that share their name", _percent(twins, stems.total()), 20, " %", shared),
        Sign("files named by a gerund", len(gerunds), 15, places=gerunds),
    ]


def import_signs(sources: Sequence[SourceFile]) -> list[Sign]:
    """Signs of how modules depend on each other."""
    known = {source.module: source for source in sources}
    graph = {source.module: imported_modules(source, known) for source in sources}
    importers: dict[str, list[str]] = defaultdict(list)
    for module, imported in graph.items():
        for each in imported:
            importers[each].append(module)
    lonely = [
        f"{known[module].lines} {module} <- {users[0]}"
        for module, users in sorted(importers.items(), key=lambda item: known[item[0]].lines)
        if len(users) == 1 and known[module].lines < SMALL_MODULE and known[module].path.stem != "__init__"
    ]
    circles = import_circles(graph)
    return [
        Sign(f"modules below {SMALL_MODULE} lines with one importer", len(lonely), 30, places=lonely),
        Sign(
            "import circles, of types and late ones too",
            len(circles),
            5,
            places=[" ".join(c) for c in circles],
        ),
        Sign("files in these circles", sum(map(len, circles)), 20),
    ]


def code_signs(sources: Sequence[SourceFile]) -> list[Sign]:
    """Signs within the code: class names, long functions, private attributes of others."""
    classes: dict[str, list[str]] = defaultdict(list)
    reached = []
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(f"{source.path}:{node.lineno}")
            elif isinstance(node, ast.Attribute) and _reaches_in(node):
                reached.append(f"{source.path}:{node.lineno} {ast.unparse(node)}")
    twice = [f"{name}: {', '.join(at)}" for name, at in sorted(classes.items()) if len(at) > 1]
    long = [
        f"{source.path}:{node.lineno} {node.name} {node.end_lineno - node.lineno}"
        for source, node in functions(sources)
        if node.end_lineno and node.end_lineno - node.lineno > LONG_FUNCTION
    ]
    return [
        Sign("public class names with two meanings", len(twice), 15, places=twice),
        Sign("private attributes of others reached into", len(reached), 34, places=reached),
        Sign(f"functions above {LONG_FUNCTION} lines", len(long), places=long),
    ]


def english_signs(sources: Sequence[SourceFile]) -> list[Sign]:
    """Signs of prose that reads like a translation."""
    total, hits = 0, []
    for source in sources:
        for node in source.nodes:
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                text = ast.get_docstring(node)
                total += text is not None
                if text and (hit := IDIOMS.search(text)):
                    hits.append(f"{source.path}:{getattr(node, 'lineno', 1)} {hit[0]!r}")
    return [Sign("docstrings with idioms of a translation", _percent(len(hits), total), 3, " %", hits)]


def measure(root: Path) -> list[Sign]:
    """All signs of the project in ``root``."""
    sources = read_sources(root)
    return [
        sign for signs in (file_signs, import_signs, code_signs, english_signs) for sign in signs(sources)
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the signs, or with ``--list`` the places behind one. Return 2 where there is no such sign."""
    parser = argparse.ArgumentParser(description="Print signs of order in the source.")
    parser.add_argument(
        "--list", metavar="SIGN", help="print the places behind the sign whose name begins so"
    )
    given = parser.parse_args(arguments)
    signs = measure(Path.cwd())
    if given.list is None:
        print(*signs, sep="\n")
        return 0
    found = [sign for sign in signs if sign.name.startswith(given.list)]
    if not found:
        print(
            f"no sign begins with {given.list!r}; there are: {', '.join(s.name for s in signs)}",
            file=sys.stderr,
        )
        return 2
    for sign in found:
        print(*sign.places, sep="\n")
    return 0


def _reaches_in(node: ast.Attribute) -> bool:
    if not node.attr.startswith("_") or node.attr.startswith("__") or node.attr in DOCUMENTED:
        return False
    if isinstance(node.value, ast.Name):
        return node.value.id not in ("self", "cls", "mcs")
    return isinstance(node.value, ast.Attribute)


def _percent(part: int, whole: int) -> float:
    return round(100 * part / max(whole, 1))


if __name__ == "__main__":
    sys.exit(main())
