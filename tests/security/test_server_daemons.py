"""What a stdio server starts and lets go of ends with the fleet, whatever it does to be forgotten."""

import asyncio
import signal
from pathlib import Path

import pytest
from support.hostile_servers import call, hostile_project
from support.live import ERAS
from support.processes import gone
from support.served import served, text_of
from support.waiting import until

LONGEST = 60.0
# Two forks, a session of its own, none of its descriptors and nothing of its environment.
DAEMON = """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for descriptor in range(256):
            try:
                os.close(descriptor)
            except OSError:
                pass
        file = os.open({name!r}, os.O_CREAT | os.O_WRONLY)
        os.write(file, b"%d " % os.getpid())
        os.close(file)
        os.execve(sys.executable, [sys.executable, "-c", {code!r}], {{}})
    os._exit(0)
os.wait()
text("done")
"""
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
TOOLS = {
    "stays": {"do": DAEMON.format(name="stays", code=STUBBORN)},
    "leaves": {"do": DAEMON.format(name="leaves", code="pass")},
}


def number(path: Path) -> int:
    """The process that wrote its number there."""
    text = path.read_text()
    assert text.endswith(" ")
    return int(text)


@pytest.mark.slow
@pytest.mark.parametrize("number_of", [signal.SIGTERM, signal.SIGINT])
async def test_a_daemon_of_a_stdio_server_leaves_no_zombie_and_ends_with_the_fleet(
    tmp_path: Path, number_of: signal.Signals
) -> None:
    root = hostile_project(tmp_path / "p", TOOLS)
    with served(root, constants={"pallas.fleet.child_processes._REAP": 0.2}) as fleet:
        await fleet.says("] running")
        async with asyncio.timeout(LONGEST), fleet.client("victim", ERAS[0]) as victim:
            for tool in TOOLS:
                said = text_of(await victim.call_tool("send_message", {"message": call(tool)}))
                assert "done" in said, tool
        daemon, other = [await until(lambda name=name: number(root / name)) for name in TOOLS]
        await until(lambda: not Path(f"/proc/{other}").exists(), timeout=LONGEST)
        assert not gone(daemon)
        fleet.send(number_of)
        assert await fleet.ended() == 0
        await until(lambda: gone(daemon))
