"""Brings older tables up to date. The only module that imports Alembic."""

from importlib.resources import files
from typing import Final

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection

FOLDER: Final = "pallas.ledger"


def configuration() -> Config:
    """Alembic's configuration for the revisions of this package, wherever it is installed."""
    config = Config()
    config.set_main_option("script_location", str(files(FOLDER) / "migrations").replace("%", "%%"))
    # Without it alembic uses its default and warns.
    config.set_main_option("path_separator", "os")
    return config


def upgrade(connection: Connection) -> None:
    """Apply every missing revision, inside the transaction of that connection."""
    config = configuration()
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
