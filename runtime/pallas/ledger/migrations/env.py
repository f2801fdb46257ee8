"""Alembic's way to the database: the connection that it was given, in the transaction that is open there."""

from alembic import context

from pallas.ledger.tables import metadata

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    # SQLite changes a table by making a new one.
    render_as_batch=True,
    transaction_per_migration=False,
)
context.run_migrations()
