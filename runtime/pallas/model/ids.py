"""Ids that no caller can guess."""

import secrets


def mint() -> str:
    """A new conversation handle with 144 random bits."""
    return f"conv-{secrets.token_urlsafe(18)}"
