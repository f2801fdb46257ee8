"""The options of `pallas chat`, checked before anything is started."""

import base64
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from pallas.bounds.images import MAX_IMAGE_BYTES, MAX_IMAGES, check_images, kind_of
from pallas.commands import parameter_text
from pallas.model import NO_PARAMS, Fault, Image, Params
from pallas.model.params import MAX_STOP
from pallas.safe_text import one_line

from .exit_status import USAGE, ChatExit

MAX_MESSAGE: Final = 4_000_000
"""Bytes read from stdin; a request has at most 4 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatOptions:
    """The checked options.

    ``message`` is None for the prompt, ``stream`` None when not given. ``images`` are read.
    """

    agent: str
    root: Path
    message: str | None = None
    images: tuple[Image, ...] = ()
    thread: str = ""
    stream: bool | None = None
    params: Params = NO_PARAMS
    as_json: bool = False
    url: str = ""
    token: str = field(default="", repr=False)


def message_of(given: str | None, stdin_is_terminal: bool) -> str | None:
    """Return the message: ``given``; all of stdin for ``-`` or when stdin is piped; None for a prompt.

    Raises ChatExit (USAGE).
    """
    if given is None and stdin_is_terminal:
        return None
    text = _stdin() if given in (None, "-") else str(given)
    if not text.strip():
        raise ChatExit(USAGE, "the message is empty; give one with -m, or pipe one in")
    return text


def params_of(given: Mapping[str, Any], extra: Sequence[str] = (), more: Sequence[str] = ()) -> Params:
    """Return the parameters: ``given`` by key, ``extra`` and ``more`` as ``NAME=VALUE``.

    Raises ChatExit (USAGE) that names the option.
    """
    wanted = {key: value for key, value in given.items() if value is not None}
    below: dict[str, Any] = {}
    if len(wanted.get("stop", ())) > MAX_STOP:
        raise ChatExit(USAGE, f"--stop: {len(wanted['stop'])} were given; at most {MAX_STOP}")
    for each in extra:
        name, value = _pair("--extra", each)
        below[name] = parameter_text.parsed(value)
    if below:
        wanted["extra"] = below
    try:
        params = Params.read(wanted, strict=True)
    except Fault as fault:
        key = str(fault.data.get("key", ""))
        raise ChatExit(
            USAGE, f"--{_OPTIONS.get(key, key.replace('_', '-'))}: {_reason(fault, key)}"
        ) from None
    for each in more:
        name, value = _pair("--set", each)
        try:
            params = parameter_text.changed(params, name, value)
        except Fault as fault:
            raise ChatExit(USAGE, f"--set {fault.message}") from None
    return params


def slips(more: Sequence[str]) -> Iterator[str]:
    """Yield a warning for each provider key in ``more`` that is close to a known parameter."""
    for name in (each.partition("=")[0].strip() for each in more):
        if parameter_text.key_of(name) is None and (close := parameter_text.near(name)):
            shown = one_line(name, 60)
            yield f"--set {shown}: is sent to the provider as it is, under extra; did you mean {close}?"


_OPTIONS: Final = {
    "systemOverride": "system",
    "systemAppend": "system-append",
    "tools_allowlist": "allow-tool",
}


def system_of(text: str | None, file: Path | None) -> str | None:
    """Return the text that replaces the agent's instruction. Raises ChatExit (USAGE)."""
    if file is None:
        return text
    if text is not None:
        raise ChatExit(USAGE, "give --system or --system-file, not both")
    try:
        return file.read_text("utf-8").strip("\n")
    except UnicodeDecodeError:
        raise ChatExit(USAGE, f"--system-file: {_shown(file)} is not UTF-8 text") from None
    except OSError as error:
        raise ChatExit(USAGE, f"--system-file: {_shown(file)}: {_why(error)}") from None


def images_of(paths: Sequence[Path]) -> tuple[Image, ...]:
    """Read the pictures to send. Raises ChatExit (USAGE) for one that no agent would accept."""
    if len(paths) > MAX_IMAGES:
        raise ChatExit(USAGE, f"--image: {len(paths)} were given; at most {MAX_IMAGES}")
    try:
        return tuple(image_at(path) for path in paths)
    except Fault as fault:
        raise ChatExit(USAGE, f"--image: {fault.message}") from None


def image_at(path: Path) -> Image:
    """Read the picture in a file. Raises Fault (CONFIG)."""
    from pallas.model import FaultType

    try:
        with path.expanduser().open("rb") as file:
            data = file.read(MAX_IMAGE_BYTES + 1)
    except OSError as error:
        raise Fault(FaultType.CONFIG, f"{_shown(path)}: {_why(error)}") from None
    kind = kind_of(data)
    if kind is None:
        raise Fault(FaultType.CONFIG, f"{_shown(path)} is not a PNG, JPEG, GIF or WebP picture")
    if len(data) > MAX_IMAGE_BYTES:
        raise Fault(
            FaultType.CONFIG, f"{_shown(path)} has more than {MAX_IMAGE_BYTES} bytes, the most for a picture"
        )
    image = Image(base64.b64encode(data).decode(), kind)
    check_images((image,), vision=True, model="")
    return image


def _stdin() -> str:
    try:
        data = sys.stdin.buffer.read(MAX_MESSAGE + 1)
    except OSError as error:
        raise ChatExit(USAGE, f"stdin cannot be read: {_why(error)}") from None
    if len(data) > MAX_MESSAGE:
        raise ChatExit(USAGE, f"stdin has more than {MAX_MESSAGE} bytes, the most for one message")
    try:
        return data.decode().removesuffix("\n")
    except UnicodeDecodeError:
        raise ChatExit(USAGE, "stdin is not UTF-8 text; pictures go with --image FILE") from None


def _pair(option: str, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise ChatExit(USAGE, f"{option} {one_line(text, 60)}: write NAME=VALUE")
    return name.strip(), value


def _reason(fault: Fault, key: str) -> str:
    return fault.message.removeprefix(f"{key}: ")


def _shown(path: Path) -> str:
    return one_line(str(path), 200)


def _why(error: OSError) -> str:
    return one_line(os.strerror(error.errno) if error.errno else str(error), 120)
