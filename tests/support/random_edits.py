"""Random edits of ``judged_project``, each with the word of its verdict, which what was edited says."""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import yaml

from pallas.model import VerdictWord

from .judged import entry

type Files = dict[str, str]
"""The contents of files, by their path in the project."""

LEAD, CLERK, KEEPER, OTHER = "agents/lead.py", "agents/clerk.py", "agents/keeper.py", "agents/other.py"
SKILL, SHELF, TOPOLOGY = "skills/counting/SKILL.md", "shelf.py", "agents.yaml"
PATHS = (LEAD, CLERK, KEEPER, OTHER, SKILL, SHELF, TOPOLOGY)
_MODULES = {"lead": LEAD, "clerk": CLERK, "keeper": KEEPER}
_WORDS = ("brief", "kind", "exact", "quick", "calm", "bold", "terse", "warm")


@dataclass(frozen=True)
class Edit:
    """One edit: the agents that have another version, the word, and the agent that differs first."""

    name: str
    agents: frozenset[str]
    word: VerdictWord = "same"
    where: str = ""
    servers: Collection[str] = ()
    """MCP servers whose files were saved."""


def read(root: Path) -> Files:
    """The files of a project that edits change."""
    return {path: (root / path).read_text() for path in PATHS}


def harmless(random: Random, files: Files) -> Edit:
    """Change something that no run of the test has, in ``files``."""
    return random.choice(HARMLESS)(random, files)


def any_edit(random: Random, files: Files) -> Edit:
    """Change something that matters, or nothing that does, beside up to two harmless things."""
    edits = [harmless(random, files) for _ in range(random.randrange(3))]
    if random.random() < 0.75:
        edits.append(random.choice(_TELLING)(random, files))
    return _together(edits or [harmless(random, files)])


def _together(edits: list[Edit]) -> Edit:
    told = next((each for each in edits if each.word != "same"), edits[0])
    return Edit(
        " + ".join(each.name for each in edits),
        frozenset[str]().union(*(each.agents for each in edits)),
        told.word,
        told.where,
        tuple(server for each in edits for server in each.servers),
    )


def _change(files: Files, path: str, old: str, new: str) -> None:
    assert old in files[path], (path, old)
    files[path] = files[path].replace(old, new)


def _topology(files: Files, change: Callable[[dict[str, Any]], object]) -> None:
    content = yaml.safe_load(files[TOPOLOGY])
    change(content)
    files[TOPOLOGY] = yaml.safe_dump(content, sort_keys=False)


def _word(random: Random) -> str:
    return f"{random.choice(_WORDS)}{random.randrange(1_000)}"


def _agent(random: Random) -> str:
    return random.choice([*_MODULES])


def _differs(name: str, agent: str, word: VerdictWord = "other words") -> Edit:
    return Edit(f"{name} of {agent}", frozenset({agent}), word, f"step 1 of {agent}")


def _prompt(random: Random, files: Files) -> Edit:
    agent = _agent(random)
    extra = random.choice([f" Be {_word(random)}.", " ", "\\n", f" {_word(random)}"])
    _change(files, _MODULES[agent], f"You are {agent}.", f"You are {agent}.{extra}.")
    return _differs("prompt", agent)


def _parameter(random: Random, files: Files) -> Edit:
    agent = _agent(random)
    params = random.choice(
        [{"temperature": random.randrange(1, 9) / 10}, {"top_p": random.randrange(1, 9) / 10}]
    )
    _topology(files, lambda content: entry(content, agent).update(params=params))
    return _differs("parameter", agent)


def _model(random: Random, files: Files) -> Edit:
    agent = _agent(random)
    _change(
        files,
        _MODULES[agent],
        f'@fast.agent(name="{agent}"',
        f'@fast.agent(name="{agent}", model="generic.{_word(random)}"',
    )
    return _differs("model", agent)


def _tool_description(random: Random, files: Files) -> Edit:
    _change(files, LEAD, "What an item costs.", f"What an item costs, {_word(random)}.")
    return _differs("description of a function", "lead")


def _renamed(random: Random, files: Files) -> Edit:
    _change(files, LEAD, "price", f"price_{_word(random)}")
    return _differs("renamed function", "lead", "other tool calls")


def _lost(random: Random, files: Files) -> Edit:
    _change(files, LEAD, ", function_tools=[price]", "")
    return _differs("lost function", "lead", "other tool calls")


def _narrower(random: Random, files: Files) -> Edit:
    new = random.choice(["item: int", f"item: str, {_word(random)}: str", f"item_{_word(random)}: str"])
    _change(files, LEAD, "item: str", new)
    return _differs("narrower schema", "lead", "other tool calls")


def _wider(random: Random, files: Files) -> Edit:
    new = random.choice([f"item: str, {_word(random)}: int = {random.randrange(9)}", "item: str | int"])
    _change(files, LEAD, "item: str", new)
    return _differs("wider schema", "lead")


def _skill(random: Random, files: Files) -> Edit:
    _change(files, SKILL, "How to count things.", f"How to count {_word(random)}.")
    return _differs("skill", "clerk")


def _peer_description(random: Random, files: Files) -> Edit:
    _topology(files, lambda content: entry(content, "keeper").update(description=f"Keeps {_word(random)}."))
    return Edit("description of a peer", frozenset({"keeper", "lead"}), "other words", "step 1 of lead")


def _lost_peer(random: Random, files: Files) -> Edit:
    peers = random.choice([[], ["other"]])
    _topology(files, lambda content: entry(content, "lead").update(peers=peers))
    return _differs("lost peer", "lead", "other tool calls")


def _broken(random: Random, files: Files) -> Edit:
    agent = _agent(random)
    _change(files, _MODULES[agent], "@fast.agent", f"{_word(random)}()\n\n\n@fast.agent")
    return Edit(f"broken {agent}", frozenset({agent}), "fails", agent)


def _server_tool(random: Random, files: Files) -> Edit:
    old, word = random.choice([("def find(", "other tool calls"), ("Find a thing", "other words")])
    _change(files, SHELF, old, f"def find_{_word(random)}(" if word == "other tool calls" else _word(random))
    edit = _differs(
        "tool of a server", "clerk", "other tool calls" if word == "other tool calls" else "other words"
    )
    return Edit(edit.name, edit.agents, edit.word, edit.where, ("shelf",))


def _comment(random: Random, files: Files) -> Edit:
    agent = _agent(random)
    lines = files[_MODULES[agent]].splitlines()
    at = random.choice(
        [number for number, line in enumerate(lines) if re.match(r"(from|fast|@fast|async def main)", line)]
    )
    lines.insert(at, f"# {_word(random)}")
    files[_MODULES[agent]] = "\n".join(lines) + "\n"
    return Edit(f"comment in {agent}", frozenset({agent}))


def _layout(random: Random, files: Files) -> Edit:
    agent = _agent(random)
    files[_MODULES[agent]] = files[_MODULES[agent]].replace(
        "@fast.agent(", "@fast.agent(\n    "
    ) + "\n" * random.randrange(3)
    return Edit(f"layout of {agent}", frozenset({agent}))


def _unused_name(random: Random, files: Files) -> Edit:
    agent = _agent(random)
    files[_MODULES[agent]] += f"\n\n{_word(random)} = {random.randrange(100)}\n"
    return Edit(f"name in {agent}", frozenset({agent}))


def _function_body(random: Random, files: Files) -> Edit:
    files[LEAD] = files[LEAD].replace(": 9", f": {random.randrange(10, 99)}")
    return Edit("body of a function", frozenset({"lead"}))


def _skill_body(random: Random, files: Files) -> Edit:
    files[SKILL] += f"Count {_word(random)}.\n"
    return Edit("body of a skill", frozenset({"clerk"}))


def _unrelated(random: Random, files: Files) -> Edit:
    files[OTHER] = files[OTHER].replace("You are other.", f"You are other. {_word(random)}")
    return Edit("an unrelated agent", frozenset({"other"}))


def _order(random: Random, files: Files) -> Edit:
    def mix(content: dict[str, Any]) -> None:
        agents = list(content["agents"].items())
        random.shuffle(agents)
        content["agents"] = dict(agents)

    _topology(files, mix)
    return Edit("order of agents", frozenset({_agent(random)}))


def _title(random: Random, files: Files) -> Edit:
    agent = random.choice(["lead", "other"])  # whose titles no other model sees
    _topology(files, lambda content: entry(content, agent).update(title=_word(random)))
    return Edit(f"title of {agent}", frozenset({agent}))


def _yaml_comment(random: Random, files: Files) -> Edit:
    files[TOPOLOGY] = f"# {_word(random)}\n{files[TOPOLOGY]}"
    return Edit("comment in agents.yaml", frozenset({_agent(random)}))


def _key_order(random: Random, files: Files) -> Edit:
    agent = random.choice(["lead", "clerk", "other"])

    def mix(content: dict[str, Any]) -> None:
        keys = list(entry(content, agent).items())
        random.shuffle(keys)
        content["agents"][agent] = dict(keys)

    _topology(files, mix)
    return Edit(f"order of the keys of {agent}", frozenset({agent}))


def _skill_head(random: Random, files: Files) -> Edit:
    name, description = "name: counting\n", "description: How to count things.\n"
    comment = f"# {_word(random)}\n"
    if name + description in files[SKILL]:  # else it was changed before
        files[SKILL] = files[SKILL].replace(name + description, description + comment + name)
    return Edit("order in the head of a skill", frozenset({"clerk"}))


def _docstring(random: Random, files: Files) -> Edit:
    agent = _agent(random)
    files[_MODULES[agent]] = f'"""The module of {_word(random)}."""\n{files[_MODULES[agent]]}'
    return Edit(f"docstring of {agent}", frozenset({agent}))


def _blanks(random: Random, files: Files) -> Edit:
    agent = _agent(random)
    text = files[_MODULES[agent]].replace(" = FastAgent(", "  =  FastAgent( ")
    files[_MODULES[agent]] = text.rstrip("\n") + " " * random.randrange(1, 4)
    return Edit(f"blanks in {agent}", frozenset({agent}))


type _Maker = Callable[[Random, Files], Edit]
HARMLESS: tuple[_Maker, ...] = (
    *(_comment, _layout, _unused_name, _function_body, _skill_body, _unrelated, _order, _title),
    *(_yaml_comment, _key_order, _skill_head, _docstring, _blanks),
)
_TELLING: tuple[_Maker, ...] = (
    *(_prompt, _parameter, _model, _tool_description, _renamed, _lost, _narrower, _wider, _skill),
    *(_peer_description, _lost_peer, _broken, _server_tool),
)


def edits(random: Random, files: Files, count: int, make: _Maker) -> Iterator[tuple[Edit, Files]]:
    """So many edits, each of the files as they were made."""
    for _ in range(count):
        edited = dict(files)
        yield make(random, edited), edited
