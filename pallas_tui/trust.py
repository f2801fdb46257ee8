"""Which certificates are believed, also where a proxy of the environment is not meant."""

import ssl


def trust_in(url: str) -> ssl.SSLContext | bool:
    """What httpx2 takes as ``verify``: for https the system's authorities, or those of ``SSL_CERT_FILE``.

    A client that leaves the environment's proxies out would leave that variable out with them.
    """
    if not url.lower().startswith("https:"):
        return True
    import httpx2

    return httpx2.create_ssl_context(trust_env=True)
