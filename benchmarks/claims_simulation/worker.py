"""One attempt of a run on a replica: its messages, gates and calls."""

from typing import TYPE_CHECKING, Any, Final

from .rows import ANSWER, BUSY, CALLS, DONE, FAILED, FIRST, QUESTION, RESULTS, TAKEN, Claimed, Row
from .rules import OWED_SECONDS, QUEUE_SECONDS, RETRY_SECONDS, WRITE_SECONDS

if TYPE_CHECKING:
    from .replica import Replica

MOST_STEPS: Final = 6
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5


class Worker:
    """Works on a run until its end, or until another replica has it."""

    __slots__ = (
        "_asked_at",
        "_began_at",
        "_is_over",
        "_left",
        "_next_call",
        "_one_by_one",
        "_pause",
        "attempt",
        "caller",
        "calls",
        "claim",
        "confirmed_at",
        "kind",
        "life",
        "made",
        "place",
        "replica",
        "row",
        "run",
        "step",
        "thread",
        "tries",
    )

    def __init__(
        self, replica: "Replica", claimed: Claimed, *, caller: int | None = None, asked_at: float
    ) -> None:
        self.replica = replica
        self.life = replica.life
        self.run, self.thread, self.attempt, self.claim = claimed
        self.caller = caller
        self.place = FIRST
        """Its position among the runs that wait for the thread."""
        self.kind = QUESTION
        self.step = 0
        self.calls = 0
        self.made = 0
        self.tries = 0
        """Tries of the write under way that may have been done."""
        self.row: Row | None = None
        self.confirmed_at = asked_at
        """When the run was this worker's for sure: the last question whose answer said so was asked then."""
        self._asked_at = asked_at
        self._is_over = False
        self._pause = _FIRST_PAUSE
        self._began_at = replica.now
        self._left = 0
        self._next_call = 0
        self._one_by_one = False

    # The beginning.

    def begin(self, _: object) -> None:
        """Begin the run, once the thread is free."""
        self._asked_at = self.replica.now
        self.replica.ask(self.replica.database.begin, self, self._begun)

    def _begun(self, answer: object) -> None:
        if self._is_over:
            return
        if answer is DONE:
            self.confirmed_at = self._asked_at
            self.replica.audit.acknowledge(self)
            self._think()
        elif answer is BUSY and self.replica.now - self._began_at < QUEUE_SECONDS:
            if self.place == FIRST:
                self.replica.ask(self.replica.database.join, self, self._joined)
            else:
                self._begin_later()
        else:
            if self.place != FIRST:
                self._leave(None)
            if answer is FAILED:
                self._fail()
            else:
                self._end()

    def _joined(self, answer: Any) -> None:
        if self._is_over:
            return
        if answer is FAILED:
            if self.replica.rules.sure_leave:
                self._leave(None)
            self._end()
        else:
            self.place = answer
            self._begin_later()

    def _begin_later(self) -> None:
        self.replica.after(self._pause, self.begin, None)
        self._pause = min(2 * self._pause, _LONGEST_PAUSE)

    def _leave(self, _: object) -> None:
        self.replica.ask(self.replica.database.leave, self, self._has_left)

    def _has_left(self, answer: object) -> None:
        if answer is FAILED and self.replica.rules.sure_leave:
            self.replica.after(OWED_SECONDS, self._leave, None)

    def go_on(self, claimed: Claimed) -> None:
        """Continue a run that was claimed."""
        self.replica.ask(self.replica.database.said, claimed, self._heard)

    def _heard(self, answer: object) -> None:
        if self._is_over:
            return
        if answer is FAILED:
            if self.replica.rules.patient:
                claimed = Claimed(self.run, self.thread, self.attempt, self.claim)
                self.replica.after(RETRY_SECONDS, self.go_on, claimed)
            else:  # Takeover._end tries once
                self._is_over = True
                self.replica.audit.counts["claimed runs that failed as the database was away"] += 1
                self.replica.ask(self.replica.database.fail, self, self._given_up)
            return
        assert isinstance(answer, tuple)
        last, stored = answer
        if last is None or last.kind is ANSWER:
            self._fail()
        elif last.kind is CALLS:
            self.step, self.calls = last.step, last.calls
            self._go_on_with_calls(frozenset(stored))
        else:
            self.step = last.step
            self._think()

    def _given_up(self, _: object) -> None:
        self._end()

    def _go_on_with_calls(self, stored: frozenset[int]) -> None:
        """The answers of calls without a result are lost: by its rule a call is repeated, told or fails."""
        open_calls = [call for call in range(self.calls) if call not in stored]
        policy = self.replica.random.random()
        if policy < 0.1 and open_calls:
            self._fail()
        elif policy < 0.6 and open_calls:
            self._left = len(open_calls)
            for call in open_calls:
                self._gate(call)
        else:
            self._write(RESULTS)

    # Steps.

    def _think(self) -> None:
        replica = self.replica
        replica.after(0.3 + replica.exponential(1.5), self._thought, None)

    def _thought(self, _: object) -> None:
        if self._is_over:
            return
        chance = self.replica.random.random()
        self.step += 1
        if chance < 0.3 or self.step > MOST_STEPS:
            self._finish()
            return
        self.calls = 1 if chance < 0.75 else 2 + int(chance * 1000) % 3
        self._write(CALLS)

    def _write(self, kind: str) -> None:
        self.kind = kind
        self.made = self.replica.number()
        self.tries = 0
        self._began_at = self.replica.now
        self._try(None)

    def _try(self, _: object) -> None:
        self._asked_at = self.replica.now
        self.replica.ask(self.replica.database.add_message, self, self._written)

    def _written(self, answer: object) -> None:
        if self._is_over:
            return
        if answer is FAILED:
            if self.replica.now - self._began_at < WRITE_SECONDS - 2 * RETRY_SECONDS:
                self.tries += 1
                self.replica.after(RETRY_SECONDS, self._try, None)
            else:
                self._fail()
        elif answer is TAKEN:
            self._end()
        else:
            self.confirmed_at = self._asked_at
            self.replica.audit.acknowledge(self)
            if self.kind is CALLS:
                self._call()
            else:
                self._think()

    # Calls.

    def _call(self) -> None:
        chance = self.replica.random.random()
        self._left = self.calls
        self._one_by_one = self.calls > 1 and chance < 0.5
        self._next_call = 1 if self._one_by_one else self.calls
        for call in range(self._next_call):
            # What the executor does in between, hooks and permissions.
            self.replica.after(0.002 + 0.01 * chance, self._gate, call)

    def _gate(self, call: int) -> None:
        if self._is_over:
            return
        replica = self.replica
        if not replica.rules.gate or replica.is_fresh(self.confirmed_at):
            self._open(call, was_ours=replica.audit.is_theirs(self))
        else:
            replica.audit.counts["gates that asked the database"] += 1
            asked_at = replica.now

            def answered(answer: Any) -> None:
                if self._is_over:
                    return
                if answer is FAILED:
                    self._fail()
                    return
                ours, was_ours = answer
                if ours is TAKEN:
                    self._end()
                else:
                    self.confirmed_at = max(self.confirmed_at, asked_at)
                    self._open(call, was_ours=was_ours)

            replica.ask(replica.database.has, self, answered)

    def _open(self, call: int, *, was_ours: bool) -> None:
        replica = self.replica
        replica.after(0.001 + replica.exponential(0.002), self._called, (call, was_ours))

    def _called(self, what: tuple[int, bool]) -> None:
        if self._is_over:
            return
        call, was_ours = what
        replica = self.replica
        replica.audit.call(self, call, was_ours=was_ours)
        seconds = 0.05 + replica.exponential(0.8 if replica.random.random() < 0.9 else 8.0)
        replica.after(seconds, self._returned, (self.step, call))

    def _returned(self, what: tuple[int, int]) -> None:
        if self._is_over:
            return
        step, call = what
        self._left -= 1
        if self.calls > 1:
            self.replica.ask(self.replica.database.keep_result, (self, step, call), _nothing)
        if self._one_by_one and self._next_call < self.calls:
            self._next_call += 1
            self._gate(self._next_call - 1)
        elif self._left <= 0:
            self._one_by_one = False
            self._write(RESULTS)

    # The end.

    def _finish(self) -> None:
        self.replica.ask(self.replica.database.finish, self, self._finished)

    def _finished(self, answer: object) -> None:
        if self._is_over:
            return
        if answer is DONE:
            self.replica.audit.acknowledge(self)
            self.replica.audit.counts["runs answered"] += 1
            self._end()
        elif answer is TAKEN:
            self._end()
        else:
            self._fail()

    def _fail(self) -> None:
        """End the run with an error; tries again until the database takes it."""
        self._is_over = True
        self.replica.audit.counts["runs that failed"] += 1
        self._owed(None)

    def _owed(self, _: object) -> None:
        self.replica.ask(self.replica.database.fail, self, self._failed)

    def _failed(self, answer: object) -> None:
        if answer is FAILED:
            self.replica.after(OWED_SECONDS, self._owed, None)
        else:
            self._end()

    def hand_over(self) -> None:
        """Stop, and leave the run to another replica."""
        if self._is_over:  # its end is still to be written
            return
        self._is_over = True
        database = self.replica.database
        if self.row is None and self.attempt == 1:  # it has not begun
            if self.place != FIRST:
                self.replica.ask(database.leave, self, _nothing)
        else:
            self.replica.ask(database.hand_over, self, _nothing)

    def _end(self) -> None:
        self._is_over = True
        self.replica.ended(self)


def _nothing(_: object) -> None:
    """The result of a write that nothing waits for."""
