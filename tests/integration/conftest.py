"""Fixtures for any test here: a ledger, the URL of an empty database, two fleets on one of these."""

from support.databases import database_url as database_url
from support.databases import empty_database_url as empty_database_url
from support.databases import ledger as ledger
from support.databases import postgres as postgres
from support.leased_twice import fleets as fleets
from support.replicas import replicas as replicas
