"""A served fleet whose log cannot be written, is deleted or was never possible: it answers on and says so."""

import json
import os
import shutil
from pathlib import Path

import pytest
from support.live import ERAS, write_project
from support.served import Served, served, text_of
from support.waiting import until

SIZE = 64 * 1024
# A file system of its own for the process under test: nobody else sees it, and it goes with the process.
MOUNT = 'mount -t tmpfs -o size={size} tmpfs "{folder}" && exec "$0" "$@"'


def small_disk(folder: Path) -> tuple[str, ...]:
    """What to put before a command so that ``folder`` is a disk of 64 KiB for it."""
    folder.mkdir()
    own = ("unshare", "--mount") if os.geteuid() == 0 else ("unshare", "--user", "--map-root-user", "--mount")
    return (*own, "sh", "-c", MOUNT.format(size=SIZE, folder=folder))


def _fill(path: Path) -> None:
    """Write until there is no room. Raises OSError."""
    with path.open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 1_000)


async def answers(fleet: Served, era: str, text: str = "hi") -> None:
    async with fleet.client("one", era) as one:
        assert text_of(await one.call_tool("send_message", {"message": text})) == text


@pytest.mark.slow
async def test_a_full_disk_costs_the_log_its_records_and_nobody_an_answer(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    with served(root, wrap=small_disk(disk), log=disk / "pallas.log") as fleet:
        await fleet.says("] running")
        inside = Path(f"/proc/{fleet.process.pid}/root{disk}")  # as the process sees it
        filler = inside / "filler"
        with pytest.raises(OSError, match="No space left"):
            _fill(filler)
        # The last page of the log has room for a few records more.
        while not any("cannot be written" in line for line in fleet.err):
            for era in ERAS:
                await answers(fleet, era)
        line = await fleet.says("cannot be written")
        assert "cannot be written (No space left on device), its records are lost" in line, fleet.err
        assert f"error: the log {disk}/pallas.log" in line
        assert (await fleet.get("/readyz")).status_code == 200
        filler.unlink()
        for era in ERAS:
            await answers(fleet, era)
        assert "records were lost" in await fleet.says("is written again")
        lines = (inside / "pallas.log").read_text("utf-8").splitlines()
        records = [json.loads(each) for each in lines if each.endswith("}")]  # one may be torn
        assert any("log records could not be written" in each["message"] for each in records)
        fleet.process.terminate()
        assert await fleet.ended() == 0


@pytest.mark.slow
async def test_a_disk_that_is_full_from_the_beginning_to_the_end_changes_nothing_else(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    with served(root, log=Path("/dev/full")) as fleet:
        await fleet.says("] running")
        await answers(fleet, ERAS[0])
        await fleet.says("the log /dev/full cannot be written (No space left on device)")
        fleet.process.terminate()
        assert await fleet.ended() == 0


@pytest.mark.slow
async def test_output_that_nobody_takes_changes_nothing_and_not_the_exit_status(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    redirect = ("sh", "-c", 'exec "$0" "$@" > /dev/full 2> /dev/full')
    with served(root, wrap=redirect) as fleet:
        await fleet.logs("fleet test: running")
        await answers(fleet, ERAS[0])
        fleet.process.terminate()
        assert await fleet.ended() == 0


@pytest.mark.slow
async def test_a_log_that_cannot_be_where_it_should_be_goes_elsewhere_and_comes_back(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    folder = tmp_path / "state"
    folder.write_text("a file where a folder should be")
    wanted = folder / "pallas.log"
    elsewhere = tmp_path / "tmp"
    elsewhere.mkdir()
    with served(root, log=wanted, TMPDIR=str(elsewhere)) as fleet:
        line = await fleet.says(
            f"warning: the log {wanted} cannot be written; it goes to {elsewhere}/pallas-"
        )
        other = Path(line.rpartition(" ")[2])
        await fleet.says("] running")
        await answers(fleet, ERAS[0])
        assert f"cannot write the log to {wanted}" in _text(other)
        folder.unlink()  # what was in the way is gone, and that is told
        fleet.process.send_signal(1)  # SIGHUP
        await fleet.says(f"reloading (SIGHUP); log {wanted}")
        await fleet.logs("project: nothing changed")
        fleet.process.terminate()
        assert await fleet.ended() == 0


@pytest.mark.slow
async def test_a_log_that_is_deleted_with_its_folder_is_made_anew(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    folder = tmp_path / "logs"
    with served(root, log=folder / "pallas.log") as fleet:
        await fleet.says("] running")
        shutil.rmtree(folder)
        await answers(fleet, ERAS[0])
        record = await fleet.logs("one: run ")
        assert record["agent"] == "one"
        assert not any("cannot be written" in line for line in fleet.err)
        fleet.process.terminate()
        assert await fleet.ended() == 0


async def test_the_log_is_on_stderr_too_where_a_journal_reads_it(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": None}, top={"bind": "127.0.0.1"})
    with served(root, PALLAS_LOG_STDERR="1") as fleet:
        await fleet.says('"message": "fleet test: running"')
        await answers(fleet, ERAS[0])
        line = await fleet.says("one: run ")
        assert json.loads(line) == await fleet.logs("one: run ")


@pytest.mark.slow
async def test_lines_for_systemds_journal_begin_with_their_level(tmp_path: Path) -> None:
    root = write_project(tmp_path / "p", {"one": "raise RuntimeError('no')\n"}, top={"bind": "127.0.0.1"})
    # The variable names the stream by its device and inode, so it is made where the stream is known.
    named = 'JOURNAL_STREAM=$(stat -L -c %d:%i /proc/self/fd/2) exec "$0" "$@"'
    with served(root, wrap=("sh", "-c", named), PALLAS_LOG_STDERR="1") as fleet:
        await fleet.says("] running")
        await until(lambda: any("RuntimeError" in line for line in fleet.err))
        levels = {"INFO": "<6>", "ERROR": "<3>", "WARNING": "<4>"}
        lines = [line for line in fleet.err if '"level": "' in line]
        for line in lines:
            level = json.loads(line[3:])["level"]
            assert line.startswith(levels[level]), line
        assert any(line.startswith("<3>") and "RuntimeError" in line for line in lines)


def _text(file: Path) -> str:
    return file.read_text("utf-8")
