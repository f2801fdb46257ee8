"""What an author gets wrong in a card is named by check and by the fleet, with file, line and fix."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.live import agent_module, running, write_project

from pallas.cli.app import run
from pallas.model import AgentState

RIGHT = "---\nname: right\n---\nYou help.\n"
FROM_ROOT = "which does not exist; paths start at the project's folder"


def cards_project(root: Path, cards: Mapping[str, str | bytes], entries: Mapping[str, str]) -> Path:
    keys = {name: {"module": None, "card": card} for name, card in entries.items()}
    project = write_project(root, dict.fromkeys(entries), keys=keys)
    for name, text in cards.items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        path.chmod(0o640)
    return project


def checked(root: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, list[str]]:
    status = run(["check", str(root), "--offline"])
    return status, capsys.readouterr().err.splitlines()


MISTAKES: dict[str, tuple[str, str, str]] = {
    "key": (
        "key.md",
        "---\nname: key\nuse_histry: true\nport: 1\n---\nHi.\n",
        "key.md:3: agents.key.card: there is no key use_histry in a card of type agent; "
        "did you mean use_history",
    ),
    "flat": (
        "flat.yaml",
        "name: flat\ninstrution: Hi.\n",
        "flat.yaml:2: agents.flat.card: there is no key instrution in a card of type agent; "
        "did you mean instruction",
    ),
    "type": (
        "type.md",
        "---\nname: type\ntype: rooter\n---\nHi.\n",
        "type.md:3: agents.type.card: type rooter is not a kind of card; did you mean router",
    ),
    "list": (
        "list.md",
        "---\nname: list\nservers:\n  one: two\n---\nHi.\n",
        "list.md:3: agents.list.card: 'servers' must be a list of strings; write `servers: [NAME]`",
    ),
    "flag": (
        "flag.md",
        "---\nname: flag\ndefault: yes please\n---\nHi.\n",
        "flag.md:3: agents.flag.card: 'default' must be a boolean; write true or false, without quotes",
    ),
    "model": (
        "model.md",
        "---\nname: model\nmodel: [passthrough]\n---\nHi.\n",
        "model.md:3: agents.model.card: 'model' must be a string; write one text",
    ),
    "params": (
        "params.md",
        "---\nname: params\nrequest_params:\n  temperature: hot\n---\nHi.\n",
        "params.md:4: agents.params.card: request_params.temperature should be a valid number, unable to "
        "parse string as a number; fast-agent refuses it: correct it",
    ),
    "bare": (
        "bare.md",
        "You help.\n",
        "bare.md:1: agents.bare.card: has no front matter; begin it with a line ---, its keys and another",
    ),
    "empty": ("empty.yaml", "", "empty.yaml: agents.empty.card: is empty; write `name: helper` and"),
    "chain": (
        "chain.md",
        "---\nname: chain\ntype: chain\n---\nHi.\n",
        "chain.md:3: agents.chain.card: missing required fields for type 'chain'; Required: sequence",
    ),
    "tab": (
        "tab.md",
        "---\nname: tab\nservers:\n\t- a\n---\nHi.\n",
        "tab.md:4: agents.tab.card: not valid YAML: line 4, column 1: found character '\\t' that cannot "
        "start any token; YAML is indented with spaces: replace the tab",
    ),
    "open": (
        "open.md",
        "---\nname: open\n\nYou help.\n",
        "open.md:1: agents.open.card: opens its front matter and never closes it; "
        "write another line --- between its keys and the instruction",
    ),
    "dots": (
        "dots.md",
        "---\nname: dots\n...\nYou help.\n",
        "dots.md:3: agents.dots.card: closes its front matter with a line ..., which fast-agent does not "
        "take; write --- there",
    ),
    "rule": (
        "rule.md",
        "---\nname: rule\n...\nYou help.\n\n---\nAnd more.\n",
        "rule.md:3: agents.rule.card: closes its front matter with a line ...",
    ),
    "inside": (
        "inside.md",
        "---\nname: inside\n  ---\nYou help.\n",
        "inside.md:1: agents.inside.card: opens its front matter and never closes it",
    ),
    "comment": (
        "comment.md",
        "<!-- ours -->\n\n---\nname: comment\n---\nYou help.\n",
        "comment.md:1: agents.comment.card: has text before its front matter; "
        "begin it with the line --- of line 3",
    ),
    "toml": (
        "toml.md",
        '+++\nname = "toml"\n+++\nYou help.\n',
        "toml.md:1: agents.toml.card: has front matter in TOML, which fast-agent reads with the package toml "
        "only; write it as YAML between two lines ---",
    ),
    "both": (
        "both.md",
        "---\nname: both\ninstruction: Hi.\n---\nYou help.\n",
        "both.md:3: agents.both.card: instruction cannot be provided in both body and 'instruction' field",
    ),
    "plain": (
        "plain.yaml",
        "You help: no\n- one\n",
        "plain.yaml:2: agents.plain.card: not valid YAML: line 2, column 1",
    ),
    "word": (
        "word.md",
        "---\njust words\n---\nHi.\n",
        "word.md:2: agents.word.card: has no keys; write `key: value` lines, such as `name: helper`",
    ),
}


AS_EDITORS_WRITE: dict[str, str | bytes] = {
    "cr.md": b"---\rname: cr\r---\rYou help.\r",
    "crlf.md": b"---\r\nname: crlf\r\n---\r\nYou help.\r\n",
    "bom.md": "\ufeff---\nname: bom\n---\nYou help.\n",
    "boms.md": "\ufeff\ufeff---\nname: boms\n---\nYou help.\n",
    "blank.md": "\n \n---\nname: blank\n---\nYou help.\n",
    "longer.md": "---  \nname: longer\n-----  \nYou help.\n\n---\n\nAnd more.\n",
    "quoted.md": "---\nname: quoted\ndescription: |\n  One\n  ---\n  two\n---\nYou help.\n",
    "flat.yaml": b"\xef\xbb\xbfname: flat\rinstruction: You help.\r",
}


async def test_cards_as_editors_write_them_are_loaded_as_fast_agent_loads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A card whose keys cannot be read would have the name of its file.
    cards: dict[str, str | bytes] = {
        f"team/{name}": (text.encode() if isinstance(text, str) else text).replace(b"name: ", b"name: my_")
        for name, text in AS_EDITORS_WRITE.items()
    }
    names = ", ".join(f"my_{name.partition('.')[0]}" for name in AS_EDITORS_WRITE)
    cards["team/boss.md"] = f"---\nname: boss\nagents: [{names}]\n---\nHi.\n"
    root = cards_project(tmp_path, cards, {"boss": "team/boss.md"})
    assert checked(root, capsys) == (0, [])
    async with running(root) as fleet:
        (agent,) = fleet.agents
        assert agent.state is AgentState.READY, agent.story


async def test_a_mistake_in_a_card_is_told_by_check_and_by_the_fleet_in_the_same_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {name: text for name, text, _ in MISTAKES.values()} | {"right.md": RIGHT}
    entries = {name: file for name, (file, _, _) in MISTAKES.items()} | {"right": "right.md"}
    root = cards_project(tmp_path, files, entries)
    status, lines = checked(root, capsys)
    assert status == 2
    for name, (_, _, said) in MISTAKES.items():
        assert any(line.startswith(said) for line in lines), (name, lines)
    remove = "remove it; keys of Pallas belong in agents.yaml"
    assert f"key.md:4: agents.key.card: there is no key port in a card of type agent; {remove}" in lines
    assert len(lines) == len(MISTAKES) + 1
    async with running(root) as fleet:
        for agent in fleet.agents:
            if agent.name == "right":
                assert agent.state is AgentState.READY, agent.story
            else:
                assert MISTAKES[agent.name][2] in agent.story


def test_import_says_each_mistake_of_a_card_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = cards_project(tmp_path, {"key.md": MISTAKES["key"][1]}, {"key": "key.md"})
    assert run(["check", str(root), "--offline", "--import"]) == 2
    assert capsys.readouterr().err.count("use_histry") == 1


def test_what_a_folder_of_cards_has_and_is_no_card_is_told_with_its_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards: dict[str, str | bytes] = {
        "team/right.md": RIGHT.replace("You help.", "{{file:team/part.md}}"),
        "team/part.md": "A part of an instruction.\n",
        "team/README.md": "No card.\n",
        "team/notes.txt": "name: no card\n",
        "team/wrong.yaml": "nmae: wrong\ninstrution: Hi.\n",
        "team/bare.md": "name: bare\nYou help.\n",
        "team/latin.md": "---\nname: latin\n---\nFür dich.\n".encode("latin-1"),
        "team/large.md": RIGHT + "x" * (1 << 20),
    }
    root = cards_project(tmp_path, cards, {"team": "team"})
    (root / "team" / "lost.md").symlink_to("nowhere.md")
    status, lines = checked(root, capsys)
    assert status == 0
    none = "is not taken as a card: it"
    keys = "type, name, instruction, model, servers, agents"
    assert lines == [
        f"team/bare.md:1: warning: {none} has no front matter; begin it with a line ---, its keys and "
        "another line ---",
        f"team/large.md: warning: {none} is larger than 1 MiB; allowed: at most 1 MiB of configuration",
        f"team/latin.md:4: warning: {none} is not UTF-8: byte 0xfc on line 4; save the file as UTF-8",
        f"team/lost.md: warning: {none} is a link that leads nowhere; put the file there, or correct the "
        "link",
        f"team/wrong.yaml:1: warning: {none} has none of the keys that a card begins with ({keys}); "
        "did you mean name",
    ]


async def test_a_served_folder_says_too_what_it_has_passed_over(tmp_path: Path) -> None:
    cards = {"team/right.md": RIGHT, "team/wrong.yaml": "nmae: wrong\n"}
    root = cards_project(tmp_path, cards, {"team": "team"})
    async with running(root) as fleet:
        (agent,) = fleet.agents
        assert agent.state is AgentState.READY
        assert any("team/wrong.yaml:1: is not taken" in each for each in agent.snapshot().warnings)


def test_in_the_projects_own_folder_only_what_looks_like_a_card_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cards = {
        "right.md": RIGHT,
        "todo.md": "Buy milk.\n",
        "compose.yaml": "services: {}\n",
        "wrong.yaml": "instrution: Hi.\n",
    }
    root = cards_project(tmp_path, cards, {"right": "./"})
    status, lines = checked(root, capsys)
    assert status == 0
    assert [line.partition(": ")[0] for line in lines] == ["wrong.yaml:1"]


@pytest.mark.parametrize("place", ["card.md", "team"])
async def test_a_card_has_at_most_one_mebibyte(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], place: str
) -> None:
    cards: dict[str, str | bytes] = {"card.md": RIGHT + "x" * (12 << 20), "boss.md": RIGHT}
    cards["boss.md"] = "---\nname: boss\nagents: [card]\n---\nHi.\n"
    root = cards_project(tmp_path, cards, {"one": "card.md" if place == "card.md" else "boss.md"})
    status, lines = checked(root, capsys)
    assert status == 2
    if place == "card.md":
        assert "card.md has 12.0 MiB, and may have 1 MiB; a card is a text in Markdown" in lines[0]
    else:
        assert "agents names card, and card.md is not a card: it is larger than 1 MiB" in lines[0]


async def test_an_include_that_leads_to_no_text_is_told_at_its_line_by_check_and_by_the_fleet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    includes = {
        "gone": (
            "prompts/tone.md",
            "includes prompts/tone.md, " + FROM_ROOT + "; did you mean prompts/tones.md",
        ),
        "folder": ("prompts", "includes prompts, which is a folder; name a file in it"),
        "latin": (
            "prompts/latin.md",
            "includes prompts/latin.md, which is not text: byte 0xfc on line 1 is not UTF-8; include a text, "
            "saved as UTF-8",
        ),
        "rooted": ("/etc/hosts", "includes /etc/hosts; write a path from the project's folder"),
    }
    cards: dict[str, str | bytes] = {
        f"{name}.md": f"---\nname: {name}\n---\nHi.\n{{{{file:{path}}}}}\n"
        for name, (path, _) in includes.items()
    }
    cards |= {"prompts/tones.md": "Be brief.", "prompts/latin.md": "Für".encode("latin-1")}
    root = cards_project(tmp_path, cards, {name: f"{name}.md" for name in includes})
    status, lines = checked(root, capsys)
    said = {name: f"{name}.md:5: agents.{name}.instruction: {words}" for name, (_, words) in includes.items()}
    assert status == 2
    assert lines == list(said.values())
    async with running(root) as fleet:
        health = {each.name: each.health.message for each in fleet.snapshot().agents}
    for name, words in said.items():
        assert words in health[name]
        assert str(root) not in health[name]


async def test_an_include_of_a_module_is_told_at_its_line_by_the_fleet(tmp_path: Path) -> None:
    module = agent_module("coded").replace("You are coded.", "Do {{file:prompts/nope.md}} now.")
    root = write_project(tmp_path, {"coded": module})
    async with running(root) as fleet:
        (agent,) = fleet.agents
        assert (
            f"agents/coded.py:7: agents.coded.instruction: includes prompts/nope.md, {FROM_ROOT}"
            in agent.story
        )


def test_a_key_that_is_given_twice_is_a_warning_as_fast_agent_takes_the_last(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = cards_project(tmp_path, {"one.md": "---\nname: one\nname: two\n---\nHi.\n"}, {"one": "one.md"})
    status, lines = checked(root, capsys)
    assert status == 0
    assert "one.md:3: warning: agents.one.card: is given twice, first on line 2" in lines[0]


def test_a_card_whose_name_no_card_has_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = cards_project(tmp_path, {"one.txt": RIGHT}, {"one": "one.txt"})
    status, (line,) = checked(root, capsys)
    assert status == 2
    assert "agents.one.card: one.txt is not a card; its name must end in .md, .markdown, .yaml, .yml" in line
