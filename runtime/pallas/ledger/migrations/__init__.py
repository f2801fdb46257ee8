"""How the tables of earlier releases become those of this one; run by ``pallas.ledger.migrate``."""
