"""agents.yaml: typed handlers, peers, and how much messages and models may be."""

from pathlib import Path

import pytest
from support.config_folder import Folder

from pallas.config import ConfigError
from pallas.config.code import code_file
from pallas.config.kinds import BackendConfig, HandlerConfig, LlmRouting, PumpLimits, TypedConfig


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path, {"TOKEN": "secret-of-the-test", "XAI_API_KEY": "secret-of-xai"}).write(
        "calc/add.py", "raise SystemExit('nobody imports this')\n"
    )


def entry(body: str, rest: str = "") -> str:
    """agents.yaml with one port, an agent ``jarvis``, and one ``it`` with these keys in flow style."""
    return f"name: demo\nport: 24200\n{rest}agents:\n  jarvis: {{module: agents.jarvis}}\n  it: {{{body}}}\n"


TYPED = "kind: handler, handler: calc.add.answer, payload: calc.add.Sum"

EVERYTHING = """\
name: demo
port: 24200
messages: {pipelines: 7, handlers: 6, per_agent: 2, queue: 100, per_run: 50, bytes: 2048}
agents:
  jarvis: {module: agents.jarvis, peers: [add, prices, add]}
  add:
    kind: handler
    handler: calc.add:answer
    payload: calc.add.Sum
    peers: [jarvis, prices, system.todo]
    agent: true
    description: Adds
    timeout: 3
    isolation: process
    memory: 256MB
    forward_inbound_auth: true
    prompt: |
      You add.
      Nothing else.
    capacity: 9
    port: 24209
  prices: {kind: handler, handler: "calc.add:one", payload: "calc.add:Tick", broadcast: true}
  fan.two: {kind: handler, handler: "calc.add:two", payload: calc.add.Tick, broadcast: true, group: prices}
  alone: {kind: handler, handler: "calc.add:three", payload: calc.add.Tick, broadcast: true}
  words: {kind: handler, handler: "calc.add:WORDS"}
"""


def test_every_key_of_a_typed_handler_arrives_and_nothing_is_imported(folder: Folder) -> None:
    project = folder.agents(EVERYTHING).load()
    assert project.warnings == ()
    add = project.agents["add"]
    assert add.handler == HandlerConfig(
        "calc.add:answer",
        9,
        typed=TypedConfig(
            "calc.add:Sum",
            agent=True,
            timeout=3.0,
            memory=256 << 20,
            forward_inbound_auth=True,
            prompt="You add.\nNothing else.",
            capacity=9,
        ),
    )
    assert (add.isolation, add.port, add.needs) == ("process", 24209, ())
    assert add.peers == ("jarvis", "prices", "system.todo")
    assert project.agents["jarvis"].peers == ("add", "prices")
    assert project.start_layers() == (tuple(project.agents),)  # two that call each other wait for nobody
    typed = {name: each.handler.typed for name, each in project.agents.items() if each.handler}
    assert {name: each.group for name, each in typed.items() if each} == {
        "add": "",
        "prices": "prices",
        "fan.two": "prices",
        "alone": "alone",
    }
    assert typed["words"] is None
    assert code_file(folder.root, add) == folder.root / "calc/add.py"
    assert project.messages == PumpLimits(
        pipelines=7, handlers=6, per_agent=2, queue=100, per_run=50, bytes=2048
    )


def test_what_is_not_given_is_as_the_contract_says(folder: Folder) -> None:
    project = folder.agents(entry(TYPED)).load()
    it = project.agents["it"]
    assert it.handler == HandlerConfig("calc.add:answer", typed=TypedConfig("calc.add:Sum"))
    assert (it.peers, it.isolation) == ((), "none")
    assert (project.messages, project.llm) == (PumpLimits(), LlmRouting())


@pytest.mark.parametrize(
    ("memory", "size"),
    [("256MB", 256 << 20), ("1GiB", 1 << 30), ("512", 512 << 20), ("'512'", 512 << 20), ("2 g", 2 << 30)],
)
def test_memory_is_a_size_or_a_number_of_mebibytes(folder: Folder, memory: str, size: int) -> None:
    body = f"{TYPED}, isolation: process, memory: {memory}"
    handler = folder.agents(entry(body)).load().agents["it"].handler
    assert handler is not None
    assert handler.typed is not None
    assert handler.typed.memory == size


AT = "agents.yaml:5: agents.it"

MISTAKES = [
    (f"{TYPED}, isolation: yes", "agents.it.isolation: is true to YAML; allowed: none, process"),
    ("kind: handler, payload: calc.add.Sum", f"{AT}.handler: is missing; required, for example `handler: my"),
    ("kind: handler, handler: 'calc.add:answer', payload: Sum", f"{AT}.payload: does not name an object"),
    ("kind: handler, handler: 'calc.add:answer', payload: Sum", "write module:Class, such as pricing:Order"),
    ("kind: handler, handler: answer, payload: calc.add.Sum", f"{AT}.handler: does not name an object"),
    ("kind: handler, handler: calc.add.answer, payload: calc.ad.Sum", "there is no file for calc.ad; looked"),
    ("kind: handler, handler: calc.add.answer, payload: calc.ad.Sum", "did you mean calc.add"),
    ("kind: handler, handler: clac.add.answer, payload: calc.add.Sum", "there is no file for clac.add; look"),
    ("kind: handler, handler: calc.add.answer", f"{AT}.handler: does not name an object; write module:NAME"),
    (
        "kind: handler, handler: 'calc.add:A', agent: true",
        f"{AT}.agent: is a key of typed handlers, and this",
    ),
    ("kind: handler, handler: 'calc.add:A', peers: [jarvis]", f"{AT}.peers: is a key of typed handlers"),
    ("kind: handler, handler: 'calc.add:A', isolation: process", f"{AT}.isolation: is a key of typed handle"),
    (
        f"{TYPED}, peers: [javis]",
        f"{AT}.peers: there is no agent javis; allowed: jarvis, system.todo; did yo",
    ),
    (f"{TYPED}, peers: [system.boot]", f"{AT}.peers: there is no agent system.boot"),
    (f"{TYPED}, peers: jarvis", f"{AT}.peers: is text, where a list is needed; write [coder, calculator]"),
    (
        f"{TYPED}, peers: [{', '.join(f'p{at}' for at in range(201))}]",
        "has 201 entries; allowed: at most 200",
    ),
    (
        "module: agents.jarvis, peers: [itt]",
        f"{AT}.peers: there is no agent itt; allowed: jarvis, system.todo",
    ),
    (
        "kind: worker, command: x, peers: [jarvis]",
        f"{AT}.peers: is a key of kind llm or handler, and this ag",
    ),
    (
        "module: agents.jarvis, payload: calc.add.Sum",
        f"{AT}.payload: is a key of kind handler, and this agent",
    ),
    (f"{TYPED}, peer: [jarvis]", f"{AT}.peer: unknown key"),
    (f"{TYPED}, agent: 1", f"{AT}.agent: is a number (1), where true or false is needed"),
    (f"{TYPED}, timeout: 0", f"{AT}.timeout: 0 is out of range; allowed: 0.1 to 3600"),
    (f"{TYPED}, files: [agents.yaml]", f"{AT}.files: needs a process of its own; write `isolation: process`"),
    (f"{TYPED}, isolation: process, files: [nope]", f"{AT}.files: there is no nope; name what is in the"),
    (f"{TYPED}, isolation: process, files: [../x]", f"{AT}.files: ../x is not in the project's folder; na"),
    (f"{TYPED}, isolation: process, files: ['.']", f"{AT}.files: . is not in the project's folder; name"),
    (f"{TYPED}, isolation: process, files: [/etc/passwd]", f"{AT}.files: /etc/passwd is not in the proj"),
    (f"{TYPED}, memory: 256MB", f"{AT}.memory: needs `isolation: process`; write it, or leave memory out"),
    (
        f"{TYPED}, isolation: process, memory: much",
        f"{AT}.memory: is not a size; allowed: 256MB, 2GB, or a num",
    ),
    (f"{TYPED}, isolation: process, memory: true", f"{AT}.memory: is not a size"),
    (f"{TYPED}, isolation: process, memory: 1", f"{AT}.memory: is out of range; allowed: 64MB to 1TB"),
    (f"{TYPED}, isolation: process, memory: 5B", f"{AT}.memory: is out of range"),
    (f"{TYPED}, isolation: thread", f"{AT}.isolation: unknown value thread; allowed: none, process"),
    (f"{TYPED}, prompt: [a]", f"{AT}.prompt: is a list, where text is needed"),
    (f"{TYPED}, broadcast: true, group: ticks", f"{AT}.group: there is no agent ticks; needed: the name of"),
    (f"{TYPED}, group: ticks", f"{AT}.group: needs `broadcast: true`; write it, or leave group out"),
    (f"{TYPED}, broadcast: true, group: agent-x", f"{AT}.group: is not a name; allowed: as for agents"),
    (
        f"{TYPED}, broadcast: true, group: jarvis",
        f"{AT}.group: jarvis is an agent (agents.yaml:4) that shares",
    ),
]


@pytest.mark.parametrize(("body", "line"), MISTAKES, ids=[line[-50:] for _, line in MISTAKES])
def test_a_mistake_says_where_what_and_how_to_mend_it(folder: Folder, body: str, line: str) -> None:
    lines = folder.agents(entry(body)).lines()
    assert any(line in each for each in lines), lines
    with pytest.raises(ConfigError):
        folder.load()


def test_handlers_that_share_a_name_take_the_same_message(folder: Folder) -> None:
    folder.agents(
        EVERYTHING.replace("calc.add.Tick, broadcast: true, group", "calc.add.Tock, broadcast: true, group")
    )
    assert folder.lines() == [
        "agents.yaml:23: agents.fan.two.payload: shares the name prices with prices (agents.yaml:22), which"
        " takes calc.add:Tick; allowed: the same payload for all that share a name"
    ]


def test_an_agent_among_its_own_peers_is_warned_of_and_not_refused(folder: Folder) -> None:
    project = folder.agents(entry(f"{TYPED}, peers: [it, jarvis]")).load()
    assert [str(each) for each in project.warnings] == [
        "agents.yaml:5: agents.it.peers: names the agent itself, which may always send to itself; leave"
        " it out"
    ]


LLM = """\
llm:
  strategy: round_robin
  retries: 5
  retry_base_delay: 0.5
  retry_max_delay: 9
  max_tokens_per_thread: 5000
  backends:
    - provider: xai
      api_key_env: XAI_API_KEY
      priority: 2
      rate_limit_tpm: 7
      max_concurrent: 3
      timeout: 4
      supported_models: [grok-, grok-]
    - {provider: anthropic, api_key: "${TOKEN}", base_url: "https://host.example.com/"}
    - {provider: anthropic}
    - {provider: ollama, base_url: "http://localhost:11434"}
    - {provider: openai, id: anthropic-3}
"""


def test_every_key_of_the_backends_arrives(folder: Folder) -> None:
    project = folder.agents(entry(TYPED, LLM)).load()
    assert project.warnings == ()
    routing = project.llm
    assert (routing.strategy, routing.retries, routing.max_tokens_per_thread) == ("round-robin", 5, 5000)
    assert (routing.retry_base_delay, routing.retry_max_delay) == (0.5, 9.0)
    xai, claude, second, ollama, openai = routing.backends
    assert xai == BackendConfig(
        "xai", "xai", ("grok-",), 2, 7, 3, 4.0, api_key="secret-of-xai", where=xai.where
    )
    assert str(xai.where) == "agents.yaml:10"
    assert (claude.id, claude.api_key, claude.base_url) == (
        "anthropic",
        "secret-of-the-test",
        "https://host.example.com",
    )
    assert (second.id, second.api_key, second.base_url) == ("anthropic-2", "", "")
    assert (ollama.id, ollama.provider, ollama.base_url) == ("ollama", "generic", "http://localhost:11434/v1")
    assert (openai.id, openai.priority, openai.timeout) == ("anthropic-3", 1, 120.0)
    assert "secret" not in repr(project.llm)


TOP = [
    ("messages: {pipeline: 3}\n", "agents.yaml:3: messages.pipeline: unknown key; allowed: pipelines, hand"),
    ("messages: {queue: 0}\n", "agents.yaml:3: messages.queue: 0 is out of range; allowed: 1 to 1000000"),
    ("messages: {bytes: 1}\n", "agents.yaml:3: messages.bytes: 1 is out of range"),
    ("messages: [1]\n", "agents.yaml:3: messages: is a list, where a mapping is needed"),
    ("llm: {strategy: random}\n", "agents.yaml:3: llm.strategy: unknown value random; allowed: failover, ro"),
    ("llm: {strategy: fail_ovr}\n", "did you mean failover"),
    ("llm: {retry: 3}\n", "agents.yaml:3: llm.retry: unknown key; allowed: strategy, retries"),
    ("llm: {retries: -1}\n", "agents.yaml:3: llm.retries: -1 is out of range; allowed: 0 to 20"),
    ("llm: {retry_base_delay: 9, retry_max_delay: 3}\n", "llm.retry_max_delay: is less than retry_base_de"),
    ("llm: {backends: {openai: {}}}\n", "llm.backends: is a mapping, where a list is needed"),
    ("llm: {backends: [openai]}\n", "llm.backends[0]: is text, where a mapping is needed"),
    ("llm: {backends: [{}]}\n", "llm.backends[0].provider: is missing; required"),
    ("llm: {backends: [{provider: opnai}]}\n", "opnai is not a provider of fast-agent; did you mean openai"),
    ("llm: {backends: [{provider: xai, tpm: 3}]}\n", "llm.backends[0].tpm: unknown key; allowed: provider, "),
    ("llm: {backends: [{provider: xai, id: a}, {provider: xai, id: a}]}\n", "a is given twice, first on"),
    ("llm: {backends: [{provider: xai, id: 'a b'}]}\n", "llm.backends[0].id: is not an id"),
    ("llm: {backends: [{provider: xai, base_url: 'localhost'}]}\n", "base_url: is not an http URL"),
    ("llm: {backends: [{provider: xai, max_concurrent: 0}]}\n", "max_concurrent: 0 is out of range"),
    ("llm: {backends: [{provider: xai, api_key: a, api_key_env: B}]}\n", "api_key: is given beside api_"),
    ("llm: {backends: [{provider: xai, supported_models: ['']}]}\n", "has an entry that is not the name of"),
    (f"llm: {{backends: [{', '.join(['{provider: xai}'] * 51)}]}}\n", "has 51 entries; allowed: at most 50"),
]  # fmt: skip


@pytest.mark.parametrize(("rest", "line"), TOP, ids=[line[-40:] for _, line in TOP])
def test_what_stands_at_the_top_is_checked(folder: Folder, rest: str, line: str) -> None:
    lines = folder.agents(entry(TYPED, rest)).lines()
    assert any(line in each for each in lines), lines
    with pytest.raises(ConfigError):
        folder.load()


def test_a_key_written_where_a_variables_name_belongs_is_refused_without_repeating_it(folder: Folder) -> None:
    folder.agents(entry(TYPED, "llm: {backends: [{provider: xai, api_key_env: sk-0123-abcdef}]}\n"))
    (line,) = folder.lines()
    assert "is not the name of a variable" in line
    assert "abcdef" not in line


@pytest.mark.parametrize("key", ["api_key_env: NOPE", "api_key: '${NOPE}'"])
def test_a_key_that_is_not_set_is_warned_of_and_the_projects_own_stands_in(folder: Folder, key: str) -> None:
    project = folder.agents(entry(TYPED, f"llm: {{backends: [{{provider: xai, {key}}}]}}\n")).load()
    assert project.llm.backends[0].api_key == ""
    (warning,) = project.warnings
    assert "backend xai needs NOPE, which is not set; set NOPE in the environment or in .env" in str(warning)


def test_a_key_in_the_file_is_warned_of_and_never_repeated(folder: Folder) -> None:
    project = folder.agents(entry(TYPED, "llm: {backends: [{provider: xai, api_key: sk-0123-abc}]}\n")).load()
    assert project.llm.backends[0].api_key == "sk-0123-abc"
    assert any("write api_key: ${VARIABLE}" in str(each) for each in project.warnings)
    assert not any("abc" in str(each) for each in project.warnings)
