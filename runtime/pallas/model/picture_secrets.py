"""Takes what cameras and programs write into pictures out of those that hold a secret there.

Known are the places of PNG, JPEG, WebP and GIF for text, EXIF and XMP. A picture without a secret there stays
as it is, byte for byte; of any other the pixels, colours and sizes stay.
"""

import base64
import binascii
import re
import zlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from typing import Final

from .recording import RecordedRun, Recording
from .redaction import redact_text
from .run_values import Image
from .steps import StepDetail

_PNG: Final = b"\x89PNG\r\n\x1a\n"
_PNG_NOTES: Final = (b"tEXt", b"zTXt", b"iTXt", b"eXIf")
_WEBP_NOTES: Final = (b"EXIF", b"XMP ")
_JPEG_NOTES: Final = frozenset({0xE1, *range(0xE3, 0xEE), 0xFE})
_MARKER: Final = re.compile(rb"\xff[^\xff]", re.DOTALL)
_GIF_KEPT: Final = (b"NETSCAPE2.0", b"ANIMEXTS1.0", b"ICCRGBG1012")
"""Application blocks of a GIF that say how often it repeats, and what its colours are."""
_MAX_NOTE: Final = 4 * 1024 * 1024
"""Bytes of a compressed text that are looked at."""
_MAX_TRIED: Final = 50
_BASE64: Final = re.compile(r"(?:iVBORw0KGgo|/9j/|UklGR|R0lGOD[dl]h)[A-Za-z0-9+/]{60,}={0,2}")
"""A picture of a known kind in a text, by its first bytes."""


def with_clean_pictures(recording: Recording) -> Recording:
    """A recording without what pictures say of secrets: those of messages, and those in requests and results.

    A step whose request changes has no digest any more, so that a replay compares all of it.
    """
    images = [
        *(image for run in recording.runs for image in run.images),
        *(image for message in recording.history for image in message.images),
    ]
    cleaned = {image.data: without_secrets(image.data) for image in images}
    # A request has the picture as it was masked, if its secret was known by then.
    masked = {redact_text(before): after for before, after in cleaned.items() if before != after}
    return replace(
        recording,
        runs=tuple(_clean_run(run, cleaned, masked) for run in recording.runs),
        history=tuple(
            replace(each, images=_clean_images(each.images, cleaned)) if each.images else each
            for each in recording.history
        ),
    )


def _clean_run(run: RecordedRun, cleaned: dict[str, str], masked: dict[str, str]) -> RecordedRun:
    steps = tuple(_clean_step(each, masked) for each in run.steps)
    return replace(run, images=_clean_images(run.images, cleaned), steps=steps)


def _clean_images(images: tuple[Image, ...], cleaned: dict[str, str]) -> tuple[Image, ...]:
    return tuple(replace(image, data=cleaned[image.data]) for image in images)


def _clean_step(detail: StepDetail, masked: dict[str, str]) -> StepDetail:
    request, response = detail.request, text_without_secrets(detail.response)
    for before, after in masked.items():
        request = request.replace(before, after)
    request = text_without_secrets(request)
    if request == detail.request and response == detail.response:
        return detail
    step = detail.step if request == detail.request else replace(detail.step, digest="")
    return replace(detail, step=step, request=request, response=response)


def without_secrets(data: str) -> str:
    """A picture in base64, without its notes if one of them holds a secret; else the text as it is."""
    try:
        picture = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return data
    parts = list(_parts_of(picture))
    if not any(is_note and _holds_secret(part) for part, is_note in parts):
        return data
    return base64.b64encode(_joined([part for part, is_note in parts if not is_note])).decode()


def text_without_secrets(text: str) -> str:
    """A text with such pictures in it."""
    return _BASE64.sub(lambda found: without_secrets(found[0]), text)


def _parts_of(picture: bytes) -> Iterator[tuple[bytes, bool]]:
    """The parts of a picture in their order, each with whether it is a note; nothing of an unknown kind."""
    if picture.startswith(_PNG):
        yield from _chunks(picture, len(_PNG), "big", 4, _PNG_NOTES)
    elif picture.startswith(b"\xff\xd8"):
        yield from _segments(picture)
    elif picture[:4] == b"RIFF" and picture[8:12] == b"WEBP":
        yield from _chunks(picture, 12, "little", 0, _WEBP_NOTES)
    elif picture[:6] in (b"GIF87a", b"GIF89a"):
        yield from _blocks(picture)


def _chunks(
    picture: bytes, at: int, order: str, tail: int, notes: tuple[bytes, ...]
) -> Iterator[tuple[bytes, bool]]:
    """The chunks of a PNG (length, name, data, checksum) or a WebP (name, length, data, to an even size), and
    what is behind its end.
    """
    yield picture[:at], False
    is_png = order == "big"
    stop = len(picture) if is_png else 8 + int.from_bytes(picture[4:8], "little")
    while at + 8 <= min(stop, len(picture)):
        head = picture[at : at + 8]
        size, name = (head[:4], head[4:]) if is_png else (head[4:], head[:4])
        length = int.from_bytes(size, "big" if is_png else "little")
        end = at + 8 + length + (tail if is_png else length % 2)
        yield picture[at:end], name in notes
        at = end
        if name == b"IEND":
            break
    yield picture[at:], True


def _segments(picture: bytes) -> Iterator[tuple[bytes, bool]]:
    """The segments of a JPEG up to its first scan, its scans, and what is behind the end of the last one.

    Notes are APP1, APP3 to APP13, comments, also between scans, and what is behind the end.
    """
    yield picture[:2], False
    at = 2
    while at + 4 <= len(picture) and picture[at] == 0xFF and picture[at + 1] != 0xDA:
        marker = picture[at + 1]
        end = at + 2 + int.from_bytes(picture[at + 2 : at + 4], "big")
        yield picture[at:end], marker in _JPEG_NOTES
        at = end
    yield from _scans(picture, at)


def _scans(picture: bytes, at: int) -> Iterator[tuple[bytes, bool]]:
    """The scans of a JPEG with the segments between them; then what is behind its end."""
    begin = at
    for found in _MARKER.finditer(picture, at):
        marker = found[0][1]
        if found.start() < at or marker == 0x00 or 0xD0 <= marker <= 0xD7:
            continue  # within a segment, or within a scan
        if marker == 0xD9:
            yield picture[begin : found.end()], False
            yield picture[found.end() :], True
            return
        at = found.end() + int.from_bytes(picture[found.end() : found.end() + 2], "big")
        if marker in _JPEG_NOTES:
            yield picture[begin : found.start()], False
            yield picture[found.start() : at], True
            begin = at
    yield picture[begin:], False


def _blocks(picture: bytes) -> Iterator[tuple[bytes, bool]]:
    """The blocks of a GIF. Notes are comments, texts, what programs wrote, and what is behind the end."""
    at = 13 + _palette(picture, 10)
    yield picture[:at], False
    while at < len(picture):
        if picture[at] == 0x21:  # an extension
            end, label = _end_of_blocks(picture, at + 2), picture[at + 1 : at + 2]
            program = picture[at + 3 : at + 14]
            is_note = label in (b"\xfe", b"\x01") or (label == b"\xff" and program not in _GIF_KEPT)
        elif picture[at] == 0x2C:  # an image
            end, is_note = _end_of_blocks(picture, at + 11 + _palette(picture, at + 9)), False
        else:
            break
        yield picture[at:end], is_note
        at = end
    yield picture[at : at + 1], False
    yield picture[at + 1 :], True


def _palette(picture: bytes, at: int) -> int:
    """The length of the palette of a GIF, or of an image in it, by its flags."""
    flags = picture[at] if at < len(picture) else 0
    return 3 << (flags % 8 + 1) if flags & 0x80 else 0


def _end_of_blocks(picture: bytes, at: int) -> int:
    """Where blocks of up to 255 bytes end, each with its length before it; the last one is empty."""
    while at < len(picture) and picture[at]:
        at += picture[at] + 1
    return at + 1


def _joined(parts: list[bytes]) -> bytes:
    """The picture of these parts; that of a WebP says its own size and which notes it has."""
    picture = b"".join(parts)
    if picture[:4] != b"RIFF":
        return picture
    head = bytearray(picture)
    head[4:8] = (len(picture) - 8).to_bytes(4, "little")
    if picture[12:16] == b"VP8X" and len(head) > 20:
        head[20] &= ~0x0C  # EXIF and XMP
    return bytes(head)


def _holds_secret(note: bytes) -> bool:
    """Whether a note has a secret: as it is, as UTF-16, or compressed."""
    found = [note, *_inflated(note), *_of_blocks(note)]
    texts = (
        each.decode(coding, "ignore") for each in found for coding in ("utf-8", "utf-16-le", "utf-16-be")
    )
    return any(redact_text(text) != text for text in texts)


def _inflated(note: bytes) -> Iterator[bytes]:
    """What is compressed in a text of a PNG: behind its keyword, and its language."""
    if note[4:8] not in (b"zTXt", b"iTXt"):
        return
    for at in (found.start() for found in islice(re.finditer(rb"\x78[\x01\x5e\x9c\xda]", note), _MAX_TRIED)):
        try:
            yield zlib.decompressobj().decompress(note[at:-4], _MAX_NOTE)
        except zlib.error:
            continue


def _of_blocks(note: bytes) -> Iterator[bytes]:
    """The text of a block of a GIF, which is cut every 255 bytes."""
    if note[:1] != b"\x21":
        return
    at, found = 2, []
    while at < len(note) and note[at]:
        found.append(note[at + 1 : at + 1 + note[at]])
        at += note[at] + 1
    yield b"".join(found)
