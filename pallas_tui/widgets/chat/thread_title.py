"""The name of a conversation is the title of its thread, whatever client gave it."""

from typing import Any, Final

from pallas.model import Fault, FaultType, FleetPort, ThreadRecord
from pallas.model.ledger_records import MAX_TITLE
from pallas.safe_text import one_line

from ...chat.conversation import ChatConversation
from ...instances.attached_snapshots import is_attached_name
from ...records.thread_book import ThreadBook

_ELSEWHERE: Final = "Only this tab has that name: the thread is stored by the fleet of the agent."
_UNWRITTEN: Final = "The thread gets that title once it is written."


async def rename(app: Any, conversation: ChatConversation, name: str) -> str:
    """Give the thread of a conversation that title; an empty one restores that of its first message.

    A thread that is not written yet gets it later, from ``follow``. Returns what the user should know, empty
    if all is done. Raises Fault; then the name stays as it is.
    """
    name = " ".join(name.split())[:MAX_TITLE]
    if is_attached_name(conversation.agent):
        conversation.take_title(name)
        return _ELSEWHERE
    try:
        port, record = await _found(app, conversation)
    except Fault as fault:
        if fault.type is not FaultType.CONFIG:  # a fleet without a database has no threads
            raise
        conversation.take_title(name)
        return f"Only this tab has that name: {fault.message}"
    conversation.unwritten_title = ""
    if port is None or record is None:
        conversation.unwritten_title = name
        conversation.take_title(name)
        return _UNWRITTEN if name else ""
    record = await port.rename_thread(record.id, name or conversation.first_title)
    _take(app, conversation, record)
    return ""


async def follow(app: Any, conversation: ChatConversation) -> str:
    """Take in the title of its thread, or give the thread the title that waits for it.

    Returns why it could not be given, else nothing. If the fleet does not answer, nothing changes.
    """
    is_new = conversation.untouched and conversation.stored is None
    if is_new or is_attached_name(conversation.agent):
        return ""
    attachment = getattr(getattr(app, "fleet", None), "attachment", None)
    if attachment is not None and not attachment.access.reads_texts:
        return ""  # each look would be refused, and audited
    before = conversation.handle, conversation.name
    try:
        port, record = await _found(app, conversation)
    except Fault:
        return ""
    if port is None or record is None or before != (conversation.handle, conversation.name):
        return ""
    problem = ""
    if title := conversation.unwritten_title:
        conversation.unwritten_title = ""
        try:
            record = await port.rename_thread(record.id, title)
        except Fault as fault:
            problem = f"The thread did not get the title {one_line(title, 60)}: {fault.message}"
    _take(app, conversation, record)
    return problem


def _take(app: Any, conversation: ChatConversation, record: ThreadRecord) -> None:
    conversation.take_title(record.title)
    book: ThreadBook | None = getattr(app, "threads", None)
    if book is not None:
        book.learn(record)


async def _found(app: Any, conversation: ChatConversation) -> tuple[FleetPort | None, ThreadRecord | None]:
    """The fleet, if there is one yet, and the thread, if it is written. Raises Fault."""
    port: FleetPort | None = getattr(app, "fleet", None)
    if port is None:
        return None, None
    try:
        return port, await port.thread(conversation.agent, conversation.thread or conversation.handle)
    except Fault as fault:
        if fault.type is not FaultType.UPSTREAM:
            raise
        return port, None
