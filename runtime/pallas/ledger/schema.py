"""Creates the tables in a new database, and brings older ones up to date.

Alembic does the latter and is imported only then: a normal start reads one row.
"""

from typing import Final

from sqlalchemy import Connection, insert, inspect, select, text
from sqlalchemy.schema import Column, MetaData, PrimaryKeyConstraint, Table
from sqlalchemy.types import String

from pallas.model import Fault, FaultType

from .message_search import create_search
from .tables import HEAD, REVISIONS, adopt_postgres, metadata

# As alembic makes it.
_VERSION: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)
# If two fleets open a new PostgreSQL database at the same moment, one creates the tables and the other waits.
_MAKING: Final = 0x50414C4C4153


def bring_up_to_date(connection: Connection, shown: str) -> None:
    """Create or migrate the tables in one transaction.

    Raises Fault (CONFIG) for tables of a newer release, or of another program.
    """
    if connection.dialect.name == "postgresql":
        adopt_postgres()
        connection.execute(text(f"SELECT pg_advisory_xact_lock({_MAKING})"))
    version = _version(connection, shown)
    if version == HEAD:
        return
    if version is None:
        metadata.create_all(connection)
        create_search(connection)
        _VERSION.create(connection, checkfirst=True)
        connection.execute(insert(_VERSION), [{"version_num": HEAD}])
    else:
        from .migrate import upgrade

        upgrade(connection)


def _version(connection: Connection, shown: str) -> str | None:
    """The revision of the tables, None if there are none."""
    there = set(inspect(connection).get_table_names())
    found = connection.execute(select(_VERSION)).scalars().all() if _VERSION.name in there else []
    if not found:
        if clash := sorted(there & set(metadata.tables)):
            raise Fault(
                FaultType.CONFIG,
                f"the database {shown} has tables of something else ({', '.join(clash[:3])}); give the fleet "
                "a database of its own with database_url: in agents.yaml or PALLAS_DATABASE_URL",
            )
        return None
    if len(found) > 1 or found[0] not in REVISIONS:
        raise Fault(
            FaultType.CONFIG,
            f"the database {shown} was used by a newer release (its tables have revision "
            f"{str(found[0])[:32]}, this one knows up to {HEAD}); use that release of Pallas, or a "
            "copy of the database from before",
        )
    return str(found[0])
