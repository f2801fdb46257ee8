"""Fetching a registry's document: bounded in size and time, and never led elsewhere."""

import asyncio
import json
from importlib import import_module
from typing import Final
from urllib.parse import urljoin

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line

from ..trust import trust_in
from .instance_model import RegistryListing
from .registry_address import origin
from .registry_document import read_document

TIMEOUT: Final = 5.0
MAX_DOCUMENT: Final = 4 * 1024 * 1024
"""Bytes of a registry's document."""

_MAX_REDIRECTS: Final = 3


async def read_registry(url: str, *, timeout: float = TIMEOUT) -> RegistryListing:
    """The agents listed at ``url`` now, within ``timeout`` seconds; proxies of the environment are not used.

    Raises Fault TRANSPORT, TIMEOUT or PROTOCOL; each names the URL and says how to fix it.
    """
    # Its import takes a while: never on the loop that draws.
    await asyncio.to_thread(import_module, "httpx2")
    import httpx2

    try:
        async with asyncio.timeout(timeout):
            body = await _fetch(url)
    except (TimeoutError, httpx2.TimeoutException) as error:
        raise Fault(
            FaultType.TIMEOUT,
            f"{url} did not answer completely within {timeout:g} s. Check host and port, and "
            "that the fleet runs, then read it again.",
        ) from error
    except (httpx2.ConnectError, ConnectionError) as error:
        raise Fault(
            FaultType.TRANSPORT,
            f"Nothing answers at {url} ({one_line(str(error), 120)}). Check host and port, and "
            "that the fleet runs; its top line and its log show the registry's port.",
        ) from error
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError, ValueError) as error:
        raise Fault(
            FaultType.TRANSPORT,
            f"{url} could not be read ({type(error).__name__}: {one_line(str(error), 120)}). Read it again; "
            "if that stays, check that it is a registry's URL.",
        ) from error
    return await asyncio.to_thread(_parse, body, url)


async def _fetch(url: str) -> bytes:
    import httpx2

    # A small answer must not unfold to a large one.
    headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
    at = url
    async with httpx2.AsyncClient(
        trust_env=False, timeout=None, follow_redirects=False, verify=trust_in(url)
    ) as client:
        for _ in range(_MAX_REDIRECTS + 1):
            async with client.stream("GET", at, headers=headers) as answer:
                if 300 <= answer.status_code < 400:
                    at = _redirected(at, answer.headers.get("location", ""), url)
                    continue
                if answer.status_code != 200:
                    raise _refused(url, f"answered HTTP {answer.status_code}")
                if answer.headers.get("content-encoding", "identity").lower() != "identity":
                    raise _refused(url, "answered in a compressed form that was not asked for")
                body = bytearray()
                async for chunk in answer.aiter_raw():
                    body += chunk
                    if len(body) > MAX_DOCUMENT:
                        raise _refused(url, f"holds more than {MAX_DOCUMENT // 1024 // 1024} MiB")
                return bytes(body)
    raise _refused(url, "redirects to itself in a circle")


def _redirected(at: str, location: str, url: str) -> str:
    target = urljoin(at, location)
    if not location or origin(target) != origin(url):
        raise Fault(
            FaultType.PROTOCOL,
            f"{url} redirects to {one_line(location, 200) or 'nowhere'}, which is not followed because it is "
            "another server. Register that URL itself if you trust it.",
        )
    return target


def _parse(body: bytes, url: str) -> RegistryListing:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise _refused(url, "answered something that is not JSON") from error
    return read_document(document, url)


def _refused(url: str, what: str) -> Fault:
    return Fault(
        FaultType.PROTOCOL,
        f"{url} {what}: it is not a registry's document. Register the URL of the registry's port, "
        "for example http://127.0.0.1:24200.",
    )
