"""What may be a typed handler: decided before anything of it runs."""

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from pallas.contract import HandlerMetadata, HandlerResponse
from pallas.executors.typed.typed_handler_loader import check_handler, check_payload, code_of
from pallas.model import Fault, FaultType

ran: list[str] = []


def plain(payload: Any, metadata: Any) -> HandlerResponse:
    ran.append("plain")
    return HandlerResponse.respond(payload)


async def alone(payload: Any) -> None:
    ran.append("alone")


async def nothing() -> None:
    ran.append("nothing")


async def three(payload: Any, metadata: Any, more: Any) -> None:
    ran.append("three")


async def keyword(payload: Any, metadata: Any, *, more: Any) -> None:
    ran.append("keyword")


async def anything(*given: Any) -> None:
    ran.append("anything")


async def pieces(payload: Any, metadata: Any) -> AsyncIterator[str]:
    ran.append("pieces")
    yield ""


def promise(payload: Any, metadata: Any) -> Any:
    ran.append("promise")
    return asyncio.sleep(0)


class Blocking:
    def __call__(self, payload: Any, metadata: Any) -> None:
        ran.append("Blocking")


async def good(payload: Any, metadata: HandlerMetadata) -> HandlerResponse | None:
    return None


async def bound_to(number: int, payload: Any, metadata: Any) -> None: ...


async def optional(payload: Any, metadata: Any, *, verbose: bool = False) -> None: ...


def wrapping(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def wrapper(*args: Any, **kwargs: Any) -> Any:
        return await function(*args, **kwargs)

    return wrapper


class Callable_:
    async def __call__(self, payload: Any, metadata: Any) -> None: ...

    async def method(self, payload: Any, metadata: Any) -> None: ...


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (plain, "is not asynchronous; write `async def plain(payload, metadata)`"),
        (promise, "is not asynchronous"),
        (Blocking(), "is not asynchronous"),
        (alone, "takes only payload and no metadata; write `async def alone(payload, metadata)`"),
        (nothing, "takes (nothing by position)"),
        (three, "takes (payload, metadata, more)"),
        (keyword, "takes (payload, metadata, more=)"),
        (anything, "takes (nothing by position)"),
        (pieces, "is a generator"),
        (Callable_, "is a class"),
        ("text", "is of type str and no function"),
    ],
    ids=lambda each: getattr(each, "__name__", type(each).__name__),
)
def test_what_could_not_work_is_refused_and_never_called(found: Any, said: str) -> None:
    # HC-1
    with pytest.raises(Fault) as refused:
        check_handler(found, "desk:it of it")
    assert refused.value.type is FaultType.CONFIG
    assert refused.value.message.startswith("handler desk:it of it ")
    assert said in refused.value.message
    assert not ran


@pytest.mark.parametrize(
    "found",
    [good, functools.partial(bound_to, 3), wrapping(good), Callable_(), Callable_().method, optional],
    ids=["function", "partial", "wrapped", "object", "method", "with a default"],
)
def test_what_is_async_def_and_takes_both_is_taken_as_it_is(found: Any) -> None:
    # HC-1
    assert check_handler(found, "it") is found
    assert code_of(found).__globals__ is globals()


def test_a_payload_is_a_dataclass() -> None:
    @dataclass
    class Fine:
        text: str

    class Bare:
        text: str

    assert check_payload(Fine, "it") is Fine
    for found, said in (
        (Bare, "is not a dataclass; write `@dataclass` above `class Bare`"),
        (Fine("a"), "is of type Fine and no class"),
        (HandlerMetadata, "is not a payload"),
    ):
        with pytest.raises(Fault) as refused:
            check_payload(found, "desk:It of it")
        assert refused.value.type is FaultType.CONFIG
        assert f"payload desk:It of it {said}" in refused.value.message
