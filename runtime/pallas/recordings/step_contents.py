"""What is new in each step of a run.

A model gets the whole conversation at each step, so one other word makes all later requests other ones. What
a step adds to the requests before it is what can be compared.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from itertools import takewhile
from typing import Any, Final

import msgspec

from pallas.model import RecordedRun, StepDetail
from pallas.model.canonical_form import CONVERSATIONS, VOLATILE_FIELDS
from pallas.model.step_view import StepView, view_of
from pallas.safe_text import sanitize

_MONTHS: Final = (
    "(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t(?:ember)?)?|"
    "Oct(?:ober)?|Nov(?:ember)?|Dec(?:ember)?)"
)
_DAYS: Final = "(?:(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?,? )?"
_CLOCK: Final = r"\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?: ?[AaPp][Mm]\b)?(?: ?Z\b| ?UTC\b|[+-]\d{2}:?\d{2}\b)?"
_TIMES: Final = re.compile(
    rf"\b{_DAYS}(?:\d{{4}}-\d{{2}}-\d{{2}}|\d{{1,2}} {_MONTHS}\.? \d{{4}}|{_MONTHS}\.? \d{{1,2}}, \d{{4}})"
    rf"(?:(?:T|,? )(?={_CLOCK}))?(?:(?<=[T ]){_CLOCK})?|(?<![\d:.]){_CLOCK}(?![\d:])"
)
"""ISO dates, ``28 November 2026``, ``November 28, 2026``, and clock times, also together."""
_TIME: Final = "[time]"


def without_times(text: str) -> str:
    """A text with the same word in place of each date and each time."""
    return _TIMES.sub(_TIME, text)


MAX_CONVERSATIONS: Final = 16
"""Conversations of a run that may go on in turn; what was said in an older one is known by its messages."""
_LEADING: Final = ("system", "developer")
_REPEATED: Final = frozenset({"assistant", "function", "model", "tool"})
# Of a message and its parts: ids, what only a provider can read, and what it may cache.
_VOLATILE: Final = frozenset({
    "id", "call_id", "tool_call_id", "tool_use_id",
    "cache_control", "encrypted_content", "signature", "thoughtSignature", "thought_signature",
})  # fmt: skip
# Parts of a message in which names are those of a tool.
_DATA: Final = frozenset({"arguments", "args", "input", "response"})
_UNREADABLE: Final = (msgspec.DecodeError, RecursionError, UnicodeError)
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A message that no request before had."""

    role: str
    text: str
    meaning: str  # JSON text without ids, and without times unless it is repeated
    is_repeated: bool  # it repeats what a step of the run, or of one before it, said or got


@dataclass(frozen=True, slots=True)
class RequestFrame:
    """What a request has apart from its conversation."""

    instructions: str = ""
    meaning: str = ""  # of the instructions: without times
    tools: Mapping[str, str] = field(default_factory=dict)  # JSON texts by name
    params: Mapping[str, str] = field(default_factory=dict)  # likewise
    digest: str = ""


NO_FRAME: Final = RequestFrame()


@dataclass(frozen=True, slots=True)
class StepContents:
    """A step with what is new in it. One of a model has a frame and messages, a call has arguments."""

    detail: StepDetail
    frame: RequestFrame = NO_FRAME
    messages: tuple[NewMessage, ...] = ()
    opens: bool = False  # a conversation: the messages are what it begins with
    arguments: str = ""  # JSON text
    reasoning: str = ""
    answer: str = ""  # with tool calls; the text of a result
    result: str = ""  # of a call: all of it, as JSON text


@dataclass(frozen=True, slots=True, eq=False)
class _Request:
    """A request to a model, with the messages that it adds to the one that it continues."""

    text: str
    fields: Mapping[str, bytes]
    items: Sequence[bytes] = ()
    leading: tuple[bytes, ...] = ()
    continues_last: bool = False  # the request before it, and not another one
    name: str = ""  # of the list of messages; empty without one
    head: Mapping[str, bytes] = field(default_factory=dict)  # the fields before the list
    end: int = 0  # the index of the bracket that ends the list

    def is_begun_by(self, former: "_Request") -> bool:
        """Whether it has all that ``former`` has up to the end of its messages."""
        near = max(0, former.end - 64)  # compared first, since most others differ there
        return self.text.startswith(former.text[near : former.end], near) and self.text.startswith(
            former.text[: former.end]
        )


class ContentsReader:
    """Reads the steps of runs. It parses what requests have in common once."""

    def __init__(self) -> None:
        self.parsed = 0
        """Characters of requests to models that were parsed."""
        self._frames: dict[tuple[bytes, ...], RequestFrame] = {}
        self._messages: dict[bytes, NewMessage] = {}

    def read(self, run: RecordedRun) -> list[StepContents]:
        """The contents of the steps of a run, in their order."""
        requests: list[_Request] = []
        known: set[str] = set()
        return [
            self._model_step(each, requests, known) if each.step.kind == "model" else _call(each)
            for each in run.steps
        ]

    def _model_step(self, detail: StepDetail, requests: list[_Request], known: set[str]) -> StepContents:
        request = self._request(detail.request, requests)
        messages = tuple(self._message(each) for each in request.items)
        opens = not request.continues_last and known.isdisjoint(each.meaning for each in messages)
        if not request.continues_last:
            messages = tuple(each for each in messages if each.meaning not in known)
        known.update(each.meaning for each in messages)
        if request.name:
            requests.append(request)
            del requests[:-MAX_CONVERSATIONS]
        view = view_of("", detail.response)
        return StepContents(
            detail,
            self._frame(request.fields, request.leading),
            messages,
            opens,
            reasoning=view.reasoning,
            answer=view.answer,
        )

    def _request(self, text: str, formers: list[_Request]) -> _Request:
        """Parse a request. The one that it continues is taken out of ``formers``."""
        request = _Request(text, {})
        for former in reversed(formers):
            if request.is_begun_by(former) and (found := self._continued(text, former)) is not None:
                found = replace(found, continues_last=former is formers[-1])
                formers.remove(former)
                return found
        self.parsed += len(text)
        try:
            fields = _fields(text) if text else {}
        except _UNREADABLE:
            fields = {"body": json.dumps(text).encode()}
        name = next((each for each in CONVERSATIONS if fields.get(each, b"").startswith(b"[")), "")
        if not name:
            said = [fields.pop(each) for each in CONVERSATIONS if each in fields]
            return _Request(text, fields, said)
        head = dict(takewhile(lambda each: each[0] != name, fields.items()))
        listed = fields.pop(name)
        items = list(map(bytes, _ITEMS.decode(listed)))
        leading = tuple(takewhile(lambda each: _loaded(each).get("role") in _LEADING, items))
        begin = text.find(listed.decode(), text.find(f'"{name}"'))
        end = begin + len(listed.decode()) - 1
        return _Request(text, fields, items[len(leading) :], leading, False, name, head, end)

    def _continued(self, text: str, former: _Request) -> _Request | None:
        """A request whose beginning is known. None if the rest is not what it should be."""
        rest = text[former.end :]
        more = rest.removeprefix(",")
        self.parsed += len(more)
        try:
            fields = _fields(f'{{"{former.name}":[{more}')
            listed = fields.pop(former.name)
        except (*_UNREADABLE, KeyError):
            return None
        end = former.end + len(rest) - len(more) + len(listed.decode()) - 2
        items = list(map(bytes, _ITEMS.decode(listed)))
        whole = {**former.head, **fields}
        return _Request(text, whole, items, former.leading, False, former.name, former.head, end)

    def _frame(self, fields: Mapping[str, bytes], leading: tuple[bytes, ...]) -> RequestFrame:
        key = (*(part for name in sorted(fields) for part in (name.encode(), fields[name])), *leading)
        found = self._frames.get(key)
        if found is None:
            parts = [f"{json.dumps(name)}:{value.decode()}" for name, value in fields.items()]
            said = ",".join(each.decode() for each in leading)
            view = view_of("{" + ",".join((*parts, f'"messages":[{said}]')) + "}", "")
            found = self._frames[key] = _frame_of(view)
        return found

    def _message(self, raw: bytes) -> NewMessage:
        found = self._messages.get(raw)
        if found is None:
            view = view_of(f'{{"messages":[{raw.decode()}]}}', "")
            said = view.messages[0] if view.messages else None
            role, text = (said.role, said.text) if said is not None else ("system", view.instructions)
            is_repeated = role in _REPEATED or _has_results(_loaded(raw))
            meaning = _meaning(raw) if is_repeated else without_times(_meaning(raw))
            found = self._messages[raw] = NewMessage(role, text, meaning, is_repeated)
        return found


def _fields(text: str) -> dict[str, bytes]:
    """The fields of a request that say something of the question."""
    found = _FIELDS.decode(text)
    return {name: bytes(raw) for name, raw in found.items() if name not in VOLATILE_FIELDS}


def _call(detail: StepDetail) -> StepContents:
    view = view_of(detail.request, detail.response)
    response = _loaded(detail.response.encode("utf-8", "replace"))
    blocks = response.get("content")
    if isinstance(blocks, list):
        plain = [
            {name: value for name, value in each.items() if name != "_meta"}
            if isinstance(each, dict)
            else each
            for each in blocks
        ]
        result = _json({**response, "content": plain})
    else:
        result = sanitize(detail.response)
    arguments = dict(view.params).get("arguments", "")
    return StepContents(detail, arguments=arguments, answer=view.answer, result=result)


def _frame_of(view: StepView) -> RequestFrame:
    tools = {each.name: each.definition for each in view.tools}
    params = dict(view.params)
    meaning = without_times(view.instructions)
    parts = (meaning, sorted(tools.items()), sorted(params.items()))
    return RequestFrame(view.instructions, meaning, tools, params, sha256(repr(parts).encode()).hexdigest())


def _meaning(raw: bytes) -> str:
    try:
        return _json(_without_ids(msgspec.json.decode(raw)))
    except _UNREADABLE:
        return raw.decode("utf-8", "replace")


def _without_ids(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_without_ids, value))
    if not isinstance(value, dict):
        return value
    named: Iterable[tuple[str, Any]] = value.items()
    return {
        name: each if name in _DATA else _without_ids(each) for name, each in named if name not in _VOLATILE
    }


def _has_results(message: Mapping[str, Any]) -> bool:
    """Whether a message of a user's role has results of calls, as those of some providers do."""
    parts = message.get("content") or message.get("parts")
    return isinstance(parts, list) and any(
        isinstance(each, dict) and (each.get("type") == "tool_result" or "functionResponse" in each)
        for each in parts
    )


def _loaded(raw: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(raw)
    except _UNREADABLE:
        return {}
    return found if isinstance(found, dict) else {}


def _json(value: Any) -> str:
    return sanitize(json.dumps(value, ensure_ascii=False, sort_keys=True))
