"""Speeds up connecting to a downstream or a model's provider, for which a caller may be waiting.

Each HTTP client read the certificates again, tens of milliseconds on the loop; they share one store now.
"""

import logging
import os
import ssl
from typing import Any, Final

import httpx2
from httpx2._transports import default

from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook
from pallas.model import Fault

log = logging.getLogger(__name__)

_VARIABLES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def _share(create: Any) -> Any:
    shared: dict[bool, ssl.SSLContext] = {}
    known: tuple[str | None, ...] = ()

    def create_ssl_context(verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
        if verify is not True or cert is not None:
            return create(verify, cert, trust_env)
        nonlocal known
        if (now := tuple(os.environ.get(name) for name in _VARIABLES)) != known:
            known = now
            shared.clear()  # the old stores are not used again
        if trust_env not in shared:
            shared[trust_env] = create(verify, cert, trust_env)
        return shared[trust_env]

    return create_ssl_context


ONE_STORE: Final = Hook(
    name="one-certificate-store",
    owner=default,
    attribute="create_ssl_context",
    parameters=("verify", "cert", "trust_env"),
    wrap=_share,
)

# The certificate source of OpenAI's clients: a new one for each request to a model.
ONE_STORE_FOR_MODELS: Final = Hook(
    name="one-certificate-store-for-models",
    owner=httpx2,
    attribute="create_ssl_context",
    parameters=("verify", "cert", "trust_env"),
    wrap=_share,
)


def install() -> None:
    """Install the patches. If the patched code has changed, connecting is slow again, without other
    effects."""
    for hook in (ONE_STORE, ONE_STORE_FOR_MODELS):
        try:
            library_hooks.install(hook)
        except Fault as fault:
            log.warning("%s", fault.message)
