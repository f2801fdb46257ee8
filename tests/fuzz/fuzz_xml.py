"""Hostile and broken XML by the hundred thousand, at everything that reads XML from outside (HC-24).

``python -m fuzz.fuzz_xml 100000 --seed 7`` prints what became of it. Whatever is raised but a PayloadFault is
a crash, whatever takes longer than its deadline a hang; of each the input is printed, and the status is 1.
"""

import argparse
import enum
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from pallas.contract import SystemError as Refusal
from pallas.contract import Text
from pallas.payloads import PayloadFault, PayloadType, elements_of, is_envelope, read_text, target_and_payload

SECONDS = 5.0
"""What one input may take."""
_MAX = 200_000


class Colour(enum.Enum):
    """A choice."""

    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    """What a list is of."""

    sku: str
    count: int = 1
    price: float | None = None


@dataclass
class Order:
    """One of everything."""

    id: int
    items: list[Item]
    note: str | None = "none"
    paid: bool = False
    colour: Colour = Colour.RED
    way: Literal["air", "sea"] = "air"
    tags: list[str] = field(default_factory=lambda: ["new"])
    at: datetime | None = None
    first: Item | None = None


TYPES = {kind: PayloadType.of(kind) for kind in (Order, Text, Refusal, Item)}
_NS = 'xmlns="https://xml-pipeline.org/ns/envelope/v1"'
SEEDS = [
    b"<Order><id>1</id><items><sku>a&lt;b</sku><count>2</count><price>1.5</price></items>"
    b"<paid>true</paid></Order>",
    b'<Order xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"><id>1</id><note xsi:nil="true"/></Order>',
    b"<shop.order><id> 7 </id><items><sku/></items><items><sku>x</sku></items><tags>a</tags></shop.order>",
    b"<Text><text>hello \xf0\x9f\x98\x80 <![CDATA[<b>&]]> &amp; &#13;</text></Text>",
    b"<SystemError><code>routing</code><message>m</message><retry-allowed>true</retry-allowed></SystemError>",
    f"<message {_NS}><meta><from>a</from><to>b</to><thread>t</thread></meta>".encode()
    + b"<Text><text>x</text></Text></message>",
    b"<Text><text>a</text></Text><Text><text>b</text></Text><!-- c --><x:item xmlns:x='urn:x'/>",
    b'<?xml version="1.0" encoding="UTF-8"?>\n<Item><sku>s</sku></Item>',
    b'{"id": 1, "items": [{"sku": "a"}], "note": null}',
    b"```xml\n<Text><text>AT&T 1 < 2</text></Text>\n```",
]
HOSTILE = [
    b'<!DOCTYPE a [<!ENTITY b "bbbb"><!ENTITY c "&b;&b;&b;&b;&b;&b;&b;">]><Text><text>&c;</text></Text>',
    b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]>',
    b'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd">',
    b'<!DOCTYPE a [<!ENTITY % p SYSTEM "http://127.0.0.1:9/p">%p;]>',
    b'<xi:include xmlns:xi="http://www.w3.org/2001/XInclude" href="file:///etc/passwd" parse="text"/>',
    b"<?xml-stylesheet href='file:///etc/passwd'?>",
    b'<?xml version="1.0" encoding="UTF-7"?>',
    b'<?xml version="1.1"?>',
    b"<![CDATA[",
    b"]]>",
    b"<!--",
    b"-->",
    b"&x;",
    b"&#0;",
    b"&#xD800;",
    b"&#x110000;",
    b"&#99999999999999999999;",
    b"\x00",
    b"\xff\xfe<\x00a\x00/\x00>\x00",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\xc0\xaf",
    b"\xef\xbf\xbf",
    b"</_><_>",
    b'xsi:nil="true"',
    b'xmlns="urn:y"',
    b'xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="a file:///etc/passwd"',
    b"1e999",
    b"NaN",
    b"-" * 300,
    b"9" * 5_000,
    b"<a>" * 400,
    b"<a " + b"b='1' " * 50 + b"/>",
]


class Hang(BaseException):
    """An input took longer than its deadline."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Ends what is done in the block. For the main thread only; elsewhere nothing is limited."""

    def over(_signal: int, _frame: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def inputs(rng: random.Random) -> Iterator[bytes]:
    """Inputs without an end: some made up of pieces, most of them a good one with mistakes."""
    while True:
        data = _nested(rng) if rng.random() < 0.1 else rng.choice(SEEDS)
        for _ in range(min(int(rng.expovariate(0.4)), 12)):
            data = rng.choice(_MISTAKES)(rng, data)
        yield data[:_MAX]


def _nested(rng: random.Random) -> bytes:
    names = [
        "Order",
        "id",
        "items",
        "sku",
        "note",
        "Text",
        "text",
        "message",
        "meta",
        "to",
        "a",
        "é",
        "x:y",
        "_",
    ]
    parts: list[bytes] = []
    opened_: list[str] = []
    for _ in range(rng.randint(1, 40)):
        if opened_ and rng.random() < 0.45:
            parts.append(f"</{opened_.pop() if rng.random() < 0.95 else rng.choice(names)}>".encode())
        elif rng.random() < 0.3:
            parts.append(rng.choice([b"1", b"text", b"true", b" ", b"&amp;", rng.choice(HOSTILE)]))
        else:
            opened_.append(rng.choice(names))
            parts.append(f"<{opened_[-1]}{rng.choice(['', '', ' a="1"', ' ' + _NS])}>".encode())
    if rng.random() < 0.8:
        parts += [f"</{name}>".encode() for name in reversed(opened_)]
    return b"".join(parts)


def _at(rng: random.Random, data: bytes) -> int:
    return rng.randint(0, len(data))


def _flip(rng: random.Random, data: bytes) -> bytes:
    at = _at(rng, data)
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _insert(rng: random.Random, data: bytes) -> bytes:
    at = _at(rng, data)
    return data[:at] + rng.choice(HOSTILE) + data[at:]


def _before(rng: random.Random, data: bytes) -> bytes:
    return rng.choice(HOSTILE) + data


def _drop(rng: random.Random, data: bytes) -> bytes:
    at = _at(rng, data)
    return data[:at] + data[at + rng.randint(1, 20) :]


def _cut(rng: random.Random, data: bytes) -> bytes:
    return data[: _at(rng, data)]


def _double(rng: random.Random, data: bytes) -> bytes:
    start, end = sorted((_at(rng, data), _at(rng, data)))
    return data[:end] + data[start:end] * rng.choice([1, 2, 50]) + data[end:]


def _join(rng: random.Random, data: bytes) -> bytes:
    return data + rng.choice(SEEDS)


def _recode(rng: random.Random, data: bytes) -> bytes:
    return data.decode("utf-8", "replace").encode(
        rng.choice(["utf-16", "utf-16-be", "utf-32", "utf-7", "latin-1"]), "replace"
    )


_MISTAKES: list[Callable[[random.Random, bytes], bytes]] = [
    _flip, _flip, _insert, _insert, _before, _drop, _cut, _double, _join, _recode,
]  # fmt: skip


def entries(data: bytes) -> Iterator[tuple[str, Callable[[], object]]]:
    """Each way in for one input: what is taken has to come out whole, in both forms."""
    for kind, made in TYPES.items():
        yield "parse", lambda kind=kind, made=made: _round(made, kind, made.parse(data))
    text = data.decode("utf-8", "surrogateescape")
    for kind, made in ((Order, TYPES[Order]), (Text, TYPES[Text])):
        yield "read", lambda kind=kind, made=made: _round(made, kind, read_text(made, text)[0])
    yield "elements_of", lambda: _elements(data)


def _round(made: PayloadType, kind: type, payload: Any) -> None:
    value = made.bind(payload, kind)
    again = made.parse(made.pack(value).xml)
    assert made.bind(again, kind) == value, "another value after a round trip"
    assert made.bind(made.pack(made.values(payload)), kind) == value, "another value by JSON"


def _elements(data: bytes) -> None:
    for element in elements_of(data, _MAX):
        parts = target_and_payload(element)[1] if is_envelope(element) else [element]
        for part in parts:
            for kind, made in TYPES.items():
                try:
                    payload = made.adopt(part)
                except PayloadFault:
                    continue
                _round(made, kind, payload)


def run(count: int, seed: int, *, out: Callable[[str], object] = print) -> Counter[str]:
    """``count`` inputs. The result counts ``taken:<entry>``, ``refused:<entry>``, ``crash``, ``hang``."""
    rng = random.Random(seed)
    counts: Counter[str] = Counter()
    for number, data in enumerate(inputs(rng)):
        if number >= count:
            break
        for entry, ask in entries(data):
            try:
                with deadline(SECONDS):
                    ask()
                counts[f"taken:{entry}"] += 1
            except PayloadFault as fault:
                counts[f"refused:{entry}"] += 1
                if "\n" in fault.message or len(fault.message) > 500:
                    counts["crash"] += 1
                    out(f"an error of more than a line: {fault.message!r} for {data[:300]!r}")
            except Hang:
                counts["hang"] += 1
                out(f"hang in {entry}, seed {seed}, input {number}: {data[:300]!r}")
            except Exception as error:
                counts["crash"] += 1
                what = f"{type(error).__name__}: {error}"
                out(f"crash in {entry}, seed {seed}, input {number}: {what}: {data[:300]!r}")
    counts["inputs"] = count
    return counts


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("count", type=int, nargs="?", default=100_000)
    parser.add_argument("--seed", type=int, default=None, help="the same inputs again")
    given = parser.parse_args()
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(2**32)
    print(f"{given.count} inputs, seed {seed}")
    began = time.perf_counter()
    counts = run(given.count, seed)
    took = time.perf_counter() - began
    for name in sorted(counts):
        print(f"{name:24} {counts[name]:>9}")
    rate = given.count / took
    print(f"crashes {counts['crash']}, hangs {counts['hang']}; {took:.0f} s, {rate:.0f} inputs a second")
    return 1 if counts["crash"] or counts["hang"] else 0


if __name__ == "__main__":
    sys.exit(main())
