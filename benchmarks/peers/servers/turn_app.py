"""The HTTP endpoint of a framework that has no server of its own: ``POST /turn`` on FastAPI and uvicorn."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel

type Turn = Callable[[str, str], Awaitable[str]]
"""Takes the name of a conversation and the user's message; returns the answer once both are stored."""


@dataclass(frozen=True)
class Place:
    """Where a server listens, the base URL of its model, and the file of its SQLite database."""

    port: int
    model: str
    database: str

    @classmethod
    def of(cls, arguments: list[str]) -> "Place":
        """The place that the command line names."""
        port, model, database = arguments
        return cls(int(port), model, database)


class Question(BaseModel):
    """The body of a request."""

    conversation: str
    text: str


class Answer(BaseModel):
    """The body of a response."""

    text: str


def serve(port: int, opened: AbstractAsyncContextManager[Turn]) -> None:
    """Serve until a signal; ``opened`` makes the turn when the server starts."""
    turns: list[Turn] = []

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with opened as turn:
            turns.append(turn)
            yield

    app = FastAPI(lifespan=lifespan)

    @app.post("/turn")
    async def take(question: Question) -> Answer:
        return Answer(text=await turns[0](question.conversation, question.text))

    uvicorn.run(app, host="127.0.0.1", port=port, log_level="warning")
