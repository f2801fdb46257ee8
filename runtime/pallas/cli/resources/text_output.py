"""YAML and JSON output, readable for people and accepted by `pallas apply`."""

import json
import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import yaml

from pallas.model.time_text import duration
from pallas.safe_text import sanitize

FORMATS: Final = ("table", "yaml", "json")


def as_json(value: Any) -> str:
    """Return JSON with an indent of two, and non-ASCII letters as they are."""
    return _escaped(json.dumps(value, indent=2, ensure_ascii=False))


def as_yaml(documents: Sequence[Any]) -> str:
    """Return one YAML document, or several separated by ``---``; multi-line texts stay readable."""
    parts = [
        yaml.dump(
            each, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, default_flow_style=False
        )
        for each in documents
    ]
    return _escaped("---\n".join(parts).removesuffix("\n"))


def when(iso: Any) -> str:
    """Return an API timestamp in local time, without the day when it is today."""
    try:
        at = datetime.fromisoformat(iso).astimezone()
    except (TypeError, ValueError):
        return ""
    today = datetime.now(UTC).astimezone().date()
    return f"{at:%H:%M:%S}" if at.date() == today else f"{at:%Y-%m-%d %H:%M}"


def seconds(value: Any) -> str:
    """Return a duration as the workbench shows it; empty for a value that is none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return ""
    return duration(value)


def _escaped(text: str) -> str:
    """Escape characters that drive a terminal or reorder a line, as in double-quoted JSON and YAML."""
    return "".join(
        each if each in "\n\t" or sanitize(each) == each else f"\\u{ord(each):04x}" for each in text
    )


class _Dumper(yaml.SafeDumper):
    """Writes no aliases, so that parts of the output can be copied."""

    def ignore_aliases(self, data: Any) -> bool:
        return True

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.Node:
    style = "|" if "\n" in value else None
    # Such characters can be escaped only between double quotes.
    return dumper.represent_scalar(
        "tag:yaml.org,2002:str", value, style='"' if value != sanitize(value) else style
    )


_Dumper.add_representer(str, _text)
