"""Prompts that the user saves under a name, in a small file."""

from dataclasses import dataclass
from typing import Any, Final

from pallas.model import Fault, FaultType
from pallas.safe_text import one_line, without_controls

from ..json_file import JsonFile

MAX_PROMPTS: Final = 200
MAX_NAME: Final = 60
MAX_TEXT: Final = 16_000
_MAX_ALL: Final = 900_000


@dataclass(frozen=True, slots=True)
class SavedPrompt:
    """A prompt and its name."""

    name: str
    text: str


class PromptBook:
    """The prompts in ``file``, sorted by name, read on first use; without a file they last for this start.

    Every change is written at once. ``problem`` describes a mistake in the file; then nothing is written to
    it.
    """

    def __init__(self, file: JsonFile | None = None) -> None:
        self.problem = ""
        self._file = file
        self._prompts: dict[str, str] | None = None

    @property
    def prompts(self) -> tuple[SavedPrompt, ...]:
        """Return all prompts, sorted by name."""
        return tuple(SavedPrompt(name, text) for name, text in sorted(self._read().items(), key=_by_name))

    def save(self, name: str, text: str) -> bool:
        """Save ``text`` as ``name``; return True when it replaces another prompt. Raises Fault (CONFIG)."""
        name = one_line(name, MAX_NAME)
        if not name or not text.strip():
            raise _refused("A saved prompt needs a name and a text.")
        if len(text) > MAX_TEXT:
            raise _refused(f"A saved prompt has at most {MAX_TEXT:,} characters; this one has {len(text):,}.")
        prompts = dict(self._read())
        known = name in prompts
        prompts[name] = without_controls(text)
        if len(prompts) > MAX_PROMPTS or sum(map(len, prompts.values())) > _MAX_ALL:
            raise _refused(
                f"{MAX_PROMPTS} prompts are kept at most, {_MAX_ALL:,} characters in all; delete one."
            )
        self._write(prompts)
        return known

    def delete(self, name: str) -> bool:
        """Delete a prompt; return False when there is none of that name. Raises Fault (CONFIG)."""
        prompts = dict(self._read())
        if prompts.pop(name, None) is None:
            return False
        self._write(prompts)
        return True

    def _read(self) -> dict[str, str]:
        if self._prompts is None:
            document, self.problem = self._file.load() if self._file is not None else (None, "")
            self._prompts, problem = _prompts_in(document)
            self.problem = self.problem or (
                f"{self._file.path.name}: {problem}" if problem and self._file else ""
            )
        return self._prompts

    def _write(self, prompts: dict[str, str]) -> None:
        if self._file is not None:
            if self.problem:
                raise _refused(f"Nothing was saved: {self.problem}.")
            try:
                self._file.save({"prompts": prompts})
            except OSError as error:
                reason = one_line(error.strerror or str(error))
                raise _refused(f"{self._file.path} cannot be written: {reason}") from None
        self._prompts = prompts


def _by_name(item: tuple[str, str]) -> str:
    return item[0].casefold()


def _prompts_in(document: Any) -> tuple[dict[str, str], str]:
    if document is None:
        return {}, ""
    rows = document.get("prompts") if isinstance(document, dict) else None
    if not isinstance(rows, dict):
        return {}, 'must be {"prompts": {name: text}}; fix or delete it'
    prompts = {
        one_line(name, MAX_NAME): without_controls(text, MAX_TEXT)
        for name, text in list(rows.items())[:MAX_PROMPTS]
        if isinstance(text, str) and text.strip() and name.strip()
    }
    lost = len(rows) - len(prompts)
    return prompts, f"{lost} entries are not prompts, or too many; fix them" if lost else ""


def _refused(problem: str) -> Fault:
    return Fault(FaultType.CONFIG, problem)
