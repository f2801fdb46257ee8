"""What steps have in common, stored once: messages, instructions, tools, and long texts.

Messages belong to the run that sent them first. What conversations share, and long texts, are kept as long as
a run uses them.
"""

import zlib
from collections.abc import Collection, Iterable, Iterator
from itertools import batched
from time import monotonic
from typing import Any, Final

from sqlalchemy import Connection, and_, delete, exists, func, not_, or_, select, update

from pallas.model import Blob
from pallas.model.long_strings import MAX_TEXT, LongText, lacking_line, left_out

from .database import insert_new
from .tables import blob_uses, blobs, runs, texts

TEXT: Final = "text"
"""The scope of long texts, which is that of no conversation."""
MAX_TEXTS: Final = 2048
"""MiB that long texts of a ledger take, unless the project says otherwise."""
HOUR: Final = 3600.0
_ROOM_SECONDS: Final = 60.0
"""Seconds after which the bytes that texts take are counted again: other fleets write too."""
_PLAIN: Final = b"\0"
_PACKED: Final = b"\1"
_PACKED_FROM: Final = 512
"""Characters from which a text is compressed."""
_NOT_THERE: Final = "an earlier Pallas recorded its length and digest only"
_AT_ONCE: Final = 500
"""Most values of one condition."""


class TextRoom:
    """The room for long texts in one ledger. Only its writer uses it."""

    def __init__(self, most_mib: int = MAX_TEXTS) -> None:
        self.most_mib = most_mib
        self._held = 0
        self._counted = float("-inf")

    def take(self, connection: Connection, size: int) -> bool:
        """Whether there is room for so many bytes; if so they are taken."""
        if (now := monotonic()) - self._counted > _ROOM_SECONDS:
            held = connection.execute(select(func.sum(texts.c.stored))).scalar_one()
            self._held, self._counted = int(held or 0), now
        if self._held + size > self.most_mib * 2**20:
            return False
        self._held += size
        return True

    @property
    def words(self) -> str:
        """Why there was none."""
        return f"texts of steps take {self.most_mib} MiB, the most they may (step_texts_mib in agents.yaml)"


def add_blobs(
    connection: Connection, new: Iterable[tuple[str, Blob]], uses: Collection[tuple[str, str]], now: float
) -> None:
    """Store ``(run_id, blob)`` that may not be stored yet, without their texts, and ``(run_id, digest)``."""
    rows = {
        (blob.scope, blob.digest): {
            "scope": blob.scope,
            "digest": blob.digest,
            "parent": blob.parent,
            "run_id": run_id if blob.scope else None,
            "used_at": now,
            "body": packed(blob.body),
        }
        for run_id, blob in new
    }
    if rows:
        _put(connection, [rows[key] for key in sorted(rows)], now)
    if values := [{"run_id": run_id, "digest": digest} for run_id, digest in sorted(uses)]:
        connection.execute(insert_new(connection, blob_uses).on_conflict_do_nothing(), values)


def _put(connection: Connection, rows: list[dict[str, Any]], now: float) -> None:
    insert = insert_new(connection, blobs).on_conflict_do_update(
        index_elements=[blobs.c.scope, blobs.c.digest], set_={"used_at": now}
    )
    connection.execute(insert, rows)


def add_texts(connection: Connection, given: Iterable[LongText], room: TextRoom, now: float) -> None:
    """Store long texts. One that is there is not compressed again."""
    new = {each.digest: each for each in given}
    # In this order in every fleet, so that no two wait for each other.
    for some in batched(sorted(new), _AT_ONCE, strict=False):
        place = texts.c.digest.in_(some)
        there = select(texts.c.digest).where(place, texts.c.lost == "")
        known = set(connection.execute(there).scalars())
        if known:
            connection.execute(update(texts).where(texts.c.digest.in_(known)).values(used_at=now))
            kept = (blobs.c.scope == TEXT, blobs.c.digest.in_(known))
            connection.execute(update(blobs).where(*kept).values(used_at=now))
        for digest in some:
            if digest not in known:
                _add_text(connection, new[digest], room, now)


def _add_text(connection: Connection, text: LongText, room: TextRoom, now: float) -> None:
    body = packed(text.text)
    row = {"digest": text.digest, "size": len(text.text), "stored": 0, "used_at": now, "lost": ""}
    if room.take(connection, len(body)):
        row["stored"] = len(body)
        blob = {"scope": TEXT, "digest": text.digest, "parent": "", "run_id": None}
        _put(connection, [{**blob, "used_at": now, "body": body}], now)
    else:
        row["lost"] = room.words
    insert = insert_new(connection, texts)
    newer = {name: insert.excluded[name] for name in ("stored", "used_at", "lost")}
    connection.execute(insert.on_conflict_do_update(index_elements=[texts.c.digest], set_=newer), [row])


def texts_in(connection: Connection, bodies: Iterable[str], users: Collection[str]) -> dict[str, str]:
    """The long texts that JSON texts have digests of, and that one of these runs uses, by digest."""
    wanted = sorted(set[str]().union(*map(left_out, bodies)))
    found: dict[str, str] = {}
    for some in batched(wanted, _AT_ONCE, strict=False):
        for runs_ in batched(sorted(users), _AT_ONCE, strict=False):
            used = select(blob_uses.c.digest).where(
                blob_uses.c.digest.in_(some), blob_uses.c.run_id.in_(runs_)
            )
            place = (blobs.c.scope == TEXT, blobs.c.digest.in_(used))
            rows = connection.execute(select(blobs.c.digest, blobs.c.body).where(*place))
            found |= {row.digest: unpacked(row.body) for row in rows}
    return found


def lacking(connection: Connection, bodies: Iterable[str]) -> Iterator[str]:
    """Why JSON texts have long strings by their digest only, a line for each."""
    wanted = {digest: length for each in bodies for digest, length in left_out(each).items()}
    lost: dict[str, str] = {}
    for some in batched(wanted, _AT_ONCE, strict=False):
        rows = connection.execute(select(texts.c.digest, texts.c.lost).where(texts.c.digest.in_(some)))
        lost |= {row.digest: row.lost for row in rows}
    for digest, length in wanted.items():
        yield lacking_line(length, "" if length > MAX_TEXT else lost.get(digest) or _NOT_THERE)


def forget_unused(connection: Connection, now: float = 0.0) -> None:
    """Delete shared blobs and long texts that no run uses. A fleet may be about to use one that is new."""
    is_unused = not_(exists().where(blob_uses.c.digest == blobs.c.digest))
    is_old = or_(blobs.c.used_at < now - 2 * HOUR, not_(exists(select(runs.c.id))))
    connection.execute(delete(blobs).where(blobs.c.run_id.is_(None), is_old, is_unused))
    is_gone = not_(exists().where(blobs.c.scope == TEXT, blobs.c.digest == texts.c.digest))
    used = exists().where(blob_uses.c.digest == texts.c.digest)
    connection.execute(delete(texts).where(and_(is_gone, or_(texts.c.lost == "", not_(used)))))


def packed(text: str) -> bytes:
    """A text as it is stored."""
    raw = text.encode("utf-8", "replace")
    return _PLAIN + raw if len(raw) < _PACKED_FROM else _PACKED + zlib.compress(raw, 1)


def unpacked(data: bytes) -> str:
    """The text of which that is stored."""
    raw = data[1:]
    return (zlib.decompress(raw) if data[:1] == _PACKED else raw).decode()
