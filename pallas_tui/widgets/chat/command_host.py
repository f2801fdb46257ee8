"""Slash commands on a conversation on the screen."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol

from textual.app import App
from textual.message import Message

from pallas.commands import COMMANDS, ChatHost, CommandOutcome, ShownParameter, Typed, parameter_text
from pallas.model import (
    AgentDetail,
    AgentSnapshot,
    Fault,
    FaultType,
    FleetPort,
    Params,
    ServerDetail,
    ThreadRecord,
)
from pallas.safe_text import one_line

from ...chat import chat_principal as principals
from ...chat.chat_export import ConversationFacts, Form, exported, file_name, form_of, write_new
from ...chat.chat_principal import NOBODY, ChatPrincipal
from ...chat.conversation import ChatConversation
from ...chat.mcp_talk import ERAS, Talk
from ...chat.prompt_history import PromptHistory
from ...chat.token_prices import tokens
from ...instances.attached_snapshots import is_attached_name
from ...mcp_link import is_plain, origin_of
from ...pictures.images import user_path
from ...targets import Reveal, ThreadTarget
from ..dialogs.choice_dialog import ChoiceScreen
from ..dialogs.line_dialog import LineScreen, masked_token
from .chat_desk import ChatDesk, setting
from .chat_dialogs import ConfirmScreen
from .picture_tray import Tray
from .thread_title import rename

_LISTED: Final = 20
"""Threads in the list."""
_SWITCH: Final = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}


class Line(Protocol):
    """The text area in which a command is typed."""

    text: str

    def load_text(self, text: str) -> None:
        """Replace its text."""
        ...


class Slash:
    """Runs commands for ``host``; ``tell`` gets the result of each.

    A command stays in its line until it is done, and then goes into the history. One about a credential is
    removed at once, and goes into no history.
    """

    def __init__(
        self, host: ChatHost, history: PromptHistory, tell: Callable[[CommandOutcome], None]
    ) -> None:
        self._host, self._history, self._tell = host, history, tell

    async def run(self, typed: Typed, line: Line | None = None) -> None:
        """Run the command, and clear ``line`` if it was typed there."""
        text = line.text if line is not None else ""
        secret = typed.command == "set" and typed.rest.lower().startswith("bearer")
        if secret and line is not None:
            line.load_text("")
        outcome = await COMMANDS.run(self._host, typed)
        if outcome.ok and line is not None and line.text == text:
            line.load_text("")
        if outcome.ok and not secret:
            self._history.add(text)
        self._tell(outcome)


class HostedView(Protocol):
    """The part of a conversation view that slash commands use."""

    conversation: ChatConversation
    talk: Talk
    desk: ChatDesk
    beside: str
    known: tuple[AgentSnapshot, ...]

    @property
    def app(self) -> App[Any]: ...
    @property
    def tray(self) -> Tray: ...
    @property
    def url(self) -> str: ...
    @property
    def model(self) -> str: ...

    def touch(self) -> None: ...
    def judge(self) -> None: ...
    def attach(self) -> None: ...
    def retry(self) -> None: ...
    def ask_beside(self, agents: tuple[str, ...]) -> None: ...
    def post_message(self, message: Message) -> bool: ...


class ViewHost:
    """The ``ChatHost`` of one conversation. Runs in a worker: it may ask the user, and wait."""

    def __init__(self, view: HostedView) -> None:
        self._view = view
        self._known: list[ThreadRecord] = []

    def parameters(self) -> Sequence[ShownParameter]:
        """Return all parameters but those of the model."""
        view, options = self._view, self._view.talk.options
        agents = tuple(agent.name for agent in view.known)
        return (
            ShownParameter(
                "name", view.conversation.name or view.conversation.agent, "The title of the thread."
            ),
            ShownParameter(
                "protocol",
                _with(view.talk.era, view.talk.protocol),
                "Protocol version: auto (newest first), modern (2026 only), handshake (before 2026).",
                tuple(ERAS),
            ),
            ShownParameter(
                "stream", "on" if options.stream else "off", "Show text while it is written.", ("on", "off")
            ),
            ShownParameter(
                "bearer",
                options.principal.label,
                "Whose bearer to send: none, $NAME (a variable of the environment), or ask (typed, masked).",
                ("none", "ask", *self._callers, *principals.names_of()),
            ),
            ShownParameter(
                "side", view.beside or "off", "Agents that are asked side by side, or off.", ("off", *agents)
            ),
        )

    async def set(self, name: str, value: str) -> str:
        """Set one parameter."""
        view = self._view
        match name:
            case "name":
                told = await rename(view.app, view.conversation, value)
                name = view.conversation.name or view.conversation.agent
                return f"This conversation is called {name} now. {told}".rstrip()
            case "protocol":
                if value.lower() not in ERAS:
                    raise _wrong(f"{one_line(value, 40)} is not one of {', '.join(ERAS)}.")
                view.talk.choose_era(ERAS[value.lower()])
                view.touch()
                return f"From the next message on: {value.lower()}. The conversation continues."
            case "stream":
                if value.lower() not in _SWITCH:
                    raise _wrong("stream is on or off.")
                view.talk.choose_stream(_SWITCH[value.lower()])
                return f"Text while it is written is {'on' if view.talk.options.stream else 'off'}."
            case "bearer":
                return await self._bearer(value)
            case _:
                names = () if value.lower() == "off" else tuple(value.replace(",", " ").split())
                view.ask_beside(names)
                return ""

    async def _bearer(self, value: str) -> str:
        if value.lower() in ("none", "off", "nobody"):
            return await self.ask_as(NOBODY)
        if value.lower() == "ask":
            token = await self._view.app.push_screen_wait(masked_token("Bearer for this conversation"))
            return await self.ask_as(principals.typed(token)) if token else "Nothing was changed."
        if value in self._callers:
            return await self.ask_as(replace(principals.from_environment(self._callers[value]), source=value))
        if not value.startswith("$"):
            raise _wrong(
                "A token is never typed here, where it can be seen. /set bearer ask takes it in a masked "
                "line, /set bearer $NAME from a variable of the environment."
            )
        return await self.ask_as(principals.from_environment(value))

    async def choose_principal(self) -> str:
        """Let the user choose among saved names, variables, nobody, and the masked line."""
        choices = principals.choices(self._callers)
        source = self._view.talk.options.principal.source or "none"
        now = next((index for index, (value, _) in enumerate(choices) if value == source), 0)
        lines = [line for _, line in choices]
        index = await self._view.app.push_screen_wait(ChoiceScreen("Ask as", lines, now))
        return await self._bearer(choices[index][0]) if index is not None else ""

    @property
    def _callers(self) -> Mapping[str, str]:
        """The variables that the user gave a name in the settings."""
        callers: Mapping[str, str] = setting(self._view.app, "callers", {})
        return callers

    async def ask_as(self, principal: ChatPrincipal) -> str:
        """Ask as ``principal`` from now on; without encryption the user must confirm."""
        view = self._view
        if view.conversation.run is not None:
            principal.release()
            raise _wrong("An answer is under way; wait for it, or cancel it with ctrl+k.")
        url = view.url
        plain = bool(principal.token) and is_plain(url)
        if plain and not await self._may_go_in_clear(url):
            principal.release()
            return "Nothing was changed."
        began = not view.conversation.untouched
        view.talk.choose_principal(principal, url if plain else "")
        view.judge()
        view.touch()
        note = " The messages so far are sent with it: for another caller the conversation starts over."
        return f"From the next message on you ask as {principal.label}.{note if began else ''}"

    async def _may_go_in_clear(self, url: str) -> bool:
        scheme, host, port = origin_of(url)
        question = (
            f"{scheme}://{one_line(host, 80)}:{port} is another machine, and the way there is not encrypted: "
            "everyone on it can read the token. Send it anyway?"
        )
        screen: ConfirmScreen = ConfirmScreen("Unencrypted", question)
        return await self._view.app.push_screen_wait(screen) is True

    async def describe(self) -> AgentDetail:
        """Return the fleet's details of the agent; for a remote agent what its endpoint offers."""
        view = self._view
        name = view.conversation.agent
        fleet = getattr(view.app, "fleet", None)
        if fleet is not None and not is_attached_name(name):
            detail: AgentDetail = await fleet.describe(name)
            return detail
        offered = await view.talk.offered(view.url)
        return AgentDetail(
            name,
            servers=(
                ServerDetail("", offered, problem="" if offered else "its endpoint does not list its tools"),
            ),
        )

    async def clear(self) -> str:
        """Begin again in the same tab."""
        if not self._view.conversation.clear():
            raise _wrong("An answer is under way; wait for it, or cancel it with ctrl+k.")
        return ""

    async def export(self, form: str, path: str) -> str:
        """Write the transcript; without ``path`` ask for the file."""
        view = self._view
        if view.conversation.untouched:
            raise _wrong("This conversation has no messages yet.")
        if not path:
            suggested = file_name(view.conversation, view.desk.clock(), "json" if form == "json" else "md")
            answer = await view.app.push_screen_wait(
                LineScreen(
                    "Write the transcript to",
                    f"in {view.desk.base}; *.json for JSON, else Markdown. Escape leaves.",
                    suggested,
                )
            )
            if not (answer or "").strip():
                return "Nothing was written."
            path = str(answer).strip()
        target = user_path(path, view.desk.base)
        kind: Form = "json" if form == "json" else "md" if form == "md" else form_of(target)
        if not target.suffix:
            target = target.with_name(f"{target.name}.{kind}")
        text = exported(view.conversation, self._about(), kind)
        await asyncio.to_thread(write_new, target, text)
        return f"Written to {one_line(str(target), 300)} ({'JSON' if kind == 'json' else 'Markdown'})."

    def _about(self) -> ConversationFacts:
        view = self._view
        return ConversationFacts(
            agent=view.conversation.agent,
            url=view.url,
            model=view.model,
            era=view.talk.era,
            protocol=view.talk.protocol,
            principal=view.talk.options.principal.fingerprint,
        )

    def facts(self) -> Sequence[tuple[str, str]]:
        """Return handle, agent, principal, protocol and totals."""
        view, conversation = self._view, self._view.conversation
        answers = [entry for entry in conversation.transcript if entry.role == "assistant"]
        took, gave = (sum(number or 0 for number in numbers) for numbers in _tokens_of(answers))
        last = answers[-1] if answers else None
        return (
            ("conversation", conversation.handle),
            ("thread", conversation.thread if conversation.thread != conversation.handle else ""),
            ("belongs to", conversation.owner),
            ("agent", conversation.agent),
            ("endpoint", view.url),
            ("model", view.model),
            ("parameters", params_fact(conversation.params)),
            ("protocol", _with(view.talk.era, view.talk.protocol)),
            ("asked as", view.talk.options.principal.label),
            ("messages", str(sum(entry.role != "note" for entry in conversation.transcript))),
            ("tokens", f"{tokens(took)} in, {tokens(gave)} out" if took or gave else ""),
            ("cost", conversation.spent.text),
            ("time", f"{sum(entry.seconds or 0.0 for entry in answers):.1f} s" if answers else ""),
            ("last run", (last.run_id or "") if last is not None else ""),
            ("trace", (last.trace_id or "") if last is not None else ""),
        )

    async def quit(self) -> None:
        """Leave the workbench, as its key does."""
        await self._view.app.run_action("quit")

    # Parameters

    def overrides(self) -> Params:
        """Return those of this tab, which go with each message."""
        return self._view.conversation.params

    def override(self, params: Params) -> None:
        """Use these from the next message on. Raises Fault for an agent without such parameters."""
        name = self._view.conversation.agent
        fleet: FleetPort | None = getattr(self._view.app, "fleet", None)
        agent = fleet.snapshot().agent(name) if fleet is not None else None
        if params and agent is not None and agent.kind == "worker":
            problem = f"{one_line(name, 80)} is a worker and takes no parameters: nothing was changed."
            raise Fault(FaultType.CONFIG, problem)
        self._view.conversation.params = params
        self._view.touch()

    async def save(self, params: Params) -> str:
        """Save them on top of the agent's own. Raises Fault."""
        agent = self._view.conversation.agent
        return await self._fleet("its defaults are kept where it runs").save_params(agent, params.to_json())

    # Threads

    def known_threads(self) -> Sequence[str]:
        """Return the threads that ``threads`` listed last."""
        return [record.id for record in self._known]

    async def threads(self) -> Sequence[ThreadRecord]:
        """Return the agent's threads, the last used first. Raises Fault."""
        fleet = self._fleet("its threads are kept where it runs")
        self._known = list((await fleet.threads(self._view.conversation.agent, _LISTED)).items)
        return self._known

    async def resume(self, thread: str) -> str:
        """Open a thread in a tab of its own. Raises Fault."""
        agent = self._view.conversation.agent
        record = await self._fleet("its threads are kept where it runs").thread(agent, thread)
        self._view.post_message(Reveal(ThreadTarget(record)))
        return ""

    def _fleet(self, otherwise: str) -> FleetPort:
        """Return the fleet of the agent. Raises Fault for a remote agent."""
        name = self._view.conversation.agent
        fleet: Any = getattr(self._view.app, "fleet", None)
        if is_attached_name(name):
            raise Fault(FaultType.CONFIG, f"{one_line(name, 80)} belongs to another fleet: {otherwise}.")
        if fleet is None:
            raise Fault(FaultType.TRANSPORT, "The fleet is not running.")
        found: FleetPort = fleet
        return found

    # Attachments and retries

    async def attach(self, path: str) -> str:
        """Attach this picture to the next message; without a path choose one."""
        if not path:
            self._view.attach()
        else:
            tray = self._view.tray
            if not await tray.take(user_path(path, self._view.desk.base)):
                raise Fault(FaultType.CONFIG, "Nothing was attached.")
        return ""

    async def retry(self) -> str:
        """Ask the last question again."""
        self._view.retry()
        return ""


def _tokens_of(answers: Sequence[Any]) -> tuple[list[int | None], list[int | None]]:
    return [entry.tokens_in for entry in answers], [entry.tokens_out for entry in answers]


def _with(era: str, protocol: str) -> str:
    return f"{era} ({protocol})" if protocol else era


def _wrong(problem: str) -> Fault:
    return Fault(FaultType.CONFIG, problem)


def params_fact(params: Params) -> str:
    """Return the parameters that are set, in one line; empty when there are none."""
    return one_line(", ".join(f"{name} {value}" for name, value in parameter_text.lines(params)), 300)
