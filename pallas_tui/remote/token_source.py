"""The source of the token for a remote fleet. The workbench never shows or stores a token."""

import os
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from pallas.model import Fault, FaultType
from pallas.surfaces.control.control_tokens import FULL_VARIABLE, READ_VARIABLE, VARIABLES
from pallas.surfaces.control.token_file import TokenFileExposed, find_tokens

from .fleet_address import is_loopback_url


@dataclass(frozen=True, slots=True)
class TokenSource:
    """The tokens that may open the fleet at ``origin``, best first; asked again at each new connection.

    ``given`` is one from the command line; without it those of the environment, and on loopback the ones that
    fleets of this user keep in files. A file's token is sent to the address of its fleet only.
    """

    origin: str
    given: str = field(default="", repr=False)
    folder: Path | None = None

    def candidates(self) -> tuple[str, ...]:
        """Tokens to try. Raises Fault CONFIG where a file is there that cannot be trusted."""
        if self.given:
            return (self.given,)
        if not is_loopback_url(self.origin):
            return ()
        try:
            stored = find_tokens(self._port, self.folder, host=self._host)
        except TokenFileExposed as error:
            raise Fault(FaultType.CONFIG, str(error)) from error
        return tuple(each.token for each in stored if each.token)

    @property
    def _port(self) -> int:
        return urlsplit(self.origin).port or 80

    @property
    def _host(self) -> str:
        """Who has the stored token of this port; any of them where a certificate says who answers."""
        parts = urlsplit(self.origin)
        return "" if parts.scheme == "https" else parts.hostname or ""

    def advice(self) -> str:
        """What to do when there is no token, or none that is accepted."""
        if self.given:
            return "the token that was given is not one of this fleet: check what the fleet was started with"
        give = f"put its token into {FULL_VARIABLE}, or {READ_VARIABLE} to look only"
        if is_loopback_url(self.origin):
            with suppress(TokenFileExposed, OSError):
                for each in find_tokens(self._port, self.folder):
                    if not each.is_at(self._host):
                        host = f"[{each.host}]" if ":" in each.host else each.host
                        own = f"http://{host}:{each.port}"
                        return f"your own fleet on that port is at {own}; attach there, or {give}"
            return (
                "no token for it is stored for this user: start the workbench as the user who started the "
                f"fleet, or {give}"
            )
        return f"it runs on another machine: {give}"


def given_token(token: str = "", variable: str = "", environ: Mapping[str, str] = os.environ) -> str:
    """The token that a person gave: itself, in the variable they name, or in one of ours; empty for none.

    Raises Fault CONFIG for a variable that is named and empty.
    """
    if token.strip():
        return token.strip()
    if variable:
        if found := environ.get(variable, "").strip():
            return found
        raise Fault(
            FaultType.CONFIG,
            f"--token-env {variable}: no such variable in the environment, or it is empty; export it first",
        )
    return next((found for name in VARIABLES if (found := environ.get(name, "").strip())), "")


def read_project_env(origin: str, folder: Path | None) -> None:
    """Put the ``.env`` of the project in ``folder`` into the environment, if that is at ``origin``."""
    # The start of a workbench on another machine's fleet does not wait for these.
    from pallas.client.fleet_address import FleetAddress, own_project

    if folder is not None:
        own_project(folder, FleetAddress(origin))


def hide_tokens(variable: str = "", environ: MutableMapping[str, str] = os.environ) -> None:
    """Take the tokens out of the environment, so that child processes do not inherit them."""
    for name in (*VARIABLES, variable):
        environ.pop(name, None)
