"""The row of an agent, whoever speaks of it first."""

from sqlalchemy import Connection, select

from .database import insert_new
from .storable_text import new_id
from .tables import agents


def agent_id(connection: Connection, name: str, now: float) -> str:
    """The id of the agent of that name; one that nobody spoke of before gets a row on the way."""
    wanted = select(agents.c.id).where(agents.c.name == name)
    found = connection.execute(wanted).scalar_one_or_none()
    if found is None:
        values = {"id": new_id(), "name": name, "created_at": now, "updated_at": now}
        connection.execute(insert_new(connection, agents).values(values).on_conflict_do_nothing())
        found = connection.execute(wanted).scalar_one()
    return str(found)
