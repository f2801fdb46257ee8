"""The workbench over a real fleet whose agents and libraries log all they can: nothing of it is drawn."""

from pathlib import Path

import pytest
from support.live import agent_module, write_project
from unit.test_tui_isolate_launch import started

from pallas.telemetry.log.log_setup import PINNED

LIBRARIES = (*PINNED, "fast_agent", "some.library", "asyncio")
# What an agent's module may do: take logging over, and have everything talk from then on.
CHATTY = f"""
import logging
import sys
import threading
import time

logging.basicConfig(level=logging.DEBUG, force=True, stream=sys.stderr)


def talk() -> None:
    while True:
        for name in {LIBRARIES!r}:
            logging.getLogger(name).debug("babble at debug")
            logging.getLogger(name).warning("babble at warning")
        logging.getLogger("pallas.chatty").debug("ours at debug")
        time.sleep(0.02)


threading.Thread(target=talk, daemon=True).start()
""" + agent_module("chatty")
BODY = """
    from pallas.fleet.threaded_fleet import ThreadedFleet

    class Fleet(ThreadedFleet):
        def __init__(self, root, **more):
            super().__init__(Path(__file__).parent / "project", **more)
"""


@pytest.mark.slow
def test_a_workbench_at_debug_with_chatty_libraries_draws_nothing_of_theirs(tmp_path: Path) -> None:
    # PR-33, PR-34: level debug in the project, a console logger, and a journal that the screen refuses
    write_project(
        tmp_path / "project",
        {"chatty": CHATTY, "plain": None},
        config={"logger": {"level": "debug", "type": "console", "progress_display": True}},
    )
    with started(tmp_path, BODY, PALLAS_LOG_STDERR="1") as session:
        session.until(lambda: session.log().count("ready in") == 2 and "chatty" in session.text(), timeout=60)
        mark = len(session.log())
        # Each comes with nine others: more records than are looked at below.
        session.until(lambda: session.log()[mark:].count("ours at debug") > 40)
        session.press(b"\x11")  # ctrl+q
        assert session.end() == 0
        for word in (b"babble", b"ours at debug", b"DEBUG", b"installed hook", b"Traceback"):
            assert word not in session.drawn, word
        records = [(record["logger"], record["message"]) for record in session.records()]
    for name in LIBRARIES:
        assert (name, "babble at warning") in records
        assert (name, "babble at debug") not in records[-200:]
    assert ("pallas.chatty", "ours at debug") in records
