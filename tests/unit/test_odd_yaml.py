"""Characters that look like those of YAML, and YAML that fails: named where they are, with what to write."""

import json
from pathlib import Path

import pytest
from support.config_folder import Folder

from pallas.config.json_schema import agents_schema
from pallas.config.odd_characters import near_failure

AGENTS = "name: demo\nport: 26200\nagents:\n  a:\n    module: agents.jarvis\n    description: one\n"
CONFIG = 'mcp:\n  servers:\n    x:\n      command: python\n      args: ["-m", "x"]\n'
SECRETS = "openai:\n  api_key: abcdefgh\n"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("    module", "  \u00a0\u00a0module", "5: … column 3: a no-break space (U+00A0) … write a space"),
        ("module: ", "module:\u00a0", "5: … column 12: a no-break space (U+00A0) … write a space"),
        ("port: ", "port:\u00a0", "2: … column 6: a no-break space (U+00A0)"),
        (
            "26200",
            "26200\u00a0",
            "2: port: … needed; it has a no-break space (U+00A0, column 12): write a space",
        ),
        ("name", "\u00a0name", "1: name: has a no-break space (U+00A0, column 1) in its name; write a space"),
        ("module:", "module\u00a0:", "5: agents.a.module: has a no-break space (U+00A0, column 11)"),
        ("module: ", "module:\u3000", "5: … an ideographic space (U+3000)"),
        (
            "agents.jarvis",
            "“agents.jarvis”",
            '5: … left double quotation mark (U+201C, column 13): write " inst',
        ),
        (
            "agents.jarvis",
            "‘agents.jarvis’",
            "5: … left single quotation mark (U+2018, column 13): write ' inst",
        ),
        ("26200", "“26200”", '2: port: … left double quotation mark (U+201C, column 7): write " instead'),
        ("module:", "“module”:", "5: agents.a.module: has a left double quotation mark (U+201C, column 5)"),
        ("one", "“one: two”", '6: … column 18: a left double quotation mark (U+201C) … write " instead'),
        ("    module", "\tmodule", "5: … column 1: found character '\\t' … replace the tab"),
        ("module:", "module：", "5: … column 11: a fullwidth colon (U+FF1A) … write : instead"),
        ("name:", "name：", "1: … column 5: a fullwidth colon (U+FF1A) … write : instead"),
        (
            "module:",
            "mod\u200bule:",
            "5: agents.a.module: has a zero width space (U+200B, column 8) … remove it",
        ),
        ("module:", "\u200bmodule:", "5: agents.a.module: has a zero width space (U+200B, column 5)"),
        (
            "agents.jarvis",
            "\u200bagents.jarvis",
            "5: agents.a.module: … zero width space (U+200B, column 13)",
        ),
        ("agents:", "\ufeffagents:", "3: agents: has a zero width no-break space (U+FEFF, column 1)"),
        ("module", "mod\u00adule", "5: agents.a.module: has a soft hyphen (U+00AD, column 8)"),
        ("one", "o\u2028  ne: x", "6: … column 19: a line separator (U+2028) … write a space or a new line"),
    ],
)
def test_a_character_that_only_looks_right_is_named_at_its_place(
    folder: Folder, old: str, new: str, said: str
) -> None:
    lines = folder.agents(AGENTS.replace(old, new, 1)).lines()
    begin, *parts = said.split(" … ")
    assert lines[0].startswith(f"agents.yaml:{begin}")
    assert all(part in lines[0] for part in parts), lines
    assert len([line for line in lines if "which is read as a space" not in line]) == 1, lines


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("one", '"one', '6: … line 6, column 18: this " is never closed; write another "'),
        (
            "agents.jarvis",
            "'agents.jarvis",
            "5: … line 5, column 13: this ' is never closed; write another '",
        ),
        ("module: agents.jarvis", "tags: [a, b", "5: … column 11: this [ is not closed; write ]"),
        ("module: agents.jarvis", "env: {A: b", "5: … column 10: this { is not closed; write }"),
        ("one", "'it's mine'", "6: … a text goes on behind its closing quote: write ''"),
        ("    description", "      description", "6: … column 7: … deeper … begin it at column 5"),
        ("    description", "   description", "6: … column 4: … check the indentation of this line"),
        (
            "module: a",
            "module:a",
            "5: … column 5: this line is no key; a key needs a colon and a space after it",
        ),
        ("module: a", "module = a", "5: … column 5: this line is no key"),
        ("agents:", "agents", "3: … column 1: this line is no key; a key needs a colon"),
        ("one", '"C:\\Users"', "6: … use single quotes where a backslash means itself"),
        ("one", "|x\n      y", "6: … begin the text on the line below it"),
        ("one", "{{ x }}", "6: … quote a text that begins with { or ["),
        ("agents.jarvis", "[${A}]", '5: … column 15: a variable in brackets has no quotes; write "${NAME}"'),
        ("one\n", "one\n<<<<<<< HEAD\nport: 1\n=======\nport: 2\n>>>>>>> x\n", "7: … a conflict of a merge"),
    ],
)
def test_yaml_that_fails_is_reported_where_it_is_wrong(folder: Folder, old: str, new: str, said: str) -> None:
    lines = folder.agents(AGENTS.replace(old, new, 1)).lines()
    begin, *parts = said.split(" … ")
    assert any(
        line.startswith(f"agents.yaml:{begin}") and all(part in line for part in parts) for line in lines
    ), lines


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("config", CONFIG.replace("      command", " \u00a0    command"), "4: … column 2: a no-break space"),
        ("config", CONFIG.replace("command: ", "command:\u00a0"), "4: … column 15: a no-break space"),
        ("config", CONFIG.replace("python", "“python”"), '4: mcp.servers.x.command: … column 16 … write "'),
        ("config", CONFIG.replace('"-m"', "“-m”"), '5: mcp.servers.x.args[0]: … column 14 … write "'),
        (
            "config",
            CONFIG.replace('"-m",', '"-m"，'),
            "5: … column 18: a fullwidth comma (U+FF0C) … write , inst",
        ),
        (
            "config",
            CONFIG.replace("mcp:", "mcp\u200b:"),
            "1: a key has a zero width space (U+200B, column 4)",
        ),
        (
            "config",
            CONFIG.replace('["-m", "x"]', "\n      – -m"),
            "6: … column 7: an en dash (U+2013) … write - ",
        ),
        ("secrets", SECRETS.replace("openai:", "openai："), "1: … column 7: a fullwidth colon (U+FF1A)"),
        ("secrets", SECRETS.replace("abcdefgh", "“abcdefgh”"), '2: openai.api_key: … column 12 … write "'),
        (
            "secrets",
            SECRETS.replace("abcdefgh", "abcdefgh\u200b"),
            "2: openai.api_key: … column 20 … remove it",
        ),
        ("secrets", SECRETS.replace("api_key: ", "api_key:\u00a0"), "2: openai: … column 11 … write a space"),
        ("secrets", SECRETS.replace("abcdefgh", '"abcdefgh'), '2: … column 12: this " is never closed'),
    ],
)
def test_so_it_is_in_the_files_of_fast_agent(folder: Folder, name: str, text: str, said: str) -> None:
    lines = folder.agents(AGENTS).write(f"fastagent.{name}.yaml", text).lines()
    begin, *parts = said.split(" … ")
    found = [line for line in lines if line.startswith(f"fastagent.{name}.yaml:{begin}")]
    assert found, lines
    assert all(part in found[0] for part in parts), lines
    assert "abcdefgh" not in "".join(lines)


def test_what_belongs_to_a_text_is_left_alone(folder: Folder) -> None:
    text = AGENTS.replace("one", "“Was soll das？”, sagte er： “nichts”.\u00a0 نمی‌خواهم # …：“x\u200b”")
    project = folder.agents(text).load()
    assert project.agents["a"].description.startswith("“Was soll das？”, sagte er：")
    assert folder.lines() == []


def test_lines_that_only_yaml_ends_do_not_move_the_numbers_of_others(folder: Folder) -> None:
    lines = folder.agents(AGENTS.replace("demo", "de\u0085mo").replace("26200", "none")).lines()
    assert [line.partition(" ")[0] for line in lines] == ["agents.yaml:1:", "agents.yaml:2:"]


def test_a_long_line_of_such_characters_costs_no_more_than_its_length() -> None:
    line = "\u00a0" * (1 << 20)
    assert near_failure([line, "x"], 1) is not None
    assert near_failure([f"a: {line}", f"a{line}"], 2) is not None


def test_keys_of_the_users_own_hold_what_entries_share(folder: Folder) -> None:
    text = (
        "name: demo\nport: 26200\nx-common: &common\n  module: agents.jarvis\n  max_instances: 3\n"
        "x-any: [{a: '${NOT_SET}'}]\nagents:\n  a:\n    <<: *common\n"
        "  b:\n    <<: *common\n    max_instances: 4\n"
    )
    project = folder.agents(text).load()
    assert [(each.module, each.max_instances) for each in project.agents.values()] == [
        ("agents.jarvis", 3),
        ("agents.jarvis", 4),
    ]
    assert folder.lines() == []
    assert "^x-" in json.dumps(agents_schema()["patternProperties"])
    assert folder.agents(text.replace("x-any", "xany")).lines()[0].startswith("agents.yaml:6: xany: unknown")
