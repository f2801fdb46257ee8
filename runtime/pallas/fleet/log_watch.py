"""Whether the log can be written: what it loses, it cannot tell itself."""

import asyncio
from typing import Final

from pallas.model import Notice
from pallas.model.safe_text import one_line
from pallas.telemetry.events import Hub
from pallas.telemetry.log import log_state

EVERY: Final = 2.0
"""Seconds between two looks at the log."""


async def watch_log(hub: Hub, every: float = EVERY) -> None:
    """Tell when records of the log are lost, and when it goes on, until cancelled."""
    told, lost_before = "", 0
    while True:
        state = log_state()
        if state is not None and state.trouble != told:
            if state.trouble:
                if not told:
                    lost_before = state.lost - 1
                text = (
                    f"the log {state.path} cannot be written ({state.trouble}), its records are lost; make "
                    "room, or set PALLAS_LOG_FILE to another file"
                )
                hub.publish(Notice(level="error", text=one_line(text, 400)))
            else:
                text = f"the log {state.path} is written again; {state.lost - lost_before} records were lost"
                hub.publish(Notice(level="warning", text=one_line(text, 400)))
            told = state.trouble
        await asyncio.sleep(every)
