"""Agno: AgentOS on uvicorn, with SqliteDb; a conversation has its whole history, as everywhere else here."""

import sys

import uvicorn
from agno.agent import Agent
from agno.db.sqlite import SqliteDb
from agno.models.openai.like import OpenAILike
from agno.os import AgentOS
from fastapi import FastAPI

from . import INSTRUCTION
from .turn_app import Place

ALL = 1_000_000


def app(place: Place) -> FastAPI:
    """The application of AgentOS with one agent."""
    agent = Agent(
        id="talker",
        model=OpenAILike(id="m", base_url=place.model, api_key="none"),
        instructions=INSTRUCTION,
        db=SqliteDb(db_file=place.database),
        add_history_to_context=True,
        num_history_runs=ALL,
        telemetry=False,
    )
    made: FastAPI = AgentOS(agents=[agent], telemetry=False).get_app()
    return made


if __name__ == "__main__":
    here = Place.of(sys.argv[1:])
    uvicorn.run(app(here), host="127.0.0.1", port=here.port, log_level="warning")
