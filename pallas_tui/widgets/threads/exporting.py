"""A whole thread as a file."""

import asyncio
from pathlib import Path
from typing import Any

from pallas.model import ThreadRecord
from pallas.model.safe_text import one_line

from ...chat.chat_export import ConversationFacts, Form, exported, file_name, form_of, write_new
from ...chat.conversation import ChatConversation
from ...chat.stored_thread import entries_of
from ...pictures.images import user_path
from ...records.thread_book import ThreadBook
from ..dialogs.line_dialog import LineScreen


async def export_thread(app: Any, book: ThreadBook, record: ThreadRecord, now: float) -> None:
    """Ask for a file and write all that was said to it. Raises Fault."""
    rows = await book.whole(record.id)
    conversation = ChatConversation(record.agent)
    conversation.name = record.title
    conversation.entries = await asyncio.to_thread(entries_of, rows, record.agent)
    base = Path.cwd()
    hint = f"in {base}; *.json for JSON, else Markdown. Escape leaves."
    answer = await app.push_screen_wait(
        LineScreen("Write the thread to", hint, file_name(conversation, now, "md"))
    )
    if not (answer or "").strip():
        return
    target = user_path(str(answer).strip(), base)
    form: Form = form_of(target)
    if not target.suffix:
        target = target.with_name(f"{target.name}.{form}")
    text = exported(conversation, ConversationFacts(agent=record.agent), form)
    await asyncio.to_thread(write_new, target, text)
    app.notify(f"Written to {one_line(str(target), 300)}.", markup=False)
