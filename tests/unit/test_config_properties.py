"""Whatever stands in the files, the answer is a project or a list of mistakes."""

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from support.config_folder import AGENTS, Folder
from support.properties import examples

from pallas.config import ConfigError, Project
from pallas.config.agent_entries import ENTRIES
from pallas.config.agents_file import AgentsFile
from pallas.config.listeners import ListenerEntry
from pallas.config.llm_section import BackendEntry
from pallas.config.organism import OrganismFile, OrganismSection
from pallas.config.upstream import DOWNSTREAM_KEYS, TOP_KEYS
from pallas.safe_text import sanitize

AGENT_KEYS = tuple(dict.fromkeys(key for entry in ENTRIES.values() for key in entry.known()))

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-10, 70_000),
    st.floats(),
    st.text(max_size=12),
    st.sampled_from(
        ["${X}", "${X:y}", "agents.jarvis", "jarvis", "http://localhost:24201/mcp", "127.0.0.1", "1.x"]
    ),
)


def values(keys: tuple[str, ...]) -> st.SearchStrategy[object]:
    names = st.one_of(st.sampled_from(keys), st.text(max_size=8))
    return st.recursive(
        scalars,
        lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(names, inner, max_size=5)),
        max_leaves=12,
    )


def answer(folder: Folder) -> None:
    """The project or its mistakes; anything else that is raised fails the test."""
    try:
        project = folder.load()
    except ConfigError as error:
        assert error.mistakes
        for mistake in error.mistakes:
            assert mistake.where.file
            assert mistake.problem
            assert mistake.level == "error"
            assert "\n" not in str(mistake)
            assert sanitize(str(mistake)) == str(mistake)
    else:
        assert isinstance(project, Project)
        ports = [project.registry_port, *(agent.port for agent in project.agents.values())]
        assert len(set(ports)) == len(ports)
        assert {name for layer in project.start_layers() for name in layer} == set(project.agents)


def with_files(files: dict[str, str | bytes]) -> None:
    with TemporaryDirectory() as name:
        folder = Folder(Path(name))
        for file, content in {"agents.yaml": AGENTS, **files}.items():
            folder.write(file, content)
        answer(folder)


@pytest.mark.slow
@examples(150)
@given(st.binary(max_size=300))
def test_any_bytes_are_answered(data: bytes) -> None:
    with_files({"agents.yaml": data, "fastagent.config.yaml": data, ".env": data})


@pytest.mark.slow
@examples(150)
@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"#%@`?,<\n \t0.~$"), max_size=60))
def test_any_yaml_like_text_is_answered(text: str) -> None:
    with_files({"agents.yaml": "name: x\n" + text, "fast-agent.secrets.yaml": text, ".env": text})


@pytest.mark.slow
@examples(200)
@given(
    st.dictionaries(
        st.sampled_from(AgentsFile.known()), values((*AGENT_KEYS, "command", "url", "src")), max_size=6
    )
)
def test_any_values_under_the_known_keys_are_answered(top: dict[str, object]) -> None:
    with_files({"agents.yaml": yaml.safe_dump({"name": "demo", **top}, allow_unicode=True)})


@pytest.mark.slow
@examples(200)
@given(st.dictionaries(st.sampled_from(AGENT_KEYS), values(("src", "sizes", "vision")), max_size=8))
def test_any_values_of_an_agent_are_answered(agent: dict[str, object]) -> None:
    jarvis = {"module": "agents.jarvis", "port": 24201, **agent}
    with_files({"agents.yaml": yaml.safe_dump({"name": "demo", "agents": {"jarvis": jarvis}})})


@pytest.mark.slow
@examples(60)
@given(
    st.dictionaries(
        st.sampled_from(OrganismFile.known()),
        values((*OrganismSection.known(), *BackendEntry.known(), "backends")),
        max_size=6,
    ),
    st.lists(st.dictionaries(st.sampled_from(ListenerEntry.known()), values(("a",)), max_size=8), max_size=3),
)
def test_any_values_of_an_organism_are_answered(
    top: dict[str, object], listeners: list[dict[str, object]]
) -> None:
    given_listeners = {"listeners": listeners} if listeners else {}
    text = yaml.safe_dump({"organism": {"name": "demo"}, **top, **given_listeners}, allow_unicode=True)
    with_files({"organism.yaml": text})
    with_files({"organism.yaml": text, "agents.yaml": text})


@pytest.mark.slow
@examples(200)
@given(
    st.dictionaries(st.sampled_from(DOWNSTREAM_KEYS), values(DOWNSTREAM_KEYS), max_size=6),
    st.dictionaries(
        st.sampled_from(sorted(TOP_KEYS - {"mcp"})), values(("level", "api_key", "base_url")), max_size=4
    ),
)
def test_any_values_of_a_server_are_answered(server: dict[str, object], top: dict[str, object]) -> None:
    with_files({"fastagent.config.yaml": yaml.safe_dump({**top, "mcp": {"servers": {"docs": server}}})})


@pytest.mark.slow
@examples(60)
@given(st.dictionaries(st.sampled_from("abcdef"), st.sets(st.sampled_from("abcdef"), max_size=3), min_size=1))
def test_a_ring_is_found_exactly_when_the_agents_have_no_order(needs: dict[str, set[str]]) -> None:  # PR-6
    agents = {
        name: {
            "module": "agents.jarvis",
            "port": 1 + "abcdef".index(name),
            "depends_on": sorted(others & needs.keys()),
        }
        for name, others in needs.items()
    }
    with TemporaryDirectory() as folder_name:
        folder = Folder(Path(folder_name)).agents(yaml.safe_dump({"name": "demo", "agents": agents}))
        rings = [line for line in folder.lines() if "is circular" in line]
        assert bool(rings) == _has_ring({name: others & needs.keys() for name, others in needs.items()})


def _has_ring(needs: dict[str, set[str]]) -> bool:
    left = dict(needs)
    while ready := [name for name, others in left.items() if not others & left.keys()]:
        for name in ready:
            del left[name]
    return bool(left)
