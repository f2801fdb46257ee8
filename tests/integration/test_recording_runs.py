"""A run is recorded with all that it led to: over REST, by `pallas record`, and from a workbench."""

import asyncio
import base64
import json
import os
import re
import signal
import subprocess
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import PIL.Image
import pytest
import pytest_asyncio
import yaml
from PIL.PngImagePlugin import PngInfo
from support import pallas_process
from support.live import MODERN_FIRST
from support.pallas_process import start_async
from support.projects import edit
from support.recorded import PICTURE, recorded_project
from support.recorded_runs import asked
from support.recorded_runs import fleet as fleet
from support.recording_files import assert_fits
from support.served import Served, served
from support.surfaces import command, rest, typed
from support.waiting import until

from pallas.agent_tests.kept_test import keep
from pallas.model import Recording
from pallas.recordings.recording_folder import archive_of, read, read_archive
from pallas_tui.remote.remote_fleet import RemoteFleet
from pallas_tui.remote.token_source import TokenSource
from pallas_tui.runs.run_comparison import compare


async def recorded(fleet: Served, run: str) -> Recording:
    async with rest(fleet) as http:
        answer = await http.get(f"/runs/{run}/recording")
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"] == "application/x-tar"
        again = await http.get(f"/runs/{run}/recording")
        assert again.content == answer.content
        found = read_archive(answer.content)
        assert_fits(found)
        return found


@pytest.mark.slow
async def test_all_that_a_run_led_to_is_recorded(fleet: Served) -> None:
    run = await asked(
        fleet, "How many?", conversation_id="a thread", images=[{"data": PICTURE, "mime_type": "image/png"}]
    )
    recording = await recorded(fleet, run)
    lead, *others = recording.runs
    assert (lead.id, lead.agent, lead.question, lead.status, lead.kind) == (
        run,
        "lead",
        "How many?",
        "ok",
        "llm",
    )
    assert lead.answer.startswith("All in all")
    assert [image.data for image in lead.images] == [PICTURE]
    assert {each.agent: each.question for each in others} == {"clerk": "find lamps", "keeper": "count lamps"}
    assert {each.agent: each.answer for each in others} == {
        "clerk": "three lamps, seen", "keeper": "I keep nine lamps",
    }  # fmt: skip
    kinds = [(each.step.kind, each.step.name) for each in lead.steps]
    assert sorted(kinds) == [
        ("agent", "keeper"), ("model", "scripted"), ("model", "scripted"), ("tool", "clerk__send_message"),
    ]  # fmt: skip
    by_number = {each.step.number: each.step.name for each in lead.steps}
    assert {each.agent: by_number[each.parent_step] for each in others} == {
        "clerk": "clerk__send_message", "keeper": "keeper",
    }  # fmt: skip
    assert recording.missing == ()


async def test_a_described_run_has_its_steps_with_what_was_sent_and_came_back(fleet: Served) -> None:
    run = await asked(fleet, "find lamps", "clerk", conversation_id="to describe")
    lines = (await typed("describe", "run", run, "-p", str(fleet.root))).splitlines()
    steps = [number for number, line in enumerate(lines) if re.match(r"  \d+ ", line)]
    heads = [lines[number].split("  ")[1:4] for number in steps]
    assert [head[:2] for head in heads] == [
        ["1", "model scripted"],
        ["2 (called by step 1)", "tool shelf__find"],
        ["3", "model scripted"],
        ["4 (called by step 3)", "tool shelf__look"],
        ["5", "model scripted"],
    ]
    assert all("; done; " in lines[number] for number in steps)
    told = [[line.strip() for line in lines[at:to]] for at, to in pairwise([*steps, len(lines)])]
    assert "instructions: You are clerk." in told[0]
    assert "user: find lamps" in told[0]
    assert any(line.startswith("arguments: ") and "lamps" in line for line in told[1])
    assert "result: three lamps" in told[1]
    assert any(line.startswith("answer: three lamps, seen") for line in told[4])


async def test_a_place_that_cannot_be_written_is_named_with_what_to_do(fleet: Served, tmp_path: Path) -> None:
    run = await asked(fleet, "find lamps", "clerk")
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        words = ("record", run, "-o", str(place), "-p", str(fleet.root))
        done = await asyncio.to_thread(pallas_process.run, *words, capture_output=True, timeout=60)
        assert done.returncode == 1
        told = done.stderr.decode()
        assert told.startswith("pallas record: ") and str(tmp_path / "file") in told, told
        assert "Errno" not in told
        assert told.endswith("correct that, or name another place\n"), told
    assert (tmp_path / "file").read_text() == ""


async def test_a_recording_says_which_version_of_each_agent_ran(fleet: Served) -> None:
    run = await asked(fleet, "How many?", conversation_id="of a version")
    alone = await asked(fleet, "count lamps", "keeper")
    found = {each.agent: each.version for each in (await recorded(fleet, run)).runs}
    for agent, version in found.items():
        assert version is not None
        assert version.number == 1
        assert len(version.files) == 64
        assert version.instruction == sha256(f"You are {agent}.".encode()).hexdigest(), agent
        assert len(version.tools) == (0 if agent == "keeper" else 64)
    assert len({version.files for version in found.values() if version is not None}) == 3
    assert (await recorded(fleet, alone)).first.version == found["keeper"]


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_the_pictures_of_a_tool_are_files(fleet: Served, tmp_path: Path, era: str) -> None:
    run = await asked(fleet, "find lamps", "clerk", era, conversation_id=f"thread of {era}")
    said = await typed("record", run, "-o", str(tmp_path / "found"), "-p", str(fleet.root))
    assert said == f"{tmp_path}/found: 1 run, 5 steps\n"
    found = tmp_path / "found"
    (file,) = (found / "pictures").iterdir()
    assert file.read_bytes() == base64.b64decode(PICTURE)
    call = yaml.safe_load((found / "1-clerk" / "004-tool-shelf__look.yaml").read_text())
    assert call["request"] == {"name": "shelf__look", "arguments": {"at": "lamps"}}
    assert call["response"]["content"][0]["data"] == f"picture:{file.name}"
    assert read(found).missing == ()
    before = {path: path.read_bytes() for path in found.rglob("*") if path.is_file()}
    await typed("record", run, "-o", str(found), "-p", str(fleet.root))
    assert {path: path.read_bytes() for path in found.rglob("*") if path.is_file()} == before


async def test_what_was_said_before_in_the_conversation_is_recorded(fleet: Served) -> None:
    await asked(fleet, "hello", "clerk", conversation_id="a longer one")
    await asked(fleet, "find lamps", "clerk", conversation_id="a longer one")
    run = await asked(fleet, "hello", "clerk", conversation_id="a longer one")
    recording = await recorded(fleet, run)
    assert recording.first.question == "hello"
    assert recording.first.answer == "hello, turn 3"
    assert [(each.role, each.text) for each in recording.history[:3]] == [
        ("user", "hello"), ("assistant", "hello, turn 1"), ("user", "find lamps"),
    ]  # fmt: skip
    assert [each.role for each in recording.history[3:]] == [
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [call.name for each in recording.history for call in each.calls] == ["shelf__find", "shelf__look"]


async def test_a_run_that_nobody_remembers_is_recorded_too(fleet: Served) -> None:
    image = {"data": PICTURE, "mime_type": "image/png"}
    run = await asked(fleet, "find lamps", "clerk", images=[image])
    recording = await recorded(fleet, run)
    assert (recording.first.question, recording.first.answer) == ("find lamps", "three lamps, seen")
    assert [each.data for each in recording.first.images] == [PICTURE]
    assert recording.first.steps[3].response == json.dumps(
        {"content": [{"type": "image", "data": PICTURE, "mimeType": "image/png"}]}, separators=(",", ":")
    )
    assert recording.missing == ()


async def test_a_run_that_is_unknown_is_not_recorded(fleet: Served) -> None:
    async with rest(fleet) as http:
        assert (await http.get("/runs/nobody/recording")).status_code == 404
    status, out, err = await command("record", "nobody", "-p", str(fleet.root))
    assert (status, out) == (1, "")
    assert err.startswith("run/nobody: run not found")


async def test_a_run_that_goes_on_is_refused(fleet: Served) -> None:
    async with (
        rest(fleet) as http,
        http.stream("POST", "/agents/clerk/chat", json={"message": "wait", "stream": True}) as answer,
    ):
        run = answer.headers["pallas-run-id"]
        async with rest(fleet) as other:
            refused = await other.get(f"/runs/{run}/recording")
            assert refused.status_code == 409
            assert "the run is not over; record it when it has ended" in refused.text
            await other.delete(f"/runs/{run}")


@pytest.mark.slow
async def test_every_run_is_recorded_until_the_command_is_interrupted(fleet: Served, tmp_path: Path) -> None:
    await asked(fleet, "How many?")  # it ends before, and is not recorded
    async with (
        rest(fleet) as http,
        http.stream("POST", "/agents/clerk/chat", json={"message": "wait", "stream": True}) as answer,
    ):
        began_before = answer.headers["pallas-run-id"]
        async with recording_all(fleet, tmp_path):
            run = await asked(fleet, "How many?")
            await until(lambda: (tmp_path / f"lead-{run}" / "recording.yaml").exists(), timeout=60)
            async with rest(fleet) as other:
                await other.delete(f"/runs/{began_before}")
            expected = {f"lead-{run}", f"clerk-{began_before}"}
            await until(lambda: {path.name for path in tmp_path.iterdir()} == expected, timeout=60)


@asynccontextmanager
async def recording_all(fleet: Served, folder: Path) -> AsyncIterator[None]:
    """`pallas record --all` in this block, until SIGTERM."""
    process = await start_async(
        "record", "--all", "-o", str(folder), "-p", str(fleet.root), stdout=PIPE, stderr=PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            assert (await process.stdout.readline()).startswith(b"recording every run into")
        yield
    finally:
        process.terminate()  # not SIGINT, which a shell has ignored in what it starts in the background
        try:
            async with asyncio.timeout(60):
                await process.communicate()
        finally:
            if process.returncode is None:
                process.kill()
    assert process.returncode == -signal.SIGTERM


async def compared(fleet: Served, *words: str) -> tuple[int, str]:
    """The status of `pallas diff --exit-code` and what it wrote."""
    words = ("diff", *words, "--exit-code", "-p", str(fleet.root))
    status, out, err = await command(*words, cwd=fleet.root)
    return status, out + err


@pytest.mark.slow
@pytest.mark.parametrize("era", MODERN_FIRST)
async def test_two_runs_of_a_fleet_are_compared(fleet: Served, tmp_path: Path, era: str) -> None:
    runs = [await asked(fleet, "How many?", era=era), await asked(fleet, "How many?", era=era)]
    other = await asked(fleet, "hello", era=era)
    status, said = await compared(fleet, *runs)
    assert (status, said.splitlines()[2:]) == (0, ["Nothing differs but ids, tokens and time."])
    await typed("record", runs[0], "-o", str(tmp_path / "kept"), "-p", str(fleet.root))
    assert (await compared(fleet, str(tmp_path / "kept"), runs[1]))[0] == 0
    status, said = await compared(fleet, str(tmp_path / "kept"), other)
    assert status == 1
    assert "They differ first at run of lead (question, answer)" in said
    assert re.search(r"^-   \d          agent keeper  \{\"message\": \"count lamps\"\}$", said, re.MULTILINE)
    assert "  [-How many?-]{+hello+}\n" in said
    # The status is 2 where one of them cannot be read.
    for wrong, why in (
        ("nobody", "run not found"),
        (str(tmp_path), "no recording"),
        ("./no/folder", "there is no such folder or archive"),
    ):
        status, said = await compared(fleet, runs[0], wrong)
        assert status == 2
        assert why in said


@pytest.mark.slow
async def test_a_workbench_compares_runs_of_a_fleet_elsewhere(fleet: Served) -> None:
    runs = [await asked(fleet, "find lamps", "clerk"), await asked(fleet, "hello", "clerk")]
    elsewhere = RemoteFleet(fleet.registry, TokenSource(fleet.registry))
    elsewhere.start()
    try:
        await until(lambda: elsewhere.snapshot().agents)
        found = await compare(elsewhere, *runs)
        same = await compare(elsewhere, runs[0], runs[0])
    finally:
        elsewhere.stop()
    assert same.found.is_same
    assert found.found.first_divergence is found.found.run
    assert [each.mark for each in found.found.run.steps] == ["changed", "removed", "removed"]


@dataclass(frozen=True, slots=True)
class Secrets:
    """Recordings of runs with secrets: keys, variables, tokens of callers and URLs, in questions, arguments,
    results, headers and history. ``variables`` are those of the fleet's environment.
    """

    root: Path
    variables: dict[str, str]
    canaries: list[str]
    archives: list[bytes]

    def found_in(self, data: bytes) -> list[str]:
        """Those that are in these bytes."""
        return [each for each in self.canaries if each.encode() in data]


def noting_project(root: Path) -> Path:
    """``recorded_project``, whose clerk calls a function with each secret too."""
    recorded_project(root)
    clerk, script = root / "agents" / "clerk.py", root / "model.yaml"
    note = (
        'async def note(what: str) -> str:\n    """Note it."""\n    return f"noted {what}"\n\n\n@fast.agent('
    )
    clerk.write_text(clerk.read_text().replace("@fast.agent(", f"{note}function_tools=[note], "))
    call = '[{tool: shelf__find, arguments: {what: "{{ last }}"}}'
    both = f'{call}, {{tool: note, arguments: {{what: "{{{{ last }}}}"}}}}'
    assert call in script.read_text()
    script.write_text(script.read_text().replace(call, both))
    return root


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def secrets(tmp_path_factory: pytest.TempPathFactory) -> Secrets:
    key, variable, url = (f"canary-{what}-4be1c0d2a7" for what in ("key", "variable", "url"))
    found = Secrets(
        noting_project(tmp_path_factory.mktemp("secrets") / "p"),
        {"SHELF_PASSWORD": variable, "GENERIC_API_KEY": key},
        [key, variable, url],
        [],
    )
    with served(found.root, **found.variables) as fleet:
        await fleet.says("] running")
        for number in range(50):
            bearer = f"canary-{number:02}-bearer-77aa{number * 7919:08x}"
            signed = f"sk-proj-canary{number:02}{number * 104729:024x}"
            typed_in = f"password=canary{number:02}x{number * 15485863:012x}"
            in_url = f"https://user:canary{number:02}y{number * 32452843:012x}@shop.example/"
            in_query = (
                f"https://shop.example/find?access_token=canary{number:02}z{number * 49979687:012x}&page=2"
            )
            found.canaries.extend((bearer, signed, typed_in.partition("=")[2], in_url[13:33]))
            found.canaries.append(in_query.partition("=")[2].partition("&")[0])
            text = f"secret {bearer} {signed} {typed_in} {in_url} {variable} {in_query}"
            async with rest(fleet) as http:
                http.headers["authorization"] = f"Bearer {bearer}"
                body = {"message": text}
                for _ in range(2):  # the second has the first in its history
                    answer = await http.post("/agents/clerk/chat", json=body)
                    assert answer.status_code == 200, answer.text
                    body["threadId"] = answer.json()["threadId"]
                run = answer.json()["runId"]
                found.archives.append((await http.get(f"/runs/{run}/recording")).content)
    assert len(found.canaries) > 250
    return found


def noted(kind: str, text: str) -> bytes:
    """A picture with a text in each place that its kind has for notes."""
    picture, buffer = PIL.Image.new("RGB", (8, 6), (200, 30, 30)), BytesIO()
    exif, notes = PIL.Image.Exif(), PngInfo()
    exif[0x010E] = text  # ImageDescription
    notes.add_text("plain", text)
    notes.add_itxt("international", text, zip=True)
    notes.add_text("compressed", text, zip=True)
    if kind == "GIF":
        return noted_gif(text)
    more = {"PNG": {"pnginfo": notes}, "JPEG": {"comment": text}, "WEBP": {"xmp": text}}[kind]
    picture.save(buffer, kind, exif=exif, **more)
    return buffer.getvalue() + text.encode()  # behind its end


def noted_gif(text: str) -> bytes:
    """Two pictures that repeat, with a text in comments of several blocks, as XMP, and behind the end."""
    pictures, buffer = [PIL.Image.new("RGB", (8, 6), each) for each in ("red", "blue")], BytesIO()
    pictures[0].save(
        buffer, "GIF", save_all=True, append_images=pictures[1:], loop=3, comment=f"{'-' * 250}{text}"
    )
    xmp = b"\x21\xff\x0bXMP DataXMP" + f"<x:xmpmeta>{text}</x:xmpmeta>".encode()
    xmp += b"\x01" + bytes(range(255, -1, -1)) + b"\x00"
    data = buffer.getvalue()
    assert data[-1:] == b";"
    return data[:-1] + xmp + b";" + text.encode()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
async def test_no_secret_in_a_picture_is_in_its_recording(fleet: Served, tmp_path: Path, kind: str) -> None:
    secret = "sk-proj-canary0123456789abcdefghijklmnop"
    harmless, telling = noted(kind, "Taken in May"), noted(kind, f"key {secret}")
    for data in (harmless, telling):
        image = {"data": base64.b64encode(data).decode(), "mime_type": f"image/{kind.lower()}"}
        run = await asked(fleet, "find lamps", "clerk", images=[image])
        folder = tmp_path / run
        assert await typed("record", run, "-o", str(folder), "-p", str(fleet.root)) is not None
        kept = read(folder).first.images[0]
        (picture,) = [each for each in (folder / "pictures").iterdir() if each.stat().st_size < 5_000]
        assert base64.b64decode(kept.data) == picture.read_bytes()
        with PIL.Image.open(picture) as before, PIL.Image.open(BytesIO(data)) as now:
            assert before.tobytes() == now.tobytes()
            assert before.info.get("loop") == now.info.get("loop")
            assert getattr(before, "n_frames", 1) == getattr(now, "n_frames", 1)
        assert (picture.read_bytes() == data) is (data is harmless)
        assert "the same as the recording" in await typed("replay", str(folder), "-p", str(fleet.root))
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    with PIL.Image.open(picture) as found:
        assert secret not in repr(found.info) + repr(dict(found.getexif()))
    for form in forms(telling):
        assert not [each for each in files if form in each]


def forms(picture: bytes) -> list[bytes]:
    """A picture with a secret, as it may be in a file: itself, and most of it in base64."""
    return [picture, base64.b64encode(picture)[:-8]]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.asyncio(loop_scope="module")
async def test_no_secret_is_in_a_recording(secrets: Secrets) -> None:
    for archive in secrets.archives:
        recording = read_archive(archive)
        assert "secret [redacted]" in recording.first.question
        assert "secret [redacted]" in recording.history[0].text
        assert secrets.found_in(archive) == []
        assert "local__note" in {each.step.name for each in recording.first.steps}
        assert_fits(recording)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.asyncio(loop_scope="module")
async def test_no_secret_is_in_a_kept_test_in_its_reports_a_diff_and_a_verdict(
    secrets: Secrets, tmp_path: Path
) -> None:
    root, variables = secrets.root, {**os.environ, **secrets.variables}
    for number, archive in enumerate(secrets.archives):
        path = keep(read_archive(archive), root, f"kept-{number:02}")
        if number % 2:  # what fails repeats what was said and called
            document = yaml.safe_load(path.read_text())
            wrong = {"answer": {"contains": "no"}, "calls": {"arguments": {"shelf__find": {"$.what": "no"}}}}
            path.write_text(yaml.safe_dump({**document, "expect": wrong}))
    kept = b"".join(path.read_bytes() for path in (root / "tests").rglob("*") if path.is_file())
    assert b"[redacted]" in kept
    assert secrets.found_in(kept) == []

    junit, summary = tmp_path / "junit.xml", tmp_path / "summary.md"
    told = b""
    for more in ((), ("-o", "json")):
        words = ("test", "-p", str(root), "--junit", str(junit), "--summary", str(summary), *more)
        done = await asyncio.to_thread(start_and_end, words, variables)
        assert done.returncode == 1, done.stderr
        told += done.stdout + done.stderr
    assert b"25 passed, 25 failed" in told
    assert b"[redacted]" in told
    reports = told + junit.read_bytes() + summary.read_bytes()
    assert secrets.found_in(reports) == []

    recordings = sorted((root / "tests" / "agents").glob("*.recording"))
    for before, after in pairwise(recordings[:4]):
        for more in ((), ("-o", "json")):
            done = await asyncio.to_thread(start_and_end, ("diff", str(before), str(after), *more), variables)
            assert done.returncode == 0, done.stderr
            assert secrets.found_in(done.stdout + done.stderr) == []

    # It is saved now, so neither the variables nor the ledger know it.
    new = f"sk-proj-canary{'0123456789abcdef' * 2}"
    edit(root / "agents" / "clerk.py", "You are clerk.", f"You are clerk. Use {new}, password={new[8:]}.")
    done = await asyncio.to_thread(start_and_end, ("verdict", "-p", str(root), "--json"), variables)
    runs = json.loads(done.stdout)["runs"]
    assert {(each["word"], each["what"]) for each in runs} == {
        ("other words", "another model request: messages[0].content")
    }, done.stderr
    assert len(runs) == 50
    assert all("You are clerk. Use [redacted]" in each["after"] for each in runs)
    assert secrets.found_in(done.stdout + done.stderr) == []
    assert new[8:].encode() not in done.stdout + done.stderr


def start_and_end(words: Sequence[str], variables: Mapping[str, str]) -> "subprocess.CompletedProcess[bytes]":
    """A command in that environment, to its end."""
    return pallas_process.run(*words, env=variables, capture_output=True, timeout=120)


@pytest.mark.slow
async def test_a_run_is_recorded_when_its_fleet_has_ended(tmp_path: Path) -> None:
    root = recorded_project(tmp_path / "p")
    with served(root) as fleet:
        await fleet.says("] running")
        run = await asked(fleet, "find lamps", "clerk", conversation_id="a thread")
        before = await recorded(fleet, run)
    said = await typed("record", run, "-o", str(tmp_path / "found"), "-p", str(root))
    assert said == f"{tmp_path}/found: 1 run, 5 steps\n"
    assert archive_of(read(tmp_path / "found")) == archive_of(before)
    assert "4 (called by step 3)  tool shelf__look" in await typed("describe", "run", run, "-p", str(root))
