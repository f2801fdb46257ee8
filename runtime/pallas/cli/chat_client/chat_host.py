"""The conversation at the prompt, as slash commands see it."""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from pallas.bounds.images import MAX_IMAGES
from pallas.client import RestClient
from pallas.client.rest_client import part
from pallas.commands import ShownParameter, parameter_text
from pallas.model import NO_COST, AgentDetail, Fault, FaultType, Image, Params, ServerDetail, ThreadRecord
from pallas.model.money import cost_in
from pallas.safe_text import one_line

from .chat_options import ChatOptions, image_at
from .chat_requests import thread_named
from .chat_turn import ChatReply
from .transcript_file import rendered, target_of, write_new

_SWITCH: Final = {"on": True, "yes": True, "true": True, "off": False, "no": False, "false": False}
_LISTED: Final = 20
_MAX_EXPORT: Final = 10_000


class Host:
    """One conversation: its thread, its settings, and what goes with the next message.

    ``again`` is a message to send before the prompt is shown again; ``/quit`` sets ``leaving``.
    """

    def __init__(self, api: RestClient, options: ChatOptions, base: Path, about: Mapping[str, Any]) -> None:
        self._api, self._agent, self._base, self._about = api, options.agent, base, about
        self.thread = options.thread
        self.images: list[Image] = list(options.images)
        self.streams = options.stream is not False
        self.again: tuple[str, tuple[Image, ...]] | None = None
        self.leaving = False
        self._params = options.params
        self._known: tuple[str, ...] = ()
        self._last: tuple[str, tuple[Image, ...]] | None = None
        self._run = ""
        self._answers, self._seconds, self._tokens, self._cost = 0, 0.0, [0, 0], NO_COST

    def body(self, message: str, images: Sequence[Image]) -> dict[str, Any]:
        """Return the request body that sends ``message``."""
        self._last = message, tuple(images)
        body: dict[str, Any] = {"message": message, **self._params.to_json()}
        if self.thread:
            body["threadId"] = self.thread
        if images:
            body["images"] = [{"data": image.data, "mimeType": image.mime_type} for image in images]
        return body

    def answered(self, answer: ChatReply, run: Mapping[str, Any]) -> None:
        """Record an answer."""
        self.thread = answer.thread or self.thread
        self._run = answer.run or self._run
        self._answers += 1
        self._seconds += answer.seconds
        self._cost += cost_in(run, tree=True)
        usage = run.get("usage")
        if isinstance(usage, Mapping):
            for place, name in enumerate(("inputTokens", "outputTokens")):
                count = usage.get(name)
                self._tokens[place] += count if isinstance(count, int) else 0

    # ChatHost

    def parameters(self) -> Sequence[ShownParameter]:
        """Return the settings of the conversation."""
        return (
            ShownParameter(
                "stream", "on" if self.streams else "off", "Show text while it is written.", ("on", "off")
            ),
        )

    async def set(self, name: str, value: str) -> str:
        """Set one of them."""
        if value.lower() not in _SWITCH:
            raise _wrong("stream is on or off.")
        self.streams = _SWITCH[value.lower()]
        return f"Text while it is written is {'on' if self.streams else 'off'}."

    async def describe(self) -> AgentDetail:
        """Return the agent's details, from the control API if this user may use it, else from REST."""
        from pallas.model import codec

        try:
            return codec.decode(AgentDetail, await self._api.get(f"/fleet/agents/{part(self._agent)}"))
        except Fault as fault:
            why = fault.message
        except codec.Undecodable as error:
            why = str(error)
        agent_document = await self._api.get(f"/agents/{part(self._agent)}")
        instruction = agent_document.get("systemPrompt") if isinstance(agent_document, dict) else ""
        return AgentDetail(
            self._agent,
            instruction=str(instruction or ""),
            servers=(ServerDetail("", problem=f"its tools cannot be listed: {one_line(why, 200)}"),),
        )

    async def clear(self) -> str:
        """Start a new thread with the next message."""
        self.thread, self.images = "", []
        return "A new conversation begins with the next message."

    async def export(self, form: str, path: str) -> str:
        """Write the thread to a file; by default in the folder where the command was started."""
        if not self.thread:
            raise _wrong("This conversation has no messages yet.")
        found = self._api.items(f"/threads/{part(self.thread)}/messages", most=_MAX_EXPORT, visible=False)
        messages = [each async for each in found]
        target, kind = target_of(self._base, path, form, self._agent)
        write_new(target, rendered(kind, self._agent, self.thread, messages))
        return f"Written to {one_line(str(target), 300)} ({'JSON' if kind == 'json' else 'Markdown'})."

    def facts(self) -> Sequence[tuple[str, str]]:
        """Return the thread, its place, and the totals since the prompt started."""
        taken, given = self._tokens
        llm = self._about.get("llm")
        return (
            ("thread", self.thread or "none yet: the first message begins one"),
            ("agent", self._agent),
            ("model", str(llm.get("name") or "") if isinstance(llm, Mapping) else ""),
            ("fleet", self._api.place.origin + (" (started for this call)" if self._api.own else "")),
            ("set here", ", ".join(name for name, _ in parameter_text.lines(self._params))),
            ("answers", str(self._answers)),
            ("tokens", f"{taken} in, {given} out" if taken or given else ""),
            ("cost", self._cost.text),
            ("time", f"{self._seconds:.1f} s" if self._answers else ""),
            ("last run", self._run),
        )

    async def quit(self) -> None:
        """Leave the prompt."""
        self.leaving = True

    # Tunable

    def overrides(self) -> Params:
        """Return the parameters of this conversation."""
        return self._params

    def override(self, params: Params) -> None:
        """Use ``params`` from the next message on."""
        self._params = params

    async def save(self, params: Params) -> str:
        """Merge ``params`` into the agent's defaults."""
        path = f"/agents/{part(self._agent)}"
        agent_document = await self._api.get(path)
        agent = agent_document if isinstance(agent_document, dict) else {}
        merged = params.over(Params.read(agent.get("defaultParams") or {}, strict=False))
        # With the version that was read, so that another caller's save in between is not undone.
        change = {"defaultParams": merged.to_json(), "version": agent.get("version")}
        saved = await self._api.put(path, change)
        version = saved.get("version") if isinstance(saved, dict) else None
        names = ", ".join(f"{name} {value}" for name, value in parameter_text.lines(params))
        return f"Default of {self._agent} from now on: {names}" + (
            f" (version {version})." if version else "."
        )

    # Threaded

    def known_threads(self) -> Sequence[str]:
        """Return the threads listed so far."""
        return self._known

    async def threads(self) -> Sequence[ThreadRecord]:
        """Return the newest threads of this agent."""
        path = f"/agents/{part(self._agent)}/threads"
        found = [_thread(each, self._agent) async for each in self._api.items(path, most=_LISTED)]
        self._known = tuple(each.id for each in found)
        return found

    async def resume(self, thread: str) -> str:
        """Continue another thread, and return its last messages."""
        thread_document = await thread_named(self._api, thread, self._agent)
        record = _thread(thread_document if isinstance(thread_document, dict) else {}, self._agent)
        if record.agent != self._agent:
            raise _wrong(
                f"{one_line(thread, 200)} belongs to the agent {one_line(record.agent, 100)}: "
                f"pallas chat {one_line(record.agent, 100)} --thread {one_line(thread, 200)}"
            )
        self.thread = record.id or thread
        lines = [
            f"Continuing {self.thread}: {record.messages} messages. {one_line(record.title, 100)}".rstrip()
        ]
        with suppress(Fault):
            page = await self._api.get(f"/threads/{part(self.thread)}/messages", limit=6, order="desc")
            rows = [each for each in page.get("items", ()) if each.get("role") in ("user", "assistant")]
            for each in [row for row in rows if row.get("content")][1::-1]:
                who = "you" if each["role"] == "user" else self._agent
                lines.append(f"  {who}: {one_line(str(each['content']), 300)}")
        return "\n".join(lines)

    # Attaching, Repeating

    async def attach(self, path: str) -> str:
        """Send the picture with the next message."""
        if not path:
            raise _wrong("Which file? /image PATH takes a PNG, JPEG, GIF or WebP.")
        if len(self.images) >= MAX_IMAGES:
            raise _wrong(f"{MAX_IMAGES} pictures go with one message; send these first.")
        target = self._base / os.path.expanduser(path)  # noqa: ASYNC240, PTH111 - touches no file
        self.images.append(image_at(target))
        more = f", with {len(self.images) - 1} others" if len(self.images) > 1 else ""
        return f"{one_line(target.name, 100)} goes with the next message{more}."

    async def retry(self) -> str:
        """Send the last message again."""
        if self._last is None:
            raise _wrong("This conversation has no question yet.")
        self.again = self._last
        return f"Asking again: {one_line(self._last[0], 100)}"


def _thread(document: Mapping[str, Any], agent: str) -> ThreadRecord:
    theirs = document.get("agent")
    if isinstance(theirs, Mapping):
        theirs = theirs.get("name")
    messages = document.get("messages")
    return ThreadRecord(
        str(document.get("id") or ""),
        str(theirs or agent),
        str(document.get("ownerId") or ""),
        title=str(document.get("title") or ""),
        messages=messages if isinstance(messages, int) else 0,
        created_at=_at(document.get("createdAt")) or 0.0,
        last_turn_at=_at(document.get("lastTurnAt")),
    )


def _at(iso: Any) -> float | None:
    try:
        return datetime.fromisoformat(iso).timestamp()
    except (TypeError, ValueError):
        return None


def _wrong(problem: str) -> Fault:
    return Fault(FaultType.CONFIG, problem)
