"""Entry point: ``python -m pallas.server`` is the same as ``pallas``."""

import gc
import os
import signal
import sys
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

from pallas.processes.import_seam import postpone_methods


def main() -> None:
    """Run the command line and exit with its status."""
    arguments = sys.argv[1:]
    _leave_out_folder()
    if "--serve" in arguments or _may_serve(arguments):
        # It means "read the configuration again", which has not been read yet. ``Signals`` takes it over.
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="surrogateescape")  # A path is printed as it is, also one not in UTF-8.
    postpone_methods()
    gc.disable()  # Imports make no garbage, and looking for it takes a tenth of their time.
    try:
        status = _run(arguments)
    except KeyboardInterrupt:
        status = 130
    # The interpreter would search all that is left for cycles before it ends: half a second of nothing.
    gc.freeze()
    sys.exit(status)


def _run(arguments: list[str]) -> int:
    """Do what the arguments say; returns the exit status."""
    if _opens_workbench(arguments):
        from pallas.cli.dev import DevOptions, dev

        return dev(DevOptions(Path(*arguments[1:])))  # It enables the collector after the first paint.
    if (root := _serves(arguments)) is not None:
        from pallas.cli.serve import serve

        return serve(root)
    from pallas.cli.app import run

    if not _ends_soon(arguments) and not _may_serve(arguments):
        gc.enable()
    return run(arguments)


def _ends_soon(arguments: list[str]) -> bool:
    """Whether it ends before there is garbage."""
    return arguments[:1] == ["check"] and arguments[1:2] != ["bearer"]


def _may_serve(arguments: list[str]) -> bool:
    """Whether no command is given first; the command line enables the collector where one comes later."""
    return not arguments or arguments[0].startswith("-")


def _leave_out_folder() -> None:
    """Take the working directory out of the module path, where ``python -m`` put it: it may be a project."""
    with suppress(OSError):  # it may be gone
        folder, ours = str(Path.cwd()), str(Path(__file__).parents[1])
        if sys.path[:1] == [folder] and not sys.flags.safe_path and folder != ours:
            del sys.path[0]


def _opens_workbench(arguments: list[str]) -> bool:
    """Whether this is `pallas dev [DIR]` without options: it paints before typer is imported."""
    if arguments[:1] != ["dev"] or len(arguments) > 2 or _needs_command_line():
        return False
    return all(not folder.startswith("-") and Path(folder).is_dir() for folder in arguments[1:])


def _serves(arguments: list[str]) -> Path | None:
    """The folder of `pallas [--serve] [--project DIR]`: it is served without typer and the other commands."""
    rest = arguments[arguments[:1] == ["--serve"] :]
    if len(rest) == 3 and rest[-1] == "--serve":
        rest = rest[:-1]
    if rest and (len(rest) != 2 or rest[0] not in ("-p", "--project") or rest[1].startswith("-")):
        return None
    return None if _needs_command_line() else Path(*rest[1:])


def _needs_command_line() -> bool:
    """Whether the environment asks for more than the arguments do: credentials, or a shell's completion."""
    return bool(os.environ.get("CREDENTIALS_DIRECTORY") or os.environ.get("_PALLAS_COMPLETE"))


if __name__ == "__main__":
    main()
