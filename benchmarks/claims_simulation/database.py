"""The database: transactions one after the other, sessions with locks, restarts and failovers.

Each public method that takes a worker or a replica is one transaction, and does what the function of the same
name in ``pallas.ledger`` does.
"""

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from .rows import (
    ANSWER,
    BUSY,
    DONE,
    ERROR,
    FAILED,
    FIRST,
    NOBODY,
    OK,
    QUESTION,
    RESULTS,
    RUNNING,
    TAKEN,
    Claimed,
    Life,
    Queued,
    Row,
    Run,
    Suspect,
    Thread,
)
from .rules import MAX_DEATHS, MISSED_SECONDS, SETTLED_SECONDS, STALE_SECONDS, Rules

if TYPE_CHECKING:
    from .audit import Audit
    from .event_queue import EventQueue
    from .replica import Replica
    from .worker import Worker

PROGRESS: Final = "its progress"

MOST_LAG: Final = 0.5
"""Seconds of transactions that a failover to an asynchronous standby may lose."""

_NO_THREAD: Final = Thread(0, 0, 0, None)


class Database:
    """The one database of all replicas."""

    def __init__(self, rules: Rules, queue: "EventQueue", audit: "Audit", *, keeps_undo: bool) -> None:
        self._rules = rules
        self._queue = queue
        self._audit = audit
        self._undo: deque[tuple[float, dict[Any, Any], Any, Any]] | None = deque() if keeps_undo else None
        self._number = 0
        self.lives: dict[int, Life] = {}
        self.threads: dict[int, Thread] = {}
        self.runs: dict[int, Run] = {}
        self.results: dict[int, tuple[tuple[int, int], ...]] = {}
        self.waiting: dict[int, tuple[Queued, ...]] = {}
        """The runs that wait for each thread, in order."""
        self._begun: dict[int, bool] = {}
        """All ids of runs."""
        self.of_life: dict[int, dict[int, None]] = {}
        """The running runs of each life: an index."""
        self.sessions: dict[int, int] = {}
        """The session that holds the lock of each life."""
        self.down_until = 0.0
        self.broke_at = 0.0
        """When the server stopped last."""
        self._started_at = -1000.0
        self._clock_offset = 0.0
        self.timeline = 0
        """The number of failovers."""

    @property
    def clock(self) -> float:
        """The time of the server's clock."""
        return self._queue.now + self._clock_offset

    # The server.

    def restart(self, seconds: float) -> None:
        """Stop now and start in that many seconds: all sessions end."""
        self.broke_at = self._queue.now
        self.down_until = self._queue.now + seconds
        self.sessions.clear()
        self._started_at = self.down_until

    def fail_over(self, seconds: float, lag: float, clock_offset: float) -> int:
        """Stop now; a standby, which has started long ago, is promoted in that many seconds.

        The transactions of the last ``lag`` seconds are lost; returns their number of written rows.
        """
        now = self._queue.now
        self.broke_at = now
        self.down_until = now + seconds
        self.sessions.clear()
        self.timeline += 1
        self._clock_offset = clock_offset
        undone = 0
        while self._undo and self._undo[-1][0] > now - lag:
            _, table, key, before = self._undo.pop()
            self._lose(table, key, before)
            undone += 1
        self.lives = dict(sorted(self.lives.items(), key=lambda item: item[1].seen or 0.0))
        return undone

    def forget_undo(self) -> None:
        """Forget what no failover can lose any more."""
        limit = self._queue.now - MOST_LAG
        while self._undo and self._undo[0][0] < limit:
            self._undo.popleft()

    # Lives.

    def enrol(self, replica: "Replica") -> str:
        """Write a life whose lock is held, unless it is there."""
        if replica.life not in self.lives:
            seen = self.clock if self._rules.enrols_alive else None
            self._put(self.lives, replica.life, Life(seen, replica.opened_at))
        return DONE

    def beat(self, replica: "Replica") -> str:
        """Write that a life is alive; BUSY if it has no row."""
        if self.sessions.get(replica.life) != replica.session:
            return FAILED
        life = self.lives.get(replica.life)
        if life is None:
            return BUSY
        del self.lives[replica.life]  # the dictionary is in the order of beats, apart from new lives
        new = Life(self.clock, life.started_at, self.timeline)
        self._put(self.lives, replica.life, new, before=life)
        return DONE

    def suspects(self, replica: "Replica") -> list[Suspect]:
        """The lives that may be dead. The code looks at each life; here those that cannot be dead are not.

        They are in the order of their beats, apart from new ones, which are at the end.
        """
        found = []
        clock = self.clock
        for number, life in self.lives.items():
            if life.seen is not None and clock - life.seen <= MISSED_SECONDS:
                break
            if number != replica.life:
                found.append(number)
        for number in reversed(self.lives):
            life = self.lives[number]
            if life.seen is not None:
                break
            if number != replica.life and number not in found:
                found.append(number)
        found += [each for each in self.of_life if each not in self.lives and each != replica.life]
        for queue in self.waiting.values():
            for queued in queue:
                owner = queued.life
                if owner not in self.lives and owner != replica.life and owner not in found:
                    found.append(owner)
        if not self._rules.recheck:
            found = [each for each in found if self._is_dead(each)]
        return [Suspect(each, tuple(self._running(each))) for each in found]

    def claim(self, asked: "tuple[Replica, Suspect]") -> tuple[Claimed | Queued, ...]:
        """Take over what a life left if it is dead, or what was handed over to ``NOBODY``."""
        replica, suspect = asked
        dead = suspect.life
        if self._rules.fresh_judge and dead != NOBODY and not self.sessions.get(replica.life):
            return ()
        if self._rules.knows_lives and dead != NOBODY and dead not in self.lives:
            if dead in self.of_life or self._waits(dead):
                self._put(self.lives, dead, Life(self.clock, self.clock))
            return ()
        if self._rules.recheck:
            if not self._is_dead(dead) or not self._counts(dead, replica):
                return ()
            running = tuple(self._running(dead))
        else:
            running = suspect.runs
        if dead in self.lives or (running and dead != NOBODY):
            self._audit.take_over(dead, replica.life, len(running))
        claimed: list[Claimed | Queued] = []
        left = 0
        for number, run in running:
            if not replica.serves(run.thread):
                left += 1
            elif self._claim_run(number, run, replica, deaths=run.deaths + (dead != NOBODY)):
                claimed.append(Claimed(number, run.thread, run.attempt + 1, self.runs[number].claim))
            else:
                self._end(number, run)
                self._audit.given_up(number, run.deaths)
        for thread, queue in tuple(self.waiting.items()):
            if not any(each.life == dead for each in queue):
                continue
            if not replica.serves(thread):
                left += self._rules.keeps_queued
            else:
                mine = tuple(
                    each._replace(life=replica.life) if each.life == dead else each for each in queue
                )
                claimed += [new for old, new in zip(queue, mine, strict=True) if old.life == dead]
                self._put(self.waiting, thread, mine)
        if not left and dead in self.lives:
            self._put(self.lives, dead, None)
        if self.sessions.get(dead):
            del self.sessions[dead]
        return tuple(claimed)

    def own_runs(self, replica: "Replica") -> list[Claimed]:
        """The running runs of this life, with their attempts."""
        running = self._running(replica.life)
        return [Claimed(number, run.thread, run.attempt, run.claim) for number, run in running]

    def own_queued(self, replica: "Replica") -> list[Queued]:
        """The runs of this life that wait."""
        return [each for queue in self.waiting.values() for each in queue if each.life == replica.life]

    def claim_own(self, asked: "tuple[Replica, Claimed]") -> tuple[Claimed, ...]:
        """Raise the attempt of a run that this life has and does not know."""
        replica, wanted = asked
        run = self.runs.get(wanted.run)
        if run is None or run.status != RUNNING or (run.life, run.claim) != (replica.life, wanted.claim):
            return ()
        if self._claim_run(wanted.run, run, replica, deaths=run.deaths):
            return (Claimed(wanted.run, run.thread, run.attempt + 1, self.runs[wanted.run].claim),)
        self._end(wanted.run, run)
        return ()

    def hand_over(self, worker: "Worker") -> str:
        """Leave a run to the next replica that looks."""
        run = self.runs.get(worker.run)
        if run is not None and run.status == RUNNING and run.claim == worker.claim:
            self._put_run(worker.run, run._replace(life=NOBODY))
            self._audit.note(worker.run, f"handed over by replica {worker.life}")
        return DONE

    # Turns.

    def begin(self, worker: "Worker") -> str:
        """Begin a run in a thread that no run has."""
        thread = self.threads.get(worker.thread, _NO_THREAD)
        if worker.run in self._begun:
            return TAKEN
        queue = self.waiting.get(worker.thread, ())
        if self._rules.take and (thread.run or (queue and queue[0].position < worker.place)):
            return BUSY
        if worker.place != FIRST:
            self.leave(worker)
        self._put(self._begun, worker.run, True)
        self._audit.begin(worker, thread.run if self._is_running(thread.run) else 0)
        rows = (thread.rows, self._row(QUESTION, worker, 0))
        self._put(self.threads, worker.thread, Thread(worker.run, worker.attempt, worker.claim, rows))
        self._put_run(worker.run, Run(RUNNING, worker.life, worker.attempt, worker.thread, worker.claim, 0))
        return DONE

    def join(self, worker: "Worker") -> int:
        """Queue a run for its thread; returns its position."""
        self._number += 1
        queue = self.waiting.get(worker.thread, ())
        queued = Queued(worker.run, worker.thread, self._number, worker.life)
        self._put(self.waiting, worker.thread, (*queue, queued))
        return self._number

    def leave(self, worker: "Worker") -> str:
        """Take a run out of the queue."""
        queue = self.waiting.get(worker.thread, ())
        left = tuple(each for each in queue if each.run != worker.run)
        if left != queue:
            self._put(self.waiting, worker.thread, left or None)
        return DONE

    def add_message(self, worker: "Worker") -> str:
        """Add the message that the worker has, unless an earlier try of it was done."""
        rules = self._rules
        if rules.fences_retries and not self._has(worker):
            return TAKEN
        if worker.tries:
            last = self._last_row(worker)
            if last is not None and last.made == worker.made:
                worker.row = last
                return DONE
        if not rules.fences_retries and not self._has(worker):
            return TAKEN
        self._append(worker, worker.kind)
        if worker.kind is RESULTS and worker.run in self.results:
            self._put(self.results, worker.run, None)
        return DONE

    def keep_result(self, asked: "tuple[Worker, int, int]") -> str:
        """Store the result of one of several calls."""
        worker, step, call = asked
        if self._rules.fences_results and not self._has(worker):
            return TAKEN
        stored = self.results.get(worker.run, ())
        if (step, call) not in stored:
            self._audit.write(worker, self.runs.get(worker.run), f"the result of call {step}.{call}")
            self._put(self.results, worker.run, (*stored, (step, call)))
        return DONE

    def progress(self, workers: "tuple[Worker, ...]") -> str:
        """Write how far runs are."""
        for worker in workers:
            run = self.runs.get(worker.run)
            if run is not None and run.status == RUNNING:
                if self._rules.fences_progress and run.claim != worker.claim:
                    continue
                self._audit.write(worker, run, PROGRESS)
        return DONE

    def has(self, worker: "Worker") -> tuple[str, bool]:
        """Whether the run still has its thread, and whether that is true."""
        return DONE if self._has(worker) else TAKEN, self._audit.is_theirs(worker)

    def finish(self, worker: "Worker") -> str:
        """Add the answer, end the run and free the thread."""
        if not self._has(worker):
            return TAKEN
        self._append(worker, ANSWER)
        self._free(worker, OK)
        return DONE

    def fail(self, worker: "Worker") -> str:
        """End a run without an answer and free the thread."""
        run = self.runs.get(worker.run)
        if run is None:
            self._put_run(worker.run, Run(ERROR, worker.life, worker.attempt, worker.thread, worker.claim, 0))
            self._put(self._begun, worker.run, True)
            return DONE
        if run.status == OK:
            return DONE
        if not self._has(worker):
            return TAKEN
        self._audit.write(worker, run, "its end")
        self._free(worker, ERROR)
        return DONE

    def said(self, claimed: Claimed) -> tuple[Row | None, tuple[int, ...]]:
        """The last message of a run, and the calls of it whose results are stored."""
        last = self._row_of(claimed.thread, claimed.run)
        step = last.step if last is not None else 0
        return last, tuple(call for at, call in self.results.get(claimed.run, ()) if at == step)

    def is_stored(self, run: int, thread: int, step: int, call: int) -> bool:
        """Whether the result of a call is stored."""
        last = self._row_of(thread, run)
        if last is not None and (last.step > step or (last.step == step and last.kind is RESULTS)):
            return True
        return (step, call) in self.results.get(run, ())

    def forget_rows(self, thread: int) -> None:
        """Drop the messages of a thread without a run: they have been checked."""
        row = self.threads[thread]
        self.threads[thread] = Thread(row.run, row.attempt, row.claim, None)

    def forget_run(self, run: int) -> None:
        """Drop a run that is over, and is of no use to the checks any more."""
        self.runs.pop(run, None)
        self.results.pop(run, None)

    # The inside of transactions.

    def _counts(self, number: int, replica: "Replica") -> bool:
        """Whether the last beat of a life says something to a replica that may have just started."""
        if not self._rules.settled_start or number == NOBODY:
            return True
        life = self.lives.get(number)
        is_new = self._queue.now - replica.began_at <= SETTLED_SECONDS
        return life is None or not is_new or life.timeline == self.timeline

    def _is_dead(self, number: int) -> bool:
        rules, now = self._rules, self._queue.now
        is_free = not self.sessions.get(number)
        life = self.lives.get(number)
        if life is None:
            return is_free
        seen = life.started_at if life.seen is None else life.seen
        age = self.clock - seen
        up = now - self._started_at
        if not rules.grace:
            up = age
        if not rules.beats:
            return is_free and up > SETTLED_SECONDS
        return (is_free and age > MISSED_SECONDS and (up > SETTLED_SECONDS or not rules.grace)) or (
            min(age, up) > STALE_SECONDS
        )

    def _claim_run(self, number: int, run: Run, replica: "Replica", *, deaths: int) -> bool:
        if deaths >= MAX_DEATHS:
            return False
        thread = self.threads[run.thread]
        if self._rules.recheck and (thread.run, thread.attempt) != (number, run.attempt):
            return False
        attempt, claim, mine = run.attempt + 1, replica.number(), replica.life
        self._put(self.threads, run.thread, Thread(number, attempt, claim, thread.rows))
        self._put_run(number, Run(RUNNING, mine, attempt, run.thread, claim, deaths))
        self._audit.claim(number, run.life, mine, attempt)
        return True

    def _end(self, number: int, run: Run) -> None:
        thread = self.threads[run.thread]
        if thread.run == number:
            self._put(self.threads, run.thread, Thread(0, thread.attempt, 0, thread.rows))
        if self._is_running(number):
            self._put_run(number, run._replace(status=ERROR))

    def _running(self, life: int) -> Iterator[tuple[int, Run]]:
        for number in tuple(self.of_life.get(life, ())):
            yield number, self.runs[number]

    def _waits(self, life: int) -> bool:
        return any(each.life == life for queue in self.waiting.values() for each in queue)

    def _is_running(self, number: int) -> bool:
        run = self.runs.get(number)
        return run is not None and run.status == RUNNING

    def _has(self, worker: "Worker") -> bool:
        """The fence."""
        rules = self._rules
        if not rules.fence:
            return worker.thread in self.threads
        thread = self.threads.get(worker.thread, _NO_THREAD)
        if thread.run != worker.run or thread.attempt != worker.attempt:
            return False
        return not rules.names_claim or thread.claim == worker.claim

    def _last_row(self, worker: "Worker") -> Row | None:
        return self._row_of(worker.thread, worker.run)

    def _row_of(self, thread: int, run: int) -> Row | None:
        rows = self.threads.get(thread, _NO_THREAD).rows
        if rows is None:
            return None
        last: Row = rows[1]
        return last if last.run == run else None

    def _row(self, kind: str, worker: "Worker", step: int) -> Row:
        self._number += 1
        worker.row = Row(kind, worker.run, step, worker.calls, worker.made, self._number)
        return worker.row

    def _append(self, worker: "Worker", kind: str) -> None:
        self._audit.write(worker, self.runs.get(worker.run), kind)
        thread = self.threads[worker.thread]
        rows = (thread.rows, self._row(kind, worker, worker.step))
        self._put(self.threads, worker.thread, Thread(thread.run, thread.attempt, thread.claim, rows))

    def _free(self, worker: "Worker", status: str) -> None:
        thread = self.threads[worker.thread]
        self._put(self.threads, worker.thread, Thread(0, thread.attempt, 0, thread.rows))
        run = self.runs.get(worker.run)
        deaths = run.deaths if run is not None else 0
        ended = Run(status, worker.life, worker.attempt, worker.thread, worker.claim, deaths)
        self._put_run(worker.run, ended)
        if worker.run in self.results:
            self._put(self.results, worker.run, None)

    # Tables.

    def _put(self, table: dict[Any, Any], key: int, value: Any, *, before: Any = None) -> None:
        if self._undo is not None:
            old = table.get(key) if before is None else before
            self._undo.append((self._queue.now, table, key, old))
        if value is None:
            table.pop(key, None)
        else:
            table[key] = value

    def _put_run(self, number: int, run: Run | None, *, is_undo: bool = False) -> None:
        before = self.runs.get(number)
        if before is not None and before.status == RUNNING:
            of_life = self.of_life[before.life]
            del of_life[number]
            if not of_life:
                del self.of_life[before.life]
        if run is not None and run.status == RUNNING:
            self.of_life.setdefault(run.life, {})[number] = None
        if is_undo:
            if run is None:
                self.runs.pop(number, None)
            else:
                self.runs[number] = run
        else:
            self._put(self.runs, number, run)

    def _lose(self, table: dict[Any, Any], key: int, before: Any) -> None:
        """Undo one write."""
        if table is self.runs:
            self._put_run(key, before, is_undo=True)
            return
        if table is self.threads:
            self._audit.lose(key, table[key].rows, before.rows if before is not None else None)
        if before is None:
            table.pop(key, None)
        else:
            table[key] = before
