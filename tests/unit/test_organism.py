"""organism.yaml: what it says becomes a project, and what is not used is said."""

import json
import re
from pathlib import Path

import pytest
from support.config_folder import Folder

from pallas.cli.check import check
from pallas.config import ConfigError
from pallas.config.kinds import HandlerConfig, PumpLimits, TypedConfig
from pallas.config.models import TlsConfig

DOCUMENTED = """\
organism:
  name: hello-world
  port: 8800
  max_tokens_per_thread: 5000

thread_scheduling: breadth-first

llm:
  strategy: failover
  backends:
    - provider: anthropic
      api_key_env: ANTHROPIC_API_KEY
    - provider: openai
      api_key_env: OPENAI_API_KEY

backend:
  type: memory

listeners:
  - name: greeter
    payload_class: handlers.hello.Greeting
    handler: handlers.hello.handle_greeting
    description: Greets users by name
    agent: true
    peers: [calculator.add, prices, greeter.friend]
    prompt: |
      You are a greeter.
      Be brief.
    timeout: 12
  - name: greeter.friend
    payload_class: handlers.hello.Greeting
    handler: handlers.hello.handle_friend
    description: Knows the greeter
    agent: true
    peers: [greeter]
  - name: calculator.add
    payload_class: handlers.hello.Add
    handler: handlers.hello.add
    description: Adds two integers
    cpu_bound: true
    peers: [greeter]
  - name: prices
    payload_class: handlers.hello.Tick
    handler: handlers.hello.one
    description: Notes a price
    broadcast: true
    peers: [greeter]
  - name: prices
    payload_class: handlers.hello.Tick
    handler: handlers.hello.two
    description: Draws a price
    broadcast: true
    peers: [greeter]
"""
SMALL = """\
organism: {name: small}
listeners:
  - name: greeter
    payload_class: handlers.hello.Greeting
    handler: handlers.hello.handle_greeting
    description: Greets
    peers: [greeter.friend]
  - name: greeter.friend
    payload_class: handlers.hello.Greeting
    handler: handlers.hello.handle_friend
    description: Is greeted
    peers: [greeter]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    keys = {"ANTHROPIC_API_KEY": "secret-of-one", "OPENAI_API_KEY": "secret-of-two"}
    return Folder(tmp_path, keys).write("handlers/hello.py", "raise SystemExit('nobody imports this')\n")


def test_a_documented_file_alone_is_a_whole_project(folder: Folder) -> None:
    # HC-34
    project = folder.write("organism.yaml", DOCUMENTED).load()
    assert project.warnings == ()
    assert (project.name, project.port, project.registry_port) == ("hello-world", 8800, 8800)
    assert project.organism_file == project.agents_file == folder.root / "organism.yaml"
    assert list(project.agents) == ["greeter", "greeter.friend", "calculator.add", "prices", "prices.2"]
    greeter, _, add, prices, second = project.agents.values()
    assert greeter.handler == HandlerConfig(
        "handlers.hello:handle_greeting",
        typed=TypedConfig(
            "handlers.hello:Greeting",
            agent=True,
            timeout=12.0,
            prompt="You are a greeter.\nBe brief.",
            listener=True,
        ),
    )
    assert {each.kind for each in project.agents.values()} == {"handler"}
    assert greeter.peers == ("calculator.add", "prices", "greeter.friend")
    assert (greeter.description, greeter.port) == ("Greets users by name", 0)
    assert str(greeter.where) == "organism.yaml:20"
    assert (greeter.isolation, add.isolation) == ("none", "process")
    assert prices.handler is not None
    assert second.handler is not None
    assert (
        prices.handler.typed
        == second.handler.typed
        == TypedConfig("handlers.hello:Tick", broadcast=True, group="prices", listener=True)
    )
    assert second.handler.path == "handlers.hello:two"
    assert (project.llm.strategy, project.llm.max_tokens_per_thread) == ("failover", 5000)
    assert [(each.id, each.api_key) for each in project.llm.backends] == [
        ("anthropic", "secret-of-one"),
        ("openai", "secret-of-two"),
    ]


def test_beside_agents_yaml_it_is_one_catalog(folder: Folder) -> None:
    folder.agents(
        "name: demo\nregistry_port: 25000\nagents:\n"
        "  jarvis: {module: agents.jarvis, port: 25001, peers: [greeter]}\n"
    )
    project = folder.write("organism.yaml", SMALL.replace("[greeter.friend]", "[jarvis]")).load()
    assert list(project.agents) == ["jarvis", "greeter", "greeter.friend"]
    assert (project.name, project.registry_port, project.port) == ("demo", 25000, None)
    assert project.agents["greeter"].peers == ("jarvis",)
    assert (project.agents_file.name, project.organism_file) == ("agents.yaml", folder.root / "organism.yaml")
    assert [str(each) for each in project.warnings] == [
        "organism.yaml:1: organism.name: is not used; agents.yaml sets it"
    ]


def test_another_name_for_it_is_found_by_the_variable(folder: Folder) -> None:
    folder.environ["PALLAS_AGENTS_CONFIG"] = "config/demo.yaml"
    project = folder.write("config/demo.yaml", SMALL).load()
    assert (project.name, project.port, len(project.agents)) == ("small", 8765, 2)
    assert str(project.agents["greeter"].where) == "config/demo.yaml:3"
    assert folder.write("organism.yaml", SMALL).lines() == [
        "organism.yaml: is an organism, and config/demo.yaml is one too; keep one of them"
    ]


def test_a_name_in_both_files_is_a_mistake_that_tells_both_places(folder: Folder) -> None:
    # UN-6
    folder.agents(
        "name: demo\nport: 25000\nllm: {retries: 1}\nmessages: {queue: 3}\nagents:\n"
        "  greeter: {module: agents.jarvis}\n  greeter_x: {module: agents.jarvis}\n"
    )
    extra = "max_concurrent_handlers: 3\nllm: {strategy: failover}\n"
    listener = SMALL.replace("greeter.friend", "greeter-x")
    assert folder.write("organism.yaml", extra + listener).lines() == [
        "organism.yaml:1: max_concurrent_handlers: is also set in agents.yaml:4, by messages:; keep"
        " one of them",
        "organism.yaml:2: llm: is also set in agents.yaml:3, by llm:; keep one of them",
        "organism.yaml:3: organism.name: is not used; agents.yaml sets it",
        "organism.yaml:5: listeners[0]: greeter is the name of agents.greeter (agents.yaml:6) too; give one"
        " another name",
        "organism.yaml:10: listeners[1]: is published as greeter-x, as is greeter_x (agents.yaml:7); allowed:"
        " names that differ in more than _ and -",
    ]


AT = "organism.yaml:"

MISTAKES = [
    (
        "    description: Greets\n",
        "",
        "organism.yaml:3: listeners[0].description: is missing; required: what it",
    ),
    ("Is greeted", "''", "organism.yaml:11: listeners[1].description: is empty"),
    (
        "name: greeter.friend",
        "name: greeter",
        "organism.yaml:8: listeners[1].name: has the root tag greeter.gre",
    ),
    (
        "name: greeter.friend",
        "name: greeter",
        "as has listeners[0] (organism.yaml:3); allowed: a root tag (name",
    ),
    (
        "name: greeter.friend\n    payload_class: handlers.hello.Greeting",
        "name: greeter\n    payload_class: handlers.hello.Other",
        "organism.yaml:8: listeners[1].name: greeter is the name of listeners[0] (organism.yaml:3) too; gi",
    ),
    (
        "name: greeter.friend\n    payload_class: handlers.hello.Greeting",
        "name: greeter\n    payload_class: handlers.hello.GREETING",
        "has the root tag greeter.greeting, as has listeners[0]",
    ),
    ("  - name: greeter\n", "  - nam: greeter\n", "listeners[0].nam: unknown key; did you mean name"),
    (
        "  - name: greeter\n",
        "  - name: Greeter\n",
        "listeners[0].name: Greeter is not a name for an agent; allow",
    ),
    ("  - name: greeter\n", "  - name: Greeter\n", "did you mean greeter"),
    (
        "[greeter]",
        "[gretter]",
        "listeners[1].peers: there is no agent gretter; allowed: greeter, system.todo; di",
    ),
    (
        "handlers.hello.handle_friend",
        "handlers.helo.f",
        "there is no file for handlers.helo; looked for handlers",
    ),
    (
        "    handler: handlers.hello.handle_friend\n",
        "",
        "listeners[1].handler: is missing; required, for example",
    ),
    (
        "payload_class: handlers.hello.Greeting",
        "payload: handlers.hello.Greeting",
        "did you mean payload_class",
    ),
    (
        "organism: {name: small}",
        "organism: {nam: small}",
        "organism.yaml:1: organism.nam: unknown key; allowed:",
    ),
    (
        "organism: {name: small}",
        "organism: {nam: small}",
        "organism.yaml:1: organism.name: is missing; required",
    ),
    (
        "organism: {name: small}",
        "organism: {name: a, port: 0}",
        "organism.port: 0 is out of range; allowed: 1 to",
    ),
    (
        "organism: {name: small}",
        "organism: [a]",
        "organism.yaml:1: organism: is a list, where a mapping is needed",
    ),
    ("listeners:", "listener:", "organism.yaml:2: listener: unknown key; allowed: organism, listeners, llm"),
    (
        "listeners:",
        "listeners: []\nmeta:",
        "organism.yaml:2: listeners: names no listener; required: at least on",
    ),
    (
        "listeners:",
        "auth: {enabled: true}\nlisteners:",
        "organism.yaml:2: auth: is not supported here, so",
    ),
    (
        "listeners:",
        "thread_scheduling: best\nlisteners:",
        "thread_scheduling: unknown value best; allowed: bread",
    ),
    (
        "listeners:",
        "backend: {type: rediss}\nlisteners:",
        "backend.type: unknown value rediss; allowed: memory",
    ),
    (
        "listeners:",
        "llm: {retrys: 3}\nlisteners:",
        "organism.yaml:2: llm.retrys: unknown key; allowed: strategy",
    ),
    (
        "listeners:",
        "llm: {}\nllm_backends: []\nlisteners:",
        "organism.yaml:3: llm_backends: is given beside llm",
    ),
    (
        "listeners:",
        "tls: {cert: nope.pem}\nlisteners:",
        "organism.yaml:2: tls.cert: there is no file nope.pem",
    ),
    (
        "description: Greets\n",
        "description: Greets\n    timeout: soon\n",
        "listeners[0].timeout: is text, where a",
    ),
]


@pytest.mark.parametrize(("old", "new", "line"), MISTAKES, ids=[each[2][-40:] for each in MISTAKES])
def test_a_mistake_says_where_what_and_how_to_mend_it(folder: Folder, old: str, new: str, line: str) -> None:
    # HC-34: a lacking description and a repeated root tag are among them
    lines = folder.write("organism.yaml", SMALL.replace(old, new)).lines()
    assert any(line in each for each in lines), lines
    with pytest.raises(ConfigError):
        folder.load()


def test_broadcast_listeners_of_one_name_take_the_same_message(folder: Folder) -> None:
    both = SMALL.replace("greeter.friend", "greeter").replace("    desc", "    broadcast: true\n    desc")
    assert list(folder.write("organism.yaml", both).load().agents) == ["greeter", "greeter.2"]
    one = both.replace("broadcast: true", "broadcast: false", 1)
    assert any(
        "has the root tag greeter.greeting" in line for line in folder.write("organism.yaml", one).lines()
    )


WARNINGS = [
    ("thread_scheduling: depth-first", "thread_scheduling: depth-first is not used; messages are handled in"),
    (
        'backend: {type: redis, redis_url: "redis://me:pw@x", redis_ttl: 3}',
        "backend.type: is not used; messages in flight",
    ),
    ("process_pool: {workers: 4, max_tasks_per_child: 100}", "process_pool: is not used; each listener with"),
    ("oob: {bind: 127.0.0.1, port: 8766}", "oob: is not used; a fleet is controlled over its API"),
    ("meta: {enabled: true}", "meta: is not used; rbac: in agents.yaml decides who may see"),
    (
        "gateways: [{name: far, remote_url: 'wss://far'}]",
        "gateways: is not used; agents of another fleet are",
    ),
    ("server: {enabled: true}", "server: is not used; the fleet serves at its port"),
    ("identity: keys/me.pem", "identity: is not used; messages within a fleet are not signed"),
]


@pytest.mark.parametrize(("text", "line"), WARNINGS)
def test_what_is_not_used_is_said_with_why_and_stops_nothing(folder: Folder, text: str, line: str) -> None:
    project = folder.write("organism.yaml", f"{text}\n{SMALL}").load()
    (warning,) = project.warnings
    assert str(warning).startswith("organism.yaml:1: ")
    assert line in str(warning)
    assert "pw" not in str(warning)


@pytest.mark.parametrize("text", ["oob: {enabled: false}", "auth: {enabled: false}", "gateways: []", "meta:"])
def test_what_is_off_needs_no_word(folder: Folder, text: str) -> None:
    assert folder.write("organism.yaml", f"{text}\n{SMALL}").load().warnings == ()


def test_keys_of_a_listener_that_change_nothing_are_said_and_a_tool_needs_no_word(folder: Folder) -> None:
    text = SMALL.replace("description: Greets", "description: Greets\n    tool: true\n    model: grok-4.1", 1)
    (warning,) = folder.write("organism.yaml", text).load().warnings
    assert str(warning).startswith(
        "organism.yaml:8: listeners[0].model: is not used; the handler's code sets"
    )


def test_agents_without_peers_are_named_once_since_they_fail_closed(folder: Folder) -> None:
    # HC-15
    text = SMALL.replace("peers: [greeter.friend]", "agent: true").replace("peers: [greeter]", "peers: []")
    (warning,) = folder.write("organism.yaml", text).load().warnings
    assert str(warning) == (
        "organism.yaml:2: listeners: greeter, greeter.friend: without peers they can answer their caller, and"
        " send to no other agent; name under peers: whom each of them sends to"
    )


def test_a_listener_that_is_no_agent_and_names_no_peers_forwards_freely(folder: Folder) -> None:
    # HC-15
    project = folder.write("organism.yaml", SMALL.replace("    peers: [greeter.friend]\n", "")).load()
    assert project.warnings == ()
    typed = [agent.typed for agent in project.agents.values() if agent.typed is not None]
    assert [each.forwards_freely for each in typed] == [True, False]


def test_a_gateway_among_peers_is_a_warning_and_no_peer(folder: Folder) -> None:
    # HC-34
    gateways = "gateways: [{name: web_search, remote_url: 'wss://far'}]\n"
    text = gateways + SMALL.replace("[greeter.friend]", "[greeter.friend, web_search]")
    project = folder.write("organism.yaml", text).load()
    assert project.agents["greeter"].peers == ("greeter.friend",)
    assert [str(each) for each in project.warnings] == [
        "organism.yaml:1: gateways: is not used; agents of another fleet are `kind: remote` in agents.yaml",
        "organism.yaml:8: listeners[0].peers: web_search is a gateway, and messages to it are not"
        " delivered; for an agent elsewhere write web_search into agents.yaml, `kind: remote`",
    ]
    folder.agents(
        "name: demo\nport: 25000\nagents:\n  web_search: {kind: remote, url: 'http://127.0.0.1:1/mcp'}\n"
    )
    project = folder.load()
    assert project.agents["greeter"].peers == ("greeter.friend", "web_search")
    assert not any("is a gateway" in str(each) for each in project.warnings)


def test_limits_a_version_a_certificate_and_older_backends_are_understood(folder: Folder) -> None:
    folder.write("certs/me.pem", "").write("certs/me.key", "")
    folder.write(
        "organism.yaml",
        SMALL.replace(
            "organism: {name: small}",
            'organism: {name: small, version: "0.1.0", max_concurrent_handlers: 9, description: Small}\n'
            "max_concurrent_per_agent: 2\n"
            "tls: {cert: certs/me.pem, key: certs/me.key}\n"
            "llm_backends: [{name: primary, provider: xai, model: grok-2, api_key_env: OPENAI_API_KEY}]",
        ),
    )
    project = folder.load()
    assert project.warnings == ()
    assert project.messages == PumpLimits(handlers=9, per_agent=2)
    assert project.version == "0.1.0"
    assert project.tls == TlsConfig(folder.root / "certs/me.pem", folder.root / "certs/me.key")
    (backend,) = project.llm.backends
    assert (backend.id, backend.provider, backend.supported_models) == ("primary", "xai", ("grok-2",))
    assert backend.api_key == "secret-of-two"


def test_pallas_check_tells_of_both_files(folder: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    # UN-6
    folder.agents("name: small\nport: 25000\nagents:\n  jarvis: {module: agents.jarvis}\n")
    folder.write("organism.yaml", SMALL)
    names = "Greeting = handle_greeting = handle_friend = None\n"
    folder.write("handlers/hello.py", f"{names}raise SystemExit('nobody imports this')\n")
    assert check(folder.root) == 0
    out, err = capsys.readouterr()
    assert out == "ok: 3 agents; port 25000 for everything; 2 handlers; 2 of organism.yaml\n"
    assert err == ""
    check(folder.root, as_json=True)
    agents = json.loads(capsys.readouterr().out)["agents"]
    assert [(each["name"], each["declared"]) for each in agents] == [
        ("jarvis", "agents.yaml:4"),
        ("greeter", "organism.yaml:3"),
        ("greeter.friend", "organism.yaml:8"),
    ]
    assert (agents[1]["payload"], agents[1]["peers"]) == ("handlers.hello:Greeting", ["greeter.friend"])
    folder.write("organism.yaml", SMALL.replace("    description: Greets\n", ""))
    assert check(folder.root) == 2
    assert "organism.yaml:3: listeners[0].description: is missing" in capsys.readouterr().err


CODE = """\
from dataclasses import dataclass


@dataclass
class Greeting:
    name: str


async def good(payload, metadata):
    return None


def late(payload, metadata):
    raise SystemExit("nobody calls this")


async def lone(payload):
    return None
"""


@pytest.mark.usefixtures("forked_children")
def test_listeners_are_imported_with_the_rest_when_that_is_asked_for(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.write("handlers/hello.py", CODE)
    listeners = "".join(
        f"  - {{name: {name}, payload_class: handlers.hello.{kind}, handler: handlers.hello.{handler},"
        " description: A, peers: [good]}\n"
        for name, kind, handler in (
            ("good", "Greeting", "good"),
            ("late", "Greeting", "late"),
            ("lone", "Greeting", "lone"),
            ("lost", "Greting", "good"),
            ("form", "Greeting", "Greeting"),
        )
    )
    folder.write("organism.yaml", f"organism: {{name: small}}\nlisteners:\n{listeners}")
    assert check(folder.root, do_import=True) == 2
    lines = [line for line in capsys.readouterr().err.splitlines() if "warning" not in line]
    for agent, problem in (
        ("late", "is not asynchronous"),
        ("lone", "takes only payload and no metadata"),
        ("lost", "there is no Greting in handlers.hello, which organism.yaml:6 names"),
        ("lost", "did you mean Greeting"),
        ("form", "is a class; name a function"),
    ):
        assert any(f"agents.{agent}.handler: " in line and problem in line for line in lines), lines
    assert len(lines) == 4
    assert all(re.match(r"handlers/hello\.py:\d+: ", line) for line in lines if "lost" not in line), lines
