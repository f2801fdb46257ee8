"""Splits the requests to models into parts that are cleaned and stored once, however often they are sent.

A model gets the whole conversation at each step. Its messages are a chain: the digest of a message covers
those before it, so the last digest stands for all of them. Only parts that were not seen before are cleaned,
which is the expensive work. See ``docs/logging.md#steps``.
"""

import json
import re
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final

import msgspec

from pallas.model import StoredField
from pallas.model.canonical_form import (
    CONVERSATIONS,
    VOLATILE_FIELDS,
    IdNumbers,
    field_text,
    message_text,
    numbered,
    value_text,
)
from pallas.model.host_places import NOWHERE, HostPlaces
from pallas.model.long_strings import (
    MAX_STRING,
    MAX_TEXT,
    LongText,
    digest_of,
    is_data_url,
    shortened,
    whole_json,
)
from pallas.model.redaction import MASK, Spellings, known_spellings

from .forgotten_secrets import ForgottenSecrets
from .part_size import PartSize, PictureSize, pictures_in
from .wire_record import masked

MAX_PARTS: Final = 20_000
MAX_BYTES: Final = 16 * 1024 * 1024
"""Most bytes of parts that are remembered, so that they are not cleaned again."""
_SHARED_FROM: Final = 256
"""Bytes from which a value beside the messages is a part of its own."""
MAX_CHAINS: Final = 8 * 1024 * 1024
"""Most bytes of conversations whose beginning is remembered as a whole."""
_ENTRY: Final = 500
"""Bytes that each of them takes beside its text."""
_MAX_TEXTS: Final = 1_000
"""Small values, and names of fields, that are remembered."""
_LEADING: Final = 2
"""How many of its first messages may be instructions, which conversations share."""
_BASE64: Final = re.compile(r"[A-Za-z0-9+/_-]+=*")


class _Role(msgspec.Struct):
    role: str = ""


_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])
_ROLE: Final = msgspec.json.Decoder(_Role)


@dataclass(slots=True, eq=False)
class RequestPart:
    """A cleaned piece of JSON. ``parent`` is the message before it; a part without ``scope`` is shared.

    ``digest`` identifies it within its scope, ``meaning`` is a digest of its canonical form. ``pictures`` are
    those of a long message, of which ``body`` has digests only, as of its long ``texts``. ``ids`` are those
    that no message before it has; ``ids_before`` is the number of ids before it.
    """

    scope: str
    digest: str
    meaning: str
    body: str
    parent: "RequestPart | None" = None
    stored_at: float = 0.0  # when it was written to the ledger, 0 if it was not
    pictures: tuple[PictureSize, ...] = ()
    size: PartSize | None = None  # with the messages before it; None until it is measured
    ids: tuple[str, ...] = ()
    ids_before: int = 0
    texts: tuple[LongText, ...] = ()

    @property
    def whole(self) -> str:
        """Its JSON text with its long texts."""
        return whole_json(self.body, {each.digest: each.text for each in self.texts})

    @property
    def length(self) -> int:
        """The characters of its texts."""
        return len(self.body) + sum(len(each.text) for each in self.texts)

    def number_of(self, value: str) -> int | None:
        """The number of an id of this message or of one before it; None if none has it."""
        part: RequestPart | None = self
        while part is not None:
            if value in part.ids:
                return part.ids_before + part.ids.index(value) + 1
            part = part.parent
        return None


@dataclass(frozen=True, slots=True)
class MessageChain:
    """The conversation of a request: shared instructions, then a chain."""

    leading: tuple[RequestPart, ...]
    last: RequestPart | None
    count: int
    scope: str

    @property
    def chain(self) -> list[RequestPart]:
        """Its messages behind the instructions, oldest first."""
        found: list[RequestPart] = []
        part = self.last
        while part is not None:
            found.append(part)
            part = part.parent
        return found[::-1]


type Value = str | RequestPart | MessageChain
"""The JSON text of a small value, or what stands for a larger one."""


@dataclass(frozen=True, slots=True)
class RequestParts:
    """A request in parts. ``new`` is the number of bytes that were not seen before."""

    fields: tuple[tuple[str, Value], ...]
    digest: str
    new: int

    @property
    def messages(self) -> int:
        """The number of messages."""
        return sum(value.count for _, value in self.fields if isinstance(value, MessageChain))

    def text(self) -> str:
        """The request as JSON text."""
        pieces: list[str] = []
        for name, value in self.fields:
            if isinstance(value, MessageChain):
                items = [part.whole for part in (*value.leading, *value.chain)]
                pieces.append(f"{json.dumps(name)}:[{','.join(items)}]")
            else:
                pieces.append(
                    f"{json.dumps(name)}:{value.whole if isinstance(value, RequestPart) else value}"
                )
        return "{" + ",".join(pieces) + "}"

    def stored(self) -> tuple[StoredField, ...]:
        """Its fields by reference."""
        return tuple(_stored(name, value) for name, value in self.fields)

    def value(self, name: str) -> str:
        """The JSON text of a small field, empty without it."""
        found = dict(self.fields).get(name, "")
        return found if isinstance(found, str) else ""

    def shared(self) -> Iterator[RequestPart]:
        """The parts that conversations share."""
        for _, value in self.fields:
            if isinstance(value, MessageChain):
                yield from value.leading
            elif isinstance(value, RequestPart):
                yield value

    def unstored(self, since: float, taken: set[RequestPart]) -> Iterator[RequestPart]:
        """The parts that were not stored, and shared ones that were not stored ``since`` then.

        Messages in ``taken`` are left out, with those before them; the others are added to it.
        """
        yield from (part for part in self.shared() if part.stored_at < since)
        for _, value in self.fields:
            message = value.last if isinstance(value, MessageChain) else None
            while message is not None and not message.stored_at and message not in taken:
                taken.add(message)
                yield message
                message = message.parent


def _stored(name: str, value: Value) -> StoredField:
    if isinstance(value, MessageChain):
        shared = tuple(part.digest for part in value.leading)
        last = value.last.digest if value.last is not None else ""
        return StoredField(name, shared=shared, scope=value.scope, last=last)
    if isinstance(value, RequestPart):
        return StoredField(name, shared=(value.digest,))
    return StoredField(name, value)


_NO_CHAIN: Final = 0, hash(b""), MessageChain((), None, 0, "")


class PartCache:
    """Parts that were seen. One event loop only. Digests of meanings have the marks of ``places``."""

    def __init__(self, max_bytes: int = MAX_BYTES, places: HostPlaces = NOWHERE) -> None:
        self._places = places
        self._parts: OrderedDict[tuple[str, str, bytes], RequestPart] = OrderedDict()
        # Of each conversation the length and the hash of its messages as they were sent last, without the
        # closing bracket: the bytes themselves are a large part of what an idle conversation takes.
        self._chains: OrderedDict[str, tuple[int, int, MessageChain]] = OrderedDict()
        self._chain_bytes = 0
        self._texts: dict[str, str] = {}
        self._max_bytes = max_bytes
        self._bytes = 0
        self._new = 0
        self._known: Spellings | None = None
        self.forgotten = ForgottenSecrets()

    def split(self, body: bytes, scope: str, known: Spellings | None = None) -> RequestParts:
        """The parts of a request; those of its conversation belong to ``scope``.

        ``known`` as in ``redaction.redact_text``.
        """
        self._new = 0
        self._known = known
        try:
            raw = {name: bytes(value) for name, value in _FIELDS.decode(body).items()}
            fields = tuple((self._small(name), self._value(name, each, scope)) for name, each in raw.items())
        except (msgspec.DecodeError, UnicodeDecodeError):  # not JSON, or no object
            text = json.dumps(body.decode("utf-8", "replace"))
            fields = (("body", self._part("", None, text.encode())),)
        meaning = sha256()
        for name, value in sorted(fields, key=lambda each: each[0]):
            if name not in VOLATILE_FIELDS:
                meaning.update(f"{name}:{self._meaning_of(name, value)};".encode())
        return RequestParts(fields, numbered(meaning.hexdigest()), self._new)

    def split_call(self, name: str, arguments: bytes, scope: str = "") -> RequestParts:
        """The parts of a call with these arguments, a JSON object, of which everything counts."""
        self._new = 0
        arguments = self.forgotten.masked(scope, arguments)
        self._known = None
        is_small = len(arguments) < _SHARED_FROM
        value = self._small(arguments.decode()) if is_small else self._part("", None, arguments)
        body = value if isinstance(value, str) else value.body
        form = self._places.marked(value_text(body))
        digest = sha256(f"{name}\n{form}".encode("utf-8", "replace")).hexdigest()
        fields = (("name", self._small(json.dumps(name))), ("arguments", value))
        return RequestParts(fields, numbered(digest), self._new)

    def _meaning_of(self, name: str, value: Value) -> str:
        if isinstance(value, MessageChain):
            last = value.last.meaning if value.last is not None else ""
            return " ".join((*(part.meaning for part in value.leading), last))
        return (
            value.meaning if isinstance(value, RequestPart) else self._places.marked(_field_text(name, value))
        )

    def _value(self, name: str, raw: bytes, scope: str) -> Value:
        if name in CONVERSATIONS and raw.startswith(b"["):
            return self._messages(raw, scope, name)
        return self._part("", None, raw) if len(raw) >= _SHARED_FROM else self._small(raw.decode())

    def _small(self, text: str) -> str:
        found = self._texts.get(text)
        if found is None:
            if len(self._texts) >= _MAX_TEXTS:
                self._texts.clear()
            found = self._texts[text] = masked(text, self._known)
        return found

    def _messages(self, raw: bytes, scope: str, name: str) -> MessageChain:
        at, before, known = self._chains.get(scope, _NO_CHAIN)
        if known.last is not None and raw[at : at + 1] == b"," and hash(raw[:at]) == before:
            items = _ITEMS.decode(b"[" + raw[at + 1 :])  # only these are new
            leading, last, count = known.leading, known.last, known.count
        else:
            items = _ITEMS.decode(raw)
            leading, last, count = self._leading(items, name), None, 0
        for item in items[0 if count else len(leading) :]:
            last = self._part(scope, last, bytes(item), name)
        chain = MessageChain(leading, last, count + len(items), scope)
        self._remember(scope, raw.rstrip()[:-1], chain)
        return chain

    def _leading(self, items: list[msgspec.Raw], name: str) -> tuple[RequestPart, ...]:
        leading: list[RequestPart] = []
        for item in map(bytes, items[:_LEADING]):
            if not item.startswith(b"{") or _role(item) not in ("system", "developer"):
                break
            leading.append(self._part("", None, item, name))
        return tuple(leading)

    def _remember(self, scope: str, raw: bytes, chain: MessageChain) -> None:
        if scope in self._chains:
            self._chain_bytes -= self._chains.pop(scope)[0] + _ENTRY
        self._chains[scope] = len(raw), hash(raw), chain
        self._chain_bytes += len(raw) + _ENTRY
        while self._chain_bytes > MAX_CHAINS:
            _, (dropped, _, _) = self._chains.popitem(last=False)
            self._chain_bytes -= dropped + _ENTRY

    def _part(self, scope: str, parent: RequestPart | None, raw: bytes, name: str = "") -> RequestPart:
        """A part; ``name`` is that of its conversation if it is a message."""
        key = (scope, parent.digest if parent is not None else "", raw)
        found = self._parts.get(key)
        if found is None:
            clean = self.forgotten.masked(scope, raw) if scope else raw
            found = self._parts[key] = _part(scope, parent, clean, self._known, name, self._places)
            if scope and MASK in found.body:
                self.forgotten.note(scope, raw.decode("utf-8", "replace"), self._known or known_spellings())
            self._new += found.length
            self._bytes += len(raw) + found.length
            while len(self._parts) > 1 and (len(self._parts) > MAX_PARTS or self._bytes > self._max_bytes):
                (_, _, old), dropped = self._parts.popitem(last=False)
                self._bytes -= len(old) + dropped.length
        else:
            self._parts.move_to_end(key)
        return found


def _part(
    scope: str,
    parent: RequestPart | None,
    raw: bytes,
    known: Spellings | None,
    name: str,
    places: HostPlaces,
) -> RequestPart:
    body, pictures, texts = _Cleaning(known, places, is_message=bool(name)).clean(raw)
    above, meant = (parent.digest, parent.meaning) if parent is not None else ("", "")
    digest = sha256(f"{above}\n{body}".encode()).hexdigest()
    before = parent.ids_before + len(parent.ids) if parent is not None else 0
    numbers = IdNumbers(before + 1, parent.number_of) if parent is not None else IdNumbers()
    form = message_text(body, name, numbers) if name else value_text(body)
    meaning = sha256(f"{meant}\n{places.marked(form)}".encode()).hexdigest()
    ids = tuple(numbers.new)
    return RequestPart(
        scope, digest, meaning, body, parent, pictures=pictures, ids=ids, ids_before=before, texts=texts
    )


_field_text = lru_cache(_MAX_TEXTS)(field_text)


def _role(item: bytes) -> str:
    try:
        return _ROLE.decode(item).role
    except msgspec.DecodeError:
        return ""


class _Cleaning:
    """Masks a part as a whole, and then shortens its long strings.

    ``is_message`` says that data in base64 is a picture, which is kept elsewhere.
    """

    def __init__(self, known: Spellings | None, places: HostPlaces, *, is_message: bool) -> None:
        self._known = known
        self._places = places
        self._is_message = is_message
        self._texts: dict[str, str] = {}

    def clean(self, raw: bytes) -> tuple[str, tuple[PictureSize, ...], tuple[LongText, ...]]:
        """The JSON text of a part, its pictures and its long texts."""
        pictures: tuple[PictureSize, ...] = ()
        if len(raw) > MAX_STRING:
            try:
                value = msgspec.json.decode(raw)
                pictures = pictures_in(value)
                raw = msgspec.json.encode(self._shortened(value))
            except (msgspec.DecodeError, RecursionError):
                raw = json.dumps(self._shortened(raw.decode("utf-8", "replace"))).encode()
        body = masked(raw.decode("utf-8", "replace"), self._known)
        # A text whose name is that of a secret is masked in the body: then it is not kept either.
        kept = (LongText(digest, text) for digest, text in self._texts.items() if digest in body)
        return body, pictures, tuple(kept)

    def _shortened(self, value: Any, name: str = "") -> Any:
        if isinstance(value, str):
            return self._text(value, name) if len(value) > MAX_STRING else value
        if isinstance(value, dict):
            return {key: self._shortened(each, key) for key, each in value.items()}
        return [self._shortened(each) for each in value] if isinstance(value, list) else value

    def _text(self, text: str, name: str) -> str:
        if self._is_message and _is_picture(text, name):
            return shortened(text)
        clean = _masked_text(text, self._known)
        marked = self._places.marked(clean)
        if len(marked) > MAX_STRING and len(clean) <= MAX_TEXT:
            self._texts[digest_of(marked)] = clean
        return shortened(marked) if len(marked) > MAX_STRING else clean


def _is_picture(text: str, name: str) -> bool:
    return is_data_url(text) or (name == "data" and _BASE64.fullmatch(text) is not None)


def _masked_text(text: str, known: Spellings | None) -> str:
    """A text as data, with its secrets masked; its control characters stay, as JSON has them.

    On the event loop: a pattern holds the lock of the interpreter while it searches, so in a thread the loop
    would wait for it as well.
    """
    try:
        found: str = json.loads(masked(_as_json(text), known), strict=False)
    except ValueError:  # a secret ended in the middle of an escape
        return masked(text, known)
    return found


def _as_json(text: str) -> str:
    """A text as JSON; of a long one ``json.dumps`` takes ten times as long."""
    try:
        return msgspec.json.encode(text).decode()
    except UnicodeEncodeError:  # half a surrogate pair
        return json.dumps(text, ensure_ascii=False)
