"""The prompt: messages and commands, one after the other, until the user leaves."""

import asyncio
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pallas.client import RestClient
from pallas.commands import COMMANDS, read
from pallas.model import Fault, Image
from pallas.plugins.slash_commands import plugin_commands
from pallas.safe_text import one_line, sanitize

from .chat_host import Host
from .chat_options import ChatOptions
from .chat_requests import check_thread, run_facts
from .chat_signals import Ending
from .chat_terminal import BOLD, DIM, RED, ChatTerminal
from .chat_turn import ChatTurn, figures, tell_end, tell_thread
from .exit_status import OK
from .line_input import Edited, Interrupted, LineInput, Plain, typed


async def repl(
    api: RestClient,
    options: ChatOptions,
    terminal: ChatTerminal,
    ending: Ending,
    base: Path,
    about: Mapping[str, Any],
) -> int:
    """Hold the conversation and return the exit status. Failures are shown, and the conversation goes on."""
    COMMANDS.extend(plugin_commands)
    host = Host(api, options, base, about)
    if options.thread:
        await check_thread(api, options)
    lines = _lines(terminal, host, base)
    _greet(terminal, api, options, about)
    if options.thread:
        terminal.note(await host.resume(options.thread))
    listing = asyncio.create_task(_list(host), name="threads for completion")
    try:
        await _hold(api, options, terminal, ending, host, lines)
    finally:
        listing.cancel()
    tell_thread(terminal, host.thread)
    return OK


async def _hold(
    api: RestClient,
    options: ChatOptions,
    terminal: ChatTerminal,
    ending: Ending,
    host: Host,
    lines: LineInput,
) -> None:
    task = asyncio.current_task()
    assert task is not None
    interrupted = False
    while not host.leaving:
        if host.again is not None:
            (message, images), host.again = host.again, None
            await _ask(api, options, terminal, ending, host, message, images)
            continue
        ending.listen(task.cancel)
        try:
            line = await lines.read(f"{one_line(options.agent, 60)}> ")
        except EOFError:
            terminal.settle()
            return
        except Interrupted as stopped:
            if interrupted and stopped.empty:
                return
            interrupted = True
            terminal.note("(ctrl-c again or ctrl-d leaves)" if stopped.empty else "(thrown away)")
            continue
        interrupted = False
        message = typed(line)
        if not message.strip():
            continue
        command = read(message if line.lstrip()[:1] == "/" else "")
        if command.command:
            outcome = await COMMANDS.run(host, command)
            if outcome.text:
                terminal.table(sanitize(outcome.text), "" if outcome.ok else RED)
            continue
        images, host.images = tuple(host.images), []
        await _ask(api, options, terminal, ending, host, _unslashed(line, message), images)


async def _ask(
    api: RestClient,
    options: ChatOptions,
    terminal: ChatTerminal,
    ending: Ending,
    host: Host,
    message: str,
    images: tuple[Image, ...],
) -> None:
    turn = ChatTurn(api, options.agent, terminal)
    ending.listen(turn.cancel)
    before = host.thread
    answer = await turn.ask(host.body(message, images), stream=host.streams)
    tell_end(terminal, answer)
    facts = await run_facts(api, answer.run) if answer.fault is None and not answer.cancelled else {}
    host.answered(answer, facts)
    if answer.fault is not None and images:
        host.images = [*images, *host.images]  # They were not sent.
    if terminal.err_tty and answer.fault is None and not answer.cancelled:
        terminal.note(figures(answer, facts))
    if host.thread != before:
        tell_thread(terminal, host.thread)


def _unslashed(line: str, message: str) -> str:
    return message[1:] if line.startswith("//") else message


def _greet(terminal: ChatTerminal, api: RestClient, options: ChatOptions, about: Mapping[str, Any]) -> None:
    if not terminal.err_tty:
        return
    llm = about.get("llm")
    model = str(llm.get("name") or "") if isinstance(llm, dict) else ""
    where = "a fleet for this call" if api.own else api.place.origin
    parts = [options.agent, model, where, "/help lists commands", "ctrl-d leaves"]
    terminal.note(" · ".join(one_line(part, 100) for part in parts if part), BOLD)
    if description := one_line(str(about.get("description") or ""), 200):
        terminal.note(description, DIM)


def _lines(terminal: ChatTerminal, host: Host, base: Path) -> LineInput:
    if terminal.out_tty and sys.stdin.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return Edited(terminal, host, base)
    return Plain(terminal)


async def _list(host: Host) -> None:
    with suppress(Fault):
        await host.threads()
