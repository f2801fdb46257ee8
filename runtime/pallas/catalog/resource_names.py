"""What things in the catalog may be called (SPEC C20)."""

import re
from typing import Final

from pallas.model import ResourceKind
from pallas.model.safe_text import one_line

from .spec_fields import wrong

MAX_NAME: Final = 100
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]*")


def check_name(kind: ResourceKind, name: object) -> str:
    """``name``, which follows the rules. Raises Fault (PROTOCOL) with ``data["key"]`` ``metadata.name``."""
    rule = f"a-z, 0-9 and . _ - after the first, at most {MAX_NAME} characters"
    if not isinstance(name, str) or not name:
        raise wrong("name", f"is missing; write {rule}")
    if len(name) > MAX_NAME or not _NAME.fullmatch(name):
        better = re.sub(r"[^a-z0-9._-]+", "-", name.lower()).strip("-._")[:MAX_NAME]
        near = f"; did you mean {better}?" if better and _NAME.fullmatch(better) else ""
        raise wrong("name", f"{one_line(name, 60)!r} is no name; allowed: {rule}{near}")
    if kind == "agent" and (name == "system" or name.startswith(("agent-", "system."))):
        raise wrong("name", f"{name} is reserved; allowed: any name but agent-*, system and system.*")
    return name


def slug(name: str) -> str:
    """A name as the registry publishes it (PR-14)."""
    return name.replace("_", "-")
