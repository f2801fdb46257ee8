"""docs/workbench.md says of each setting and action what the code says."""

from pathlib import Path

from pallas_tui.actions import ACTIONS
from pallas_tui.screens.settings_screen import shown_as
from pallas_tui.settings.settings_schema import SCHEMA, Setting

PAGE = (Path(__file__).parents[2] / "docs" / "workbench.md").read_text("utf-8")


def row(setting: Setting) -> str:
    """The line of the table."""
    allowed = {
        "flag": "yes or no",
        "auto": "yes or no",
        "choice": ", ".join(f"`{choice}`" for choice in setting.choices),
        "number": f"{setting.least:g} to {setting.most:g}",
        "text": "text",
        "keys": "mapping",
        "prices": "mapping",
        "callers": "mapping",
    }[setting.kind]
    return f"| `{setting.key}` | {allowed} | {shown_as(setting, setting.default)} | {setting.help} |"


def test_the_table_of_settings_is_that_of_the_code() -> None:
    section = PAGE.partition("## Settings\n")[2].partition("\n## ")[0]
    rows = [line for line in section.splitlines() if line.startswith("| `")]
    assert rows == [row(setting) for setting in SCHEMA]


def test_every_action_that_works_everywhere_is_named() -> None:
    keys = PAGE.partition("## Keys\n")[2].partition("\n## ")[0]
    missing = [action.id for action in ACTIONS if action.scope == "app" and f"`{action.id}`" not in keys]
    assert missing == []


def test_the_page_of_keys_has_every_action_in_order() -> None:
    page = (Path(__file__).parents[2] / "docs" / "keys.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    expected = [
        f"| `{action.id}` | {' '.join(f'`{key}`' for key in action.keys.split(',') if key)} | {action.help} |"
        for action in ACTIONS
    ]
    assert rows == expected, "docs/keys.md lists every action as pallas_tui/actions/ has it"
