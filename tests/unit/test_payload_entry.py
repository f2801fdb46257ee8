"""What a caller writes to a typed handler: JSON, XML or text, and what it is told where it does not fit."""

from dataclasses import dataclass, field

import pytest
import xmlschema

from pallas.contract import Text
from pallas.payloads import (
    Payload,
    PayloadFault,
    PayloadType,
    elements_of,
    envelope,
    is_envelope,
    read_text,
    target_and_payload,
)
from pallas.payloads.envelope import NAMESPACE


@dataclass
class AddPayload:
    """Two numbers."""

    a: int
    b: int
    labels: list[str] = field(default_factory=list)


ADD = PayloadType.of(AddPayload)
TEXT = PayloadType.of(Text)
ENVELOPE_XSD = f"""\
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="{NAMESPACE}"
    elementFormDefault="qualified">
  <xs:element name="message">
    <xs:complexType>
      <xs:sequence>
        <xs:element name="meta">
          <xs:complexType>
            <xs:sequence>
              <xs:element name="from" type="xs:string"/>
              <xs:element name="to" type="xs:string" minOccurs="0"/>
              <xs:element name="thread" type="xs:string"/>
            </xs:sequence>
          </xs:complexType>
        </xs:element>
        <xs:any namespace="##any" processContents="skip"/>
      </xs:sequence>
    </xs:complexType>
  </xs:element>
</xs:schema>
"""


@pytest.mark.parametrize(
    ("written", "form"),
    [
        ('{"a": 1, "b": 2}', "json"),
        ('  {"b": 2.0, "a": 1, "labels": []}\n', "json"),
        ('```json\n{"a": 1, "b": 2}\n```', "json"),
        ("<AddPayload><a>1</a><b>2</b></AddPayload>", "xml"),
        ("<addpayload><a> 1 </a><b>+2</b></addpayload>", "xml"),
        ("<calculator.add.AddPayload><a>1</a><b>2</b></calculator.add.AddPayload>", "xml"),
        ('<x:add.addpayload xmlns:x="urn:y"><x:a>1</x:a><x:b>2</x:b></x:add.addpayload>', "xml"),
        ('<addpayload xmlns="https://xml-pipeline.org/ns/envelope/v1"><a>1</a><b>2</b></addpayload>', "xml"),
        (
            "<?xml version='1.0'?>\n<!-- c -->\n<AddPayload><a>1</a><b><!-- -->2</b></AddPayload>",
            "xml",
        ),
        ("```xml\n<AddPayload>\n  <a>1</a>\n  <b>2</b>\n</AddPayload>\n```", "xml"),
    ],
)
def test_a_message_may_be_written_in_many_ways(written: str, form: str) -> None:
    # HC-2
    payload, read = read_text(ADD, written)
    assert (ADD.bind(payload, AddPayload), read) == (AddPayload(1, 2), form)
    for again in ("xml", "json"):
        assert ADD.bind(read_text(ADD, ADD.write(payload, again))[0], AddPayload) == AddPayload(1, 2)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("written", "said", "place"),
    [
        (
            "add 1 and 2",
            'AddPayload is not plain text: "add 1 and 2"; expected JSON such as {"a": 42, "b": 42}',
            None,
        ),
        ("", "AddPayload is not plain text", None),
        ("[1, 2]", "AddPayload is not plain text", None),
        ('{"a": 1', "AddPayload is not JSON: Expecting", None),
        ('{"a": "x", "b": 2}', 'AddPayload.a is "x"; expected a whole number, such as 42', "a"),
        ('{"a": true, "b": 2}', "AddPayload.a is true; expected a whole number", "a"),
        ('{"a": 1.5, "b": 2}', "AddPayload.a is 1.5; expected a whole number", "a"),
        ('{"a": null, "b": 2}', "AddPayload.a is null; expected a whole number", "a"),
        ('{"a": 1}', "AddPayload.b is missing; expected a whole number, such as 42", "b"),
        ('{"a": 1, "b": 2, "c": 3}', 'AddPayload has no field "c"; expected a, b, labels', None),
        ('{"a": 1, "a": 2, "b": 3}', "AddPayload has a field twice", None),
        ('{"a": NaN, "b": 3}', "AddPayload has NaN, which is not a JSON number", None),
        ('{"a": 1, "b": 2, "labels": "x"}', 'AddPayload.labels is "x"; expected a list', "labels"),
        ('{"a": 1, "b": 2, "labels": ["x", 1]}', "AddPayload.labels[1] is 1; expected text", "labels[1]"),
        (
            '{"a": 1, "b": 2, "labels": ["\\u0000"]}',
            "AddPayload.labels[0] has a character that XML",
            "labels[0]",
        ),
        (
            '{"a": 1, "b": 2, "labels": ["\\ud800"]}',
            "AddPayload.labels[0] has a character that XML",
            "labels[0]",
        ),
        ('{"a": 1, "b": ' + "9" * 3_000 + "}", "AddPayload.b is a number of too many digits", "b"),
        ('{"a": ' + "[" * 100_000, "AddPayload is not JSON", None),
        (
            "<AddPayload><b>2</b><a>1</a></AddPayload>",
            "AddPayload.a is missing; expected <a> with a whole",
            "a",
        ),
        ("<AddPayload><a>1</a><b>2</b><a>1</a></AddPayload>", 'AddPayload has "a" in the wrong place', None),
        ("<AddPayload><a>1</a><b>2</b><b>2</b></AddPayload>", "AddPayload.b is there twice", "b"),
        ("<AddPayload><a>1</a><b>2</b><c/></AddPayload>", 'AddPayload has no element "c"', None),
        ("<AddPayload><a>1</a><b>x</b></AddPayload>", 'AddPayload.b is "x"; expected a whole number', "b"),
        ("<AddPayload><a>1</a><b><i>2</i></b></AddPayload>", 'AddPayload.b has the element "i" in it', "b"),
        ("<AddPayload>1<a>1</a><b>2</b></AddPayload>", 'AddPayload has the text "1" where elements', None),
        ("<AddPayload from='x'><a>1</a><b>2</b></AddPayload>", 'AddPayload has the attribute "from"', None),
        ("<AddPayload><a x='1'>1</a><b>2</b></AddPayload>", 'AddPayload.a has the attribute "x"', "a"),
        ("<Add><a>1</a><b>2</b></Add>", 'AddPayload is asked for, and the element is "Add"', None),
        ("<MyAddPayload><a>1</a><b>2</b></MyAddPayload>", "AddPayload is asked for", None),
        ("<AddPayload><a>1</a><b>2</b>", "AddPayload is not XML: no element found in line 1", None),
        ("<AddPayload><a>1</a><b>2", "AddPayload is not XML", None),
        (
            "<AddPayload><a>1</a><b>2</b></AddPayload> <x/>",
            "AddPayload is not XML: junk after document",
            None,
        ),
        ("<AddPayload><a>1</a><q:b>2</q:b></AddPayload>", "AddPayload is not XML: unbound prefix", None),
    ],
)
def test_a_mismatch_explains_itself(written: str, said: str, place: str | None) -> None:
    # HC-2
    with pytest.raises(PayloadFault) as told:
        read_text(ADD, written)
    assert said in told.value.message
    assert told.value.data.get("field") == place
    assert "\n" not in told.value.message
    assert len(told.value.message) < 300


def test_an_error_repeats_little_of_what_was_written_and_nothing_that_drives_a_terminal() -> None:
    with pytest.raises(PayloadFault) as told:
        read_text(ADD, "\x1b[31mred\u202e" + "long " * 200)
    assert "\x1b" not in told.value.message
    assert "\u202e" not in told.value.message
    assert len(told.value.message) < 200


@pytest.mark.parametrize(
    "text",
    [
        "hello",
        " two  spaces \n\r\n",
        "<b>bold</b> & more",
        "<todo-until>tomorrow</todo-until>",
        "<todo-until><wait_for>Answer</wait_for></todo-until>",
        "<Note>not a message: text in it</Note>",
        "<AddPayload><a>1</a>",
        "<AddPayload><a>1</a></AddPayload> and more",
        "<!doctype html><p>hi</p>",
        "a < b & c > d ]]> \"'",
        "```\ncode\n```",
        "{not json",
        "[1, 2]",
        "<",
        "",
        "😀 \u2028 \x85",
    ],
)
def test_plain_text_is_taken_exactly_where_one_field_takes_it(text: str) -> None:
    # HC-35
    payload, form = read_text(TEXT, text)
    assert (TEXT.bind(payload, Text), form) == (Text(text), "text")
    assert TEXT.bind(TEXT.parse(payload.xml), Text) == Text(text)
    assert TEXT.write(payload, "text") == text


def test_text_that_is_meant_as_a_message_is_read_as_one() -> None:
    assert TEXT.bind(read_text(TEXT, '{"text": "a"}')[0], Text) == Text("a")
    assert TEXT.bind(read_text(TEXT, "<agent.text><text>a</text></agent.text>")[0], Text) == Text("a")
    for wrong in ('{"other": "a"}', "<Text>a</Text>", "<Text><other/></Text>"):
        with pytest.raises(PayloadFault):
            read_text(TEXT, wrong)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<AddPayload><a>1</a><b>2</b></AddPayload>", 'the element is "AddPayload"; expected <Text>, or for'),
        ("<!-- c -->\n<calculator.addpayload><a>1</a></calculator.addpayload>", 'element is "addpayload"'),
        ("<x:Add xmlns:x='urn:x'><x:a>AT&T</x:a></x:Add>", 'the element is "Add"'),
        ("<Boot/>", 'the element is "Boot"'),
        ("```xml\n<Add><a/></Add>\n```", 'the element is "Add"'),
        ("<!DOCTYPE Text><Text><text>a</text></Text>", "has a DOCTYPE, which is refused"),
        ("<?a b?><!DOCTYPE a [<!ENTITY b 'bb'>]><a>&b;</a>", "has a DOCTYPE, which is refused"),
        ("<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>", "has a DOCTYPE, which is refused"),
    ],
)
def test_a_message_of_another_class_and_a_doctype_are_no_text(text: str, problem: str) -> None:
    # HC-2, HC-24
    with pytest.raises(PayloadFault) as refused:
        read_text(TEXT, text)
    assert problem in refused.value.message
    assert '{"text": "..."}' in refused.value.message or "<Text>" in text


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("<Text><text>AT&T, 1 < 2 && 3 <= 4</text></Text>", "AT&T, 1 < 2 && 3 <= 4"),
        ("<Text><text>a &nbsp; &amp; &#65; &x</text></Text>", "a &nbsp; & A &x"),
        ("<Text><text>&<![CDATA[<&amp;>]]>&</text></Text>", "&<&amp;>&"),
    ],
)
def test_what_was_meant_as_a_character_is_one_and_nothing_is_lost(written: str, text: str) -> None:
    # HC-2
    assert TEXT.bind(read_text(TEXT, written)[0], Text) == Text(text)
    with pytest.raises(PayloadFault):
        TEXT.parse(written.encode())


@pytest.mark.parametrize("to", [None, "shouter", "a.b"])
def test_an_envelope_is_written_as_specified_and_opened_without_its_sender(to: str | None) -> None:
    # HC-11
    payload = ADD.pack(AddPayload(1, 2, ["<&>"]))
    written = envelope("greeter & <co>\x00", to, "0000-thread", payload)
    (element,) = elements_of(written)

    assert is_envelope(element)
    target, inside = target_and_payload(element)
    assert target == to
    assert not is_envelope(inside)
    assert ADD.adopt(inside).xml == payload.xml
    assert xmlschema.XMLSchema(ENVELOPE_XSD).is_valid(written)


def test_several_messages_may_be_in_one_value() -> None:
    # HC-21
    line = envelope("x", "y", "z", TEXT.pack(Text("a")))
    bare = b"<add.addpayload><a>1</a><b>2</b></add.addpayload>\n"
    found = elements_of(b"<?xml version='1.0'?>\n" + line + bare + line)
    assert [is_envelope(element) for element in found] == [True, False, True]
    assert ADD.bind(ADD.adopt(found[1]), AddPayload) == AddPayload(1, 2)


META = "<m:meta><m:from>root</m:from><m:thread>t</m:thread></m:meta>"
TEXT_B = "<Text><text>b</text></Text>"


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        (f"{META}<AddPayload><a>1</a><b>2</b></AddPayload>{TEXT_B}", "2 payloads"),
        (TEXT_B, "no <meta>"),
        (f"{TEXT_B}{META}", "no <meta>"),
        (META, "no payload"),
        (f"<m:meta><m:thread>t</m:thread></m:meta>{TEXT_B}", "no <from>"),
        (f"<m:meta><m:from> </m:from><m:thread>t</m:thread></m:meta>{TEXT_B}", "no <from>"),
        (f"<m:meta><m:from>root</m:from></m:meta>{TEXT_B}", "no <thread>"),
    ],
)
def test_an_incomplete_envelope_and_one_with_several_payloads_are_refused(inside: str, problem: str) -> None:
    # HC-21, HC-34
    text = f'<m:message xmlns:m="https://xml-pipeline.org/ns/envelope/v1">{inside}</m:message>'
    with pytest.raises(PayloadFault, match=problem):
        target_and_payload(elements_of(text.encode())[0])


@pytest.mark.parametrize(
    "body",
    [
        b"<a/>",
        b"<a><b/></a>",
        b'<a x="1 &gt; 0"><b/></a>',
        b'<a xmlns="urn:a"><b/></a>',
        b'<p:a xmlns:p="urn:a"><b/><p:c/></p:a>',
        b'<a xmlns=""><b xmlns="urn:b"/></a>',
    ],
)
def test_an_envelope_holds_what_has_no_class_as_it_was(body: bytes) -> None:
    # HC-21
    (element,) = elements_of(body)
    payload = Payload(ADD, element)

    (written,) = elements_of(envelope("a", "b", "t", payload))
    _, inside = target_and_payload(written)

    assert [part.tag for part in inside.iter()] == [part.tag for part in element.iter()]
    again = envelope("a", None, "t", Payload(ADD, inside))
    assert [part.tag for part in target_and_payload(elements_of(again)[0])[1].iter()] == [
        part.tag for part in element.iter()
    ]
