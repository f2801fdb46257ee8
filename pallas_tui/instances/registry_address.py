"""URLs as a person types them and as a registry lists them."""

from typing import Final
from urllib.parse import SplitResult, urlsplit

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line, sanitize

WELL_KNOWN: Final = "/.well-known/mcp/server.json"
MAX_URL: Final = 2_000

_EXAMPLE: Final = "for example http://127.0.0.1:24200"
_DOCUMENTS: Final = ("/server.json", "/servers")


def document_url(text: str) -> str:
    """Return the URL of the registry's document for typed text: ``http://host:port``, or the whole URL.

    Raises Fault CONFIG with the mistake and its fix. A part that may hold a secret (a password, a
    query) is refused, because the URL is shown and stored.
    """
    text = text.strip()
    if not text:
        raise _wrong("", f"it is empty; type the URL of a registry, {_EXAMPLE}")
    if "://" not in text:
        raise _wrong(text, f"http:// or https:// is missing in front, as in http://{one_line(text, 100)}")
    if problem := _problem(text):
        raise _wrong(text, problem)
    parts = urlsplit(text)
    if parts.query or parts.fragment:
        raise _wrong(text.partition("?")[0].partition("#")[0], "leave out what begins with ? or #")
    path = parts.path.rstrip("/")
    if not path.endswith(_DOCUMENTS):
        path += WELL_KNOWN
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}{path}"


def label_of(url: str) -> str:
    """``host:port`` of a document's URL, with what else is needed to tell it from every other."""
    parts = urlsplit(url)
    scheme = "" if parts.scheme == "http" else f"{parts.scheme}://"
    path = parts.path.removesuffix(WELL_KNOWN)
    return f"{scheme}{parts.netloc}{path}"


def is_endpoint(url: object) -> bool:
    """Whether an agent can be spoken to under that URL."""
    return isinstance(url, str) and not _problem(url)


def origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port; what must stay the same in a redirect."""
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _problem(url: str) -> str:
    """Return the mistake in a URL and its fix; empty for a valid one."""
    if len(url) > MAX_URL:
        return f"it has {len(url)} characters; {MAX_URL} are allowed"
    if url != sanitize(url) or any(char.isspace() or char == "\\" for char in url):
        return "it holds blanks or characters that cannot be shown; type it again"
    try:
        parts: SplitResult = urlsplit(url)
        port = parts.port
    except ValueError:
        return f"host or port cannot be read; write http://host:port, {_EXAMPLE}"
    if parts.scheme.lower() not in ("http", "https"):
        return "it must begin with http:// or https://"
    if "@" in parts.netloc:
        return "leave out the user name and password in front of the host: the URL is shown and stored"
    if not parts.hostname or port == 0:
        return f"host or port is missing; write http://host:port, {_EXAMPLE}"
    return ""


def _wrong(text: str, problem: str) -> Fault:
    # A password must not be repeated in the message that complains about it.
    shown = "" if "@" in text or not text else f" {one_line(text, 100)!r}"
    return Fault(FaultType.CONFIG, f"Registry URL{shown}: {problem}.")
