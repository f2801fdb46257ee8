"""Loads a FastAgent object from a module or a card."""

import logging
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

from fast_agent import FastAgent
from pydantic import ValidationError

from pallas.config import AgentConfig, Mistake, Project, Where
from pallas.config.agent_choice import AgentChoice, choose
from pallas.config.agent_code import (
    WRITE_FAST,
    hidden_cards,
    hidden_fast,
    no_model,
    parsed,
    server_mistakes,
    server_problem,
    unused_filter,
)
from pallas.config.cards import FOLDERS, card_files, own_files, read_cards
from pallas.config.code import code_file
from pallas.config.fastagent import HOME
from pallas.config.files import module_file, shown
from pallas.config.included_files import included_urls, missing_includes, unfetched
from pallas.executors.project_imports import LOADING, import_context, import_fault, module_of
from pallas.executors.project_imports import forget as forget
from pallas.mcp_client import library_hooks, mcp_seam, stdio_seam
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line
from pallas.telemetry.log import reapply_logging

from . import (
    answers_seam,
    card_seam,
    commands_seam,
    downstreams_seam,
    elicitation_seam,
    environment_seam,
    lean_seam,
    log_seam,
    quick_connect,
    replay_seam,
    sampling_seam,
    seam,
)
from .agent_definition import define
from .preload import files_of
from .reimport import note
from .seam import SETTINGS, introduce, isolate_instances, named_servers, plain_argv, settings_of, silence
from .settings_refusals import settings_mistakes

log = logging.getLogger(__name__)

HOOKS: Final = (
    answers_seam.HOOK,
    log_seam.HOOK,
    log_seam.DRAINED,
    log_seam.EVENTS,
    log_seam.WAITING,
    *mcp_seam.HOOKS,
    *stdio_seam.HOOKS,
    *replay_seam.HOOKS,
    lean_seam.NO_SUMMARY_AFTER,
    lean_seam.IDS_OF_SEARCHES,
    *lean_seam.SKILLS_WITHOUT_SETTINGS,
    elicitation_seam.HOOK,
    environment_seam.HOOK,
    environment_seam.OUTPUT,
    sampling_seam.HOOK,
    SETTINGS,
)
"""What Pallas changes in fast-agent and the MCP SDK for every agent, in this order."""


def load(project: Project, agent: AgentConfig, *, fresh: bool = False) -> FastAgent:
    """Return the agent's FastAgent, silenced. Blocks while the user's code is imported.

    ``fresh`` imports the agent's module again, and the project modules that it imports; other agents keep
    the old modules, and so does this one if the import fails. Raises Fault (CONFIG) if the module does not
    import, has no ``fast``, or the card is invalid. The message names the file and line inside the project;
    the traceback is the fault's cause.
    """
    with LOADING, plain_argv():
        commands_seam.install()
        quick_connect.install()
        downstreams_seam.install()
        for hook in HOOKS:
            library_hooks.install(hook)
        library_hooks.tell()
        try:
            # A definition runs no user code.
            with import_context(project, agent.name, fresh=fresh and agent.definition is None):
                fast = _made(project, agent, fresh=fresh)
        except Fault:
            raise
        except BaseException as error:  # a user's module may raise anything
            if isinstance(error, ValidationError):
                for refused in settings_mistakes(project.root, project.config_file)[:1]:
                    raise _settings_fault(refused) from None  # its own words repeat the value
            if known := _url_fault(project, agent, error):
                raise known from None
            place = str(agent.card.name if agent.card else agent.module or agent.where)
            fault = import_fault(project, place, error)
            raise fault from error
        finally:
            reapply_logging()  # the user's code may have changed the logging
        note(files_of(project, agent))
        silence(fast)
        isolate_instances(fast)
        introduce(fast)
        return fast


def _settings_fault(refused: Mistake) -> Fault:
    place = str(refused.where)
    text = f"{place}: {refused.key} {refused.problem}; {refused.hint}"
    return Fault(FaultType.CONFIG, text, data={"place": place})


def defined_at(project: Project, agent: AgentConfig, source: tuple[str, int]) -> str:
    """Return where an agent is defined, relative to the project; its card or module if ``source`` is
    elsewhere."""
    if agent.definition is not None:
        return str(agent.where)
    file, line = source
    path = Path(file) if file else agent.card
    if path is None or not path.is_absolute() or not path.is_relative_to(project.root):
        path = agent.card or module_file(project.root, agent.module or "")
        line = 0
    if path is None:
        return one_line(agent.module or "")
    shown = path.relative_to(project.root) if path.is_relative_to(project.root) else path
    return one_line(f"{shown}:{line}" if line else f"{shown}")


def choose_agent(project: Project, agent: AgentConfig, fast: FastAgent) -> AgentChoice:
    """Return the agent that an entry serves. Raises Fault (CONFIG) if there is none, or none is named so."""
    if agent.definition is not None:
        return AgentChoice(agent.name)
    path = code_file(project.root, agent)
    place = shown(project.root, path) if path is not None else agent.module or ""
    own = {each.resolve() for each in own_files(agent.card)} if agent.card is not None else None
    choice = choose(agent.name, agent.agent, seam.candidates_of(fast, own), place)
    if not choice.name and choice.words:
        problem, *hints = choice.words
        key = f"agents.{agent.name}.{choice.key}"
        raise _mistake_fault(Mistake(agent.where, key, problem, "; ".join(filter(None, hints))))
    if not choice.name and (cards := hidden_cards(project.root, agent)):
        raise _mistake_fault(Mistake(cards[0].where, f"agents.{agent.name}.module", cards[0].text, cards[1]))
    if not choice.name:
        raise Fault(FaultType.CONFIG, f"{place}: defines no agent; {_where_agents_are(project.root)}")
    return choice


def start_fault(project: Project, agent: AgentConfig, place: str, fault: Fault) -> Fault | None:
    """Return what a failed start is due to: an include of the agent's instruction, or the project's code.

    ``place`` is where the agent is defined. Blocks.
    """
    for mistake in missing_includes(project.root, agent, parsed):
        name = mistake.problem.removeprefix("includes ").partition(", which ")[0]
        if agent.card is not None or name in fault.message:
            return _mistake_fault(mistake)
    if fault.type is FaultType.INTERNAL and fault.__cause__ is not None:
        return import_fault(project, place, fault.__cause__)
    return None


def _url_fault(project: Project, agent: AgentConfig, error: BaseException) -> Fault | None:
    """Return what a failed import is due to, if that is a URL in an instruction that gives no text."""
    if not isinstance(error, ValueError) or "URL template" not in str(error):
        return None
    for where, url in included_urls(project.root, agent, parsed):
        if f" {url}: " in str(error):
            return _mistake_fault(unfetched(agent, where, url, error.__cause__ or error))
    return None


def _where_agents_are(root: Path) -> str:
    """Return what to write for a module without an agent; fast-agent may load cards beside it."""
    for folder in (f"{HOME}/{FOLDERS[0]}", *FOLDERS):
        if card_files(root / folder):
            return f"decorate a function with @fast.agent(...), or serve the cards: `card: {folder}`"
    return "decorate a function with @fast.agent(...)"


def check_models(project: Project, agent: AgentConfig, fast: FastAgent, served: str) -> None:
    """Raise Fault (CONFIG) for an agent without a model: fast-agent makes none of a definition then.

    The agent ``served`` has that of its providers, if the entry has some.
    """
    if agent.definition is not None:
        return
    for name in seam.without_model(fast):
        if name == served and agent.providers:
            continue
        where = Where(
            defined_at(project, agent, seam.source_of(fast, name)), 1 if agent.card is not None else 0
        )
        words = no_model(project, name, "model:" if agent.card is not None else 'model="..."')
        mistake = Mistake(where, f"agents.{agent.name}.model", *words)
        raise Fault(FaultType.CONFIG, str(mistake), data={"place": str(where)})


def check_servers(project: Project, agent: AgentConfig, fast: FastAgent) -> None:
    """Raise Fault (CONFIG) for a downstream that is not there or cannot be used, or that only a filter names.

    fast-agent would let all tools pass such a filter. The words are those of ``pallas check``; its warnings
    are logged.
    """
    mcp = settings_of(fast).mcp
    problems: list[tuple[str, ...]] = []
    known = tuple(mcp.servers) if mcp else ()
    for servers, filtered in named_servers(fast):
        problems += filter(None, (server_problem(project, name, known) for name in servers))
        strange = (name for name in filtered if name not in (*servers, *known))
        problems += [unused_filter(name, servers, known) for name in strange]
    if not problems:
        for warning in (
            server_mistakes(project, agent) if any(each for _, each in named_servers(fast)) else ()
        ):
            log.warning("%s", warning, extra={"agent": agent.name})
        return
    written = {each.problem: each for each in server_mistakes(project, agent)}
    problem, *hints = problems[0]
    where, key = Where(defined_at(project, agent, ("", 0))), f"agents.{agent.name}.servers"
    raise _mistake_fault(written.get(problem) or Mistake(where, key, problem, "; ".join(filter(None, hints))))


def _imported(project: Project, name: str, *, fresh: bool) -> ModuleType:
    """Return the module. A fresh start runs a module of an installed package again: each version needs its
    own ``fast``."""
    if not fresh or module_file(project.root, name) is not None or (before := sys.modules.get(name)) is None:
        return module_of(name)
    del sys.modules[name]
    try:
        return module_of(name)
    except BaseException:
        sys.modules[name] = before
        raise


def _module(project: Project, agent: AgentConfig, *, fresh: bool) -> FastAgent:
    assert agent.module
    module = _imported(project, agent.module, fresh=fresh)
    return _fast_of(project, agent, module)


def _fast_of(project: Project, agent: AgentConfig, module: ModuleType) -> FastAgent:
    """Return the module's FastAgent: the one called ``fast``, else the only one, under any name.

    Of several, the only one with an agent that the entry names. Raises Fault (CONFIG).
    """
    found = {name: each for name, each in vars(module).items() if isinstance(each, FastAgent)}
    if isinstance(fast := found.get("fast"), FastAgent):
        return fast
    known = {id(each): each for each in found.values()}
    if len(known) > 1:
        wanted = {agent.name, agent.agent}
        known = {key: each for key, each in known.items() if wanted & each.agents.keys()} or known
    if len(known) == 1:
        return next(iter(known.values()))
    path = module_file(project.root, agent.module or "")
    place = one_line(shown(project.root, path) if path is not None else agent.module or "")
    if known:
        problem = f"has several FastAgents ({', '.join(found)}), and none is called fast"
        hint = "name the entry after an agent of one of them, or put each into a module of its own"
        raise Fault(FaultType.CONFIG, f"{place}: {one_line(problem)}; {hint}")
    if path is not None and (hidden := hidden_fast(project.root, path)):
        raise Fault(FaultType.CONFIG, f"{hidden.where}: {hidden.text}; {WRITE_FAST}")
    has = f"`fast` is {type(module.fast).__name__}" if hasattr(module, "fast") else "has no `fast`"
    raise Fault(FaultType.CONFIG, f"{place}: {has} and no other FastAgent; {WRITE_FAST}")


def _made(project: Project, agent: AgentConfig, *, fresh: bool) -> FastAgent:
    if agent.definition is not None:
        return define(project, agent)
    return _card(project, agent) if agent.card else _module(project, agent, fresh=fresh)


def _mistake_fault(mistake: Mistake) -> Fault:
    return Fault(FaultType.CONFIG, str(mistake), data={"place": str(mistake.where)})


def _card(project: Project, agent: AgentConfig) -> FastAgent:
    assert agent.card
    cards = read_cards(project.root, agent.card)
    if cards.missing:
        missing = cards.missing[0]
        problem, *hints = missing.words
        key = f"agents.{agent.name}.card"
        raise _mistake_fault(Mistake(missing.where, key, problem, "; ".join(filter(None, hints))))
    fast = FastAgent(agent.name, parse_cli_args=False, quiet=True)
    loaded = []
    for card in cards.cards:
        found = card_seam.card_mistakes(project.root, card, f"agents.{agent.name}.card")
        for mistake in found:
            if mistake.level == "error":
                raise _mistake_fault(mistake)
        try:
            loaded += fast.load_agents(card.path)
        except Exception as error:
            if known := _url_fault(project, agent, error):
                raise known from None
            raise import_fault(project, shown(project.root, card.path), error) from error
    if not loaded:
        raise Fault(FaultType.CONFIG, f"{agent.card.name} defines no agent; see docs/configuration.md, cards")
    return fast
