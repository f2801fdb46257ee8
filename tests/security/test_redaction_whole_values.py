"""A value is masked as a whole or not at all, and what is beside it stays."""

import json
import logging
from pathlib import Path

import pytest

from pallas.model.redaction import name_tokens, redact_text
from pallas.telemetry.log import close_logging, setup_logging


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("token:bobby", "token:[redacted]"),
        ("token: b4711", "token: [redacted]"),
        ("secret=b'bytes4711'", "secret=b'[redacted]'"),
        ('{"principal": "token:banned"}', '{"principal": "token:[redacted]"}'),
        ("token:bo-b, and more", "token:[redacted], and more"),
    ],
)
def test_no_part_of_a_value_is_left(text: str, shown: str) -> None:
    assert redact_text(text) == shown
    assert redact_text(shown) == shown


def test_a_caller_known_by_the_name_of_a_token_is_shown_in_the_log(tmp_path: Path) -> None:
    name_tokens(["bob"])
    close_logging()
    log = setup_logging("info", path=tmp_path / "pallas.log", stderr=False)
    try:
        said = ("token:bob asked", '{"principal": "token:bob"}', "by 'token:bob', twice")
        for each in said:
            logging.getLogger("pallas.test").info("%s", each)
    finally:
        close_logging()
    shown = [json.loads(line)["message"] for line in log.read_text("utf-8").splitlines()]
    assert shown == list(said)
