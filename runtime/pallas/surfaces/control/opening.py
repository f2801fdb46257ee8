"""Whether a fleet has a control API, and with which tokens: never one that a stranger could use."""

import logging
import os
from collections.abc import MutableMapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from starlette.types import ASGIApp

from pallas.model import FleetPort

from .control_api import ControlApi
from .control_tokens import FULL_VARIABLE, ControlTokens, is_loopback, make_token, take_tokens
from .token_file import TokenFileExposed, remove_token, store_token

log = logging.getLogger(__name__)

_EVERYWHERE: Final = ("0.0.0.0", "::", "")
"""What a fleet is bound to that is reached over loopback as well."""


class ServedControlApi:
    """The control API of a fleet, and the file with its token where there is one. ``close`` ends both."""

    def __init__(self, api: ControlApi, token_file: Path | None, tokens: ControlTokens) -> None:
        self._api = api
        self.tokens = tokens
        self.token_file = token_file

    @property
    def app(self) -> ASGIApp:
        """What is mounted at ``BASE`` on the registry's port."""
        return self._api.app

    def close(self) -> None:
        """End the streams and remove the file. Safe to call twice."""
        self._api.close()
        path, self.token_file = self.token_file, None
        if path is not None:
            remove_token(path, self.tokens.full)


def open_control(
    fleet: FleetPort,
    *,
    project: Path,
    bind: str,
    port: int,
    log_file: Path,
    environ: MutableMapping[str, str] = os.environ,
) -> ServedControlApi | None:
    """The control API for the fleet whose registry is bound to ``bind`` and ``port``; None for none.

    The environment's tokens hold. Without ``PALLAS_CONTROL_TOKEN`` a fleet that is reached over loopback
    makes one and keeps it in a file of its user, for this machine only. A fleet bound to one other address
    has no control API then, and the log says how to have one.
    """
    tokens, problems = take_tokens(environ)
    if problems:
        log.error("the control API is off: %s", "; ".join(problems))
        return None
    path: Path | None = None
    if not tokens.full and (is_loopback(bind) or bind in _EVERYWHERE):
        made = make_token()
        try:
            path = store_token(made, project, port)
        except (OSError, TokenFileExposed) as error:
            reason = (
                str(error) if isinstance(error, TokenFileExposed) else error.strerror or type(error).__name__
            )
            level = logging.WARNING if is_loopback(bind) else logging.INFO
            log.log(level, "no token for the control API could be kept (%s); set %s", reason, FULL_VARIABLE)
        else:
            tokens = replace(tokens, full=made, local=True)
    if not tokens.given:
        log.info(
            "the control API is off: the fleet listens on %s and no token was given; to attach a workbench "
            "set %s (at least 16 characters) where the fleet is started, or bind: 127.0.0.1",
            bind,
            FULL_VARIABLE,
        )
        return None
    return ServedControlApi(ControlApi(fleet, tokens, log_file), path, tokens)
