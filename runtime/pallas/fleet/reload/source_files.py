"""The texts that a version was made of, as long as it may be asked what became of them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

# Files whose texts are kept, and bytes of one of them; of the others only what tells them apart.
MAX_TEXTS: Final = 500
MAX_BYTES: Final = 256 * 1024
# How far a file's time may lie behind the clock that we read, in seconds: the kernel's clock ticks, and some
# file systems know whole seconds only.
_TICK: Final = 0.011
_COARSE: Final = 2.0


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One file as it was: ``digest`` is the SHA-256 of its bytes, empty where it was not there.

    ``text`` is None for one that is too large or no text. ``certain`` is False where it may have been written
    after it was read for the version: it says nothing about that one then.
    """

    digest: bytes = b""
    text: str | None = None
    certain: bool = True


@dataclass(frozen=True, slots=True)
class SourceFiles:
    """What a version was made of, by absolute path."""

    files: dict[Path, SourceFile] = field(default_factory=dict)

    @property
    def certain(self) -> bool:
        """Whether they are known, and each as it was."""
        return bool(self.files) and all(source.certain for source in self.files.values())

    @property
    def digests(self) -> dict[Path, bytes]:
        """What tells the files apart."""
        return {path: source.digest for path, source in self.files.items()}

    def digest_of(self, paths: Collection[Path], root: Path) -> str:
        """The SHA-256 of these files, as in ``RunVersion``; empty if one of them is not certain."""
        known = [self.files.get(path) for path in paths]
        if not paths or not all(each is not None and each.certain for each in known):
            return ""
        names = sorted(
            (str(path.relative_to(root) if path.is_relative_to(root) else path), path) for path in paths
        )
        lines = (
            f"{self.files[path].digest.hex()}  {name}\n" for name, path in names if self.files[path].digest
        )
        return sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()

    def changed(self, among: Collection[Path] = ()) -> tuple[Path, ...]:
        """Files that are not, byte for byte, what they were; ``among`` are others that belong in too.

        Blocks.
        """
        return tuple(
            path
            for path in sorted({*self.files, *among})
            if (known := self.files.get(path)) is None
            or not known.certain
            or _read(path, text=False).digest != known.digest
        )

    def text(self, path: Path) -> str | None:
        """The file's text then, empty where there was none; None where it is not known."""
        known = self.files.get(path)
        return known.text if known is not None else None

    def with_more(self, paths: Iterable[Path], since: float) -> "SourceFiles":
        """Return these and ``paths`` as they are now. Blocks.

        A text written after ``since`` (Unix seconds) may not be the one that was read then.
        """
        files = dict(self.files)
        texts = sum(source.text is not None for source in files.values())
        for path in sorted(paths):
            if path not in files:
                files[path] = _read(path, text=texts < MAX_TEXTS, since=since)
                texts += files[path].text is not None
        return SourceFiles(files)


def text_now(path: Path) -> str | None:
    """The file's text as it is, empty where there is none; None where it is too large or no text. Blocks."""
    return _read(path).text


def _read(path: Path, *, text: bool = True, since: float | None = None) -> SourceFile:
    try:
        with path.open("rb") as file:
            written = path.stat().st_ctime_ns / 1e9  # also where an older file was put there
            data = file.read(MAX_BYTES + 1)
            digest = sha256(data)
            long = len(data) > MAX_BYTES
            while long and (more := file.read(1 << 20)):
                digest.update(more)
    except (OSError, ValueError):
        return SourceFile(text="")
    certain = since is None or written < since - (_COARSE if written.is_integer() else _TICK)
    try:
        words = data.decode("utf-8") if text and not long and b"\0" not in data else None
    except UnicodeDecodeError:
        words = None
    return SourceFile(digest.digest(), words, certain)
