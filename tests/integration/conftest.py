"""Fixtures for any test here: a ledger, or the URL of an empty database, on SQLite and PostgreSQL."""

from support.databases import database_url as database_url
from support.databases import ledger as ledger
from support.databases import postgres as postgres
