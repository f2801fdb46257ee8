"""Ids that no caller can guess."""

import secrets


def mint() -> str:
    """A new handle with 144 random bits: nobody guesses it."""
    return f"conv-{secrets.token_urlsafe(18)}"
