"""A recording as files: readable, the same each time, and the same again when it is read."""

import base64
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.properties import examples
from support.recording_files import assert_fits, documents_in, mistakes_in

from benchmarks.invented_runs import long_plot, recorded
from pallas.model import (
    Image,
    Message,
    RecordedRun,
    Recording,
    Step,
    StepAttempt,
    StepDetail,
    StepUsage,
    ToolAnswer,
    ToolCall,
)
from pallas.model.codec import loads
from pallas.recordings import recording_documents, recording_folder
from pallas.recordings.diff_lines import detail_lines, row_line
from pallas.recordings.recording_folder import BadRecording, archive_of, files_of, read, read_archive, write
from pallas.recordings.run_diff import diff
from pallas.safe_text import sanitize, without_controls

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(200))).decode()
SYSTEM = {"role": "system", "content": "Be brief.\nBe right."}
ASKED = {"role": "user", "content": "How many?"}
CALLED = {"role": "assistant", "tool_calls": [{"id": "c1", "function": {"name": "shop__count"}}]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "7"}
TOOLS = [{"type": "function", "function": {"name": "shop__count", "description": "Count."}}]


def model(number: int, messages: list[Any], answer: Any, **fields: Any) -> StepDetail:
    request = {"model": "m", "messages": messages, "tools": TOOLS, **fields}
    step = Step(
        "r1",
        number,
        "model",
        "m",
        1000.25 + number,
        "done",
        seconds=0.5,
        first_token=0.1,
        attempts=(StepAttempt(1000.25 + number, 200, 0.5),),
        usage=StepUsage(10, 2),
        digest="ab" * 32,
    )
    return StepDetail(step, json.dumps(request), json.dumps(answer), (("content-type", "application/json"),))


def call(number: int, response: Any) -> StepDetail:
    step = Step(
        "r1", number, "tool", "shop__count", 1002.0, "done", parent=1, call_id="r1.1", span_id="5" * 16
    )
    return StepDetail(
        step, json.dumps({"name": "shop__count", "arguments": {"of": "lamps"}}), json.dumps(response)
    )


def whole() -> Recording:
    steps = (
        model(1, [SYSTEM, ASKED], {"choices": [{"message": CALLED}]}),
        call(
            2,
            {
                "content": [
                    {"type": "text", "text": "7"},
                    {"type": "image", "data": PNG, "mimeType": "image/png"},
                ]
            },
        ),
        model(3, [SYSTEM, ASKED, CALLED, RESULT], {"choices": [{"message": {"content": "Seven."}}]}),
    )
    first = RecordedRun(
        "r1", "clerk", "How many?", "Seven.", (Image(PNG, "image/png"),), "llm", "ok", "", 1001.0, 2.5, 20, 4,
        steps=steps,
    )  # fmt: skip
    second = RecordedRun("r2", "counter", "lamps", "7", parent="r1", parent_step=2, started_at=1002.1)
    history = (
        Message("user", "Hello", (Image(PNG, "image/png"),)),
        Message("assistant", "", calls=(ToolCall("c0", "shop__list", {"a": 1}),)),
        Message("tool", "none", answers=(ToolAnswer("c0", "none", ok=False),)),
    )
    return Recording("lamps", (first, second), history, ("run r2 of counter: its first 3 steps",))


def seen(recording: Recording) -> Any:
    """What a recording says, with its JSON texts as values and its times relative."""
    began = recording.first.started_at

    def at(time: float) -> float:
        return round(time - began, 6)

    def detail(each: StepDetail) -> Any:
        attempts = tuple(replace(attempt, at=at(attempt.at)) for attempt in each.step.attempts)
        step = replace(each.step, started_at=at(each.step.started_at), attempts=attempts)
        texts = (loads(text) if text else None for text in (each.request, each.response))
        return step, *texts, each.headers

    runs = [
        (
            replace(run, started_at=at(run.started_at), seconds=round(run.seconds, 6), steps=()),
            list(map(detail, run.steps)),
        )
        for run in recording.runs
    ]
    return recording.project, runs, recording.history, recording.missing


def test_a_recording_is_the_same_when_it_is_read_from_a_folder_and_from_an_archive(tmp_path: Path) -> None:
    recording = whole()
    write(recording, tmp_path / "made")
    assert seen(read(tmp_path / "made")) == seen(recording)
    archive = archive_of(recording)
    assert seen(read_archive(archive)) == seen(recording)
    (tmp_path / "one.tar").write_bytes(archive)
    assert seen(read(tmp_path / "one.tar")) == seen(recording)


def test_the_same_recording_gives_the_same_bytes(tmp_path: Path) -> None:
    assert archive_of(whole()) == archive_of(whole())
    write(whole(), tmp_path)
    again = read(tmp_path)
    assert files_of(again) == files_of(whole())


@pytest.mark.slow
def test_more_than_999_steps_are_read_in_their_order() -> None:
    again = read_archive(archive_of(recorded(long_plot(1_002, words=1))))
    assert [each.step.number for each in again.first.steps] == list(range(1, 1_003))


def test_a_person_can_read_the_files() -> None:
    files = files_of(whole())
    assert sorted(files) == [
        "1-clerk/001-model.yaml",
        "1-clerk/002-tool-shop__count.yaml",
        "1-clerk/003-model.yaml",
        "1-clerk/run.yaml",
        "2-counter/run.yaml",
        "history.yaml",
        "pictures/895a900e696d61e5.png",
        "recording.yaml",
    ]
    assert files["pictures/895a900e696d61e5.png"] == base64.b64decode(PNG)
    first = files["1-clerk/001-model.yaml"].decode()
    assert "content: |-\n" in first
    assert "Be brief.\n" in first
    # The request of a later step says only what is new.
    last = yaml.safe_load(files["1-clerk/003-model.yaml"])
    assert last["as_in"] == {"step": 1, "fields": ["model", "tools"], "messages": 2}
    assert last["request"] == {"messages": [CALLED, RESULT]}
    assert yaml.safe_load(files["2-counter/run.yaml"])["parent"] == "1-clerk"
    result = yaml.safe_load(files["1-clerk/002-tool-shop__count.yaml"])["response"]["content"][1]
    assert result["data"] == "picture:895a900e696d61e5.png"


def test_a_long_run_takes_as_much_space_as_what_it_says() -> None:
    def size(turns: int) -> int:
        messages: list[Any] = [SYSTEM]
        steps = []
        for number in range(1, turns + 1):
            messages = [*messages, {"role": "user", "content": f"message {number} " * 20}]
            steps.append(model(number, messages, {}))
        run = RecordedRun("r1", "clerk", "go", steps=tuple(steps))
        return len(archive_of(Recording("p", (run,))))

    assert size(200) < 2.2 * size(100)


def test_a_folder_is_written_again_without_what_was_in_it_before(tmp_path: Path) -> None:
    write(whole(), tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    run = RecordedRun("r9", "clerk", "Hi", "Ho")
    write(Recording("lamps", (run,)), tmp_path)
    left = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file())
    assert left == ["1-clerk/run.yaml", "notes.txt", "recording.yaml"]


TEXT = st.text().map(without_controls)
NAMES = st.text(max_size=8).map(without_controls)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@given(
    st.lists(st.dictionaries(st.sampled_from(["model", "messages", "tools", "x"]), JSON), max_size=4), JSON
)
def test_any_request_and_response_come_back(requests: list[Any], response: Any) -> None:
    said = json.dumps(response)
    steps = tuple(
        StepDetail(Step("r1", number, "model", "m", 0.0), json.dumps(request), said if number % 2 else "")
        for number, request in enumerate(requests, 1)
    )
    recording = Recording("p", (RecordedRun("r1", "clerk", "picture:x", "json:[1]", steps=steps),))
    found = read_archive(archive_of(recording))
    for before, after in zip(steps, found.first.steps, strict=True):
        assert loads(after.request) == loads(before.request)
        wanted = loads(before.response) if before.response else None
        assert (loads(after.response) if after.response else None) == wanted
    assert (found.first.question, found.first.answer) == ("picture:x", "json:[1]")


def test_what_was_said_comes_back_with_every_joiner_and_mark(tmp_path: Path) -> None:
    said = "می\u200cخواهم क्\u200dष soft\u00adhyphen \u200fab 葛\U000e0100 \ufeff"
    step = StepDetail(
        Step("r1", 1, "model", "m", 0.0), json.dumps({"messages": [said]}), json.dumps({"a": said})
    )
    run = RecordedRun("r1", "clerk", said, said, steps=(step,), params={"instruction": said})
    write(Recording("p", (run,), (Message("user", said),)), tmp_path)
    found = read(tmp_path)
    assert (found.first.question, found.first.answer, found.first.params) == (
        said,
        said,
        {"instruction": said},
    )
    assert found.history[0].text == said
    (again,) = found.first.steps
    assert (loads(again.request), loads(again.response)) == ({"messages": [said]}, {"a": said})


def test_a_value_that_is_nested_deeper_than_yaml_may_be_comes_back() -> None:
    deep: Any = "end"
    for _ in range(150):
        deep = [deep]
    recording = Recording("p", (RecordedRun("r1", "clerk", "go", steps=(call(1, {"content": deep}),)),))
    assert loads(read_archive(archive_of(recording)).first.steps[0].response) == {"content": deep}


def broken(files: dict[str, bytes], tmp_path: Path) -> str:
    for name, data in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    with pytest.raises(BadRecording) as caught:
        read(tmp_path)
    return str(caught.value).removeprefix(f"{tmp_path}")


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        ("recording.yaml", None, ": no recording, for it has no recording.yaml; `pallas record RUN` makes"),
        ("recording.yaml", b"format: 2\nruns: [1-clerk]\n", "/recording.yaml: format is 2, and this release"),
        ("recording.yaml", b"format: 1\n", "/recording.yaml: runs must name at least one run"),
        ("1-clerk/run.yaml", None, "/1-clerk/run.yaml: is missing"),
        ("1-clerk/run.yaml", b"agent: [\n", "/1-clerk/run.yaml:2: not YAML"),
        ("1-clerk/run.yaml", b"- 1\n", "/1-clerk/run.yaml:1: must be a mapping"),
        ("1-clerk/run.yaml", b"agent: 3\nid: r1\nquestion: x\n", "/1-clerk/run.yaml: RecordedRun.agent"),
        ("1-clerk/001-model.yaml", b"kind: a\nname: m\nstarted_at: 0\n", "/1-clerk/001-model.yaml: Step"),
        ("1-clerk/001-model.yaml", None, "/1-clerk/003-model.yaml: as_in: there is no request of step 1"),
        ("1-clerk/001-model.yaml", b"kind: model\nname: m\nstarted_at: 0\nheaders: [1]\n",
         "/1-clerk/001-model.yaml: headers must be a mapping"),
        ("1-clerk/003-model.yaml", b"kind: model\nname: m\nstarted_at: 0\nas_in: [1]\n",
         "/1-clerk/003-model.yaml: as_in must be a mapping"),
        ("1-clerk/003-model.yaml", b"kind: model\nname: m\nstarted_at: 0\nas_in: {step: [1]}\n",
         "/1-clerk/003-model.yaml: as_in: there is no request of step [1]"),
        ("1-clerk/001-model.yaml", b"kind: model\nname: 2024-01-01\nstarted_at: 0\n",
         "/1-clerk/001-model.yaml: has a date (2024-01-01); put texts in quotes"),
        ("1-clerk/001-model.yaml", b"request: &a {all: [*a]}\n", "/1-clerk/001-model.yaml: has an alias (*)"),
        ("1-clerk/" + "9" * 100 + "-model.yaml", b"kind: model\nname: m\nstarted_at: 0\n",
         "/1-clerk/" + "9" * 100 + "-model.yaml: its name must begin with the number of the step"),
        ("2-counter/run.yaml", b"id: r1\nagent: a\nquestion: x\n", "/recording.yaml: runs names a run twice"),
        ("1-clerk/run.yaml", b"id: r1\nagent: a\nquestion: x\nparent: 1-clerk\n",
         "/1-clerk/run.yaml: parent names no run before it"),
        ("1-clerk/run.yaml", b"id: r1\nagent: a\nquestion: x\nimages: [1]\n",
         "/1-clerk/run.yaml: a picture must be a mapping"),
        ("history.yaml", b"messages: [1]\n", "/history.yaml: a message must be a mapping"),
        ("history.yaml", b"messages: 1\n", "/history.yaml: messages must be a list"),
        ("recording.yaml", b"format: 1\nruns: [1-clerk]\nmissing: 1\n", "/recording.yaml: missing must be"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_with_its_name(
    tmp_path: Path, name: str, data: bytes | None, said: str
) -> None:
    files = files_of(whole())
    if data is None:
        del files[name]
    else:
        files[name] = data
    assert broken(files, tmp_path).startswith(said)


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.binary(max_size=4) | st.dates() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def places(value: Any, *at: Any) -> Iterator[tuple[Any, ...]]:
    """The paths of all values in a document."""
    yield at
    if isinstance(value, dict | list):
        for name, each in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(each, *at, name)


@pytest.mark.slow
@examples(200)
@given(st.data())
def test_a_document_in_which_anything_was_changed_is_read_or_refused(data: st.DataObject) -> None:
    files = files_of(whole())
    file = data.draw(st.sampled_from([name for name in files if name.endswith(".yaml")]))
    document: Any = {"whole": yaml.safe_load(files[file])}
    *at, last = data.draw(st.sampled_from(list(places(document))[1:]))
    within: Any = document
    for name in at:
        within = within[name]
    if data.draw(st.booleans()) and at:
        del within[last]
    else:
        within[last] = data.draw(ODD)
    files[file] = yaml.safe_dump(document["whole"]).encode()
    try:
        found = read_archive(tar_of(files))
    except BadRecording as error:
        assert str(error).startswith("the archive")
    else:
        files_of(found)


def tar_of(files: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def test_a_folder_with_something_else_in_it_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with pytest.raises(BadRecording, match="there is something else in it; choose another folder"):
        write(whole(), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_an_archive_that_is_none_and_a_path_that_is_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadRecording, match="no tar archive"):
        read_archive(b"hello" * 500)
    with pytest.raises(BadRecording, match="there is no such folder or archive"):
        read(tmp_path / "nowhere")


def test_all_members_of_an_archive_together_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {f"{number}.yaml": b"x: 1\n" * 200 for number in range(10)}
    assert "it has no recording.yaml" in refused(tar_of(files))
    monkeypatch.setattr(recording_folder, "MAX_BYTES", 9_999)
    assert "more than 20000 files or 0 MiB" in refused(tar_of(files))
    monkeypatch.undo()
    monkeypatch.setattr(recording_folder, "MAX_FILES", 9)
    assert "more than 9 files or 512 MiB" in refused(tar_of(files))
    folders = io.BytesIO()
    with tarfile.open(fileobj=folders, mode="w") as archive:
        for number in range(10):
            entry = tarfile.TarInfo(f"folder{number}")
            entry.type = tarfile.DIRTYPE
            archive.addfile(entry)
    assert "more than 9 files" in refused(folders.getvalue())


def refused(archive: bytes) -> str:
    with pytest.raises(BadRecording) as caught:
        read_archive(archive, "it")
    return str(caught.value)


def with_records(**records: str) -> bytes:
    """An archive whose member has these records of the PAX format."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        entry = tarfile.TarInfo("1-clerk/001-model.yaml")
        entry.size, entry.pax_headers = 1, {name.replace("_", "."): each for name, each in records.items()}
        archive.addfile(entry, io.BytesIO(b" "))
    return buffer.getvalue()


def test_an_archive_that_is_hostile_is_refused() -> None:
    size = str(2**40)
    assert "more than 20000 files" in refused(with_records(GNU_sparse_map="0,1", GNU_sparse_size=size))
    assert "no tar archive" in refused(with_records(GNU_sparse_map="0,x", GNU_sparse_size="7"))
    negative = with_records(GNU_sparse_map="0,1", GNU_sparse_size=str(-(2**40)))
    assert "it has no recording.yaml" in refused(negative)
    cut = tar_of({"recording.yaml": b"format: 1\n" * 200})
    assert refused(cut[:1_000]).startswith("it")


def test_a_large_or_strange_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording_folder, "MAX_BYTES", 2_000)
    monkeypatch.setattr(Path, "read_bytes", lambda path: pytest.fail(f"{path} was read"))
    (tmp_path / "large.tar").write_bytes(b" " * 2_001)
    with pytest.raises(BadRecording, match="more than 20000 files or 0 MiB"):
        read(tmp_path / "large.tar")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(BadRecording, match="there is no such folder or archive"):
        read(tmp_path / "pipe")


def test_requests_that_repeat_each_other_have_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = tuple(model(number, [SYSTEM, ASKED], {}) for number in range(1, 20))
    archive = archive_of(Recording("p", (RecordedRun("r1", "clerk", "go", steps=steps),)))
    monkeypatch.setattr(recording_documents, "MAX_CHARACTERS", sum(len(each.request) for each in steps) // 2)
    assert "requests and responses have too many characters" in refused(archive)


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        value = (*value, *value.values())
    if isinstance(value, list | tuple):
        for each in value:
            yield from texts_in(each)
    if isinstance(value, str):
        yield value


CONTROLS = "\x1b]0;owned\x07 \x1b[2J \x9b31m \u202e"


def test_control_codes_in_a_recording_are_made_visible_when_it_is_read() -> None:
    """In names and texts of its files, also where an error repeats them."""
    folder, all_of = sanitize(CONTROLS), {CONTROLS: [CONTROLS]}
    step = {"kind": "model", "name": CONTROLS, "started_at": 0, "headers": {CONTROLS: CONTROLS}}
    files = {
        "recording.yaml": {"format": 1, "runs": [CONTROLS], "project": CONTROLS, "missing": [CONTROLS]},
        f"{folder}/run.yaml": {"id": CONTROLS, "agent": CONTROLS, "question": CONTROLS, "params": all_of},
        f"{folder}/001-model.yaml": {**step, "request": all_of, "response": CONTROLS},
        "history.yaml": {"messages": [{"role": "user", "text": CONTROLS}]},
    }
    deep: Any = "json:" + json.dumps(all_of)
    for _ in range(recording_documents.MAX_DEPTH + 1):
        deep = [deep]
    other = {**files, f"{folder}/001-model.yaml": {**step, "request": deep, "response": all_of}}
    before, after = (
        read_archive(tar_of({name: yaml.safe_dump(document).encode() for name, document in each.items()}))
        for each in (files, other)
    )
    requests = [loads(each.request) for each in (*before.first.steps, *after.first.steps)]
    names = [(each.project, each.missing, each.first.id, each.first.agent) for each in (before, after)]
    names += [(each.step.name, *each.headers) for each in (*before.first.steps, *after.first.steps)]
    for row in diff(before, after).rows():
        names += [text for line in (row_line(row), *detail_lines(row.node)) for text, _ in line]
    shown = list(texts_in(names))
    assert len([each for each in shown if "owned" in each]) > 10
    assert [each for each in shown if sanitize(each) != each] == []
    # What was said stays as it is, but drives no terminal.
    said = list(texts_in([asdict(before), asdict(after), requests]))
    assert len([each for each in said if "owned" in each]) > 20
    assert [each for each in said if without_controls(each) != each] == []
    why = refused(tar_of({"recording.yaml": b"format: 1\nruns: [a]\n", f"{CONTROLS}.yaml": b"- 1"}))
    assert "must be a mapping" in why
    assert sanitize(why) == why


def test_names_in_an_archive_that_lead_out_of_it_are_names_like_any_other() -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("../../etc/run.yaml")
        entry.size = 2
        archive.addfile(entry, io.BytesIO(b"{}"))
    with pytest.raises(BadRecording, match=r"it has no recording\.yaml"):
        read_archive(buffer.getvalue())


SAMPLE = Path(__file__).parents[2] / "sample_project" / "tests" / "agents"


@pytest.mark.parametrize("folder", sorted(SAMPLE.glob("*.recording")), ids=lambda path: path.stem)
def test_recordings_of_real_runs_fit_the_schema(folder: Path) -> None:
    assert_fits(read(folder))


def test_all_that_a_recording_may_have_fits_the_schema() -> None:
    assert_fits(whole())


@pytest.mark.parametrize(
    ("path", "key", "value", "said"),
    [
        ("recording.yaml", "format", 2, "1 was expected"),
        ("recording.yaml", "runs", [], "non-empty"),
        ("1-clerk/run.yaml", "question", 7, "7 is not of type 'string'"),
        ("1-clerk/run.yaml", "status", "fine", "'fine' is not one of"),
        ("1-clerk/run.yaml", "steps", [], "'steps' was unexpected"),
        ("1-clerk/001-model.yaml", "state", "gone", "'gone' is not one of"),
        ("1-clerk/001-model.yaml", "as_in", {"step": 1}, "'fields' is a required property"),
        ("1-clerk/one.yaml", "kind", "model", "does not match any of the regexes"),
    ],
)
def test_what_is_no_recording_does_not_fit_the_schema(path: str, key: str, value: Any, said: str) -> None:
    documents = documents_in(files_of(whole()))
    documents.setdefault(path, {})[key] = value
    (line,) = mistakes_in(documents)
    assert said in line
