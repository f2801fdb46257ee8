"""LangGraph: a graph of one node, with a checkpointer in SQLite."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from langchain_core.messages import SystemMessage
from langchain_core.runnables import RunnableConfig
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from . import INSTRUCTION
from .turn_app import Place, Turn, serve


@asynccontextmanager
async def opened(place: Place) -> AsyncIterator[Turn]:
    """The compiled graph while its database is open."""
    model = ChatOpenAI(model="m", base_url=place.model, api_key="none", streaming=True)  # type: ignore[arg-type, unused-ignore]
    instruction = SystemMessage(INSTRUCTION)

    async def answer(state: MessagesState) -> dict[str, object]:
        return {"messages": [await model.ainvoke([instruction, *state["messages"]])]}

    async with AsyncSqliteSaver.from_conn_string(place.database) as saver:
        builder = StateGraph(MessagesState)
        builder.add_node("answer", answer)
        builder.add_edge(START, "answer")
        graph = builder.compile(checkpointer=saver)

        async def turn(conversation: str, text: str) -> str:
            config: RunnableConfig = {"configurable": {"thread_id": conversation}}
            state = await graph.ainvoke({"messages": [{"role": "user", "content": text}]}, config)
            return str(state["messages"][-1].content)

        yield turn


if __name__ == "__main__":
    here = Place.of(sys.argv[1:])
    serve(here.port, opened(here))
