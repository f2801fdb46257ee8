"""OpenAI Agents SDK: a run with an SQLiteSession, without traces, which it would send to its maker."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from agents import Agent, OpenAIChatCompletionsModel, Runner, SQLiteSession, set_tracing_disabled
from openai import AsyncOpenAI

from . import INSTRUCTION
from .turn_app import Place, Turn, serve


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Turn]:
    """The agent; a session opens the database by itself."""
    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=place.model, api_key="none")
    agent = Agent(
        name="talker",
        instructions=INSTRUCTION,
        model=OpenAIChatCompletionsModel(model="m", openai_client=client),
    )

    async def turn(conversation: str, text: str) -> str:
        session = SQLiteSession(conversation, place.database)
        try:
            result = Runner.run_streamed(agent, text, session=session)
            async for _event in result.stream_events():
                pass
            return str(result.final_output)
        finally:
            session.close()

    yield turn


if __name__ == "__main__":
    here = Place.of(sys.argv[1:])
    serve(here.port, opened(here))
