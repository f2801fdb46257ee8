"""Texts of a machine, and the marks that stand for them in digests and recordings."""

import json
from pathlib import Path

import pytest

from pallas.model import Image, RecordedRun, Recording, Step, StepDetail
from pallas.model.host_places import NOWHERE, HostPlaces
from pallas.telemetry.request_parts import PartCache

HERE = HostPlaces({"<pallas:project>": ["/home/ann/p"], "<pallas:home>": ["/home/ann"]})
THERE = HostPlaces({"<pallas:project>": ['/srv/a "b" & é'], "<pallas:home>": ["/var/ci"]})


def test_marks_stand_for_each_spelling_of_a_place(tmp_path: Path) -> None:
    real = tmp_path / "a b"
    real.mkdir()
    link = tmp_path / "link"
    link.symlink_to(real)
    places = HostPlaces.of(link)
    for text in (f"{link}/x", f"{real}/x", f"in\n{link}/x", f"file://{tmp_path}/a%20b/x", f'["{real}/x"]'):
        assert str(tmp_path) not in places.marked(text)
    for text in (f"{link}er/x", f"{link}.txt", f"/mnt{link}/x"):
        assert places.marked(text) == text
    assert places.placed("file://<pallas:project>/x y") == f"file://{link}/x y"


@pytest.mark.parametrize("name", ["messages", "input", "tools", "instructions", "model"])
@pytest.mark.parametrize("size", [1, 20_000])
def test_requests_of_two_machines_have_one_digest(name: str, size: int) -> None:
    def digest(places: HostPlaces, text: str) -> str:
        content = places.placed(text * size)
        value = [{"role": "user", "content": content}] if name in ("messages", "input") else content
        return PartCache(places=places).split(json.dumps({name: value}).encode(), "thread").digest

    text = "in\n<pallas:project>/skills, <pallas:home>/x"
    assert digest(HERE, text) == digest(THERE, text)
    assert digest(HERE, text) != digest(HERE, text.replace("skills", "tools"))
    assert digest(HERE, text) != digest(NOWHERE, HERE.placed(text))


def test_calls_of_two_machines_have_one_digest() -> None:
    def digest(places: HostPlaces) -> str:
        arguments = json.dumps({"path": places.placed("<pallas:project>/x")}).encode()
        return PartCache(places=places).split_call("read", arguments).digest

    assert digest(HERE) == digest(THERE)


def test_a_recording_goes_from_one_machine_to_another() -> None:
    step = Step("r", 1, "model", "m", 0.0)
    detail = StepDetail(step, json.dumps({"a": "/home/ann/p/x"}), json.dumps(["/home/ann/y"]))
    run = RecordedRun(
        "r", "a", "/home/ann/p?", "no", steps=(detail,), params={"x": ["/home/ann/p"]},
        images=(Image("/home/ann/p", "image/png"),),
    )  # fmt: skip
    marked = HERE.all_marked(Recording("p", (run,)))
    assert (marked.first.question, marked.first.answer) == ("<pallas:project>?", "no")
    assert marked.first.images == run.images
    there = THERE.all_placed(marked).first
    assert json.loads(there.steps[0].request) == {"a": '/srv/a "b" & é/x'}
    assert json.loads(there.steps[0].response) == ["/var/ci/y"]
    assert there.params == {"x": ['/srv/a "b" & é']}
    assert HERE.all_placed(marked) == Recording("p", (run,))
    assert THERE.all_marked(THERE.all_placed(marked)) == marked
    assert NOWHERE.all_marked(marked) is marked


def test_what_is_in_every_text_is_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/ann")
    monkeypatch.setattr("tempfile.tempdir", "/tmp")
    places = HostPlaces.of(Path("/ann/p"))
    assert places.marked("/ann /tmp/x /ann/p ~/p") == "/ann /tmp/x <pallas:project> <pallas:project>"
    assert HostPlaces.of(Path("/")).marked("/ or /x") == "/ or /x"
