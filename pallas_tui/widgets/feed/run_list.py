"""The lines of one run's screen: its facts, its trace, and its requests on the wire."""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from pallas.model import Exchange, MessageRecord
from pallas.model.spend_limits import AccountStatus, shown_amount
from pallas.safe_text import one_line, sanitize

from ...runs.exchange_text import CallExchange, state_of, went_wrong
from ...runs.feed_run import FeedRun
from ...runs.run_tree import HEAD, RunTreeRow, rows_of
from ...text import DURATION_WIDTH, Glyphs, Line, clock, count, cropped, duration, fit, right, wrapped
from ..line_view import LineView
from ..tones import DIM, LEVELS, STRONG
from .feed_view import feed_line
from .waterfall import Span, window_of

_NAME_WIDTH = 14
_STATE_WIDTH = 12
_REMARK = "remark"
_PARTIAL = 600
MAX_ROWS = 3_000
"""Lines of a trace that are shown."""
MAX_TEXT_LINES = 200
"""Lines of one text of a run that are shown."""


@dataclass(frozen=True, slots=True)
class Fact:
    """A line of the facts, a heading (without a value), or a blank one (without anything)."""

    name: str = ""
    value: str = ""
    style: str = ""


@dataclass(frozen=True, slots=True)
class ListedExchange:
    """An exchange, by its place in the order of time."""

    place: int
    exchange: CallExchange


Entry = Fact | RunTreeRow | ListedExchange


def facts_of(run: FeedRun, now: float) -> Iterator[Fact]:
    """Yield the facts of a run, a line each; unknown facts are left out."""
    took = run.elapsed(now)
    outcome = run.state + ("" if took is None else f" after {duration(took, run.running)}")
    tokens = " in, ".join("?" if number is None else f"{number:,}" for number in run.tokens) + " out"
    caller = run.caller or "unknown"
    if run.parent is not None:
        caller = f"{run.parent.agent} ({caller})"
    key = f"key {run.principal}" if run.principal else ""
    facts = (
        ("agent", run.agent),
        ("outcome", outcome),
        ("replica", run.replica),
        ("message", run.preview + (f" +{count(run.images, 'image')}" if run.images else "")),
        ("forked from", run.origin),
        ("caller", caller),
        ("surface", run.surface),
        ("principal", ", ".join(part for part in (run.identity, key) if part) or "anonymous"),
        ("conversation", run.conversation),
        ("thread", run.thread),
        ("tokens", "" if run.tokens == (None, None) else tokens),
        ("cost", run.cost_text),
        ("run", run.id),
        ("trace", run.trace_id),
        ("span", run.span_id + (f" below {run.parent_span}" if run.parent_span else "")),
    )
    yield from (Fact(name, value) for name, value in facts if value)
    if run.warning:
        yield Fact("warning", run.warning, LEVELS["warning"])
    if run.fault:
        yield Fact("fault", run.fault, LEVELS["error"])
    if run.cause:
        yield Fact("cause", run.cause, LEVELS["error"])
    if run.partial:
        yield Fact("had written", one_line(run.partial, _PARTIAL), DIM)


class RunList(LineView):
    """``relatives`` returns the topmost runs of the trace, oldest first."""

    def __init__(
        self, run: FeedRun, relatives: Callable[[], list[FeedRun]], glyphs: Glyphs, now: float
    ) -> None:
        super().__init__(id="run-list")
        self.run = run
        self.exchanges: tuple[Exchange, ...] = ()
        self.unfinished: tuple[str, ...] = ()
        self.limits: tuple[AccountStatus, ...] = ()
        self.said: tuple[MessageRecord, ...] = ()
        self.remark = ""
        self._relatives = relatives
        self._glyphs = glyphs
        self._now = now
        self._window: Span = (run.started, run.started + 1)
        self._traced: tuple[tuple[str, int], ...] = ()
        self._rows: list[Entry] = []
        self._entries: list[Entry] = []
        self._is_placed = False
        self._lay_out()

    @property
    def selected(self) -> Entry | None:
        """The entry under the cursor."""
        return self._entries[self.cursor] if self.cursor < len(self._entries) else None

    def go_to_part(self, by: int) -> None:
        """Move the cursor to the first line of the part after, or before, the one where it is."""
        begins = [index for index in range(len(self._entries)) if not index or self._is_heading(index - 1)]
        part = max((at for at, index in enumerate(begins) if index <= self.cursor), default=0)
        self.action_move_to(begins[min(max(0, part + by), len(begins) - 1)])

    def _is_heading(self, index: int) -> bool:
        entry = self._entries[index]
        return isinstance(entry, Fact) and bool(entry.name) and not entry.value

    def advance(self, now: float, changed: bool) -> None:
        """Update the time, and with ``changed`` the lines."""
        self._now = now
        if changed or self.run.root.running:
            self._lay_out()
            self.reload()

    def tell(self, exchanges: tuple[Exchange, ...], remark: str) -> None:
        """Show exchanges, and a remark in place of missing ones."""
        self.exchanges, self.remark = exchanges, remark
        self._lay_out()
        self.reload()

    def tell_unfinished(self, lines: tuple[str, ...]) -> None:
        """Show what became of calls whose answers were lost with another fleet."""
        if lines != self.unfinished:
            self.unfinished = lines
            self._lay_out()
            self.reload()

    def tell_limits(self, limits: tuple[AccountStatus, ...]) -> None:
        """Show what is used of the limits that hold for the run."""
        if limits != self.limits:
            self.limits = limits
            self._lay_out()
            self.reload()

    def tell_said(self, said: tuple[MessageRecord, ...]) -> None:
        """Show the question and what the model wrote so far, of a run of another replica."""
        if said != self.said:
            self.said = said
            self._lay_out()
            self.reload()

    def _lay_out(self) -> None:
        roots = self._relatives()
        windows = [window_of(root, self._now) for root in roots] or [window_of(self.run, self._now)]
        self._window = min(begin for begin, _ in windows), max(end for _, end in windows)
        width = max(20, self.line_width)
        entries: list[Entry] = []
        for fact in facts_of(self.run, self._now):
            pieces = wrapped(fact.value, width - _NAME_WIDTH) if fact.style else [fact.value]
            entries += [
                Fact("" if number else fact.name, each, fact.style) for number, each in enumerate(pieces)
            ]
        entries += [Fact("lost call" if not at else "", each) for at, each in enumerate(self.unfinished)]
        entries += [Fact("limit" if not at else "", _limit_text(each)) for at, each in enumerate(self.limits)]
        for row in self.said:
            name = "question" if row.role == "user" else "text"
            pieces = wrapped(sanitize(row.content), width - _NAME_WIDTH)[:MAX_TEXT_LINES]
            entries += [Fact(name if not at else "", each or " ") for at, each in enumerate(pieces)]
        entries += [Fact(), Fact("Steps"), *self._trace(roots), Fact(), Fact("Exchanges")]
        entries += [ListedExchange(place, each) for place, each in enumerate(self._exchanges())]
        if self.remark:
            entries += [Fact(_REMARK, each) for each in wrapped(self.remark, width - 2)]
        self._entries = entries

    def _exchanges(self) -> Iterator[CallExchange]:
        """Iterate over the exchanges, the last one of each step with its number and its duration."""
        steps = {step.span: step for step in self.run.steps if step.span and step.record is not None}
        last = {each.span_id: place for place, each in enumerate(self.exchanges)}
        for place, each in enumerate(self.exchanges):
            step = steps.get(each.span_id) if last[each.span_id] == place else None
            if step is not None and step.record is not None:
                yield CallExchange(each, step.seconds(self._now), step.record.number)
            elif each.side == "inbound" and each.span_id and each.span_id == self.run.span_id:
                yield CallExchange(each, self.run.elapsed(self._now))
            else:
                yield CallExchange(each, each.seconds)

    def _trace(self, roots: list[FeedRun]) -> list[Entry]:
        """Return the lines of the trace; they are rebuilt only when something in it changed."""
        state = tuple((root.id, root.tree_version) for root in roots)
        if state != self._traced:
            self._traced = state
            rows: list[Entry] = []
            # This run first: one caller's trace may hold hundreds of runs.
            for shown, root in enumerate(sorted(roots, key=lambda each: each is not self.run.root)):
                rows += rows_of(root, _unfolded)
                if len(rows) > MAX_ROWS:
                    left = count(len(roots) - shown - 1, "other run")
                    rows = [*rows[:MAX_ROWS], Fact(_REMARK, f"more than {MAX_ROWS} lines, and {left} of it")]
                    break
            self._rows = rows
        return self._rows

    def on_resize(self) -> None:
        self._lay_out()
        super().on_resize()
        self._place()

    def _place(self) -> None:
        """Put the cursor on the first step as soon as there is one, unless the user moved it before."""
        if self._is_placed or not self._height:
            return
        first = self.run.first_step
        place = self._row_of(lambda row: row.place == HEAD if first is None else _is_step(row, first.number))
        if place is not None:
            super().action_move_to(place)
            if place > self._height // 2:  # the steps below it shall be in view too
                self.scroll_to(y=min(place - self._height // 2, self.last_top()), animate=False, force=True)
            self._is_placed = first is not None

    def _row_of(self, fits: Callable[[RunTreeRow], bool]) -> int | None:
        rows = ((at, row) for at, row in enumerate(self._entries) if isinstance(row, RunTreeRow))
        return next((at for at, row in rows if row.run is self.run and fits(row)), None)

    def go_to_step(self, number: int) -> bool:
        """Put the cursor on a recorded step of the run; whether it is there."""
        if (place := self._row_of(lambda row: _is_step(row, number))) is not None:
            self.action_move_to(place)
        return place is not None

    def action_move_to(self, index: int) -> None:
        self._is_placed = True
        super().action_move_to(index)

    def reload(self) -> None:
        super().reload()
        self._place()

    def line_count(self) -> int:
        return len(self._entries)

    def line_at(self, index: int, width: int) -> Line:
        entry = self._entries[index]
        if isinstance(entry, RunTreeRow):
            line = feed_line(entry, True, width, self._now, self._glyphs, self._window)
            own = entry.run is self.run and entry.place == HEAD
            return tuple((text, f"{style} underline".strip()) for text, style in line) if own else line
        if isinstance(entry, ListedExchange):
            return self._exchange(entry.exchange, width)
        if entry.name == _REMARK:
            return ((fit(f"  {entry.value}", width, self._glyphs), DIM),)
        if not entry.value:
            return ((fit(entry.name, width, self._glyphs), STRONG),)
        name = f"{entry.name:<{_NAME_WIDTH}}"
        value = fit(entry.value, width - len(name), self._glyphs)
        return cropped(((name, DIM), (value, entry.style)), width)

    def _exchange(self, call: CallExchange, width: int) -> Line:
        exchange = call.exchange
        took = "" if exchange.seconds is None or call.seconds is None else duration(call.seconds)
        way = self._glyphs.inbound if exchange.side == "inbound" else self._glyphs.outbound
        room = width - 9 - 2 - DURATION_WIDTH - 1 - _STATE_WIDTH
        tone = LEVELS["error"] if went_wrong(exchange) else ""
        line = (
            (f"{clock(exchange.at)} ", DIM),
            (f"{way} ", DIM),
            (fit(call.title, room, self._glyphs), ""),
            (right(took, DURATION_WIDTH) + " ", ""),
            (fit(state_of(exchange), _STATE_WIDTH, self._glyphs), tone),
        )
        return cropped(line, width)

    def key_at(self, index: int) -> Hashable:
        entry = self._entries[index]
        if isinstance(entry, RunTreeRow):
            return entry.run.id, entry.place
        if isinstance(entry, ListedExchange):
            return entry.place
        return (entry.name, entry.value) if entry.name else index

    def find(self, key: Hashable) -> int | None:
        places = (index for index in range(len(self._entries)) if self.key_at(index) == key)
        return next(places, None)


def _is_step(row: RunTreeRow, number: int) -> bool:
    record = row.run.steps[row.place].record if row.place >= 0 else None
    return record is not None and record.number == number


def _unfolded(run: FeedRun) -> bool:
    return True


def _limit_text(limit: AccountStatus) -> str:
    used, allowed, left = (
        shown_amount(limit.dimension, each) for each in (limit.used, limit.allowed, limit.left)
    )
    return f"{limit.key}: {used} of {allowed}, {left} left"
