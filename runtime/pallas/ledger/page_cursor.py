"""Cursors of pages: where the next page of a list begins, in a form that only the ledger reads."""

import base64
import binascii
import json
from collections.abc import Iterable
from typing import Final

from pallas.model import Fault, FaultType, Page, RunRecord

MAX_LIMIT: Final = 200
_MAX_CURSOR: Final = 1000


def check_limit(limit: int) -> int:
    """Raise Fault (PROTOCOL) unless ``limit`` is 1 to 200."""
    if not 1 <= limit <= MAX_LIMIT:
        raise Fault(FaultType.PROTOCOL, f"limit is 1 to {MAX_LIMIT}", data={"key": "limit"})
    return limit


def cursor_of(kind: str, *place: float | str) -> str:
    """The cursor for the place after which a list of that kind continues."""
    return base64.urlsafe_b64encode(json.dumps([kind, *place]).encode()).decode().rstrip("=")


def with_early(page: Page[RunRecord], early: Iterable[RunRecord], limit: int, cursor: str) -> Page[RunRecord]:
    """A page of runs with the ``early`` ones, which the ledger does not have yet, inserted in order."""
    place = place_of(cursor, "runs", float)
    there = {run.id for run in page.items}
    more = [run for run in early if run.id not in there]
    if place is not None:
        more = [run for run in more if (run.started_at, run.id) < place]
    if page.next and page.items:  # later ones belong to the next pages
        last = page.items[-1]
        more = [run for run in more if (run.started_at, run.id) > (last.started_at, last.id)]
    if not more:
        return page
    whole = sorted((*page.items, *more), key=lambda run: (run.started_at, run.id), reverse=True)
    shown = tuple(whole[:limit])
    if len(whole) == len(shown):
        return Page(shown, page.next)
    return Page(shown, cursor_of("runs", shown[-1].started_at, shown[-1].id))


def place_of[T: (float, int)](cursor: str, kind: str, number: type[T]) -> tuple[T, str] | None:
    """The number and the id after which a list of that kind continues; None for the beginning.

    Raises Fault (PROTOCOL) for an invalid cursor.
    """
    if not cursor:
        return None
    try:
        if len(cursor) > _MAX_CURSOR:
            raise ValueError
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        found, at, key = json.loads(raw)
        if found != kind or type(at) not in (int, number) or not isinstance(key, str):
            raise ValueError
        if "\0" in key or not abs(at) < 2**53:
            raise ValueError
        key.encode()
        return number(at), key
    except (ValueError, TypeError, binascii.Error, RecursionError):
        raise Fault(
            FaultType.PROTOCOL,
            "the cursor is not one of this list; use the one of the previous page, or leave it out",
            data={"key": "cursor"},
        ) from None
