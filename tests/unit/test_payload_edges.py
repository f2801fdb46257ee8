"""Values at the edge of what a message carries: the same edge for all that write one, told by the field."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal

import pytest

from pallas.payloads import PayloadFault, PayloadType, read_text


@dataclass
class Bill:
    """What is to be paid, and when."""

    amount: Decimal
    due: datetime = datetime(2026, 1, 31, 12, 0, tzinfo=timezone.utc)  # noqa: UP017 - as it is written


BILL = PayloadType.of(Bill)
LONGEST = "9" * 1_000


@pytest.mark.parametrize("amount", ["1" * 1_001, "1" * 700 + "." + "1" * 700, "0." + "0" * 1_000 + "1"])
def test_a_decimal_of_too_many_digits_is_refused_however_it_is_written(amount: str) -> None:
    # HC-2: what a handler was given it can send on
    ways = (f"<Bill><amount>{amount}</amount></Bill>", json.dumps({"amount": amount}))
    for written in ways:
        with pytest.raises(PayloadFault, match="too many digits") as told:
            read_text(BILL, written)
        assert told.value.data["field"] == "amount"
    with pytest.raises(PayloadFault, match="too many digits"):
        BILL.pack(Bill(Decimal(amount)))


@pytest.mark.parametrize("amount", [LONGEST, f"-{LONGEST}", "0." + "0" * 999 + "1", "000" + LONGEST])
def test_the_longest_decimal_is_carried_whole(amount: str) -> None:
    # HC-23
    bill = BILL.bind(read_text(BILL, f"<Bill><amount>{amount}</amount></Bill>")[0], Bill)
    assert bill.amount == Decimal(amount)
    assert BILL.bind(BILL.pack(bill), Bill) == bill


@pytest.mark.parametrize("offset", ["+14:01", "+15:00", "-14:30", "-23:59", "+10:60"])
def test_an_offset_that_xml_schema_lacks_is_told_by_its_field(offset: str) -> None:
    # HC-2
    due = f"2026-01-31T12:00:00{offset}"
    for written in (
        f"<Bill><amount>1</amount><due>{due}</due></Bill>",
        json.dumps({"amount": 1, "due": due}),
    ):
        with pytest.raises(PayloadFault, match="expected a date and time, such as") as told:
            read_text(BILL, written)
        assert told.value.data["field"] == "due"


def test_an_instance_with_such_an_offset_is_told_by_its_field_and_all_others_are_carried() -> None:
    # HC-23
    for minutes in (-841, 841, 23 * 60 + 59):
        with pytest.raises(PayloadFault) as told:
            BILL.pack(Bill(Decimal(1), datetime(2026, 1, 31, tzinfo=timezone(timedelta(minutes=minutes)))))
        assert told.value.data["field"] == "due"
    for minutes in (-840, -839, -1, 0, 60, 839, 840):
        bill = Bill(Decimal(1), datetime(2026, 1, 31, tzinfo=timezone(timedelta(minutes=minutes))))
        again = BILL.bind(read_text(BILL, BILL.pack(bill).xml.decode())[0], Bill)
        assert (again, again.due.utcoffset()) == (bill, bill.due.utcoffset())


def test_a_mark_that_an_editor_puts_before_a_file_is_no_part_of_a_message() -> None:
    assert read_text(BILL, '\ufeff{"amount": 1}')[1] == "json"
    assert read_text(BILL, "\ufeff<?xml version='1.0'?><Bill><amount>1</amount></Bill>")[1] == "xml"
