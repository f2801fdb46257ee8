"""Pydantic AI: the new messages of each run are a row in SQLite, as in the chat app of its documentation."""

import sys
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

import aiosqlite
from pydantic_ai import Agent, ModelMessage, ModelMessagesTypeAdapter, RunContext
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from . import INSTRUCTION
from .turn_app import Place, Turn, serve

TABLE = "CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, conversation TEXT, messages TEXT)"
INDEX = "CREATE INDEX IF NOT EXISTS runs_of ON runs (conversation, id)"


async def streamed(_: RunContext[object], events: AsyncIterable[object]) -> None:
    """Read the model's stream; with such a handler a run asks for one."""
    async for _event in events:
        pass


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Turn]:
    """The agent while its database is open."""
    model = OpenAIChatModel("m", provider=OpenAIProvider(base_url=place.model, api_key="none"))
    agent = Agent(model, instructions=INSTRUCTION)
    async with aiosqlite.connect(place.database) as database:
        await database.execute("PRAGMA journal_mode=WAL")
        await database.execute(TABLE)
        await database.execute(INDEX)
        await database.commit()

        async def turn(conversation: str, text: str) -> str:
            history: list[ModelMessage] = []
            found = database.execute(
                "SELECT messages FROM runs WHERE conversation = ? ORDER BY id", (conversation,)
            )
            async with found as rows:
                async for (messages,) in rows:
                    history += ModelMessagesTypeAdapter.validate_json(messages)
            result = await agent.run(text, message_history=history, event_stream_handler=streamed)
            await database.execute(
                "INSERT INTO runs (conversation, messages) VALUES (?, ?)",
                (conversation, result.new_messages_json()),
            )
            await database.commit()
            return str(result.output)

        yield turn


if __name__ == "__main__":
    here = Place.of(sys.argv[1:])
    serve(here.port, opened(here))
