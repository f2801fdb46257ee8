"""agents.yaml: workers, remote agents, handlers, routers, and what stands around them."""

import json
from pathlib import Path

import pytest
from support.config_folder import Folder

from pallas.cli.check import check
from pallas.config import ConfigError
from pallas.config.kinds import (
    HandlerConfig,
    RemoteConfig,
    RouterConfig,
    SessionLimits,
    TasksConfig,
    VerdictConfig,
    WorkerConfig,
)
from pallas.config.models import Need, RestartConfig


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return (
        Folder(tmp_path, {"TOKEN": "secret-of-the-test", "WHERE": "host.example.com"})
        .write("handlers/upper.py", "UPPER = None\n")
        .write("worker.py", "")
        .write("workers/one.py", "")
    )


def entry(body: str, rest: str = "") -> str:
    """agents.yaml with one port, an agent ``jarvis``, and one ``it`` with these keys in flow style."""
    return f"name: demo\nport: 24200\n{rest}agents:\n  jarvis: {{module: agents.jarvis}}\n  it: {{{body}}}\n"


EVERYTHING = """\
name: demo
port: 24200
default_agent: far
sessions: {max: 7, idle: 5, ttl: 50, reap_every: 1, concurrent: 3, prompt_bytes: 1000, metadata_bytes: 100}
tasks: {tools: true, ttl: 3600, max: 9}
verdict: {gate: hold, recent: 7, timeout: 5, live: ask, max_cost: 0.5, concurrency: 2}
agents:
  coder:
    kind: worker
    command: python one.py --name 'a b'
    env: {A: "${TOKEN}", B: 1}
    cwd: workers
    dialect: acp
    agent_id: seed
    request_timeout: 3
    capacity: 5
    capabilities: [coding, code-review, coding]
    examples: ["Fix  the test", Refactor this]
  far:
    kind: remote
    url: https://${WHERE}/mcp
    tool: ask
    argument: question
    conversation: thread
    headers: {Authorization: "Bearer ${TOKEN}"}
    capacity: 4
  upper: {kind: handler, handler: "handlers.upper:UPPER", capacity: 2, params: {top_p: 0.5}, port: 24209}
  jarvis:
    kind: llm
    module: agents.jarvis
    providers: [{id: openai, models: [openai.gpt-4o]}, {id: claude, models: [anthropic.claude-sonnet-4-5]}]
    default_provider: claude
  front: {kind: router, agents: [coder, far], by: model, ask: jarvis, fallback: upper, depends_on: [upper]}
"""


def test_every_key_of_every_kind_arrives(folder: Folder) -> None:
    project = folder.agents(EVERYTHING).load()
    coder, far, upper, jarvis, front = project.agents.values()
    assert coder.kind == "worker"
    assert coder.worker == WorkerConfig(
        command=("python", "one.py", "--name", "a b"),
        cwd=folder.root / "workers",
        env={"A": "secret-of-the-test", "B": "1"},
        dialect="acp",
        agent_id="seed",
        request_timeout=3.0,
        capacity=5,
    )
    assert coder.capabilities == ("coding", "code-review")
    assert coder.examples == ("Fix the test", "Refactor this")
    assert (coder.port, coder.module, coder.card) == (0, None, None)
    assert far.remote == RemoteConfig(
        url="https://host.example.com/mcp",
        tool="ask",
        argument="question",
        conversation="thread",
        headers={"Authorization": "Bearer secret-of-the-test"},
        capacity=4,
        key_variable="TOKEN",
    )
    assert (upper.handler, upper.port) == (HandlerConfig("handlers.upper:UPPER", 2), 24209)
    assert upper.params.values == {"top_p": 0.5}
    assert [each.id for each in jarvis.providers] == ["claude", "openai"]
    assert jarvis.default_provider == "claude"
    assert front.router == RouterConfig(("coder", "far"), "model", "jarvis", "upper")
    assert set(front.needs) == {
        Need("upper"),
        Need("coder", "started"),
        Need("far", "started"),
        Need("jarvis", "started"),
    }
    assert project.default_agent == "far"
    assert project.sessions == SessionLimits(
        max=7, idle=5.0, ttl=50.0, reap_every=1.0, concurrent=3, prompt_bytes=1_000, metadata_bytes=100
    )
    assert project.tasks == TasksConfig(tools=True, ttl=3_600.0, max=9)
    assert project.verdict == VerdictConfig(
        gate="hold", recent=7, timeout=5.0, live="ask", max_cost=0.5, concurrency=2
    )
    assert project.warnings == ()
    assert "secret-of-the-test" not in repr(project)


def test_what_is_left_out_is_as_the_reference_says(folder: Folder) -> None:
    project = folder.agents(entry("kind: worker, command: [python, worker.py]")).load()
    it = project.agents["it"]
    assert it.worker == WorkerConfig(("python", "worker.py"), folder.root, agent_id="it")
    assert (project.sessions, project.tasks, project.default_agent) == (SessionLimits(), TasksConfig(), "")
    assert project.verdict == VerdictConfig(
        gate="warn", recent=0, timeout=60.0, live="never", max_cost=1.0, concurrency=8
    )
    assert project.agents["jarvis"].kind == "llm"
    # Five restarts in a minute: the failure after those ends it (DR-29).
    assert it.restart == RestartConfig(backoff=0.5, backoff_max=10.0, crashes=6, within=60.0)
    assert (
        folder.agents(entry("kind: worker, command: x", "verdict: {gate: off}\n")).load().verdict.gate
        == "off"
    )
    only = folder.agents(entry("kind: worker, command: worker, restart: {crashes: 2}")).load()
    assert only.agents["it"].restart == RestartConfig(backoff=0.5, backoff_max=10.0, crashes=2, within=60.0)
    remote = folder.agents(entry("kind: remote, url: 'http://localhost:1/mcp', restart: always")).load()
    restart = remote.agents["it"].restart
    assert (restart.policy, restart.backoff_max) == ("always", 30.0)
    # With such waits there are never so many failures in the window: it is tried for ever.
    assert restart.crashes > restart.within / restart.backoff


FLOW = "agents.yaml:5: agents.it"
MISTAKES = [
    # kinds
    ("kind: wroker, command: x", f"{FLOW}.kind: unknown value wroker; allowed: llm, handler, worker, "),
    ("command: x", f"{FLOW}.command: is a key of kind worker, and this agent is of kind llm; write `kind: "),
    (
        "kind: worker, command: x, isolation: process",
        f"{FLOW}.isolation: is a key of kind llm or handler, and this agent is of kind worker; leave it out",
    ),
    ("kind: remote, url: 'http://localhost:1', max_iterations: 3", f"{FLOW}.max_iterations: is a key of"),
    ("kind: handler, handler: 'handlers.upper:U', instance_scope: request", f"{FLOW}.instance_scope: is a"),
    (
        "kind: router, agents: [jarvis], capacity: 3",
        f"{FLOW}.capacity: is a key of kind handler or worker or",
    ),
    ("kind: router, agents: [jarvis], providers: []", f"{FLOW}.providers: is a key of kind llm"),
    ("kind: worker, comand: x, command: y", f"{FLOW}.comand: unknown key; allowed: kind, command, env, cwd"),
    # workers
    ("kind: worker", f"{FLOW}.command: is missing; required, for example `command: [python, worker.py]`"),
    ("kind: worker, command: []", f"{FLOW}.command: is empty"),
    ('kind: worker, command: "it\'s"', f"{FLOW}.command: cannot be split into words"),
    ("kind: worker, command: x, cwd: nowhere", f"{FLOW}.cwd: there is no such folder"),
    ("kind: worker, command: x, dialect: lsp", f"{FLOW}.dialect: unknown value lsp; allowed: auto, acp, ndj"),
    ("kind: worker, command: x, request_timeout: 0", f"{FLOW}.request_timeout: 0 is out of range"),
    ("kind: worker, command: x, capacity: 0", f"{FLOW}.capacity: 0 is out of range; allowed: 1 to 100000"),
    ("kind: worker, command: x, env: {A: [b]}", f"{FLOW}.env.A: is a list, where text is needed"),
    ("kind: worker, command: x, env: {A=B: c}", f"{FLOW}.env: A=B is not the name of a variable"),
    # remote agents
    ("kind: remote", f"{FLOW}.url: is missing; required, for example `url: https://HOST/mcp`"),
    ("kind: remote, url: 'ftp://x/mcp'", f"{FLOW}.url: is not an http URL"),
    ("kind: remote, url: '${UNSET_HOST}'", f"{FLOW}.url: is empty because UNSET_HOST is not set"),
    ("kind: remote, url: 'http://x/mcp', headers: [a]", f"{FLOW}.headers: is a list, where a mapping"),
    ("kind: remote, url: 'http://x/mcp', headers: {'A b': c}", f"{FLOW}.headers: A b cannot be sent as a"),
    (
        "kind: remote, url: 'https://x/mcp', headers: {authorization: a}, forward_inbound_auth: true",
        f"{FLOW}.forward_inbound_auth: is given beside headers.Authorization; allowed: one of them",
    ),
    # handlers
    ("kind: handler", f"{FLOW}.handler: is missing"),
    ("kind: handler, handler: handlers.upper", f"{FLOW}.handler: does not name an object; write module:NAME"),
    ("kind: handler, handler: 'handlers/upper.py:UPPER'", "is a path; write the module's dotted name"),
    ("kind: handler, handler: 'handlers.uper:UPPER'", "there is no file for handlers.uper; looked for"),
    # routers
    ("kind: router", f"{FLOW}.agents: is missing"),
    ("kind: router, agents: []", f"{FLOW}.agents: names no agent"),
    (
        "kind: router, agents: [javis]",
        f"{FLOW}.agents: there is no agent javis; allowed: jarvis; did you mean",
    ),
    (
        "kind: router, agents: [it]",
        f"{FLOW}.agents: is circular: it -> it; allowed: agents that do not choose",
    ),
    ("kind: router, agents: [jarvis], fallback: x", f"{FLOW}.fallback: there is no agent x"),
    ("kind: router, agents: [jarvis], by: luck", f"{FLOW}.by: unknown value luck; allowed: capability, exam"),
    ("kind: router, agents: [jarvis], by: model", f"{FLOW}.ask: is missing; required with `by: model`"),
    ("kind: router, agents: [jarvis], ask: jarvis", f"{FLOW}.ask: is for `by: model`, and this is `by: exam"),
    # words
    ("module: agents.jarvis, capabilities: [Code Review]", "Code Review is not a capability; allowed: a-z,"),
    ("module: agents.jarvis, capabilities: [Code Review]", "did you mean code-review"),
    ("module: agents.jarvis, capabilities: coding", f"{FLOW}.capabilities: is text, where a list is needed"),
    (f"module: agents.jarvis, capabilities: [{'x' * 65}]", "is not a capability"),
    (
        f"module: agents.jarvis, capabilities: [{', '.join(f'c{at}' for at in range(51))}]",
        f"{FLOW}.capabilities: has 51 entries; allowed: at most 50",
    ),
    (
        f"module: agents.jarvis, examples: [{'x' * 501}]",
        f"{FLOW}.examples: has 501 characters; allowed: 1 to",
    ),
    ("module: agents.jarvis, examples: ['']", f"{FLOW}.examples: is empty"),
    (
        f"module: agents.jarvis, examples: [{', '.join(f'e{at}' for at in range(51))}]",
        f"{FLOW}.examples: has 51 entries; allowed: at most 50",
    ),
]


@pytest.mark.parametrize(("body", "line"), MISTAKES, ids=[line[-50:] for _, line in MISTAKES])
def test_a_mistake_says_where_what_and_how_to_mend_it(folder: Folder, body: str, line: str) -> None:
    lines = folder.agents(entry(body)).lines()
    assert any(line in each for each in lines), lines
    with pytest.raises(ConfigError):
        folder.load()


TOP = [
    (
        "default_agent: jarviss\n",
        "agents.yaml:3: default_agent: there is no agent jarviss; allowed: jarvis, it",
    ),
    ("sessions: {maximum: 3}\n", "agents.yaml:3: sessions.maximum: unknown key; allowed: max, idle, ttl"),
    ("sessions: {ttl: 0}\n", "agents.yaml:3: sessions.ttl: 0 is out of range; allowed: 1 to 2592000"),
    ("sessions: {max: 0}\n", "agents.yaml:3: sessions.max: 0 is out of range; allowed: 1 to 100000"),
    ("sessions: {prompt_bytes: 99999999999}\n", "sessions.prompt_bytes: 99999999999 is out of range"),
    ("tasks: {tools: maybe}\n", "agents.yaml:3: tasks.tools: is text, where true or false is needed"),
    ("verdict: hold\n", "agents.yaml:3: verdict: is text, where a mapping is needed"),
    ("verdict: {gate: held}\n", "agents.yaml:3: verdict.gate: unknown value held; allowed: off, warn, hold"),
    ("verdict: {recent: 201}\n", "agents.yaml:3: verdict.recent: 201 is out of range; allowed: 0 to 200"),
    ("verdict: {timeout: 0}\n", "agents.yaml:3: verdict.timeout: 0 is out of range; allowed: 1 to 3600"),
    (
        "verdict: {live: yes}\n",
        "agents.yaml:3: verdict.live: is true to YAML; allowed: never, ask, always",
    ),
    ("verdict: {live: now}\n", "agents.yaml:3: verdict.live: unknown value now; allowed: never, ask, always"),
    ("verdict: {max_cost: -1}\n", "agents.yaml:3: verdict.max_cost: -1 is out of range; allowed: 0 to 1000"),
    (
        "verdict: {concurrency: 17}\n",
        "agents.yaml:3: verdict.concurrency: 17 is out of range; allowed: 1 to 16",
    ),
    (
        "verdict: {gates: hold}\n",
        "agents.yaml:3: verdict.gates: unknown key; allowed: gate, recent, timeout, live, "
        "max_cost, concurrency",
    ),
    (
        "reload: {gate: tests}\n",
        "agents.yaml:3: reload: is not a section any more; write `verdict: {gate: hold}` for",
    ),
    ("tasks: [1]\n", "agents.yaml:3: tasks: is a list, where a mapping is needed"),
]


@pytest.mark.parametrize(("rest", "line"), TOP)
def test_what_stands_at_the_top_is_checked(folder: Folder, rest: str, line: str) -> None:
    lines = folder.agents(entry("kind: worker, command: x", rest)).lines()
    assert any(each.startswith(line) or line in each for each in lines), lines


def test_routers_that_choose_one_another_are_told_as_a_ring(folder: Folder) -> None:
    folder.agents(
        "name: demo\nport: 24200\nagents:\n  jarvis: {module: agents.jarvis}\n"
        "  one: {kind: router, agents: [jarvis, two]}\n  two: {kind: router, agents: [three]}\n"
        "  three: {kind: router, agents: [jarvis], fallback: one}\n"
    )
    assert folder.lines() == [
        "agents.yaml:5: agents.one.agents: is circular: one -> two -> three -> one; "
        "allowed: agents that do not choose this one or wait for it"
    ]


def test_each_agent_needs_a_port_where_there_is_no_port_for_everything(folder: Folder) -> None:
    folder.agents("name: demo\nagents:\n  it: {kind: worker, command: x}\n")
    assert folder.lines() == [
        "agents.yaml:3: agents.it.port: is missing; required, for example `port: 24201`"
    ]


WARNINGS = [
    (
        "kind: worker, command: python, env: {A: '${NOPE}'}",
        "agents.it.env.A: agent it needs NOPE, which is not",
    ),
    (
        "kind: remote, url: 'https://x/mcp', headers: {X: '${NOPE}'}",
        "agents.it.headers.X: agent it needs NOPE, which is not set; set NOPE in the environment or in .env",
    ),
    ("kind: remote, url: 'https://me:pw@x/mcp'", "agents.it.url: holds a name or a password"),
    ("kind: remote, url: 'https://x/mcp?api_key=abc'", "agents.it.url: holds a secret in its query"),
    ("kind: remote, url: 'http://x/mcp', forward_inbound_auth: true", "agents.it.url: is not encrypted, and"),
    (
        "kind: remote, url: 'http://x/mcp', headers: {Authorization: y}",
        "agents.it.url: is not encrypted, and",
    ),
]


@pytest.mark.parametrize(("body", "line"), WARNINGS)
def test_what_is_risky_is_warned_of_and_not_refused(folder: Folder, body: str, line: str) -> None:
    project = folder.agents(entry(body)).load()
    assert [str(each) for each in project.warnings if line in str(each)], project.warnings
    remote = project.agents["it"].remote
    assert remote is None or "NOPE" not in body or remote.unset == ("NOPE",)


@pytest.mark.parametrize(
    "body",
    [
        "kind: remote, url: 'http://127.0.0.1:9/mcp', forward_inbound_auth: true",
        "kind: remote, url: 'http://localhost:9/mcp', headers: {Authorization: 'Bearer ${TOKEN}'}",
        "kind: remote, url: 'https://x/mcp?a=b', headers: {Authorization: 'Bearer ${TOKEN}'}",
        "kind: handler, handler: 'json.decoder:JSONDecoder'",
    ],
)
def test_what_is_usual_is_not_warned_of(folder: Folder, body: str) -> None:
    assert folder.agents(entry(body)).load().warnings == ()


def test_pallas_check_knows_the_kinds_and_looks_for_programs(
    folder: Folder, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret-of-the-test")
    monkeypatch.setenv("WHERE", "host.example.com")
    folder.agents(EVERYTHING.replace("command: python one.py", "command: no-such-program one.py"))
    assert check(folder.root) == 0
    out, err = capsys.readouterr()
    assert "1 worker, 1 remote, 1 handler, 1 router" in out
    assert err.splitlines() == [
        "agents.yaml:8: warning: agents.coder.command: no-such-program is not on PATH; "
        "install it, or name it with its path; paths start at its cwd"
    ]
    folder.agents(EVERYTHING.replace("command: python one.py", "command: ./one.py"))
    folder.config("model_capabilities: {vision: true}\n")
    check(folder.root, as_json=True)
    body = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in body["agents"]] == ["worker", "remote", "handler", "llm", "router"]
    assert [each["model_capabilities"] is None for each in body["agents"]] == [True, True, True, False, True]
    assert body["agents"][4]["routes_to"] == ["coder", "far"]
    assert body["mistakes"][0]["problem"] == "there is no program ./one.py that may be run"
    assert "secret-of-the-test" not in json.dumps(body)


def test_handlers_are_imported_with_the_rest_and_nothing_else_is(
    folder: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.write("handlers/upper.py", "async def good(request):\n    return request.text\n")
    folder.agents(
        "name: demo\nport: 24200\nagents:\n"
        "  good: {kind: handler, handler: 'handlers.upper:good'}\n"
        "  bad: {kind: handler, handler: 'handlers.upper:UPPER'}\n"
        "  it: {kind: worker, command: [python, worker.py]}\n"
        "  front: {kind: router, agents: [good, it]}\n"
    )
    folder.write("worker.py", "raise SystemExit(3)\n")
    assert check(folder.root, do_import=True) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1, lines
    assert "agents.bad.handler: there is no UPPER in handlers.upper" in lines[0]
