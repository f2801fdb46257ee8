"""What the calls in a module's text call: the dotted names of what was imported, followed through aliases.

``from pallas import llm as x`` and ``x.complete()`` is a call of ``pallas.llm.complete``. Only what is
written out counts: imports anywhere in the module, ``import_module("pallas.llm")`` and ``ask = x.complete``.
Nothing is imported.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import resolve_name
from typing import Final

type Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
type Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

EVERYTHING: Final = "*"
"""The name under which ``from ... import *`` is in the names of a scope."""
_IMPORT_MODULE: Final = "importlib.import_module"
_MAX_TARGETS: Final = 8
"""What one name may stand for: ``each = each.parent`` would never end."""


@dataclass(frozen=True, slots=True)
class ModuleCalls:
    """The calls of a module."""

    calls: tuple[tuple[ast.Call, frozenset[str]], ...]
    """Each call of a name, with the dotted names that it may stand for."""
    names: Mapping[str, frozenset[str]]
    """The dotted names that each name at the top of the module may stand for."""


def read_calls(tree: ast.Module, package: str) -> ModuleCalls:
    """Return the calls of a module; its relative imports are seen from ``package``."""
    reader = _Reader(package)
    reader.visit(tree)
    names = {name: frozenset(targets) for name, targets in reader.top.names.items()}
    return ModuleCalls(tuple(reader.found()), names)


@dataclass(slots=True)
class _Scope:
    """Names that are bound in a module, class, function or comprehension, with what they may stand for."""

    is_class: bool = False
    names: dict[str, set[str]] = field(default_factory=dict)
    """Empty sets for names that are something else."""
    aliases: list[tuple[str, ast.expr]] = field(default_factory=list)


class _Reader(ast.NodeVisitor):
    def __init__(self, package: str) -> None:
        self.top = _Scope()
        self._package = package
        self._chain: tuple[_Scope, ...] = ()
        self._chains: list[tuple[_Scope, ...]] = []
        self._calls: list[tuple[ast.Call, tuple[_Scope, ...]]] = []

    def found(self) -> Iterator[tuple[ast.Call, frozenset[str]]]:
        """Yield each call with the names it may stand for, once the module was visited."""
        for call, chain in self._calls:
            if targets := _targets(call.func, chain):
                yield call, frozenset(targets)

    def visit_Module(self, node: ast.Module) -> None:
        self._in_scope(self.top, node.body)
        for _ in self._chains:  # an alias may stand for one of a scope that was read after it
            if sum(self._follow_aliases(chain) for chain in self._chains) == 0:
                break

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            top = each.name.partition(".")[0]
            self._bind(each.asname or top, each.name if each.asname else top)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        try:
            source = resolve_name("." * node.level + (node.module or ""), self._package)
        except ImportError:  # reported elsewhere
            return
        for each in node.names:
            named = source if each.name == EVERYTHING else f"{source}.{each.name}"
            self._bind(each.asname or each.name, named)

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            self._alias(target, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.generic_visit(node)
        self._alias(node.target, node.value)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        self.generic_visit(node)
        self._alias(node.target, node.value)

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load):
            self._bind(node.id)

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self._bind(node.name)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        self._calls.append((node, self._chain))
        self.generic_visit(node)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._bind(node.name)
        self._visit_all([*node.decorator_list, *node.bases, *node.keywords])
        self._in_scope(_Scope(is_class=True), node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._function(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._function(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._function(node)

    def visit_ListComp(self, node: ast.ListComp) -> None:
        self._comprehension(node)

    def visit_SetComp(self, node: ast.SetComp) -> None:
        self._comprehension(node)

    def visit_DictComp(self, node: ast.DictComp) -> None:
        self._comprehension(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> None:
        self._comprehension(node)

    def _function(self, node: Function) -> None:
        if not isinstance(node, ast.Lambda):
            self._bind(node.name)
            self._visit_all([*node.decorator_list, *([node.returns] if node.returns else [])])
        given = node.args
        self._visit_all([*given.defaults, *(each for each in given.kw_defaults if each is not None)])
        named = [*given.posonlyargs, *given.args, *given.kwonlyargs]
        named += [each for each in (given.vararg, given.kwarg) if each is not None]
        scope = _Scope(names={each.arg: set() for each in named})
        self._in_scope(scope, [node.body] if isinstance(node, ast.Lambda) else node.body)

    def _comprehension(self, node: Comprehension) -> None:
        self._in_scope(_Scope(), list(ast.iter_child_nodes(node)))

    def _in_scope(self, scope: _Scope, nodes: Sequence[ast.AST]) -> None:
        outer = self._chain
        # A method does not see the names of its class.
        self._chain = (scope, *(each for each in outer if not each.is_class))
        self._chains.append(self._chain)
        self._visit_all(nodes)
        self._chain = outer

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _bind(self, name: str, target: str = "") -> None:
        self._chain[0].names.setdefault(name, set()).update([target] if target else [])

    def _alias(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name) and value is not None:
            self._chain[0].aliases.append((target.id, value))

    @staticmethod
    def _follow_aliases(chain: tuple[_Scope, ...]) -> bool:
        """Give the aliases of the first scope what they stand for; return whether that was new."""
        scope, is_new = chain[0], False
        for name, value in scope.aliases:
            new = _targets(value, chain) - scope.names[name]
            if new and len(scope.names[name]) < _MAX_TARGETS:
                scope.names[name] |= new
                is_new = True
        return is_new


def _targets(node: ast.expr, chain: tuple[_Scope, ...]) -> set[str]:
    """Return the dotted names that ``a``, ``a.b.c`` or ``import_module("a.b").c`` may stand for."""
    if isinstance(node, ast.Attribute):
        return {f"{each}.{node.attr}" for each in _targets(node.value, chain)}
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        return {str(node.args[0].value)} if _IMPORT_MODULE in _targets(node.func, chain) else set()
    if not isinstance(node, ast.Name):
        return set()
    for scope in chain:
        if node.id in scope.names:
            return set(scope.names[node.id])
    return {f"{each}.{node.id}" for scope in chain for each in scope.names.get(EVERYTHING, ())}
