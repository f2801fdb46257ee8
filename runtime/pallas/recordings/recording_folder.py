"""A recording as files: one for each run and each step, in YAML, and pictures as they are.

The same recording always gives the same bytes. ``recording_documents`` says what a file holds.
"""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

import yaml

from pallas.bounds.bounded_yaml import BoundedLoader
from pallas.model import Recording
from pallas.model.codec import visible
from pallas.safe_text import one_line, sanitize, without_controls

from .recording_documents import BadDocument, Documents, documents_of, recording_of

FORMAT: Final = 1
MAX_FILES: Final = 20_000
MAX_BYTES: Final = 512 * 1024 * 1024
"""Most bytes of all files of a recording that is read."""
HEAD: Final = "recording.yaml"
PICTURES: Final = "pictures"
"""The folder of the pictures."""
RECORDINGS: Final = Path("recordings")
"""The folder of recordings that are given no place of their own."""
# fmt: off
_DATA: Final = frozenset({
    "question", "answer", "params", "request", "response", "messages", "instructions", "capabilities",
    "tools",
})
# fmt: on
"""What models and tools got and said: it is repeated, and stays as it is. Everything else is a name."""
_ABOUT: Final = "# A run with all that it asked and got. `pallas replay` repeats it without a model.\n"


class BadRecording(ValueError):
    """A folder or archive holds no recording, or a broken one. The message names the file and what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(sanitize(message.replace("\n", " ")))  # names in an archive may contain anything


def folder_name(agent: str, run: str) -> str:
    """The name of the folder of a run's recording in ``RECORDINGS``."""
    return f"{one_line(agent, 60)}-{one_line(run, 64)}".replace("/", "-")


def files_of(recording: Recording) -> dict[str, bytes]:
    """The files of a recording, by their path in its folder."""
    documents = documents_of(recording)
    head = {"format": FORMAT, **documents.head}
    files = {HEAD: _ABOUT.encode() + _yaml(head)}
    files |= {f"{name}.yaml": _yaml(document) for name, document in documents.parts.items()}
    return files | {f"{PICTURES}/{name}": data for name, data in documents.pictures.items()}


def write(recording: Recording, folder: Path) -> None:
    """Write a recording into a folder, which is made if it is missing. Raises OSError.

    A recording that is there is replaced. Raises BadRecording for a folder with something else in it.
    """
    files = files_of(recording)
    if folder.exists() and any(folder.iterdir()):
        if not (folder / HEAD).is_file():
            raise BadRecording(f"{folder}: there is something else in it; choose another folder")
        old = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
        for name in old - files.keys():
            if name.endswith(".yaml") or name.startswith(f"{PICTURES}/"):
                (folder / name).unlink()
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def archive_of(recording: Recording) -> bytes:
    """The files of a recording as a tar archive."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, data in files_of(recording).items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), 0o644
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def read(path: Path) -> Recording:
    """The recording in a folder or a tar archive. Raises BadRecording, OSError."""
    if path.is_dir():
        return _recording_in(_files_in(path), str(path))
    if not path.is_file():
        raise BadRecording(
            f"{path}: there is no such folder or archive; `pallas record RUN` writes one, and "
            "`pallas get runs` lists the runs"
        )
    _check_bounds(1, path.stat().st_size, str(path))
    return read_archive(path.read_bytes(), str(path))


def read_archive(data: bytes, name: str = "the archive") -> Recording:
    """The recording in a tar archive. Raises BadRecording with ``name``."""
    try:
        files = dict(_files_of(data, name))
    except BadRecording:
        raise
    except (tarfile.TarError, ValueError, OverflowError, EOFError) as error:
        why = one_line(str(error), 100)
        raise BadRecording(
            f"{name}: no tar archive ({why}); name a recording, a folder or an archive"
        ) from None
    return _recording_in(files, name)


def _files_of(data: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    size = 0
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:") as archive:
        for number, entry in enumerate(archive, 1):
            _check_bounds(number, size + entry.size, name)
            if entry.isreg() and (file := archive.extractfile(entry)) is not None:
                content = file.read(MAX_BYTES)
                size += len(content)
                yield PurePosixPath(entry.name).as_posix(), content


def _files_in(folder: Path) -> dict[str, bytes]:
    files: dict[str, bytes] = {}
    size = 0
    for path in sorted(folder.rglob("*")) if (folder / HEAD).is_file() else ():
        name = path.relative_to(folder).as_posix()
        if path.is_file() and (name.endswith(".yaml") or name.startswith(f"{PICTURES}/")):
            size += path.stat().st_size
            _check_bounds(len(files) + 1, size, str(folder))
            files[name] = path.read_bytes()
    return files


def _check_bounds(files: int, size: int, name: str) -> None:
    if files > MAX_FILES or size > MAX_BYTES:
        raise BadRecording(
            f"{name}: more than {MAX_FILES} files or {MAX_BYTES // 2**20} MiB; no recording is"
        )


def _recording_in(files: dict[str, bytes], name: str) -> Recording:
    if HEAD not in files:
        raise BadRecording(f"{name}: no recording, for it has no {HEAD}; `pallas record RUN` makes one")
    parts = {
        path.removesuffix(".yaml"): _document(f"{name}/{path}", data)
        for path, data in files.items()
        if path.endswith(".yaml") and path != HEAD
    }
    head = _document(f"{name}/{HEAD}", files[HEAD])
    if head.get("format") != FORMAT:
        raise BadRecording(
            f"{name}/{HEAD}: format is {one_line(str(head.get('format')), 20)}, and this release of Pallas "
            f"reads {FORMAT}; record the run again"
        )
    pictures = {
        path.removeprefix(f"{PICTURES}/"): data
        for path, data in files.items()
        if path.startswith(f"{PICTURES}/")
    }
    try:
        return recording_of(Documents(head, parts, pictures))
    except BadDocument as error:
        raise BadRecording(f"{name}/{error}") from None


def _document(name: str, data: bytes) -> dict[str, Any]:
    try:
        document = yaml.load(data, BoundedLoader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark is not None else ""
        why = one_line(str(getattr(error, "problem", None) or error), 200)
        raise BadRecording(f"{name}{line}: not YAML: {why}; record the run again") from None
    if not isinstance(document, dict):
        raise BadRecording(f"{name}:1: must be a mapping; record the run again")
    _check_plain(document, name, set())
    # Somebody may have written into it.
    return {
        visible(key): visible(value, without_controls if key in _DATA else sanitize)
        for key, value in document.items()
    }


def _check_plain(value: Any, name: str, seen: set[int]) -> None:
    """Refuse what JSON has not, and a value that is referred to: copies of such can be without end."""
    if isinstance(value, dict | list):
        if id(value) in seen:
            raise BadRecording(f"{name}: has an alias (*); write the value again in its place")
        seen.add(id(value))
        for each in (*value, *value.values()) if isinstance(value, dict) else value:
            _check_plain(each, name, seen)
    elif not (value is None or isinstance(value, str | int | float)):
        raise BadRecording(
            f"{name}: has a {type(value).__name__} ({one_line(str(value), 40)}); put texts in quotes"
        )


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes texts of several lines as blocks, and nothing by reference."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: Any, text: str) -> Any:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Dumper.add_representer(str, _text)


def _yaml(document: dict[str, Any]) -> bytes:
    return yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100, encoding="utf-8"
    )
