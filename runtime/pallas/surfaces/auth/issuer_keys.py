"""An issuer's public keys (JWKS): fetched on demand and kept while the issuer is unavailable."""

import asyncio
import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from time import monotonic
from typing import Any, Final
from urllib.parse import urljoin, urlsplit

import httpx2
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from pallas.config.issuer_keys import MIN_RSA_BITS
from pallas.config.network import local_port
from pallas.safe_text import one_line

from .token_outcome import TokenRefused, Unavailable

log = logging.getLogger(__name__)

FETCH_TIMEOUT: Final = 3.0
MAX_BODY: Final = 256 * 1024
MAX_KEYS: Final = 100
# Seconds between two fetches for an unknown key, between two while there are no keys at all,
# and after which a set is fetched again, so that revoked keys are forgotten.
REFRESH: Final = 30.0
RETRY: Final = 5.0
STALE: Final = 600.0
_MAX_REDIRECTS: Final = 3
_KINDS: Final = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}

type Key = Mapping[str, Any]


class KeySet:
    """The keys at one URL. Belongs to one event loop.

    At most one fetch runs at a time; all callers that need its outcome wait for the same one.
    """

    def __init__(self, url: str, *, clock: Callable[[], float] = monotonic) -> None:
        self._url = url
        self._clock = clock
        self._keys: Sequence[Key] | None = None
        self._jwks: dict[tuple[int, str], PyJWK] = {}
        self._fetched = self._tried = float("-inf")
        self._problem = ""
        self._task: asyncio.Task[None] | None = None

    async def find(self, kid: str | None, algorithm: str) -> PyJWK:
        """Return the key for the key id and algorithm of a token.

        Raises TokenRefused if there is none, Unavailable if no keys could be fetched yet.
        """
        if self._keys is None:
            if self._may_try(RETRY):
                await self._refreshed()
            if self._keys is None:
                raise Unavailable(f"the keys at {_shown(self._url)} could not be read: {self._problem}")
        key = self._pick(kid, algorithm)
        if key is None and self._may_try(REFRESH):
            await self._refreshed()
            key = self._pick(kid, algorithm)
        elif self._clock() - self._fetched > STALE and self._may_try(REFRESH):
            self._begin()  # no caller waits for it
        if key is None:
            raise TokenRefused("no key of its issuer fits it")
        return key

    def close(self) -> None:
        """Cancel the fetch that is running."""
        if self._task is not None:
            self._task.cancel()

    def _may_try(self, pause: float) -> bool:
        return self._task is not None or self._clock() - self._tried >= pause

    def _begin(self) -> asyncio.Task[None]:
        if self._task is None:
            # An empty context: the fetch must not inherit that of the first caller.
            self._task = asyncio.create_task(self._refresh(), name="issuer's keys", context=Context())
        return self._task

    async def _refreshed(self) -> None:
        await asyncio.wait({self._begin()})  # a waiter may be cancelled; the fetch belongs to all of them

    async def _refresh(self) -> None:
        self._tried = self._clock()
        try:
            found = await fetch_keys(self._url)
        except Unavailable as problem:
            self._problem = str(problem)
            current_keys = "there are none" if self._keys is None else "the earlier ones stay in use"
            log.warning("keys at %s: %s; %s", _shown(self._url), problem, current_keys)
        except Exception as error:
            self._problem = type(error).__name__
            log.exception("keys at %s could not be read", _shown(self._url))
        else:
            self._keys, self._jwks = found, {}
            self._fetched = self._clock()
        finally:
            self._task = None

    def _pick(self, kid: str | None, algorithm: str) -> PyJWK | None:
        keys = self._keys or ()
        if kid is None:
            if len(keys) > 1:
                raise TokenRefused("it names no key (kid), and its issuer has several")
            fitting = list(enumerate(keys))
        else:
            fitting = [(number, key) for number, key in enumerate(keys) if key.get("kid") == kid]
            if not fitting and len(keys) == 1 and "kid" not in keys[0]:
                fitting = [(0, keys[0])]
        for number, key in fitting:
            if _fits(key, algorithm) and (jwk := self._as_key(number, key, algorithm)) is not None:
                return jwk
        return None

    def _as_key(self, number: int, key: Key, algorithm: str) -> PyJWK | None:
        if (jwk := self._jwks.get((number, algorithm))) is None:
            try:
                jwk = PyJWK(dict(key), algorithm)
            except (PyJWTError, ValueError, TypeError, KeyError):
                return None
            if getattr(jwk.key, "key_size", MIN_RSA_BITS) < MIN_RSA_BITS and key["kty"] == "RSA":
                return None
            self._jwks[number, algorithm] = jwk
        return jwk


def _fits(key: Key, algorithm: str) -> bool:
    return key.get("kty") == _KINDS.get(algorithm[:2]) and key.get("alg", algorithm) == algorithm


async def fetch_keys(url: str) -> Sequence[Key]:
    """Fetch the signing keys at ``url``, within 3 s and up to 256 KiB. Raises Unavailable.

    Follows redirects within the origin only. Leaves out private keys and keys for other uses.
    """
    try:
        # Local addresses do not go through a proxy.
        elsewhere = local_port(url) is None
        async with (
            asyncio.timeout(FETCH_TIMEOUT),
            httpx2.AsyncClient(timeout=FETCH_TIMEOUT, trust_env=elsewhere) as client,
        ):
            body = await _read(client, url)
    except TimeoutError:
        raise Unavailable(f"no answer within {FETCH_TIMEOUT:g} s") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise Unavailable(f"{type(error).__name__}: {one_line(str(error), 120)}") from None
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise Unavailable("the answer is not JSON") from None
    keys = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(keys, list) or len(keys) > MAX_KEYS:
        raise Unavailable(f"the answer has no list of keys, or more than {MAX_KEYS}")
    usable = [key for key in keys if isinstance(key, dict) and _is_public(key)]
    if not usable:
        raise Unavailable("the answer has no public key for signatures")
    return usable


def _is_public(key: Key) -> bool:
    # A key with its private half published proves nothing.
    return key.get("kty") in _KINDS.values() and "d" not in key and key.get("use", "sig") == "sig"


async def _read(client: httpx2.AsyncClient, url: str) -> bytes:
    headers = {"accept": "application/json", "accept-encoding": "identity"}
    for _ in range(_MAX_REDIRECTS + 1):
        async with client.stream("GET", url, headers=headers, follow_redirects=False) as answer:
            if answer.is_redirect:
                target = urljoin(url, answer.headers.get("location", ""))
                if _origin(target) != _origin(url):
                    raise Unavailable("it redirects to another origin, which is not followed")
                url = target
                continue
            if answer.status_code != 200:
                raise Unavailable(f"HTTP {answer.status_code}")
            body = bytearray()
            async for chunk in answer.aiter_raw():
                body += chunk
                if len(body) > MAX_BODY:
                    raise Unavailable(f"the answer has more than {MAX_BODY} bytes")
            return bytes(body)
    raise Unavailable("its redirects form a circle")


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _shown(url: str) -> str:
    return one_line(url.partition("?")[0], 120)
