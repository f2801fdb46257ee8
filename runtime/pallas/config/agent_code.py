"""What the text of an agent's module or card says of its servers and models; nothing is imported.

Only what is written out counts: names that the code computes are known when it runs.
"""

import ast
import warnings
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Final

from pallas.safe_text import one_line

from .agent_choice import AgentCandidate, AgentChoice, choose
from .agent_text import CONNECT, FILTERS, AgentText, Name
from .cards import passed_over, read_cards
from .code import code_file
from .fastagent import resolve_reference
from .files import is_folder, module_file, shown
from .models import AgentConfig, Mistake, Project, Where
from .notes import Notes, allowed, did_you_mean
from .project_imports import find_imports
from .skill_folders import missing_skills
from .upstream import PROVIDERS

_REGISTERS: Final = frozenset({"add_tool", "add_tool_transformation", "mount", "import_server"})
"""Methods by which a server gets tools that its text does not show."""
_DECORATORS: Final[Mapping[str, int]] = {
    "agent": 0,
    "custom": 1,
    "smart": 0,
    "orchestrator": 0,
    "iterative_planner": 0,
    "router": 0,
    "chain": 0,
    "parallel": 0,
    "evaluator_optimizer": 0,
    "maker": 0,
}
"""The decorators that define an agent, with the position of its name."""
_UNNAMED: Final = "default"
"""The name of an agent that is given none."""
WRITE_FAST: Final = "write `fast = FastAgent(...)` at the top level of the module"
_MORE_AGENTS: Final = frozenset({"load_agents", "load_agents_from_url", "agents"})
"""What a module has agents by that its decorators do not show."""
_AGENTS: Final = frozenset({"agent", "custom", "smart", "router", "orchestrator", "iterative_planner"})
"""The decorators of agents that ask a model themselves."""
_MODEL_TABLES: Final = frozenset({"ModelDatabase", "ModelFactory"})


def read_agents(root: Path, config: AgentConfig) -> tuple[AgentText, ...]:
    """The agents that the module or card of an agent defines, with those of modules that it imports."""
    if config.kind != "llm":
        return ()
    if config.card is not None:
        return tuple(each.agent for each in read_cards(root, config.card).cards)
    files = find_imports(root, config.module).files if config.module else ()
    return tuple(found for path in files for found in _of_module(path, shown(root, path)))


def hidden_fast(root: Path, path: Path) -> Name | None:
    """Where a module makes its FastAgent so that importing it does not: the place, and words for it.

    None if its text shows no such place, or another one that an import may find.
    """
    if (tree := parsed(path)) is None:
        return None
    inner = not_imported(tree)
    makes = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_fast_agent(node.func)]
    if not makes or any(id(each) not in inner for each in makes) or _calls_own_function(tree):
        return None
    where = Where(shown(root, path), makes[0].lineno, makes[0].col_offset + 1)
    return Name(f"makes its FastAgent {inner[id(makes[0])]}, which an import does not run", where)


def hidden_cards(root: Path, config: AgentConfig) -> tuple[Name, str] | None:
    """Where a module without agents loads cards so that importing it does not, and what to write instead.

    None if it has agents, or its text shows no such place.
    """
    path = module_file(root, config.module) if config.module else None
    if path is None or (tree := parsed(path)) is None or read_agents(root, config):
        return None
    if _calls_own_function(tree):
        return None
    inner = not_imported(tree)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="load_agents"), args=[argument, *_]) if id(node) in inner:
                text = str(argument.value) if isinstance(argument, ast.Constant) else "FOLDER"
                where = Where(shown(root, path), node.lineno, node.col_offset + 1)
                problem = f"loads its cards {inner[id(node)]}, which an import does not run"
                return Name(
                    problem, where
                ), f"write `card: {text}` in place of module:, or load them at the top"
            case ast.Call(func=ast.Attribute(attr="load_agents" | "load_agents_from_url")):
                return None
    return None


def not_imported(tree: ast.Module) -> dict[int, str]:
    """The nodes that importing a module does not run, each with words for its place."""
    inner: dict[int, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner.update((id(each), f"in the function {node.name}") for each in ast.walk(node))
        elif isinstance(node, ast.If) and "__name__" in ast.dump(node.test):
            inner.update((id(each), "under `if __name__`") for each in ast.walk(node))
    return inner


def _calls_own_function(tree: ast.Module) -> bool:
    """Whether a name at the top of the module may be what one of its functions or another module made."""
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and any(each.name in ("*", "fast") for each in node.names):
            return True
        if isinstance(node, ast.Assign | ast.AnnAssign | ast.Expr) and node.value is not None:
            called = (each.func for each in ast.walk(node.value) if isinstance(each, ast.Call))
            if any(isinstance(each, ast.Name) and each.id in own for each in called):
                return True
    return False


def is_fast_agent(called: ast.expr) -> bool:
    """Whether this is what makes a FastAgent."""
    name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
    return name == "FastAgent"


def choice_of(root: Path, config: AgentConfig) -> tuple[AgentChoice, Where | None] | None:
    """Return the agent that an entry serves, and where that is defined, as its files say.

    None if they do not say it all, and for what is no agent of fast-agent.
    """
    if config.kind != "llm" or config.definition is not None:
        return None
    if config.module and not _shows_all_agents(root, config.module):
        return None
    found = [each for each in read_agents(root, config) if each.is_own]
    names = [each.name for each in found if each.name is not None]
    if not names:
        return None
    candidates = [
        AgentCandidate(each.name.text, each.is_default, each.is_tool_only)
        for each in found
        if each.name is not None
    ]
    path = code_file(root, config)
    choice = choose(config.name, config.agent, candidates, shown(root, path) if path else config.module or "")
    return choice, next((each.where for each in names if each.text == choice.name), None)


def _shows_all_agents(root: Path, module: str) -> bool:
    """Whether decorators of one file define all agents of a module, on one object, each with its name."""
    owners: set[tuple[Path, str]] = set()
    for path in find_imports(root, module).files:
        if (tree := parsed(path)) is None:
            return False
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in _MORE_AGENTS:
                return False
        reader = _ModuleReader(shown(root, path), tree)
        for decorator in _decorators(tree):
            assert isinstance(decorator.func, ast.Attribute)
            if decorator.func.attr not in _DECORATORS:
                continue
            if reader.agent(decorator).name is None or not isinstance(decorator.func.value, ast.Name):
                return False
            owners.add((path, decorator.func.value.id))
    return len(owners) == 1


def model_of(project: Project, config: AgentConfig) -> str:
    """The model that an agent's files name, or the project's, without its provider.

    Empty if they name several or compute it, and for what is no agent of fast-agent.
    """
    if config.kind != "llm":
        return ""
    found = read_agents(project.root, config)
    named = {agent.model.text for agent in found if agent.model is not None}
    defaults = any(agent.has_default_model for agent in found)
    if len(named) + defaults > 1 or any(agent.computes_model for agent in found):
        return ""
    spec = referred_model(next(iter(named), ""), project)
    text = (spec or project.model).partition("?")[0]
    provider, dot, model = text.partition(".")
    return model if spec and dot and provider in PROVIDERS else text


def referred_model(model: str, project: Project) -> str:
    """``$group.name`` by ``model_references``; any other text as it is."""
    return resolve_reference(model, project.settings.get("model_references"))


def uses_default_model(project: Project, config: AgentConfig) -> bool:
    """Whether an agent may ask the project's ``default_model``, as far as its text shows."""
    if config.kind == "handler":  # ``complete()`` without a name
        return config.handler is not None and config.handler.typed is not None and not project.llm.backends
    if config.kind != "llm":
        return False
    if config.definition is not None:
        return config.definition.llm is None
    found = read_agents(project.root, config)
    own = [agent for agent in found if agent.model is None and not agent.computes_model]
    if config.providers and len(found) < 2:
        return False
    return not found or any(agent.has_default_model or config.card is not None for agent in own)


def agents_without_model(project: Project) -> tuple[Mistake, ...]:
    """A warning for each agent that asks a model where neither its text nor the project names one.

    fast-agent starts no agent beside such an agent, but the environment may name a model where it is served.
    None where code may set one.
    """
    notes, seen = Notes(), set[Where]()
    if project.settings.get("default_model"):
        return ()
    for config in project.agents.values():
        if config.providers or _may_set_model(project.root, config):
            continue
        key, ways = f"agents.{config.name}.model", "model:" if config.card is not None else 'model="..."'
        for agent in read_agents(project.root, config):
            where = agent.name.where if agent.name is not None else config.where
            if agent.has_default_model and agent.model is None and where not in seen:
                seen.add(where)
                name = agent.name.text if agent.name is not None else "an agent"
                notes.warn(where, key, *no_model(project, name, ways))
    return notes.sorted([])


def no_model(project: Project, name: str, key: str) -> tuple[str, str]:
    """Problem and fix for an agent that has no model; ``key`` is what its file names one with."""
    problem = f"{one_line(name)} names no model, and the project has no default_model"
    return problem, f"write {key} there, or default_model: into {project.model_where.file}"


def _may_set_model(root: Path, config: AgentConfig) -> bool:
    """Whether code of an agent reads another configuration, or gives agents a model when it is imported."""
    files = find_imports(root, config.module).files if config.module else ()
    trees = (each for path in files if (each := parsed(path)) is not None)
    for node in (each for tree in trees for each in ast.walk(tree)):
        match node:
            case (
                ast.keyword(arg="config_path" | "default_model")
                | ast.Constant(value="FAST_AGENT_MODEL" | "DEFAULT_MODEL")
            ):
                return True
            case ast.Attribute(attr="model" | "default_model", ctx=ast.Store()):
                return True
    return False


def server_mistakes(project: Project, config: AgentConfig) -> tuple[Mistake, ...]:
    """Servers that are not there, and filters that fit none of them or no tool of theirs."""
    notes, known, key = Notes(), servers_of(project), f"agents.{config.name}"
    for agent in read_agents(project.root, config):
        for name in agent.servers:
            if problem := server_problem(project, name.text, known):
                notes.error(name.where, f"{key}.servers", *problem)
        names = [each.text for each in agent.servers] if agent.has_all_servers else known
        for server, patterns in agent.filters:
            if server.text not in names:
                note = notes.warn if server.text in known else notes.error
                note(server.where, f"{key}.tools", *unused_filter(server.text, names, known))
            elif patterns and (tools := _tools_of(project, server.text)):
                _check_patterns(server.text, patterns, tools, f"{key}.tools", notes)
    return notes.sorted([])


def file_warnings(project: Project, config: AgentConfig) -> tuple[Mistake, ...]:
    """What an agent's files name that is not there, or cannot matter, and does not keep it from its start."""
    found = (each for each in server_mistakes(project, config) if each.level == "warning")
    folder = config.card if config.card is not None and is_folder(config.card) else None
    others = passed_over(project.root, folder) if folder is not None else ()
    return (*found, *skill_warnings(project, config), *others)


def skill_warnings(project: Project, config: AgentConfig) -> tuple[Mistake, ...]:
    """Folders of skills that are not there, or have no skill: the agent starts without them. Blocks."""
    notes = Notes()
    for agent in read_agents(project.root, config):
        for name in agent.skills:
            if words := missing_skills(project.root, name.text):
                notes.warn(name.where, f"agents.{config.name}.skills", *words)
    return notes.sorted([])


def servers_of(project: Project) -> tuple[str, ...]:
    """The names under ``mcp.servers``."""
    mcp = project.settings.get("mcp")
    servers = mcp.get("servers") if isinstance(mcp, Mapping) else None
    return tuple(servers) if isinstance(servers, Mapping) else ()


def server_problem(project: Project, name: str, known: Collection[str]) -> tuple[str, ...]:
    """Problem and hints for a server that an agent uses and the project does not have, or cannot use.

    Empty for any other; ``known`` are the names under ``mcp.servers``.
    """
    if name not in known:
        hint = allowed(known) or "add it to the fast-agent configuration"
        return f"uses server {name}, which is not under mcp.servers", hint, did_you_mean(name, known)
    if reason := project.unusable_servers.get(name):
        return f"uses server {name}, which {reason}", "correct its entry, or remove the server from the agent"
    return ()


def unused_filter(name: str, servers: Collection[str], known: Collection[str]) -> tuple[str, str, str]:
    """Problem and hints for a filter of a server that the agent does not use."""
    may = [each for each in servers if each in known] or known
    return f"filters server {name}, which is not among its servers", allowed(may), did_you_mean(name, may)


def _tools_of(project: Project, server: str) -> tuple[str, ...]:
    """The tools of a server that is a script of the project, by its text; empty if that does not say."""
    downstream = project.downstreams.get(server)
    command = downstream.command if downstream is not None else ()
    scripts = (project.root / each for each in command[1:] if each.endswith(".py"))
    tree = parsed(path) if (path := next(scripts, None)) is not None else None
    if tree is None or any(
        isinstance(node, ast.Attribute) and node.attr in _REGISTERS for node in ast.walk(tree)
    ):
        return ()
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            for decorator in node.decorator_list:
                called = decorator.func if isinstance(decorator, ast.Call) else decorator
                if not isinstance(called, ast.Attribute) or called.attr != "tool":
                    continue
                name = _given_name(decorator)
                if name is None:
                    return ()
                found.append(name or node.name)
    return tuple(found)


def _given_name(decorator: ast.expr) -> str | None:
    """The name that ``@server.tool(...)`` gives; empty without one, None if it is not written out."""
    if not isinstance(decorator, ast.Call):
        return ""
    given = [*decorator.args, *(each.value for each in decorator.keywords if each.arg in ("name", None))]
    if not given:
        return ""
    return given[0].value if isinstance(given[0], ast.Constant) and isinstance(given[0].value, str) else None


def _check_patterns(
    server: str, patterns: tuple[Name, ...], tools: Collection[str], key: str, notes: Notes
) -> None:
    for pattern in patterns:
        if not any(fnmatch(tool, pattern.text) for tool in tools):
            problem = f"{pattern.text} matches no tool of server {server}"
            notes.warn(pattern.where, key, problem, allowed(tools), did_you_mean(pattern.text, tools))


def parsed(path: Path) -> ast.Module | None:
    """The tree of a module, None if it cannot be parsed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(path.read_bytes(), path.name)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None  # reported elsewhere


def _of_module(path: Path, file: str) -> Iterator[AgentText]:
    if (tree := parsed(path)) is None:
        return
    reader = _ModuleReader(file, tree)
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    adds_models = not names.isdisjoint(_MODEL_TABLES)
    for decorator in _decorators(tree):
        yield replace(reader.agent(decorator), adds_models=adds_models)


def _decorators(tree: ast.Module) -> Iterator[ast.Call]:
    """Each ``@object.name(...)`` of a module, in the order in which they are applied: the lowest first."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            for decorator in reversed(node.decorator_list):
                if isinstance(decorator, ast.Call) and isinstance(decorator.func, ast.Attribute):
                    yield decorator


def instructions_in(tree: ast.Module) -> Iterator[ast.expr]:
    """The expressions that the decorators of a module are given as instructions, of a name what it is."""
    reader = _ModuleReader("", tree)
    for call in _decorators(tree):
        if isinstance(call.func, ast.Attribute) and call.func.attr in _DECORATORS:
            given = [each.value for each in call.keywords if each.arg == "instruction"]
            for node in given or call.args[_DECORATORS[call.func.attr] + 1 :][:1]:
                if (found := reader.value(node)) is not None:
                    yield found


@dataclass
class _ModuleReader:
    """Reads decorators of a module; ``constants`` are its names that are assigned once, at the top."""

    file: str
    tree: ast.Module
    constants: dict[str, ast.expr] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.tree.body:
            if isinstance(node, ast.Assign) and len(node.targets) == 1:
                target = node.targets[0]
                if isinstance(target, ast.Name) and target.id not in self.constants:
                    self.constants[target.id] = node.value
                elif isinstance(target, ast.Name):
                    self.constants[target.id] = ast.Name("", ast.Load())

    def agent(self, call: ast.Call) -> AgentText:
        """What a decorator such as ``@fast.agent(...)`` says."""
        given = {each.arg: each.value for each in call.keywords if each.arg is not None}
        model = self._name(given.get("model"))
        computed = model is None and "model" in given
        skills = tuple(self._folders(given.get("skills")))
        if CONNECT in given:
            return AgentText(model=model, computes_model=computed, skills=skills)
        servers, whole = self._names(given.get("servers"))
        filters = tuple(
            (name, self._names(value)[0] if kind == "tools" else ())
            for kind in FILTERS
            if isinstance(written := self.value(given.get(kind)), ast.Dict)
            for key, value in zip(written.keys, written.values, strict=True)
            if (name := self._name(key))
        )
        kind = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        default = self.value(given.get("default"))
        return AgentText(
            servers,
            filters,
            model,
            whole and len(given) == len(call.keywords),
            computed,
            "model" not in given and kind in _AGENTS and len(given) == len(call.keywords),
            name=self._agent_name(call, given, _DECORATORS.get(kind)),
            is_default=isinstance(default, ast.Constant) and default.value is True,
            skills=skills,
        )

    def _folders(self, node: ast.expr | None) -> Iterator[Name]:
        """The folders of ``skills``: a text, ``Path("text")``, or a list of them."""
        node = self.value(node)
        for each in node.elts if isinstance(node, ast.List | ast.Tuple) else [node]:
            match self.value(each):
                case ast.Call(
                    func=ast.Name(id="Path") | ast.Attribute(attr="Path"), args=[text], keywords=[]
                ):
                    found = self._name(text)
                case other:
                    found = self._name(other)
            if found is not None:
                yield found

    def _agent_name(self, call: ast.Call, given: Mapping[str, ast.expr], position: int | None) -> Name | None:
        """The name of the agent; None for no agent, or one whose name could not be read."""
        if position is None or len(given) != len(call.keywords):
            return None
        if any(isinstance(each, ast.Starred) for each in call.args):
            return None
        written = call.args[position] if position < len(call.args) else given.get("name")
        if written is None:
            return Name(_UNNAMED, Where(self.file, call.lineno, call.col_offset + 1))
        return self._name(written)

    def _names(self, node: ast.expr | None) -> tuple[tuple[Name, ...], bool]:
        """The texts of a list, and whether those are all."""
        node = self.value(node)
        if node is None:
            return (), True
        if not isinstance(node, ast.List | ast.Tuple | ast.Set):
            return (), False
        found = [self._name(each) for each in node.elts]
        return tuple(each for each in found if each is not None), None not in found

    def _name(self, node: ast.expr | None) -> Name | None:
        node = self.value(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return Name(node.value, Where(self.file, node.lineno, node.col_offset + 1))
        return None

    def value(self, node: ast.expr | None) -> ast.expr | None:
        """What a name stands for; any other expression as it is."""
        return self.constants.get(node.id, node) if isinstance(node, ast.Name) else node
