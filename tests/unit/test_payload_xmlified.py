"""XML as ``@xmlify`` writes it: PascalCase, with an element around lists and optional values."""

from dataclasses import dataclass, field

import pytest

from pallas.payloads import PayloadFault, PayloadType


@dataclass
class LineItem:
    sku_code: str
    n: int = 1


@dataclass
class Order:
    order_id: int
    items: list[LineItem]
    tags: list[str] = field(default_factory=list)
    is_open: bool = True
    note: str | None = None
    first: LineItem | None = None
    stars: list[int] = field(default_factory=lambda: [1])
    hint: str | None = "none"


ORDER = PayloadType.of(Order)


def read(inside: str) -> Order:
    made = ORDER.bind(ORDER.parse(f"<Order><OrderId>7</OrderId>{inside}</Order>".encode()), Order)
    assert isinstance(made, Order)
    return made


def test_a_whole_message_of_xml_pipeline_is_read() -> None:
    # HC-23, HC-34
    assert read(
        "<Items><LineItem><SkuCode>a</SkuCode><N>2</N></LineItem>"
        "<LineItem><SkuCode>b</SkuCode><N>1</N></LineItem></Items>"
        "<Tags><Str>x</Str><Str>&lt;y&gt;</Str></Tags><IsOpen>false</IsOpen><Note><Str>hey</Str></Note>"
        "<First><LineItem><SkuCode>c</SkuCode><N>3</N></LineItem></First>"
        "<Stars><Int>4</Int><Int>5</Int></Stars><Hint><NoneType><!--This is None--></NoneType></Hint>"
    ) == Order(
        7,
        [LineItem("a", 2), LineItem("b")],
        ["x", "<y>"],
        is_open=False,
        note="hey",
        first=LineItem("c", 3),
        stars=[4, 5],
        hint=None,
    )


def test_empty_lists_and_none_are_read() -> None:
    # HC-23
    assert read(
        "<Items><!--Empty List!--></Items><Tags/><IsOpen>true</IsOpen><Note><NoneType/></Note>"
        "<First><NoneType/></First><Stars><!--Empty List!--></Stars><Hint><Str></Str></Hint>"
    ) == Order(7, [], stars=[], hint="")


def test_pascal_case_alone_is_read_and_both_spellings_mix() -> None:
    assert read(
        "<Items><SkuCode>a</SkuCode></Items><items><sku_code>b</sku_code></items><Tags>x</Tags><Tags>y</Tags>"
        "<Note>plain</Note><First><SkuCode>c</SkuCode></First>"
    ) == Order(7, [LineItem("a"), LineItem("b")], ["x", "y"], note="plain", first=LineItem("c"))


@pytest.mark.parametrize(
    ("inside", "problem"),
    [
        ("<Tags><Int>1</Int></Tags>", "Order.tags has the element 'Int' in it; expected <Str>"),
        ("<Tags><Str>a</Str>b</Tags>", "Order.tags has the text 'b'"),
        ("<Items><LineItem><N>1</N></LineItem></Items>", "Order.items[0].sku_code is missing"),
        ("<Items>text</Items>", "has the text 'text'"),
        ("<Stars><Int>x</Int></Stars>", "expected a whole number"),
        ("<Note><NoneType/><Str>a</Str></Note>", "Order.note has the element 'Str' in it"),
        ("<Note><Str>a</Str><Str>b</Str></Note>", "Order.note has the element 'Str' in it"),
        ("<Note><NoneType>x</NoneType></Note>", "has the text 'x'"),
        ("<Note><NoneType><Str/></NoneType></Note>", "has the element 'Str' in it"),
        ("<Tags><Str a='1'>a</Str></Tags>", "has the attribute 'a'"),
        ("<Note><NoneType a='1'/></Note>", "has the attribute 'a'"),
        ("<tAGS>x</tAGS>", "has no element 'tAGS'"),
        ("<IsOpen>true</IsOpen><IsOpen>true</IsOpen>", "is there twice"),
    ],
)
def test_what_is_neither_spelling_is_refused_with_its_place(inside: str, problem: str) -> None:
    # HC-2
    with pytest.raises(PayloadFault) as refused:
        read(inside)
    assert problem.replace("'", '"') in refused.value.message.replace("'", '"')


@dataclass
class Twins:
    a_b: int
    ab: int


def test_a_name_that_two_fields_could_have_is_neither() -> None:
    kind = PayloadType.of(Twins)
    assert kind.bind(kind.parse(b"<Twins><a_b>1</a_b><ab>2</ab></Twins>"), Twins) == Twins(1, 2)
    with pytest.raises(PayloadFault, match="has no element"):
        kind.parse(b"<Twins><AB>1</AB><ab>2</ab></Twins>")
