"""What agents' code and stdio servers start and let go of ends with the command that ran them."""

import os
import signal
import sys
from pathlib import Path

import pytest
from support import pallas_process
from support.hostile_servers import hostile_project
from support.processes import gone
from support.waiting import until

LONGEST = 120
# A session of its own, and nothing of the command's descriptors.
DAEMON = f"""
import os
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 256)
        file = os.open(NAME, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.write(file, b"%d\\n" % os.getpid())
        os.close(file)
        code = "import time; time.sleep(600)"
        os.execve({sys.executable!r}, [{sys.executable!r}, "-c", code], {{}})
    os._exit(0)
os.wait()
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A project whose server leaves a daemon when it starts, and whose agent does when it is imported."""
    root = tmp_path / "p"
    tools = {"": {"do": DAEMON.replace("NAME", repr(str(root / "of-server")))}, "hello": {"do": "text('hi')"}}
    http = {"far": {"url": "http://127.0.0.1:9/mcp", "transport": "http"}}
    hostile_project(root, tools, http)
    (root / "tests" / "agents").mkdir(parents=True)
    (root / "tests" / "agents" / "one.yaml").write_text("agent: victim\nask: hello\n")
    module = root / "agents" / "victim.py"
    module.write_text(DAEMON.replace("NAME", repr(str(root / "of-agent"))) + module.read_text())
    return root


@pytest.mark.parametrize(
    ("command", "source"),
    [
        pytest.param(("lock", "--yes", "--server", "hostile"), "of-server", id="lock"),
        pytest.param(
            ("check", "bearer", "--callers", "2"), "of-agent", id="check bearer", marks=pytest.mark.slow
        ),
        pytest.param(("check", "--import"), "of-agent", id="check --import", marks=pytest.mark.slow),
        pytest.param(("test", "--live", "--own"), "of-agent", id="test", marks=pytest.mark.slow),
    ],
)
async def test_a_daemon_ends_with_the_command_that_led_to_it(
    root: Path, command: tuple[str, ...], source: str
) -> None:
    done = pallas_process.run(*command, cwd=root, capture_output=True, text=True, timeout=LONGEST)
    assert (root / source).exists(), done.stdout + done.stderr
    started = [int(line) for line in (root / source).read_text().split()]
    try:
        await until(lambda: all(map(gone, started)))
    finally:
        for pid in started:
            if not gone(pid):
                os.kill(pid, signal.SIGKILL)
