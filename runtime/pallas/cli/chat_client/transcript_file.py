"""A thread as a file: Markdown to read, JSON to process."""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import localtime, strftime
from typing import Any, Final

from pallas import __version__
from pallas.model import Fault, FaultType
from pallas.safe_text import one_line, without_controls

FORMAT: Final = "pallas-thread/1"


def rendered(form: str, agent: str, thread: str, messages: Sequence[Mapping[str, Any]]) -> str:
    """Render the thread's messages as the API returns them, oldest first, without the data of pictures."""
    return _json(agent, thread, messages) if form == "json" else _markdown(agent, thread, messages)


def target_of(base: Path, path: str, form: str, agent: str) -> tuple[Path, str]:
    """Return the file's path and form: as ``path`` says, by default in ``base``."""
    kind = form or ("json" if path.lower().endswith(".json") else "md")
    if not path:
        plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in agent).strip("-")[:60] or "thread"
        path = f"{plain}-{strftime('%Y-%m-%d-%H%M%S', localtime())}.{kind}"
    target = base / Path(path).expanduser()
    return (target if target.suffix else target.with_name(f"{target.name}.{kind}")), kind


def write_new(path: Path, text: str) -> None:
    """Write a new file that only this user can read.

    Raises Fault (CONFIG) when it exists or cannot be written.
    """
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            try:
                file.write(text.encode("utf-8", "replace"))
                file.flush()
            except OSError:
                with suppress(OSError):
                    path.unlink()
                raise
    except FileExistsError:
        shown = one_line(str(path), 200)
        raise _refused(f"{shown} exists already and is not overwritten; give another name.") from None
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error))
        raise _refused(f"{one_line(str(path), 200)} cannot be written: {reason}.") from None


def _markdown(agent: str, thread: str, messages: Sequence[Mapping[str, Any]]) -> str:
    lines = [f"# Conversation with {agent}", "", f"- thread: {thread}"]
    for each in messages:
        role, content = each.get("role"), str(each.get("content") or "")
        head = [
            str(each.get("createdAt") or ""),
            {"user": "you", "assistant": agent}.get(str(role), str(role)),
        ]
        if each.get("status") == "error":
            head.append(f"failed: {one_line(str(each.get('reason') or ''), 300)}")
        lines += ["", f"## {' · '.join(part for part in head if part)}", ""]
        lines += [content] if content else []
        for call in each.get("toolCalls") or ():
            arguments = json.dumps(call.get("arguments"), ensure_ascii=False)
            lines.append(f"- calls {call.get('name')} {arguments}")
        lines += [f"- image: {image.get('mimeType')}" for image in each.get("images") or ()]
    return without_controls("\n".join(lines)) + "\n"


def _json(agent: str, thread: str, messages: Sequence[Mapping[str, Any]]) -> str:
    shown = [
        {**each, "images": [{"mimeType": image.get("mimeType")} for image in each.get("images") or ()]}
        for each in messages
    ]
    document = {
        "format": FORMAT,
        "pallas": __version__,
        "agent": agent,
        "thread": thread,
        "messages": shown,
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def _refused(problem: str) -> Fault:
    return Fault(FaultType.CONFIG, problem)
