"""The traces pane: the credential of each request."""

from .traces_pane import TracesPane

__all__ = ["TracesPane"]
