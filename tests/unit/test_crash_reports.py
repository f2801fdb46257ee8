"""What is written when something breaks: enough, clean, without secrets, and not for ever."""

from pathlib import Path

import pytest

from pallas.model.redaction import forget, redact
from pallas_tui.diagnostics import as_text, paths, terminal, versions
from pallas_tui.shell.error_boundary import MAX_REPORTS, in_one_line, report, save_report, traceback_of

SECRET = "correct-horse-battery-staple"


def failing() -> BaseException:
    key = SECRET  # a local variable

    def deeper(value: str) -> None:
        bearer = "abcdef" + "123456"  # source lines are shown; what they make is masked
        raise ValueError(f"\x1b[31mno good: {value}\u202e\nBearer {bearer}")

    try:
        deeper(key)
    except ValueError as error:
        return error
    raise AssertionError


def test_a_report_has_the_traceback_without_values_secrets_and_escapes() -> None:
    redact(SECRET)
    try:
        error = failing()
        text = report(error, "in the feed pane", "Versions\n  textual 1", ["show", "zoom"])
        assert "an error in the feed pane" in text
        assert "in deeper" in text
        assert "Last actions\n  show\n  zoom" in text
        for leaked in (SECRET, "abcdef123456", "\x1b", "\u202e"):
            assert leaked not in text
        line = in_one_line(error)
        assert line.startswith("ValueError: ")
        assert "\n" not in line
        assert len(line) < 200
        assert SECRET not in traceback_of(error)
    finally:
        forget(SECRET)


def test_an_endless_recursion_is_a_report_of_reasonable_size() -> None:
    def again(number: int) -> int:
        return again(number + 1) + 1

    with pytest.raises(RecursionError) as caught:
        again(0)
    assert len(traceback_of(caught.value)) < 50_000


def test_reports_are_for_their_user_alone_and_only_the_last_stay(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "crashes"
    saved = [
        save_report(folder, f"report {number}", 1_000_000_000 + number) for number in range(MAX_REPORTS + 3)
    ]
    kept = sorted(folder.iterdir())
    assert len(kept) == MAX_REPORTS
    assert saved[-1] is not None
    assert saved[-1].read_text() == f"report {MAX_REPORTS + 2}"
    assert {path.stat().st_mode & 0o777 for path in kept} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700


def test_a_disk_that_takes_no_report_is_no_second_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert save_report(tmp_path / "file" / "crashes", "text") is None


def test_facts_name_no_value_that_could_be_secret() -> None:
    environ = {
        "TERM": "foot\x1b[2J",
        "SSH_CONNECTION": "10.0.0.1 22",
        "OPENAI_API_KEY": SECRET,
        "TMUX": "/tmp/x",
    }
    told = terminal((80, 24), "truecolor", plain=False, theme="nord", environ=environ)
    text = as_text((versions(), told, paths({"log": Path.home() / "x.log", "none": None})))
    assert "in tmux              yes" in text
    assert "over ssh             yes" in text
    assert "~/x.log" in text
    assert "none" not in text
    assert "textual" in text
    for leaked in (SECRET, "10.0.0.1", "\x1b", str(Path.home())):
        assert leaked not in text
