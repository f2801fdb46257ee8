"""The user's own file: theme, ASCII, keys."""

from pathlib import Path

import pytest

from pallas_tui.actions import DEFAULT_KEYS
from pallas_tui.settings import VARIABLE, Settings, load_settings, settings_path, unknown_actions


def load(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "workbench.yaml"
    path.write_text(text)
    return load_settings(path)


def test_no_file_and_an_empty_file_are_no_settings(tmp_path: Path) -> None:
    assert load_settings(tmp_path / "none.yaml") == Settings()
    assert load(tmp_path, "# nothing\n") == Settings()


def test_theme_ascii_and_keys_are_taken(tmp_path: Path) -> None:
    settings = load(tmp_path, "theme: nord\nascii: true\nkeys:\n  zoom: f6,ctrl+g\n  show.chat: 7\n")
    assert settings == Settings("nord", True, {"zoom": "f6,ctrl+g", "show.chat": "7"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("them: nord", "workbench.yaml: them: unknown; allowed are theme, ascii, keys; did you mean theme?"),
        ("theme: 3", "workbench.yaml: theme: must be the name of a theme"),
        ("ascii: maybe", "workbench.yaml: ascii: must be true or false"),
        ("keys: [a]", "workbench.yaml: keys: must map actions to keys, for example `zoom: z`"),
        (
            "keys: {zoom: [z]}",
            "workbench.yaml: keys: zoom: must be a key or several, for example `f6,ctrl+g`",
        ),
        (
            "keys: {zoom: true}",
            "workbench.yaml: keys: zoom: must be a key or several, for example `f6,ctrl+g`",
        ),
        ("- a", "workbench.yaml: must be a mapping with theme, ascii, keys"),
    ],
)
def test_each_mistake_is_told_and_the_rest_holds(tmp_path: Path, text: str, said: str) -> None:
    settings = load(tmp_path, text)
    assert settings.mistakes == (said,)
    assert (settings.theme, settings.ascii, settings.keys) == ("", None, {})


def test_all_mistakes_are_told_at_once_and_good_keys_kept(tmp_path: Path) -> None:
    settings = load(tmp_path, "colour: red\nascii: 5\nkeys: {help: [z], zoom: f6}\n")
    assert len(settings.mistakes) == 3
    assert settings.keys == {"zoom": "f6"}


def test_a_file_that_is_no_yaml_or_not_utf_8_is_told(tmp_path: Path) -> None:
    assert "cannot be read" in load(tmp_path, "a: [").mistakes[0]
    path = tmp_path / "workbench.yaml"
    path.write_bytes(b"\xff\xfe")
    assert "cannot be read" in load_settings(path).mistakes[0]


def test_a_key_for_an_action_that_there_is_not_is_told() -> None:
    assert unknown_actions(["zom", "zoom"], {"zoom", "help"}) == [
        "keys: zom: no such action; did you mean zoom?"
    ]


def test_the_file_can_be_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.yaml"))
    assert settings_path() == tmp_path / "mine.yaml"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings_path() == tmp_path / "pallas" / "workbench.yaml"


def test_no_default_key_of_one_place_does_two_things() -> None:
    for scope in ("agents.", "feed.", "instances.", "failure.", ""):
        keys = [
            key
            for action, several in DEFAULT_KEYS.items()
            if (
                action.startswith(scope)
                if scope
                else action.split(".")[0] not in ("agents", "feed", "instances", "failure")
            )
            for key in several.split(",")
        ]
        assert len(keys) == len(set(keys))
