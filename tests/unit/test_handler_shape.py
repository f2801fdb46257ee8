"""What a handler may look like, and what is said of one that cannot work."""

from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from pallas.executors.handler.handler_shape import shape_of
from pallas.handlers import Chunk, PromptRequest, Session
from pallas.model import Fault, FaultType


class Base:
    id = "upper"


class Prompts(Base):
    async def prompt(self, request: PromptRequest) -> str:
        return request.text


class Streams(Base):
    async def stream(self, request: PromptRequest) -> AsyncIterator[Chunk]:
        yield Chunk(request.text)


async def answer(request: PromptRequest) -> str:
    return request.text


async def pieces(request: PromptRequest) -> AsyncIterator[str]:
    yield request.text


def refusal(handler: Any) -> str:
    with pytest.raises(Fault) as fault:
        shape_of(handler, "upper")
    assert fault.value.type is FaultType.CONFIG
    return fault.value.message


def test_one_of_prompt_and_stream_is_enough_and_a_function_is_one_of_them() -> None:
    # DR-26
    for handler, has in ((Prompts(), (True, False)), (Streams(), (False, True)), (answer, (True, False))):
        shape = shape_of(handler, "upper")
        assert (shape.prompt is not None, shape.stream is not None) == has
    shape = shape_of(pieces, "upper")
    assert (shape.prompt, shape.stream) == (None, pieces)
    assert refusal(Base()).startswith("handler upper has neither prompt nor stream (Base); write `async def")


def test_what_would_block_the_loop_is_refused_and_never_called() -> None:
    called: list[Any] = []

    class Blocks(Base):
        def prompt(self, request: PromptRequest) -> str:
            called.append(request)
            return "too late"

    class Generates(Base):
        def stream(self, request: PromptRequest) -> Any:
            called.append(request)
            yield request.text

    class Hooks(Prompts):
        def on_session_create(self, session: Session) -> None:
            called.append(session)

    def plain(request: PromptRequest) -> str:
        return request.text

    assert "is not asynchronous; write `async def prompt(request)`" in refusal(Blocks())
    assert "asyncio.to_thread" in refusal(Blocks())
    assert "write `async def stream(request)` with `yield` in it" in refusal(Generates())
    assert "on_session_create is not asynchronous" in refusal(Hooks())
    assert "upper (plain) is not asynchronous" in refusal(plain)
    assert not called


def test_what_is_called_in_vain_is_told_before_it_is_called() -> None:
    class Short(Base):
        async def prompt(self) -> str:
            return "nothing"

    class Closes(Prompts):
        async def on_session_close(self, session: Session) -> None: ...

    class Words(Prompts):
        capabilities = "coding"

    class Field(Prompts):
        stream = "later"

    assert "does not take 1 argument; it is called with (request)" in refusal(Short())
    assert "does not take 2 arguments; it is called with (session, reason)" in refusal(Closes())
    assert "capabilities that are not a list of words" in refusal(Words())
    assert "has a stream that cannot be called" in refusal(Field())
    assert "is a class; give an object of it: Prompts()" in refusal(Prompts)


def test_the_words_of_the_specification_are_understood() -> None:
    class Camel(Prompts):
        capabilities = ("coding", "coding", "lamps")
        vision = True

        async def onSessionCreate(self, session: Session) -> None: ...
        async def onSessionClose(self, session: Session, reason: str) -> None: ...
        async def cancel(self, session: Session) -> None: ...

    shape = shape_of(Camel(), "camel")
    assert shape.created is not None
    assert shape.closed is not None
    assert shape.cancel is not None
    assert (shape.capabilities, shape.vision) == (("coding", "lamps"), True)


def test_an_object_that_is_called_and_a_partial_are_functions_as_well() -> None:
    class Called:
        async def __call__(self, request: PromptRequest) -> str:
            return request.text

    class Has(Base):
        def __init__(self) -> None:
            self.prompt = Called()
            self.stream = partial(pieces)

    shape = shape_of(Has(), "upper")
    assert shape.prompt is not None
    assert shape.stream is not None
