"""Asks for a file and writes the listed records to it."""

import asyncio
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static
from textual.worker import Worker

from pallas.safe_text import one_line

from ...actions import bindings
from ...text import count
from ..status_line import StatusLine
from .log_export import Export, ExportError, refusal
from .log_source import LogSource


class ExportScreen(ModalScreen[str | None]):
    """Returns the result of the export in one line; None without an export. Escape cancels, also midway."""

    BINDINGS: ClassVar[list[BindingType]] = bindings("log_export")

    def __init__(self, source: LogSource) -> None:
        super().__init__()
        self._source = source
        self._agreed: Path | None = None
        self._worker: Worker[None] | None = None

    def compose(self) -> ComposeResult:
        number = len(self._source.rows)
        with Vertical(classes="sheet", id="log-export"):
            yield Static(f" Export {number:,} records", classes="title -focused", markup=False)
            yield Static("Into which file? As JSON lines; as text when its name ends in .txt.", markup=False)
            yield Input("pallas-log.jsonl", compact=True, id="log-export-path")
            yield Static(id="log-export-status", markup=False)
            yield StatusLine()

    def on_mount(self) -> None:
        """Focus the name."""
        self.query_one(Input).focus()

    def _say(self, text: str) -> None:
        self.query_one("#log-export-status", Static).update(one_line(text, 500))

    @on(Input.Changed)
    def _changed(self) -> None:
        self._agreed = None
        self._say("")

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._worker is not None:
            return
        target, problem, exists = refusal(self._source, event.value)
        if problem:
            self._say(problem)
        elif exists and self._agreed != target:
            self._agreed = target
            self._say(f"{target} is there already. Press enter again to replace it.")
        else:
            self._worker = self.run_worker(self._write(target, exists), group="export", exclusive=True)

    async def _write(self, target: Path, overwrite: bool) -> None:
        export = Export(self._source, target, overwrite=overwrite)

        def progress() -> None:
            self._say(f"{export.written:,} of {export.total:,} written; escape cancels")

        try:
            await export.run(asyncio.to_thread, progress)
        except ExportError as error:
            self._agreed = self._worker = None
            self._say(str(error))
        else:
            gone = f"; {export.gone:,} were gone from the log" if export.gone else ""
            self.dismiss(f"{count(export.written, 'record')} written to {target}{gone}")

    def action_back(self) -> None:
        """Stop writing, or leave."""
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None
            self._say("Cancelled; nothing was written.")
        else:
            self.dismiss(None)
