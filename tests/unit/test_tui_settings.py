"""The user's own file: theme, ASCII, keys."""

from dataclasses import fields, replace
from pathlib import Path

import pytest

from pallas_tui.actions import ACTIONS
from pallas_tui.actions.keymap import keymap_mistakes
from pallas_tui.settings import VARIABLE, Notify, Settings, load_settings, settings_path
from pallas_tui.settings.settings_file import CannotSave, save_setting
from pallas_tui.settings.settings_schema import BY_KEY, SCHEMA, ModelPrice, check

ALLOWED = (
    "theme, ascii, thumbnails, keys, vim, notify, ask_quit, protocol, reopen, editor, prices, callers, wrap"
)
NOTIFY = "runs, agents, questions, after, bell, desktop, program, title"


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


def test_keys_of_the_pane_that_was_called_traces_hold(tmp_path: Path) -> None:
    settings = load(tmp_path, "keys:\n  show.traces: f6,ctrl+g\n  traces.findings: u\n  feed.traces: w\n")
    now = {"show.credentials": "f6,ctrl+g", "credentials.findings": "u", "feed.credentials": "w"}
    assert settings.keys == now
    assert not settings.mistakes
    assert not [each for each in keymap_mistakes(settings.keys) if "no such action" in each]
    both = load(tmp_path, "keys:\n  show.credentials: f7\n  show.traces: f6\n")
    assert both.keys == {"show.credentials": "f7"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("them: nord", f"workbench.yaml: them: unknown; allowed are {ALLOWED}; did you mean theme?"),
        (
            "notify: {bel: true}",
            f"workbench.yaml: notify.bel: unknown; allowed are {NOTIFY}; did you mean bell?",
        ),
        (
            "notify: yes",
            f"workbench.yaml: notify: must be a mapping with {NOTIFY}",
        ),
        ("notify: {after: soon}", "workbench.yaml: notify.after: must be a number from 0 to 86400"),
        ("notify: {after: .nan}", "workbench.yaml: notify.after: must be a number from 0 to 86400"),
        ("vim: 1", "workbench.yaml: vim: must be true or false"),
        ("protocol: 2025", "workbench.yaml: protocol: must be one of auto, modern, handshake"),
        ("editor: [vi]", "workbench.yaml: editor: must be one line of text, 1000 characters at most"),
        ('editor: "vi\\e[2J"', "workbench.yaml: editor: must be one line of text, 1000 characters at most"),
        (
            "prices: {m: 3}",
            "workbench.yaml: prices: m: must have input and output, for example `{input: 1.25, output: 10}`",
        ),
        (
            "prices: {m: {input: -1, output: 2}}",
            "workbench.yaml: prices: m: input and output must be numbers, 0 or more, for a million tokens",
        ),
        (
            "callers: {alice: tok-5f0c}",
            "workbench.yaml: callers: alice: must be $NAME of a variable of the environment, "
            "never the token itself",
        ),
        (
            "callers: {ask: $A}",
            "workbench.yaml: callers: ask: must be a name in one piece, not none, off, nobody or ask",
        ),
        (
            "prices: 3",
            "workbench.yaml: prices: must map model patterns to prices, "
            "for example `gpt-5*: {input: 1.25, output: 10}`",
        ),
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
        ("- a", f"workbench.yaml: must be a mapping with {ALLOWED}"),
    ],
)
def test_each_mistake_is_told_and_the_rest_holds(tmp_path: Path, text: str, said: str) -> None:
    settings = load(tmp_path, text)
    assert settings.mistakes == (said,)
    assert replace(settings, mistakes=()) == Settings()


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
    assert keymap_mistakes({"zom": "f6", "zoom": "f6", "x" * 99: "a"}) == [
        "zom: no such action; did you mean zoom?",
        f"{'x' * 39}…: no such action; docs/workbench.md#keys leads to the list",
    ]


def test_a_key_that_another_action_needs_in_the_same_place_is_told() -> None:
    keys = {"jump": "b", "zoom": "j,f3", "agents.tools": "pagedown", "show.feed": "9", "show.logs": "9,8"}
    assert keymap_mistakes(keys) == [
        "show.logs: 9 is the key of show.feed; choose another key, or another one for show.feed",
        "zoom: j is the key of vim.down; choose another key, or another one for vim.down",
        "jump: b is the key of rail.toggle; choose another key, or another one for rail.toggle",
        "agents.tools: pagedown is the key of list.page_down; "
        "choose another key, or another one for list.page_down",
    ]


@pytest.mark.parametrize(
    "action", ["files.mark", "settings.change", "tool.copy", "send.xml", "exchange.copy", "envelope.copy"]
)
def test_a_key_that_moves_in_the_list_of_a_screen_is_told(action: str) -> None:
    assert keymap_mistakes({action: "down"}) == [
        f"{action}: down is the key of list.down; choose another key, or another one for list.down"
    ]


@pytest.mark.parametrize(
    "keys",
    [
        {"feed.follow": "x", "feed.cancel": "f"},  # they change places
        {"zoom": "?"},  # the help has another key
        {"feed.follow": "r"},  # the reload of another pane
        {"feed.follow": "z"},  # in the feed it comes before the zoom
        {"zoom": "f7"},
    ],
)
def test_a_key_that_does_one_thing_where_it_is_pressed_is_no_mistake(keys: dict[str, str]) -> None:
    assert keymap_mistakes(keys) == []


def test_the_file_can_be_elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "mine.yaml"))
    assert settings_path() == tmp_path / "mine.yaml"
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert settings_path() == tmp_path / "pallas" / "workbench.yaml"


def test_no_default_key_of_one_place_does_two_things() -> None:
    for scope in {action.scope for action in ACTIONS}:
        several = [action.keys.split(",") for action in ACTIONS if action.scope == scope and action.keys]
        keys = [key for each in several for key in each]
        assert len(keys) == len(set(keys)), scope


# The table


def test_every_setting_of_the_table_is_a_field_with_its_default_and_the_other_way_round() -> None:
    for setting in SCHEMA:
        assert Settings().get(setting.key) == setting.default, setting.key
    stand = {field.name for field in fields(Settings)} - {"mistakes", "notify"}
    stand |= {f"notify.{field.name}" for field in fields(Notify)}
    assert stand == set(BY_KEY)


def test_what_the_table_allows_is_taken(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        "vim: false\nthumbnails: false\nnotify: {after: 3, bell: false}\n"
        "protocol: handshake\neditor: code -w\n"
        "wrap: true\nprices: {'gpt-5*': {input: 1.25, output: 10}, m: {input: 0, output: 0}}\n",
    )
    assert settings.mistakes == ()
    assert settings.notify == Notify(after=3.0, bell=False)
    assert (settings.vim, settings.thumbnails, settings.wrap) == (False, False, True)
    assert (settings.protocol, settings.editor) == ("handshake", "code -w")
    assert settings.prices == {"gpt-5*": ModelPrice(1.25, 10), "m": ModelPrice(0, 0)}
    assert settings.get("notify.after") == 3
    with pytest.raises(KeyError):
        settings.get("mistakes")


def test_a_wrong_price_does_not_take_the_others_along(tmp_path: Path) -> None:
    settings = load(tmp_path, "prices: {a: 1, b: {input: 1, output: 2}}\n")
    assert settings.prices == {"b": ModelPrice(1, 2)}
    assert len(settings.mistakes) == 1


def test_each_default_passes_its_own_check() -> None:
    for setting in SCHEMA:
        said: list[str] = []
        assert check(setting, setting.default, said.append) == setting.default
        assert said == []


# Saving

MINE = """\
# My workbench.
theme: nord  # the blue one

notify:
  # not in the night
  bell: false
keys:
  zoom: "f6"
"""


def test_saving_keeps_comments_order_and_quotes(tmp_path: Path) -> None:
    path = tmp_path / "workbench.yaml"
    path.write_text(MINE)
    path.chmod(0o644)
    save_setting(path, "theme", "dracula")
    save_setting(path, "notify.after", 30.0)
    save_setting(path, "vim", False)
    text = path.read_text()
    assert (
        text
        == MINE.replace("theme: nord  #", "theme: dracula #").replace(
            "  bell: false\n", "  bell: false\n  after: 30\n"
        )
        + "vim: false\n"
    )
    assert path.stat().st_mode & 0o777 == 0o644
    settings = load_settings(path)
    assert settings.mistakes == ()
    assert (settings.theme, settings.notify, settings.vim) == ("dracula", Notify(bell=False, after=30), False)


def test_a_setting_that_is_taken_back_leaves_no_empty_mapping(tmp_path: Path) -> None:
    path = tmp_path / "workbench.yaml"
    path.write_text("vim: false\nnotify:\n  bell: false\n")
    save_setting(path, "notify.bell", None)
    save_setting(path, "prices", None)
    assert path.read_text() == "vim: false\n"


def test_a_file_that_is_not_there_is_made_for_its_user_and_comments_alone_stay(tmp_path: Path) -> None:
    path = tmp_path / "new" / "workbench.yaml"
    save_setting(path, "prices", {"m*": ModelPrice(1.5, 2)})
    assert load_settings(path).prices == {"m*": ModelPrice(1.5, 2)}
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_text("# nothing yet\n")
    save_setting(path, "wrap", True)
    assert path.read_text() == "# nothing yet\nwrap: true\n"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles.yaml"
    real.write_text("vim: true\n")
    path = tmp_path / "workbench.yaml"
    path.symlink_to(real)
    save_setting(path, "vim", False)
    assert path.is_symlink()
    assert real.read_text() == "vim: false\n"


@pytest.mark.parametrize("text", ["a: [", "- a\n"])
def test_a_broken_file_is_left_alone_and_the_reason_told(tmp_path: Path, text: str) -> None:
    path = tmp_path / "workbench.yaml"
    path.write_text(text)
    with pytest.raises(CannotSave, match="fix it in your editor"):
        save_setting(path, "vim", False)
    assert path.read_text() == text
    with pytest.raises(CannotSave, match="cannot be written"):
        save_setting(tmp_path, "vim", False)
    assert not list(tmp_path.glob(".*"))
