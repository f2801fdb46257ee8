"""The themes that come with the workbench can be read, and a user's own are read or their mistakes told."""

from pathlib import Path

import pytest
from textual.color import Color
from textual.theme import Theme

from pallas_tui.shell.themes import MAX_THEMES, OWN, contrast, opposite, quiet, user_themes

WCAG_AAA = 7.0
ON = ("background", "surface", "panel", "primary-muted")
"""What text stands on: the panes, sheets, bars, and the line under the cursor."""
TEXT = ("foreground", "text-primary", "text-success", "text-warning", "text-error", "text-accent")


def colours(theme: Theme) -> dict[str, str]:
    return {**theme.to_color_system().generate(), **theme.variables}


def test_the_ratio_is_that_of_wcag() -> None:
    assert contrast(Color.parse("#fff"), Color.parse("#000")) == pytest.approx(21)
    assert contrast(Color.parse("#777"), Color.parse("#fff")) == pytest.approx(4.48, abs=0.01)
    assert contrast(Color.parse("#345"), Color.parse("#345")) == 1


@pytest.mark.parametrize("theme", OWN, ids=lambda theme: theme.name)
@pytest.mark.parametrize("below", ON)
def test_every_text_of_our_themes_has_a_contrast_of_seven_also_quiet_text(theme: Theme, below: str) -> None:
    generated = colours(theme)
    background = Color.parse(generated[below])
    for text in TEXT:
        assert contrast(Color.parse(generated[text]), background) >= WCAG_AAA, text
    dim = quiet(Color.parse(generated["foreground"]), background, theme.name)
    assert contrast(dim, background) >= WCAG_AAA


def test_dark_and_light_belong_together() -> None:
    there = {theme.name for theme in OWN} | {"ansi-dark", "ansi-light", "nord"}
    assert opposite("pallas-contrast-dark", True, there) == "pallas-contrast-light"
    assert opposite("pallas-light", False, there) == "pallas-dark"
    assert opposite("ansi-dark", True, there) == "ansi-light"
    assert opposite("nord", True, there) == "pallas-light"


def test_a_theme_of_the_user_is_read(tmp_path: Path) -> None:
    (tmp_path / "sea.yaml").write_text(
        'primary: "#123456"\ndark: false\n'
        "variables: {border: teal, border-blurred: red 40%, link-style: bold not underline}\n"
    )
    (tmp_path / "notes.txt").write_text("no theme")
    (theme,), mistakes = user_themes(tmp_path)
    assert mistakes == []
    assert (theme.name, theme.dark, theme.primary) == ("sea", False, "#123456")
    assert theme.variables == {
        "border": "teal",
        "border-blurred": "red 40%",
        "link-style": "bold not underline",
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a", 'must be a mapping with at least primary, for example `primary: "#3d8fd6"`'),
        ("dark: true", "primary: is missing; it is the one colour a theme must have"),
        ("primary: blurple", 'primary: blurple is not a colour; write it as "#rrggbb" or by its name'),
        ("primary: red\nname: pallas-dark", "name: pallas-dark is the name of a theme that comes with"),
        ("primary: red\ndark: maybe", "dark: must be true or false"),
        ("primary: red\nprimry: red", "primry: unknown; allowed are name, dark, primary"),
        (
            "primary: red\nvariables: {border: 3}",
            'variables.border: 3 is not a colour; write it as "#rrggbb"',
        ),
        ("primary: red\nvariables: {link-style: loud}", "variables.link-style: loud is not a text style"),
        ("primary: red\nvariables: {x y: red}", "variables.x y: is not the name of a variable"),
        ("a: [", "cannot be read:"),
        ("primary: red\n#" + "x" * 70_000, "is larger than 65536 bytes"),
    ],
)
def test_a_wrong_theme_is_told_with_its_file_and_left_out(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "b.yaml").write_text("primary: red")
    themes, mistakes = user_themes(tmp_path)
    assert [theme.name for theme in themes] == ["b"]
    assert len(mistakes) == 1
    assert mistakes[0].startswith(f"themes/a.yaml: {said}")


def test_no_folder_is_no_themes_and_too_many_are_told(tmp_path: Path) -> None:
    assert user_themes(tmp_path / "none") == ([], [])
    for number in range(MAX_THEMES + 1):
        (tmp_path / f"{number:03}.yaml").write_text("primary: red")
    themes, mistakes = user_themes(tmp_path)
    assert len(themes) == MAX_THEMES
    assert mistakes == ["themes: only the first 50 of 51 files are read"]
