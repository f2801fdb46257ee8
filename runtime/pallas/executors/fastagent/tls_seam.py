"""One store of certificates for all clients of downstreams: reading it takes tens of milliseconds each time.

An instance that is made while its caller waits would read it once for every HTTP downstream, on the loop.
"""

import logging
import os
import ssl
from typing import Any, Final

from httpx2._transports import default

from pallas.model import Fault

from . import hooks
from .hooks import Hook

log = logging.getLogger(__name__)

_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def _wrap(create: Any) -> Any:
    shared: dict[tuple[Any, ...], ssl.SSLContext] = {}

    def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is not True or cert is not None:
            return create(verify, cert, trust_env)
        key = (trust_env, *(os.environ.get(name) for name in _VARIABLES))
        if key not in shared:
            shared.clear()  # the environment changed: the old one is not asked for again
            shared[key] = create(verify, cert, trust_env)
        return shared[key]

    return create_ssl_context


ONE_STORE: Final = Hook(
    name="one-certificate-store",
    owner=default,
    attribute="create_ssl_context",
    parameters=("verify", "cert", "trust_env"),
    wrap=_wrap,
)


def install() -> None:
    """Share the store. Where httpx2 has changed, each client reads its own again: slower, nothing else."""
    try:
        hooks.install(ONE_STORE)
    except Fault as fault:
        log.warning("%s", fault.message)
