"""The user's own editor for a text. The workbench releases the terminal while the editor runs."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from textual.app import App, SuspendNotSupported

from pallas.model import Fault, FaultType
from pallas.processes.child_program import outliving
from pallas.safe_text import one_line, without_controls

LIMIT: Final = 2_097_152
"""Characters that are read back at most, as many as an agent takes."""

_FALLBACKS: Final = ("nano", "vim", "vi")


def editor_command(environ: Mapping[str, str] | None = None, setting: str = "") -> Sequence[str]:
    """``setting``, which is the setting, else ``$VISUAL``, else ``$EDITOR``, with their arguments, else the
    first usual editor there is.

    Raises Fault(CONFIG) when there is none, or what names it cannot be read as a command.
    """
    environ = os.environ if environ is None else environ
    named = {"the setting editor": setting, **{name: environ.get(name, "") for name in ("VISUAL", "EDITOR")}}
    for name, value in named.items():
        if not (value := value.strip()):
            continue
        try:
            command = shlex.split(value)
        except ValueError as error:
            problem = f"{name} cannot be read as a command ({error}); fix it: {one_line(value, 80)}"
            raise _fault(problem) from None

        program = shutil.which(command[0], path=environ.get("PATH"))
        if program is None:
            raise _fault(
                f"{name} names {one_line(command[0], 80)}, which does not exist; set it to your editor"
            )
        return [program, *command[1:]]
    for name in _FALLBACKS:
        if program := shutil.which(name, path=environ.get("PATH")):
            return [program]
    raise _fault("There is no editor: set EDITOR to yours, for example `export EDITOR=nano`")


def edit(app: App[Any], text: str, environ: Mapping[str, str] | None = None) -> str:
    """``text`` as it came back from the person's editor, sanitised.

    The screen is away and the loop stands still until the editor ends: both would write to one terminal.
    Raises Fault(CONFIG), with the text left as it was, when there is no editor, it cannot be run here, or it
    ended with an error.
    """
    command = editor_command(environ, getattr(getattr(app, "settings", None), "editor", ""))
    name = Path(command[0]).name
    folder: Path | None = None
    try:
        folder = Path(tempfile.mkdtemp(prefix="pallas-"))  # only for its owner, as the file in it
        file = folder / "message.md"
        file.write_text(text, "utf-8")
        try:
            with app.suspend():
                status = run_on_terminal([*command, str(file)])
        except SuspendNotSupported:
            raise _fault("An editor needs a terminal, and the workbench does not run in one here") from None
        if status:
            raise _fault(f"{name} ended with status {status}; the text is as it was before")
        with file.open("rb") as edited:
            data = edited.read(4 * LIMIT + 1)
    except OSError as error:
        reason = one_line(error.strerror or str(error))
        raise _fault(f"{name} cannot be used: {reason}; the text is as it was before") from None
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
    changed = without_controls(data.decode("utf-8", "replace"))
    if len(changed) > LIMIT:
        raise _fault(
            f"The text has more than the {LIMIT:,} characters an agent takes; it is as it was before"
        )
    # An editor ends the last line; the prompt does not.
    return changed.removesuffix("\n") if not text.endswith("\n") else changed


def run_on_terminal(command: Sequence[str], cwd: Path | None = None) -> int:
    """Run ``command`` on the terminal until it ends, within ``app.suspend()``; its status. Raises OSError.

    A ctrl+c is its own. A signal that ends the workbench ends it first.
    """
    # Descriptors 0 to 2 of this process are not the terminal's, so the child is given the terminal itself.
    with (
        _patient() as children,
        subprocess.Popen(
            command,
            cwd=cwd,
            env=outliving(),  # An editor with a window of its own may stay.
            stdin=sys.__stdin__,
            stdout=sys.__stdout__,
            stderr=sys.__stdout__,
        ) as child,
    ):
        children.append(child)
        status = child.wait()
        children.remove(child)
        return status


@contextmanager
def _patient() -> "Iterator[list[subprocess.Popen[bytes]]]":
    """A ctrl+c for the editor is not one for us; what ends us ends the editor first, and us after it."""
    children: list[subprocess.Popen[bytes]] = []
    late: list[int] = []

    def end(number: int, frame: object) -> None:
        late.append(number)
        for child in children:
            child.terminate()

    # A handler, not "ignore", which the editor would inherit. And the loop must not hear of it.
    before: dict[int, Any] = {signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None)}
    for number in (signal.SIGTERM, signal.SIGHUP):
        before[number] = signal.signal(number, end)
    wakeup = signal.set_wakeup_fd(-1)
    try:
        yield children
    finally:
        signal.set_wakeup_fd(wakeup)
        for heeded, handler in before.items():
            signal.signal(heeded, handler)
        for missed in late:
            signal.raise_signal(missed)


def _fault(problem: str) -> Fault:
    return Fault(FaultType.CONFIG, problem)
