"""The files of a project that its agents name as icons, and no other file (SPEC PI-6)."""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urljoin, urlsplit

from starlette.responses import Response

from pallas.config import Project

MAX_BYTES: Final = 1024 * 1024
_MEDIA: Final = {
    ".gif": "image/gif",
    ".ico": "image/x-icon",
    ".jpeg": "image/jpeg",
    ".jpg": "image/jpeg",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".webp": "image/webp",
}
_HEADERS: Final = {
    "cache-control": "max-age=300",
    "x-content-type-options": "nosniff",
    # An SVG may hold a script: as a page of its own it runs none.
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
}


def icon_at(project: Project, path: str) -> Response | None:
    """The icon whose published address has that path; None where no agent names one, or it is no picture.

    Reads the file, so call it in a thread. It has to be in the project's folder, links followed, and at most
    1 MiB.
    """
    sources = (icon.src.strip() for agent in project.agents.values() for icon in agent.icons)
    if path not in {_path(src) for src in sources}:
        return None
    root = project.root.resolve()
    try:
        file = Path(root, path.lstrip("/")).resolve()
        media = _MEDIA.get(file.suffix.lower())
        if media is None or not file.is_relative_to(root) or not file.is_file():
            return None
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except (OSError, ValueError):
        return None
    return Response(content, headers=_HEADERS, media_type=media) if len(content) <= MAX_BYTES else None


def _path(src: str) -> str:
    """The path at which a relative icon is published; empty for an address elsewhere."""
    parts = urlsplit(src)
    return "" if parts.scheme or parts.netloc else unquote(urlsplit(urljoin("/", src)).path)
