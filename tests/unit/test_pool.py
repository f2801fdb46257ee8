"""The pool of warm instances."""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass, field

import pytest
from support.waiting import until

from pallas.access.bearer_lease import BearerLease
from pallas.executors.fastagent.instance_pool import InstancePool
from pallas.model import Fault, FaultType


@dataclass
class _Thing:
    key: str


@dataclass
class _Maker:
    made: list[str] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)
    grants: list[BearerLease | None] = field(default_factory=list)
    fail: list[Exception] = field(default_factory=list)
    gate: asyncio.Event | None = None

    async def make(self, number: int, grant: BearerLease | None) -> _Thing:
        self.grants.append(grant)
        if self.gate is not None:
            await self.gate.wait()
        if self.fail:
            raise self.fail.pop(0)
        self.made.append(f"t{number}")
        return _Thing(f"t{number}")

    async def drop(self, thing: _Thing) -> None:
        self.dropped.append(thing.key)

    def pool(self, limit: int = 2, pinned: bool = False) -> InstancePool[_Thing]:
        return InstancePool(self.make, self.drop, limit=limit, pinned=pinned)


async def test_runs_one_after_the_other_share_one_instance() -> None:
    maker = _Maker()
    pool = maker.pool()
    for _ in range(5):
        async with pool.lease(None) as thing:
            assert thing.key == "t1"
    assert maker.made == ["t1"]
    await pool.close()
    assert maker.dropped == ["t1"]


async def test_runs_at_once_never_share_an_instance_and_never_exceed_the_limit() -> None:
    maker = _Maker()
    pool = maker.pool(limit=3)
    busy: set[str] = set()
    most = 0

    async def run() -> None:
        nonlocal most
        async with pool.lease(None) as thing:
            assert thing.key not in busy
            busy.add(thing.key)
            most = max(most, len(busy))
            await asyncio.sleep(0)
            busy.discard(thing.key)

    await asyncio.gather(*(run() for _ in range(40)))
    assert 1 <= most <= 3
    assert len(maker.made) <= 3
    await pool.close()


async def test_an_instance_whose_run_failed_is_not_used_again() -> None:
    maker = _Maker()
    pool = maker.pool(limit=1)
    with pytest.raises(ValueError, match="boom"):
        async with pool.lease(None):
            raise ValueError("boom")
    async with pool.lease(None) as thing:
        assert thing.key == "t2"
    assert maker.dropped == ["t1"]
    await pool.close()
    assert pool.size == 0


async def test_a_fault_of_the_run_itself_costs_no_instance() -> None:
    maker = _Maker()
    pool = maker.pool(limit=1)
    with pytest.raises(Fault, match="rate limit"):
        async with pool.lease(None):
            raise Fault(FaultType.UPSTREAM, "rate limit")
    async with pool.lease(None) as thing:
        assert thing.key == "t1"
    await pool.close()


async def test_a_cancelled_run_gives_its_instance_up_and_frees_its_place() -> None:
    maker = _Maker()
    pool = maker.pool(limit=1)
    holding = asyncio.Event()

    async def hold() -> None:
        async with pool.lease(None):
            holding.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(hold())
    await holding.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60), pool.lease(None) as thing:
        assert thing.key == "t2"
    await pool.close()


async def test_a_caller_that_leaves_while_waiting_loses_no_instance() -> None:
    maker = _Maker(gate=asyncio.Event())
    pool = maker.pool(limit=1)

    async def ask() -> str:
        async with pool.lease(None) as thing:
            return thing.key

    leaving = asyncio.create_task(ask())
    staying = asyncio.create_task(ask())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    leaving.cancel()
    assert maker.gate is not None
    maker.gate.set()
    async with asyncio.timeout(60):
        assert await staying == "t1"
    assert maker.made == ["t1"]
    await pool.close()


async def test_a_failure_to_make_one_reaches_the_run_and_the_next_tries_again() -> None:
    maker = _Maker(fail=[Fault(FaultType.UPSTREAM, "downstream vault cannot be reached")])
    pool = maker.pool()
    with pytest.raises(Fault, match="vault"):
        async with pool.lease(None):
            pass
    async with pool.lease(None) as thing:
        assert thing.key == "t2"
    await pool.close()


async def test_an_unexpected_failure_to_make_one_does_not_tell_its_text() -> None:
    maker = _Maker(fail=[RuntimeError("secret-token")])
    pool = maker.pool()
    with pytest.raises(Fault) as caught:
        async with pool.lease(None):
            pass
    assert "secret-token" not in caught.value.message
    await pool.close()


async def test_a_pinned_instance_stays_with_its_conversation() -> None:
    maker = _Maker()
    pool = maker.pool(limit=2, pinned=True)
    keys: dict[str, str] = {}
    for name in ("a", "b", "a", "b"):
        async with pool.lease(name) as thing:
            assert keys.setdefault(name, thing.key) == thing.key
    assert keys["a"] != keys["b"]
    async with asyncio.timeout(60), pool.lease("c") as thing:  # the longest unused makes room
        assert thing.key not in keys.values()
    await pool.close()
    assert pool.size == 0


async def test_a_throw_away_conversation_leaves_no_pinned_instance_behind() -> None:
    maker = _Maker()
    pool = maker.pool(limit=2, pinned=True)
    async with pool.lease(None):
        pass
    async with asyncio.timeout(60), pool.lease("a") as thing:
        assert thing.key == "t2"
    await pool.close()


async def test_idle_instances_beyond_the_first_are_let_go() -> None:
    maker = _Maker()
    pool = maker.pool(limit=3)
    async with pool.lease(None), pool.lease(None), pool.lease(None):
        pass
    await pool.trim(older_than=0)
    await until(lambda: pool.size == 1)
    assert len(maker.dropped) == 2
    await pool.close()


async def test_a_closed_pool_refuses_and_lets_nobody_wait() -> None:
    maker = _Maker()
    pool = maker.pool(limit=1)
    async with pool.lease(None):
        waiting = asyncio.create_task(pool.lease(None).__aenter__())
        await asyncio.sleep(0)
        closing = asyncio.create_task(pool.close())
        with pytest.raises(Fault, match="stopping"):
            await waiting
    await closing
    with pytest.raises(Fault, match="stopping"):
        async with pool.lease(None):
            pass
    await until(lambda: pool.size == 0)
    assert maker.dropped == ["t1"]


async def test_a_pinned_instance_is_made_for_its_owner_and_lent_to_no_other() -> None:
    # PR-26
    maker = _Maker()
    pool = maker.pool(limit=4, pinned=True)
    grants = {name: BearerLease("r", "a", f"token-{name}", print) for name in "abcdefgh"}
    used: dict[str, set[str]] = {}

    async def run(name: str) -> None:
        async with pool.lease(name, grants[name]) as thing:
            used.setdefault(thing.key, set()).add(name)
            await asyncio.sleep(0)

    async with asyncio.timeout(60):
        await asyncio.gather(*(run(name) for name in "abcdefgh" * 5))
    for key, owners in used.items():
        (owner,) = owners
        assert maker.grants[int(key[1:]) - 1] is grants[owner]
    await pool.close()
    assert pool.size == 0


async def test_an_instance_made_for_a_run_that_left_waits_for_its_owner_only() -> None:
    maker = _Maker(gate=asyncio.Event())
    pool = maker.pool(limit=2, pinned=True)
    leaving = asyncio.create_task(pool.lease("a").__aenter__())
    await asyncio.sleep(0)
    leaving.cancel()
    assert maker.gate is not None
    maker.gate.set()
    async with asyncio.timeout(60), pool.lease("b") as other:
        assert other.key == "t2"
        async with pool.lease("a") as own:
            assert own.key == "t1"
    await pool.close()


async def test_what_the_pool_makes_carries_nothing_of_the_run_that_asked() -> None:
    # PR-27
    seen: list[str | None] = []
    variable: ContextVar[str | None] = ContextVar("variable", default=None)

    async def make(number: int, grant: BearerLease | None) -> _Thing:
        seen.append(variable.get())
        return _Thing(f"t{number}")

    pool: InstancePool[_Thing] = InstancePool(make, _Maker().drop, limit=1)
    variable.set("of the run")
    async with pool.lease(None):
        pass
    assert seen == [None]
    await pool.close()


async def test_the_end_of_a_conversation_ends_its_instance_unless_a_run_is_in_it() -> None:
    maker = _Maker()
    pool = maker.pool(limit=3, pinned=True)
    async with pool.lease("a") as first:
        pass
    async with pool.lease("b"):
        pool.release("a")
        pool.release("b")
        await until(lambda: maker.dropped == [first.key])
    assert pool.size == 1
    pool.release("b")
    await until(lambda: pool.size == 0)
    await pool.close()
