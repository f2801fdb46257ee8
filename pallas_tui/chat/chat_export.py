"""Export of a conversation to a file: Markdown to read, JSON for programs. Neither contains a token."""

import json
import os
import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from time import localtime, strftime
from typing import Any, Final, Literal

from pallas import __version__
from pallas.model import Fault, FaultType
from pallas.model.money import cost_fields
from pallas.safe_text import one_line, sanitize, without_controls

from ..pictures.images import ChatPicture, size_text
from .call_outline import tree_details
from .call_tree import Node, Tree
from .conversation import ChatConversation, ChatEntry

Form = Literal["md", "json"]
FORMAT: Final = "pallas-conversation/1"


@dataclass(frozen=True, slots=True)
class ConversationFacts:
    """The facts of a conversation in its export.

    ``principal`` is a fingerprint, empty for an anonymous caller.
    """

    agent: str
    url: str = ""
    model: str = ""
    era: str = ""
    protocol: str = ""
    principal: str = ""


def form_of(path: Path) -> Form:
    """Return the format of a file, by its name."""
    return "json" if path.suffix.lower() == ".json" else "md"


def file_name(conversation: ChatConversation, at: float, form: Form) -> str:
    """Return the default name of the file: ``research-2026-05-04-1402.md``."""
    name = conversation.name or conversation.agent
    plain = "".join(c if c.isalnum() and c.isascii() else "-" for c in name).strip("-")[:60] or "conversation"
    return f"{plain}-{strftime('%Y-%m-%d-%H%M', localtime(at))}.{form}"


def exported(conversation: ChatConversation, about: ConversationFacts, form: Form) -> str:
    """Return the whole conversation, including hidden messages, without the notes of the workbench."""
    return as_json(conversation, about) if form == "json" else as_markdown(conversation, about)


def as_markdown(conversation: ChatConversation, about: ConversationFacts) -> str:
    """Return the conversation as Markdown. Answers are unchanged."""
    facts = [
        ("agent", about.agent),
        ("model", about.model),
        ("endpoint", about.url),
        ("protocol", about.protocol or about.era),
        ("asked as", f"bearer {about.principal}" if about.principal else "nobody"),
    ]
    lines = [f"# {conversation.name or 'Conversation with ' + about.agent}", ""]
    lines += [f"- {name}: {sanitize(value)}" for name, value in facts if value]
    for entry in _entries(conversation):
        lines += ["", f"## {_heading(entry, about.agent)}", ""]
        if entry.tree:
            end = _end(entry.tree)
            shown = (p.text or tree_details(entry.tree, end, p.first, p.end) for p in entry.parts)
            lines.append("\n\n".join(without_controls(each) for each in shown))
        elif entry.text:
            lines.append(without_controls(entry.text).strip("\n"))
        if entry.attachments:
            lines += ["", *(f"- image: {_picture(one)}" for one in entry.attachments)]
    return "\n".join(lines) + "\n"


def as_json(conversation: ChatConversation, about: ConversationFacts) -> str:
    """Return the conversation as JSON.

    Times are ISO 8601 in UTC, durations are in seconds; pictures are named, not contained.
    """
    document = {
        "format": FORMAT,
        "pallas": __version__,
        "name": conversation.name,
        "agent": about.agent,
        "model": about.model,
        "url": about.url,
        "era": about.era,
        "protocol": about.protocol,
        "principal": about.principal,
        "messages": [_message(entry) for entry in _entries(conversation)],
    }
    return json.dumps(document, indent=2, ensure_ascii=False) + "\n"


def write_new(path: Path, text: str) -> None:
    """Write all of ``text`` to a new file, or nothing. Blocks: call in a thread.

    Raises Fault (CONFIG) that names the problem with the path, also when the file already exists.
    """
    shown = one_line(str(path), 200)
    draft = path.with_name(f".{path.name[:100]}.{secrets.token_hex(4)}")
    try:
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(text.encode())
            try:
                os.link(draft, path)  # atomic: fails if the file exists
            except FileExistsError:
                raise
            except OSError:  # a file system without links: nearly as good
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
                draft.replace(path)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
    except FileExistsError:
        kind = "a folder" if path.is_dir() else "a file"
        raise _refused(f"{shown} is {kind} already, and nothing is overwritten; give another name.") from None
    except FileNotFoundError:
        folder = one_line(str(path.parent), 200)
        raise _refused(f"There is no folder {folder}; make it first, or give another path.") from None
    except (OSError, ValueError) as error:
        reason = one_line(getattr(error, "strerror", None) or str(error))
        raise _refused(f"{shown} cannot be written: {reason}.") from None


def _entries(conversation: ChatConversation) -> list[ChatEntry]:
    return [entry for entry in conversation.transcript if entry.role != "note"]


def _heading(entry: ChatEntry, agent: str) -> str:
    author = {"user": "you", "assistant": agent, "error": f"{agent} failed"}[entry.role]
    parts = [strftime("%Y-%m-%d %H:%M:%S", localtime(entry.at)), author]
    if entry.cut:
        parts.append(entry.cut)
    if entry.seconds is not None:
        parts.append(f"{entry.seconds:.1f} s")
    if entry.tokens_in is not None or entry.tokens_out is not None:
        parts.append(f"{entry.tokens_in or 0} tokens in, {entry.tokens_out or 0} out")
    if not entry.cost.is_empty:
        parts.append(entry.cost.words)
    return " · ".join(parts)


def _picture(one: ChatPicture) -> str:
    return f"{one.name}, {size_text(one.size)}"


def _end(tree: Tree) -> float:
    """Return a time after the last event, so that the durations of a finished tree do not depend on now."""
    return max((node.ended or 0.0 for node in tree.root.walk()), default=0.0)


def _message(entry: ChatEntry) -> dict[str, Any]:
    message: dict[str, Any] = {
        "role": entry.role,
        "at": datetime.fromtimestamp(entry.at, UTC).isoformat(),
        "text": without_controls(entry.text),
    }
    known = {
        "images": [
            {"name": one.name, "mime_type": one.mime_type, "bytes": one.size} for one in entry.attachments
        ],
        "seconds": entry.seconds,
        "steps": entry.steps or None,
        "tools": entry.tools or None,
        "tokens_in": entry.tokens_in,
        "tokens_out": entry.tokens_out,
        **({} if entry.cost.is_empty else cost_fields(entry.cost)),
        "cut": entry.cut,
        "stopped": entry.stopped,
        "reasoning": without_controls(entry.reasoning),
        "run_id": entry.run_id,
        "trace_id": entry.trace_id,
        "calls": [_call(node) for node in entry.tree.root.children] if entry.tree else [],
    }
    return message | {name: value for name, value in known.items() if value not in (None, "", [])}


def _call(node: Node) -> dict[str, Any]:
    call: dict[str, Any] = {"kind": node.kind, "name": node.label, "state": node.state}
    if node.started is not None and node.ended is not None:
        call["seconds"] = round(max(0.0, node.ended - node.started), 3)
    if node.children:
        call["calls"] = [_call(child) for child in node.children]
    return call


def _refused(problem: str) -> Fault:
    return Fault(FaultType.CONFIG, problem)
