"""One message, its answer, and the end."""

import json
from typing import Any

from pallas.client import RestClient
from pallas.model import Fault

from .chat_command import Ending, check_thread, run_facts, status_of
from .chat_options import ChatOptions
from .chat_terminal import ChatTerminal
from .chat_turn import ChatAnswer, ChatTurn, figures, tell_end, tell_thread
from .exit_status import OK, SIGNALLED


async def once(api: RestClient, wish: ChatOptions, terminal: ChatTerminal, ending: Ending) -> int:
    """Ask and show the answer; returns the exit status.

    With ``--json`` one document on stdout, as the API answers without a stream, with ``--stream`` beside it
    a line of JSON for each chunk.
    """
    if wish.thread:
        await check_thread(api, wish)
    frames = wish.as_json and wish.stream is True
    turn = ChatTurn(api, wish.agent, terminal, frames=frames, quiet=wish.as_json)
    ending.listen(turn.cancel)
    answer = await turn.ask(body_of(wish), stream=wish.stream is not False)
    if wish.as_json and not frames:
        terminal.text(json.dumps(await _document(api, answer), ensure_ascii=False, indent=2) + "\n")
    elif terminal.err_tty and answer.fault is None and not answer.cancelled:
        terminal.note(figures(answer, await run_facts(api, answer.run)))
    tell_end(terminal, answer)
    tell_thread(terminal, answer.thread)
    if answer.cancelled:
        return SIGNALLED + (ending.signal or 2)
    return status_of(answer.fault) if answer.fault is not None else OK


def body_of(wish: ChatOptions) -> dict[str, Any]:
    """The body of a chat request."""
    body: dict[str, Any] = {"message": wish.message or "", **wish.params.to_json()}
    if wish.thread:
        body["threadId"] = wish.thread
    if wish.images:
        body["images"] = [{"data": image.data, "mimeType": image.mime_type} for image in wish.images]
    return body


async def _document(api: RestClient, answer: ChatAnswer) -> dict[str, Any]:
    if answer.document:
        return answer.document
    document: dict[str, Any] = {
        "text": answer.text,
        "threadId": answer.thread or None,
        "turnIndex": answer.turn_index,
        "runId": answer.run or None,
        **answer.chosen,
    }
    facts = await run_facts(api, answer.run)
    document |= {key: facts[key] for key in ("seconds", "steps", "tools", "usage") if key in facts}
    fault = answer.fault
    if answer.cancelled:
        document["cancelled"] = True
    elif isinstance(fault, Fault):
        document |= fault.to_body()
    return document
