"""The credentials pane: the credential of each request."""

from .credentials_pane import CredentialsPane

__all__ = ["CredentialsPane"]
