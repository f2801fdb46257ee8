"""XML that was written to do harm: refused, named, and nothing read or fetched (HC-24)."""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from pallas.payloads import PayloadFault, PayloadType, elements_of, is_envelope, read_text, target_and_payload
from pallas.payloads.payload_limits import MAX_ELEMENTS, MAX_ROOTS


@dataclass
class Note:
    """A text and a number."""

    text: str
    count: int = 0


@dataclass
class Many:
    """A list of lists."""

    notes: list[Note]


NOTE = PayloadType.of(Note)
DOORS: dict[str, Callable[[bytes], object]] = {
    "parse": NOTE.parse,
    "read": lambda data: read_text(PayloadType.of(Many), data.decode("utf-8", "surrogateescape")),
    "elements_of": elements_of,
}


def _note(text: str) -> str:
    return f"<Note><text>{text}</text></Note>"


_BOMB = "".join(f'<!ENTITY e{n + 1} "{f"&e{n};" * 10}">' for n in range(9))
_HOSTILE = {
    "an entity bomb": f'<!DOCTYPE Note [<!ENTITY e0 "lol">{_BOMB}]>' + _note("&e9;"),
    "a quadratic bomb": f'<!DOCTYPE Note [<!ENTITY a "{"a" * 50_000}">]>' + _note("&a;" * 10_000),
    "a file as an entity": '<!DOCTYPE Note [<!ENTITY x SYSTEM "file:///etc/passwd">]>' + _note("&x;"),
    "a DTD of another place": '<!DOCTYPE Note SYSTEM "file:///etc/passwd">' + _note("a"),
    "a public DTD": '<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Strict//EN" "file:///x">' + _note("a"),
    "a parameter entity": '<!DOCTYPE Note [<!ENTITY % p SYSTEM "file:///etc/passwd">%p;]>' + _note("a"),
    "an empty DTD": "<!DOCTYPE Note []>" + _note("a"),
    "an unknown entity": _note("&x;"),
    "a stylesheet": "<?xml-stylesheet href='file:///etc/passwd'?>" + _note("a"),
    "an instruction inside": _note("a<?php echo 1 ?>"),
    "elements without an end": "<Note>" * 5_000,
    "elements inside one another": _note("<a>" * 200 + "</a>" * 200),
    "many attributes": "<Note " + " ".join(f"a{n}='1'" for n in range(20_000)) + "><text>a</text></Note>",
    "an attribute twice": "<Note a='1' a='2'><text>a</text></Note>",
    "a prefix of nothing": "<x:Note><text>a</text></x:Note>",
    "a null byte": _note("a\x00b"),
    "a control character": _note("a\x08b"),
    "the same by number": _note("a&#0;b") + _note("&#8;"),
    "a surrogate by number": _note("&#xD800;"),
    "a number beyond Unicode": _note("&#x110000;"),
    "no character of XML": _note("\ufffe"),
    "an end in CDATA": _note("<![CDATA[a"),
    "an end in a comment": _note("<!-- a"),
    "declared as UTF-7": '<?xml version="1.0" encoding="UTF-7"?>' + _note("+ADw-script+AD4-"),
    "declared as UTF-16": '<?xml version="1.0" encoding="UTF-16"?>' + _note("a"),
    "declared as Latin-1": '<?xml version="1.0" encoding="iso-8859-1"?>' + _note("\u00e9"),
    "nothing": "",
    "text only": "hello",
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("what", _HOSTILE)
def test_what_was_written_to_do_harm_is_refused_in_one_line(what: str, door: str) -> None:
    # HC-24
    with pytest.raises(PayloadFault) as told:
        DOORS[door](_HOSTILE[what].encode())
    assert "\n" not in told.value.message
    assert len(told.value.message) <= 500
    assert "root:" not in told.value.message
    assert told.value.system_code == "validation"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp037"])
@pytest.mark.parametrize("door", ["parse", "elements_of"])
def test_only_utf_8_is_read(encoding: str, door: str) -> None:
    # HC-24
    with pytest.raises(PayloadFault):
        DOORS[door](_note("a").encode(encoding))
    assert DOORS[door](b"\xef\xbb\xbf" + _note("é").encode())


@pytest.mark.parametrize("bad", [b"\xff", b"\xed\xa0\x80", b"\xc0\xaf", b"\xf8\x88\x80\x80\x80"])
@pytest.mark.parametrize("door", ["parse", "elements_of"])
def test_bytes_that_are_no_utf_8_are_refused(bad: bytes, door: str) -> None:
    # HC-24
    with pytest.raises(PayloadFault):
        DOORS[door](b"<Note><text>" + bad + b"</text></Note>")


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    # HC-24
    large = _note("a" * 1_048_576).encode()
    for read in (NOTE.parse, elements_of, lambda data: read_text(NOTE, data.decode())):
        with pytest.raises(PayloadFault, match="at most 1048576"):
            read(large)
    assert NOTE.parse(large, limit=2_000_000)
    with pytest.raises(PayloadFault, match="at most 20"):
        NOTE.parse(_note("a").encode(), limit=20)
    with pytest.raises(PayloadFault, match="bytes"):
        NOTE.pack(Note("<" * 300_000))
    items = b"<notes><text/></notes>" * (MAX_ELEMENTS // 2 + 1)
    with pytest.raises(PayloadFault, match=f"more than {MAX_ELEMENTS} elements"):
        PayloadType.of(Many).parse(b"<Many>" + items + b"</Many>")
    with pytest.raises(PayloadFault, match=f"1 to {MAX_ROOTS}"):
        elements_of(b"<a/>" * (MAX_ROOTS + 1))


def test_a_list_of_one_thing_a_million_times_ends_early() -> None:
    # HC-24
    many = PayloadType.of(Many)
    with pytest.raises(PayloadFault, match="elements"):
        many.pack(Many([Note("")] * 10_000_000))
    with pytest.raises(PayloadFault, match="bytes"):
        many.pack(Many([Note("a" * 100_000)] * 1_000_000))


@pytest.mark.slow
def test_hostile_names_of_elements_are_not_kept_in_memory() -> None:
    # HC-24: lxml keeps every name that a thread's parsers ever met.
    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    def feed(rounds: range) -> None:
        for number in rounds:
            names = b"".join(b"<n%d-%d-%s/>" % (number, n, b"x" * 60) for n in range(9_000))
            [element.tag for element in elements_of(b"<r>" + names + b"</r>")]
            for read in (NOTE.parse, lambda data: read_text(NOTE, data.decode())):
                data = b"<Note><text>a</text>" + names + b"</Note>"
                with pytest.raises(PayloadFault):
                    read(data)

    feed(range(10))
    gc.collect()
    before = resident()
    feed(range(10, 70))
    gc.collect()
    # Kept, they would be more than 60 times 0.8 MB.
    assert resident() - before < 25_000_000


def test_roots_cannot_be_closed_from_within() -> None:
    # HC-21
    for data in (b"</_><_>", b"<a/></_><_><b/>", b"<a/></_>", b"<_>", b"<a>", b"<a/>text<b/>", b"text<a/>"):
        with pytest.raises(PayloadFault):
            elements_of(data)
    assert [element.tag for element in elements_of(b" <a/><!-- c -->\n<b><_/></b> ")] == ["a", "b"]


@pytest.mark.parametrize(
    "inside",
    [
        "",
        "<meta><to>a</to></meta>",
        "<meta><to>a</to><to>b</to></meta><x/>",
        "<meta/><meta/><x/>",
        "<x/><meta><to>a</to></meta>",
        "text<x/>",
        "<meta><to><b/></to></meta><x/>",
        f"<meta><to>{'a' * 500}</to></meta><x/>",
    ],
)
def test_an_envelope_that_may_be_read_in_two_ways_is_refused(inside: str) -> None:
    # HC-21
    (element,) = elements_of(
        f'<message xmlns="https://xml-pipeline.org/ns/envelope/v1">{inside}</message>'.encode()
    )
    assert is_envelope(element)
    with pytest.raises(PayloadFault):
        target_and_payload(element)
