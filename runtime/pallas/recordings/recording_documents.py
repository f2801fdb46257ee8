"""The documents of a recording: what its files hold, and back.

Times are seconds after the first run began. A request that repeats what an earlier one of its run had says so
in ``as_in``, so a long run takes as much space as what it says. Pictures are files of their own.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from hashlib import sha256
from typing import Any, Final

from pallas.bounds.images import kind_of
from pallas.model import Image, Message, RecordedRun, Recording, Step, StepDetail
from pallas.model.codec import Undecodable, decode, dumps, encode_sparse, loads, visible
from pallas.model.server_offer import ServerOffer
from pallas.safe_text import without_controls

MAX_DEPTH: Final = 40
"""Levels of nesting beyond which a value is written as JSON text."""
MAX_CHARACTERS: Final = 512 * 1024 * 1024
"""Most characters of the requests and responses of a recording that is read, each written out."""
_HISTORY: Final = "history"
_RUN: Final = "run"
_OFFERS: Final = "offers/"
"""Before the name of the document of what a server offered."""
PICTURE: Final = "picture:"
"""Before the name of a picture's file, in place of its data."""
_JSON: Final = "json:"
_CONVERSATION: Final = ("messages", "input", "contents")
_TIMES: Final = 6
"""Digits after the point of a time."""
_DIGITS: Final = 9
"""Most digits of the number of a step."""


class BadDocument(ValueError):
    """A document is not as it must be. The message begins with its path."""


@dataclass(frozen=True, slots=True)
class Documents:
    """The head of a recording, its other documents by path without suffix, and its pictures by file name."""

    head: dict[str, Any]
    parts: dict[str, dict[str, Any]] = field(default_factory=dict)
    pictures: dict[str, bytes] = field(default_factory=dict)


def documents_of(recording: Recording) -> Documents:
    """The documents of a recording, as plain values."""
    return _Writer(recording).documents


def recording_of(documents: Documents) -> Recording:
    """The recording of these documents. Raises BadDocument."""
    return _Reader(documents).recording


class _Writer:
    def __init__(self, recording: Recording) -> None:
        self._began = recording.first.started_at
        self._folders = {
            run.id: f"{number}-{plain_name(run.agent)}" for number, run in enumerate(recording.runs, 1)
        }
        head: dict[str, Any] = {"project": recording.project, "runs": list(self._folders.values())}
        if recording.missing:
            head["missing"] = list(recording.missing)
        self.documents = Documents(head)
        if recording.history:
            self.documents.parts[_HISTORY] = {"messages": list(map(self._message, recording.history))}
        for run in recording.runs:
            self._add(run)
        for name, offer in recording.offers.items():
            document = _fields(replace(offer, tools=()))
            document["tools"] = [self._value(each) for each in offer.tools]
            self.documents.parts[_OFFERS + name] = document

    def _add(self, run: RecordedRun) -> None:
        folder = self._folders[run.id]
        document = _fields(replace(run, steps=(), images=(), parent=self._folders.get(run.parent, "")))
        document |= {"started_at": self._time(run.started_at), "seconds": round(run.seconds, _TIMES)}
        if run.images:
            document["images"] = list(map(self._picture, run.images))
        document = {each.name: document[each.name] for each in fields(RecordedRun) if each.name in document}
        self.documents.parts[f"{folder}/{_RUN}"] = document
        before: tuple[int, dict[str, Any]] = 0, {}
        for detail in run.steps:
            name = f"{detail.step.number:03}-{_file_name(detail.step)}"
            request = _loaded(detail.request)
            shown = self._step(detail)
            if isinstance(request, dict) and detail.step.kind == "model":
                shown |= self._request(request, *before)
                before = detail.step.number, request
            elif detail.request:
                shown["request"] = self._value(request)
            if detail.response:
                shown["response"] = self._value(_loaded(detail.response))
            self.documents.parts[f"{folder}/{name}"] = shown

    def _step(self, detail: StepDetail) -> dict[str, Any]:
        document = _fields(detail.step)
        for name in ("run_id", "number"):
            document.pop(name, None)
        document["started_at"] = self._time(detail.step.started_at)
        for attempt in document.get("attempts", ()):
            attempt["at"] = self._time(attempt["at"])
        if detail.headers:
            document["headers"] = dict(detail.headers)
        return document

    def _request(self, request: dict[str, Any], step: int, before: dict[str, Any]) -> dict[str, Any]:
        """A request without what an earlier one had too."""
        same = [name for name, value in request.items() if name in before and before[name] == value]
        rest = {name: self._value(value) for name, value in request.items() if name not in same}
        as_in: dict[str, Any] = {"step": step, "fields": same}
        for name in _CONVERSATION:
            if name in rest and (count := _common(before.get(name), request[name])):
                as_in[name] = count
                rest[name] = rest[name][count:]
        return {**({"as_in": as_in} if same or len(as_in) > 2 else {}), "request": rest}

    def _message(self, message: Message) -> dict[str, Any]:
        document = _fields(replace(message, images=(), native=None))
        if message.images:
            document["images"] = list(map(self._picture, message.images))
        return document

    def _picture(self, image: Image) -> dict[str, Any]:
        return {"data": self._file(image.data), "mime_type": image.mime_type}

    def _value(self, value: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH and isinstance(value, dict | list):
            return _JSON + dumps(value).decode()
        if isinstance(value, list):
            return [self._value(each, depth + 1) for each in value]
        if isinstance(value, dict):
            found = {name: self._value(each, depth + 1) for name, each in value.items()}
            if value.get("type") == "image" and isinstance(value.get("data"), str):
                found["data"] = self._file(value["data"])
            return found
        return value

    def _file(self, text: str) -> str:
        """The reference to the file of a picture; the text itself if it is not a picture in base64."""
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            return text
        kind = kind_of(data)
        if kind is None or base64.b64encode(data).decode() != text:
            return text
        name = f"{sha256(data).hexdigest()[:16]}.{kind.removeprefix('image/')}"
        self.documents.pictures[name] = data
        return PICTURE + name

    def _time(self, at: float) -> float:
        return round(at - self._began, _TIMES)


class _Reader:
    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._left = MAX_CHARACTERS
        head = documents.head
        folders = head.get("runs")
        if not isinstance(folders, list) or not folders:
            raise BadDocument("recording.yaml: runs must name at least one run; record the run again")
        self._ids = {str(folder): str(self._part(f"{folder}/{_RUN}").get("id", "")) for folder in folders}
        if len({*self._ids.values()}) < len(folders):
            raise BadDocument("recording.yaml: runs names a run twice; record the run again")
        missing = _list(head.get("missing"), "recording", "missing")
        self.recording = Recording(
            str(head.get("project", "")),
            tuple(self._run(folder) for folder in self._ids),
            tuple(self._history()),
            tuple(map(str, missing)),
            dict(self._offers()),
        )

    def _offers(self) -> Iterator[tuple[str, ServerOffer]]:
        for path in sorted(each for each in self._documents.parts if each.startswith(_OFFERS)):
            document = self._part(path)
            tools = _list(document.get("tools"), path, "tools")
            document["tools"] = [self._value(_mapping(each, path, "a tool")) for each in tools]
            for each in document["tools"]:
                if not isinstance(each.get("name"), str) or not isinstance(each.get("inputSchema"), dict):
                    raise BadDocument(f"{path}.yaml: a tool lacks its name or inputSchema; record again")
            offer = _decoded(ServerOffer, document, path)
            self._spend(len(dumps(document)), path)
            yield path.removeprefix(_OFFERS), offer

    def _spend(self, characters: int, name: str) -> None:
        self._left -= characters
        if self._left < 0:
            raise BadDocument(f"{name}.yaml: requests and responses have too many characters up to here")

    def _part(self, path: str) -> dict[str, Any]:
        found = self._documents.parts.get(path)
        if found is None:
            raise BadDocument(f"{path}.yaml: is missing; record the run again")
        return dict(found)

    def _run(self, folder: str) -> RecordedRun:
        path = f"{folder}/{_RUN}"
        document = self._part(path)
        run_id = self._ids[folder]
        if parent := document.get("parent"):
            document["parent"] = self._above(str(parent), folder)
        document = self._images(document, path)
        prefix = f"{folder}/"
        names = (name for name in self._documents.parts if name.startswith(prefix) and name != prefix + _RUN)
        numbered = sorted((_number(name), name) for name in names)
        requests: dict[int, dict[str, Any]] = {}
        steps = tuple(self._step(name, number, run_id, requests) for number, name in numbered)
        return replace(_decoded(RecordedRun, document, path), steps=steps)

    def _above(self, parent: str, folder: str) -> str:
        """The id of the run that asked for one; it stands before it."""
        folders = list(self._ids)
        if parent not in folders[: folders.index(folder)]:
            raise BadDocument(f"{folder}/{_RUN}.yaml: parent names no run before it; record the run again")
        return self._ids[parent]

    def _step(self, name: str, number: int, run_id: str, requests: dict[int, dict[str, Any]]) -> StepDetail:
        document = self._part(name)
        request = self._value(document.pop("request", None))
        as_in = document.pop("as_in", None)
        if as_in is not None:
            request = self._whole(name, request, _mapping(as_in, name, "as_in"), requests)
        if isinstance(request, dict):
            requests[number] = request
        response = self._value(document.pop("response", None))
        headers = _mapping(document.pop("headers", None) or {}, name, "headers")
        step = _decoded(Step, {**document, "run_id": run_id, "number": number}, name)
        sent, got = _text(request), _text(response)
        self._spend(len(sent) + len(got), name)
        return StepDetail(step, sent, got, tuple((str(k), str(v)) for k, v in headers.items()))

    def _whole(
        self, name: str, rest: Any, as_in: Mapping[str, Any], requests: dict[int, dict[str, Any]]
    ) -> dict[str, Any]:
        step = as_in.get("step")
        before = requests.get(step) if isinstance(step, int) else None
        if before is None or not isinstance(rest, dict):
            raise BadDocument(f"{name}.yaml: as_in: there is no request of step {step}")
        try:
            same = {each: before[each] for each in as_in.get("fields", ())}
            begun = {each: before[each][: as_in[each]] for each in _CONVERSATION if each in as_in}
            whole = {**same, **rest, **{each: begun[each] + rest[each] for each in begun}}
        except (KeyError, TypeError):
            raise BadDocument(f"{name}.yaml: as_in names what step {step} does not have") from None
        order = [*(each for each in before if each in whole), *(each for each in whole if each not in before)]
        return {each: whole[each] for each in order}

    def _history(self) -> list[Message]:
        if _HISTORY not in self._documents.parts:
            return []
        messages = _list(self._part(_HISTORY).get("messages"), _HISTORY, "messages")
        found = (_mapping(each, _HISTORY, "a message") for each in messages)
        return [_decoded(Message, self._images(each, _HISTORY), _HISTORY) for each in found]

    def _value(self, value: Any, depth: int = 0) -> Any:
        """A value with its pictures in place."""
        if depth > MAX_DEPTH and isinstance(value, str) and value.startswith(_JSON):
            return visible(_loaded(value.removeprefix(_JSON)), without_controls)
        if isinstance(value, list):
            return [self._value(each, depth + 1) for each in value]
        if isinstance(value, dict):
            found = {name: self._value(each, depth + 1) for name, each in value.items()}
            if value.get("type") == "image" and isinstance(value.get("data"), str):
                found["data"] = self._data(value["data"])
            return found
        return value

    def _images(self, document: Mapping[str, Any], name: str) -> dict[str, Any]:
        """A document with the pictures of its message in place."""
        images = _list(document.get("images"), name, "images")
        found = (_mapping(each, name, "a picture") for each in images)
        return {
            **document,
            "images": [{**each, "data": self._data(str(each.get("data", "")))} for each in found],
        }

    def _data(self, text: str) -> str:
        data = self._documents.pictures.get(text.removeprefix(PICTURE))
        return base64.b64encode(data).decode() if data is not None and text.startswith(PICTURE) else text


def _number(name: str) -> int:
    """The number of a step, which the name of its file begins with."""
    number = name.rpartition("/")[2].partition("-")[0]
    if not (number.isascii() and number.isdecimal() and len(number) <= _DIGITS):
        raise BadDocument(f"{name}.yaml: its name must begin with the number of the step")
    return int(number)


def _list(value: Any, name: str, field: str) -> list[Any]:
    if not isinstance(value, list | None):
        raise BadDocument(f"{name}.yaml: {field} must be a list; record the run again")
    return value or []


def _mapping(value: Any, name: str, field: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise BadDocument(f"{name}.yaml: {field} must be a mapping; record the run again")
    return value


def _common(before: Any, now: Any) -> int:
    """How many items two lists have in common at their beginning."""
    if not isinstance(before, list) or not isinstance(now, list):
        return 0
    most = min(len(before), len(now))
    return next((number for number in range(most) if before[number] != now[number]), most)


def _fields(value: Any) -> dict[str, Any]:
    """The fields of a value that differ from their default."""
    found: dict[str, Any] = loads(encode_sparse(value))
    return found


def _decoded[T](kind: type[T], document: Any, name: str) -> T:
    try:
        return decode(kind, document)
    except Undecodable as error:
        raise BadDocument(f"{name}.yaml: {error}; record the run again") from None


def _file_name(step: Step) -> str:
    return f"{step.kind}-{plain_name(step.name)}" if step.name and step.kind != "model" else step.kind


def plain_name(name: str) -> str:
    """A name of which a file name can be made, of 60 characters at most."""
    return "".join(each if each.isalnum() or each in "-_." else "-" for each in name)[:60]


def _loaded(text: str) -> Any:
    try:
        return loads(text) if text else None
    except Undecodable:
        return text


def _text(value: Any) -> str:
    return "" if value is None else dumps(value).decode()
