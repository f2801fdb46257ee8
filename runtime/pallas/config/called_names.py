"""What the calls in a module's text call: the dotted names of what was imported, followed through aliases.

``from pallas import llm as x`` and ``x.complete()`` is a call of ``pallas.llm.complete``. Only what is
written out counts: imports anywhere in the module, ``import_module("pallas.llm")``, and a name, an
attribute or a parameter's default that stands for it (``ask = x.complete``,
``self.ask = partial(x.complete)``). What is handed on to another function, or kept in a list or a dict, is
not followed. Nothing is imported.
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
WITH_MODEL: Final = "<model>"
"""The last part of the dotted name of a function whose model ``partial`` has named."""
_IMPORT_MODULE: Final = "importlib.import_module"
_PARTIAL: Final = "functools.partial"
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


def names_model(positional: Sequence[ast.expr], keywords: Sequence[ast.keyword]) -> bool:
    """Whether the arguments of a call have a ``model``, its first one, and it is not written out as empty."""
    given = {each.arg: each.value for each in keywords}
    model = given.get("model", positional[0] if positional else None)
    return None in given or not (model is None or (isinstance(model, ast.Constant) and not model.value))


@dataclass(slots=True)
class _Scope:
    """Names that are bound in a module, class, function or comprehension, with what they may stand for."""

    is_class: bool = False
    names: dict[str, set[str]] = field(default_factory=dict)
    """Empty sets for names that are something else; ``.x`` for an attribute of a class's instances, ``a.x``
    for one of another object."""
    aliases: list[tuple[str, ast.expr, "_Chain"]] = field(default_factory=list)
    """A name, what it is set to, and the scopes in which that is read."""
    bases: list["_Scope"] = field(default_factory=list)
    """The scopes of a class's bases that are in the same module."""
    instance: "tuple[str, _Scope] | None" = None
    """The first parameter of a method, with the scope of its class."""

    def attribute(self, name: str) -> set[str]:
        """Return what an attribute of an instance of this class may stand for."""
        found = {*self.names.get(f".{name}", ()), *self.names.get(name, ())}
        return found.union(*(each.attribute(name) for each in self.bases))


type _Chain = tuple[_Scope, ...]


class _Reader(ast.NodeVisitor):
    def __init__(self, package: str) -> None:
        self.top = _Scope()
        self._package = package
        self._chain: _Chain = ()
        self._scopes: list[_Scope] = []
        self._classes: dict[str, _Scope] = {}
        self._calls: list[tuple[ast.Call, _Chain]] = []

    def found(self) -> Iterator[tuple[ast.Call, frozenset[str]]]:
        """Yield each call with the names it may stand for, once the module was visited."""
        for call, chain in self._calls:
            if targets := _targets(call.func, chain):
                yield call, frozenset(targets)

    def visit_Module(self, node: ast.Module) -> None:
        self._in_scope(self.top, node.body)
        for _ in self._scopes:  # an alias may stand for one of a scope that was read after it
            if sum(_follow_aliases(scope) for scope in self._scopes) == 0:
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
        named = (each.id for each in node.bases if isinstance(each, ast.Name))
        bases = [self._classes[each] for each in named if each in self._classes]
        self._classes[node.name] = scope = _Scope(is_class=True, bases=bases)
        self._in_scope(scope, node.body)

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
        by_position = [*given.posonlyargs, *given.args]
        defaults = [*zip(reversed(by_position), reversed(given.defaults), strict=False)]
        defaults += [
            (name, value) for name, value in zip(given.kwonlyargs, given.kw_defaults, strict=True) if value
        ]
        self._visit_all([value for _, value in defaults])
        named = [*by_position, *given.kwonlyargs]
        named += [each for each in (given.vararg, given.kwarg) if each is not None]
        scope = _Scope(names={each.arg: set() for each in named})
        scope.aliases += [(name.arg, value, self._chain) for name, value in defaults]
        if by_position and self._chain[0].is_class and not _is_static(node):
            scope.instance = by_position[0].arg, self._chain[0]
        self._in_scope(scope, [node.body] if isinstance(node, ast.Lambda) else node.body)

    def _comprehension(self, node: Comprehension) -> None:
        self._in_scope(_Scope(), list(ast.iter_child_nodes(node)))

    def _in_scope(self, scope: _Scope, nodes: Sequence[ast.AST]) -> None:
        outer = self._chain
        # A method does not see the names of its class.
        self._chain = (scope, *(each for each in outer if not each.is_class))
        self._scopes.append(scope)
        self._visit_all(nodes)
        self._chain = outer

    def _visit_all(self, nodes: Sequence[ast.AST]) -> None:
        for node in nodes:
            self.visit(node)

    def _bind(self, name: str, target: str = "") -> None:
        self._chain[0].names.setdefault(name, set()).update([target] if target else [])

    def _alias(self, target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
            for each, its_value in zip(target.elts, value.elts, strict=False):
                self._alias(each, its_value)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
            owner = _class_of(target.value.id, self._chain)
            scope, name = (owner, "") if owner else (self._chain[0], target.value.id)
            scope.names.setdefault(f"{name}.{target.attr}", set())
            scope.aliases += [(f"{name}.{target.attr}", value, self._chain)] if value is not None else []
        elif isinstance(target, ast.Name) and value is not None:
            self._chain[0].aliases.append((target.id, value, self._chain))


def _follow_aliases(scope: _Scope) -> bool:
    """Give the aliases of a scope what they stand for; return whether that was new."""
    is_new = False
    for name, value, chain in scope.aliases:
        new = _targets(value, chain) - scope.names[name]
        if new and len(scope.names[name]) < _MAX_TARGETS:
            scope.names[name] |= new
            is_new = True
    return is_new


def _is_static(node: Function) -> bool:
    marks = [] if isinstance(node, ast.Lambda) else node.decorator_list
    return any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in marks)


def _class_of(name: str, chain: _Chain) -> _Scope | None:
    """Return the class whose instance a name is, as the first parameter of a method around it."""
    scope = next((each for each in chain if name in each.names), None)
    return scope.instance[1] if scope and scope.instance and scope.instance[0] == name else None


def _targets(node: ast.expr, chain: _Chain) -> set[str]:
    """Return the dotted names that ``a.b``, ``import_module("a").b``, ``partial(a)`` ... may stand for."""
    match node:
        case ast.Name():
            return _named(node.id, chain)
        case ast.Attribute(value=ast.Name(id=name)) if owner := _class_of(name, chain):
            return owner.attribute(node.attr)
        case ast.Attribute(value=ast.Name(id=name)):
            kept = (each.names.get(f"{name}.{node.attr}", set()) for each in chain)
            return {f"{each}.{node.attr}" for each in _named(name, chain)}.union(*kept)
        case ast.Attribute():
            return {f"{each}.{node.attr}" for each in _targets(node.value, chain)}
        case ast.IfExp():
            return _targets(node.body, chain) | _targets(node.orelse, chain)
        case ast.BoolOp():
            return set[str]().union(*(_targets(each, chain) for each in node.values))
        case ast.Call(args=[_, *_]):
            return _made_by(node, chain)
        case _:
            return set()


def _made_by(call: ast.Call, chain: _Chain) -> set[str]:
    """Return what a call returns, of the functions that return one of their arguments."""
    match call:
        case ast.Call(func=ast.Name(id="staticmethod"), args=[first]):
            return _targets(first, chain)
        case ast.Call(func=ast.Name(id="getattr"), args=[first, ast.Constant(value=str(name)), *_]):
            return _targets(ast.Attribute(first, name), chain)
    functions = _targets(call.func, chain)
    if _IMPORT_MODULE in functions and isinstance(call.args[0], ast.Constant):
        return {str(call.args[0].value)}
    if _PARTIAL not in functions:
        return set()
    found = _targets(call.args[0], chain)
    if not names_model(call.args[1:], call.keywords):
        return found
    return {each if each.endswith(WITH_MODEL) else f"{each}.{WITH_MODEL}" for each in found}


def _named(name: str, chain: _Chain) -> set[str]:
    for scope in chain:
        if name in scope.names:
            return set(scope.names[name])
    return {f"{each}.{name}" for scope in chain for each in scope.names.get(EVERYTHING, ())}
