"""agents.yaml: keys, defaults, and what each mistake says."""

from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder

from pallas.config import ConfigError, Icon, Where


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def agent(body: str, rest: str = "") -> str:
    """agents.yaml with one agent of these lines."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return f"name: demo\n{rest}agents:\n  jarvis:\n{lines}"


RIGHT = "module: agents.jarvis\nport: 24201\n"


def test_defaults_are_those_of_the_reference(folder: Folder) -> None:  # PR-2
    project = folder.agents().load()
    assert (project.name, project.version, project.host) == ("demo", "1.0.0", "localhost")
    assert (project.registry_port, project.namespace) == (24200, "local.pallas")  # PR-14
    assert (project.bind, project.allowed_hosts) == (None, ())
    assert (project.scripted, project.servers, project.warnings) == (None, {}, ())
    assert project.capabilities is None
    jarvis = project.agents["jarvis"]
    assert (jarvis.title, jarvis.description) == ("Jarvis", "Jarvis")
    assert (jarvis.instance_scope, jarvis.max_instances) == ("pooled", 8)
    assert (jarvis.max_iterations, jarvis.loop_repeat_threshold) == (12, 3)
    assert (jarvis.depends_on, jarvis.icons, jarvis.model_capabilities) == ((), (), None)
    assert jarvis.where == Where("agents.yaml", 3)
    assert project.root == folder.root
    assert project.agents_file == folder.root / "agents.yaml"


def test_every_key_arrives(folder: Folder) -> None:
    folder.write("cards/scribe.md", "x").write("model.yaml", "rules: []").write("tools/x.py", "")
    project = folder.agents(
        """\
name: demo
version: "2.1"
host: my-host.example.com
namespace: com.example.project
registry_port: 8200
bind: 127.0.0.1
allowed_hosts: ["*.example.com", 10.0.0.7, "puck.incus:*"]
server_cards: true
scripted: {script: model.yaml, port: 24290}
servers:
  docs:
    command: python x.py --port 24250 'a b'
    url: http://127.0.0.1:24250/mcp
    cwd: tools
    env: {DEBUG: 1, MODE: yes}
    start_timeout: 5
  shop:
    command: [python, shop.py, 7]
    url: http://elsewhere.example.com/mcp
agents:
  jarvis:
    module: agents.jarvis
    port: 8201
    title: The butler
    description: |
      Answers
      the door
    depends_on: [scribe]
    icons: [{src: a.svg, sizes: "48x48 96x96"}, b.png]
    instance_scope: conversation
    max_instances: 2
    max_iterations: 30
    loop_repeat_threshold: 0
    run_timeout: 90
    model_capabilities: {vision: true}
  scribe:
    card: cards/scribe.md
    port: 8202
    icons: https://example.com/scribe.png
"""
    ).load()
    assert (project.version, project.host) == ("2.1", "my-host.example.com")
    assert (project.namespace, project.registry_port) == ("com.example.project", 8200)
    assert project.allowed_hosts == ("*.example.com", "10.0.0.7", "puck.incus:*")
    assert project.server_cards is True
    assert project.bind == "127.0.0.1"
    assert project.scripted is not None
    assert (project.scripted.script, project.scripted.port) == (folder.root / "model.yaml", 24290)
    docs = project.servers["docs"]
    assert docs.command == ("python", "x.py", "--port", "24250", "a b")
    assert (docs.cwd, docs.start_timeout) == (folder.root / "tools", 5.0)
    assert docs.env == {"DEBUG": "1", "MODE": "yes"}
    assert project.servers["shop"].command == ("python", "shop.py", "7")
    assert project.servers["shop"].cwd == folder.root
    jarvis, scribe = project.agents["jarvis"], project.agents["scribe"]
    assert (jarvis.title, jarvis.description) == ("The butler", "Answers the door")
    assert jarvis.icons == (Icon("a.svg", ("48x48", "96x96")), Icon("b.png"))  # PI-3
    assert (jarvis.instance_scope, jarvis.max_instances) == ("conversation", 2)
    assert (jarvis.max_iterations, jarvis.loop_repeat_threshold) == (30, 0)
    assert (jarvis.run_timeout, scribe.run_timeout) == (90, 1800)
    assert jarvis.model_capabilities is not None
    assert (jarvis.model_capabilities.vision, jarvis.model_capabilities.context_window) == (
        True,
        131_072,
    )  # PR-13
    assert (scribe.module, scribe.card) == (None, folder.root / "cards/scribe.md")
    assert scribe.icons == (Icon("https://example.com/scribe.png"),)
    assert project.start_layers() == (("scribe",), ("jarvis",))  # PR-6


@pytest.mark.parametrize(
    ("written", "scope"),
    [("shared", "pooled"), ("connection", "conversation"), ("request", "request"), ("pooled", "pooled")],
)
def test_instance_scope_takes_the_older_words(folder: Folder, written: str, scope: str) -> None:  # C12
    project = folder.agents(agent(RIGHT + f"instance_scope: {written}")).load()
    assert project.agents["jarvis"].instance_scope == scope


def test_the_slug_has_dashes(folder: Folder) -> None:  # PR-14
    text = AGENTS.replace("jarvis:", "tech_research:")
    assert folder.agents(text).load().agents["tech_research"].slug == "tech-research"


def test_a_package_is_a_module_too(folder: Folder) -> None:
    folder.write("agents/butler/__init__.py", "")
    assert folder.agents(agent("module: agents.butler\nport: 1")).load().agents["jarvis"].port == 1


def test_another_file_may_be_named(folder: Folder) -> None:  # PR-3
    folder.write("x.yaml", AGENTS.replace("demo", "other"))
    folder.environ["PALLAS_AGENTS_CONFIG"] = "x.yaml"
    project = folder.load()
    assert (project.name, project.agents_file) == ("other", folder.root / "x.yaml")
    assert project.agents["jarvis"].where.file == "x.yaml"


def test_a_named_file_that_is_missing_says_who_named_it(folder: Folder) -> None:  # PR-3
    folder.environ["PALLAS_AGENTS_CONFIG"] = "x.yaml"
    assert folder.lines() == [
        "x.yaml: there is no such file; PALLAS_AGENTS_CONFIG names it; paths start at the project's folder"
    ]


def test_variables_are_expanded_here_too(folder: Folder) -> None:  # PR-10
    folder.environ.update(HOST="puck", PORT="24209")
    text = agent("module: agents.jarvis\nport: ${PORT}\ntitle: ${TITLE:At your service}", "host: ${HOST}\n")
    project = folder.agents(text).load()
    assert (project.host, project.agents["jarvis"].port) == ("puck", 24209)
    assert project.agents["jarvis"].title == "At your service"


def test_a_missing_variable_is_the_reason_given(folder: Folder) -> None:  # PR-10
    folder.agents(agent(RIGHT, "host: ${HOST}\n"))
    assert folder.lines() == [
        "agents.yaml:2: host: is empty because HOST is not set; set HOST in the environment or in .env"
    ]


MISTAKES = [
    # PR-2: what is required
    ("agents:\n  jarvis: {module: agents.jarvis, port: 1}\n", "agents.yaml: name: is missing"),
    ("name: demo\n", "agents.yaml: agents: is missing"),
    ("name: demo\nagents:\n", "agents.yaml:2: agents: names no agent"),
    ("name: demo\nagents: {}\n", "agents.yaml:2: agents: names no agent"),
    ("name: demo\nagents: [jarvis]\n", "agents.yaml:2: agents: is a list, where a mapping is needed"),
    (
        "name: demo\nagents:\n  jarvis:\n",
        "agents.yaml:3: agents.jarvis: has no value, where a mapping is needed",
    ),
    (agent("port: 24201"), "agents.yaml:3: agents.jarvis.module: is missing"),
    (agent("module: agents.jarvis"), "agents.yaml:3: agents.jarvis.port: is missing"),
    # unknown keys
    (
        agent(RIGHT + "depends-on: [x]"),
        "agents.yaml:6: agents.jarvis.depends-on: unknown key; allowed: kind, module, card, agent, "
        "instance_scope, max_instances, servers, max_iterations, loop_repeat_threshold, isolation, env, "
        "model_capabilities, params, providers, default_provider, peers, port, title, description, "
        "capabilities, examples, depends_on, icons, run_timeout, start_timeout, restart, "
        "unfinished_calls, limits, tools, auth; did you mean depends_on",
    ),
    (agent(RIGHT, "registryport: 1\n"), "did you mean registry_port"),
    (agent(RIGHT + "model_capabilities: {Vision: true}"), "did you mean vision"),
    # texts
    (agent(RIGHT, "version: 1.0\n"), 'version: is a number (1.0), where text is needed; quote it: "1.0"'),
    (agent(RIGHT, "version: 2024-01-02\n"), "is a date (2024-01-02), where text is needed"),
    (agent(RIGHT, "version: ^1.2\n"), "version: is not one version"),
    (agent(RIGHT, "version: 1.x\n"), "version: is not one version"),
    (agent(RIGHT, "version: '>=1.2'\n"), "version: is not one version"),
    (agent(RIGHT, "version: latest\n"), "version: is not one version"),
    (agent(RIGHT + "title: no"), 'title: is false to YAML, where text is needed; quote it: "no"'),
    (agent(RIGHT + "title:"), "title: has no value, where text is needed"),
    (agent(RIGHT + "title: ''"), "title: is empty"),
    (agent(RIGHT + f"title: {'x' * 101}"), "title: has 101 characters; allowed: 1 to 100 characters"),
    (agent(RIGHT + f"description: {'x' * 101}"), "description: has 101 characters"),
    (agent(RIGHT + "title: [a]"), "title: is a list, where text is needed"),
    (agent(RIGHT + "title: {a: b}"), "title: is a mapping, where text is needed"),
    # numbers
    (
        agent('module: agents.jarvis\nport: "24201"'),
        "port: is text, where a whole number is needed; write it without",
    ),
    (
        agent("module: agents.jarvis\nport: x"),
        "port: is text, where a whole number is needed; allowed: 1 to 65535",
    ),
    (agent("module: agents.jarvis\nport: 0"), "port: 0 is out of range; allowed: 1 to 65535"),
    (agent("module: agents.jarvis\nport: 65536"), "port: 65536 is out of range; allowed: 1 to 65535"),
    (agent("module: agents.jarvis\nport: true"), "port: is true, where a whole number is needed"),
    (agent("module: agents.jarvis\nport: 1.5"), "port: is a number (1.5), where a whole number is needed"),
    (
        agent("module: agents.jarvis\nport: 020000"),
        "port: YAML reads 020000 as 8192; write 8192 if that is meant",
    ),
    (agent("module: agents.jarvis\nport: 24:20"), "port: YAML reads 24:20 as 1460"),
    (agent(RIGHT, "registry_port: -1\n"), "registry_port: -1 is out of range"),
    (agent(RIGHT + "max_instances: 65"), "max_instances: 65 is out of range; allowed: 1 to 64"),
    (agent(RIGHT + "max_iterations: 0"), "max_iterations: 0 is out of range; allowed: 1 or more"),
    (agent(RIGHT + "run_timeout: 0"), "run_timeout: 0 is out of range; allowed: 1 to 86400"),
    (
        agent(RIGHT + "loop_repeat_threshold: 1"),
        "loop_repeat_threshold: 1 would stop at the first call; allowed: 0 (off), or 2 or more",
    ),
    (
        agent(RIGHT + "loop_repeat_threshold: -1"),
        "loop_repeat_threshold: -1 is out of range; allowed: 0 or more",
    ),
    (agent(RIGHT + "model_capabilities: {context_window: 0}"), "context_window: 0 is out of range"),
    (agent(RIGHT + 'model_capabilities: {vision: "yes"}'), "vision: is text, where true or false is needed"),
    (
        agent(RIGHT + "instance_scope: conversaton"),
        "unknown value conversaton; allowed: pooled, conversation",
    ),
    # PR-8: ports
    (
        agent("module: agents.jarvis\nport: 24200"),
        "port 24200 is used twice: the registry (its default) has it",
    ),
    (
        agent("module: agents.jarvis\nport: 8200", "registry_port: 8200\n"),
        "agents.yaml:6: agents.jarvis.port: port 8200 is used twice: the registry (line 2) has it",
    ),
    (
        AGENTS + "  research: {module: agents.research, port: 24201}\n",
        "agents.yaml:6: agents.research.port: port 24201 is used twice: agent jarvis (line 5) has it; "
        "allowed: a port that nothing else of this project has, such as 24202",
    ),
    (
        AGENTS + "scripted: {script: agents.yaml, port: 24201}\n",
        "scripted.port: port 24201 is used twice: agent",
    ),
    (
        AGENTS + "servers: {x: {command: y, url: 'http://localhost:24201/mcp'}}\n",
        "servers.x.url: port 24201 is used twice: agent jarvis",
    ),
    # C20, PR-14: names
    (AGENTS.replace("jarvis:", "Jarvis:"), "agents.Jarvis: is not a name for an agent"),
    (AGENTS.replace("jarvis:", "Jarvis:"), "did you mean jarvis"),
    (AGENTS.replace("jarvis:", "-x:"), "agents.-x: is not a name for an agent"),
    (AGENTS.replace("jarvis:", "agent-x:"), "agents.agent-x: this name is reserved"),
    (AGENTS.replace("jarvis:", "system:"), "agents.system: this name is reserved"),
    (AGENTS.replace("jarvis:", "system.x:"), "agents.system.x: this name is reserved"),
    (AGENTS.replace("jarvis:", "on:"), 'agents.on: YAML reads this key as a boolean; quote it: "on"'),
    (AGENTS.replace("jarvis:", "12:"), 'agents.12: YAML reads this key as a number; quote it: "12"'),
    (AGENTS.replace("jarvis:", f"{'x' * 101}:"), "the name has 101 characters"),
    (
        AGENTS + "  jarv-is: {module: agents.jarvis, port: 2}\n  jarv_is: {module: agents.jarvis, port: 3}\n",
        "agents.yaml:7: agents.jarv_is: is published as jarv-is, as is jarv-is (line 6)",
    ),
    (
        agent(RIGHT, f"namespace: {'x' * 195}\n"),
        "agents.jarvis: namespace/name has 202 characters; allowed: 200",
    ),
    (agent(RIGHT, "namespace: com_example\n"), "namespace: is not a namespace"),
    # PR-6: depends_on
    (agent(RIGHT + "depends_on: [reserch]"), "agents.jarvis.depends_on: there is no agent reserch"),
    (agent(RIGHT + "depends_on: research"), "depends_on: is text, where a list is needed; write [archivist]"),
    (agent(RIGHT + "depends_on: [jarvis]"), "is circular: jarvis -> jarvis"),
    # code
    (
        agent("module: agents.jarvs\nport: 1"),
        "module: there is no file for agents.jarvs; looked for agents/jarvs.py",
    ),
    (agent("module: agents.jarvs\nport: 1"), "did you mean agents.jarvis"),
    (
        agent("module: agents/jarvis.py\nport: 1"),
        "module: is a path; write the module's dotted name, agents.jarvis",
    ),
    (agent("module: agents..x\nport: 1"), "module: is not a module name"),
    (agent("module: agents.jarvis\ncard: x.md\nport: 1"), "card: module and card are both given"),
    (agent("card: x.md\nport: 1"), "card: there is no file x.md"),
    (agent("card: agents\nport: 1"), "card: there is no card in the folder agents"),
    (agent(RIGHT + "icons: [{sizes: any}]"), "agents.jarvis.icons[0].src: is missing"),
    (agent(RIGHT + "icons: [{src: x, sizes: [big]}]"), "icons[0].sizes: big is not a size"),
    (agent(RIGHT + "icons: [{src: x, size: any}]"), "did you mean sizes"),
    (agent(RIGHT + "icons: {src: x, sizes: 7}"), "icons.sizes: is a number (7), where text is needed"),
    # where to listen
    (agent(RIGHT, "host: http://x.example.com\n"), "host: is a URL"),
    (agent(RIGHT, "host: x.example.com:80\n"), "host: holds a port"),
    (agent(RIGHT, "host: '::1'\n"), "host: is an IPv6 address without brackets; write [::1]"),
    (agent(RIGHT, "host: a b\n"), "host: is not a host name"),
    (agent(RIGHT, "bind: 0.0.0.0:80\n"), "bind: cannot be listened on"),
    (agent(RIGHT, "bind: example.com\n"), "bind: cannot be listened on"),
    (agent(RIGHT, "allowed_hosts: x\n"), "allowed_hosts: is text, where a list is needed"),
    (agent(RIGHT, "allowed_hosts: ['*']\n"), "allowed_hosts: * would allow every host"),
    (agent(RIGHT, "allowed_hosts: ['http://x']\n"), "allowed_hosts: http://x is a URL"),
    (agent(RIGHT, "allowed_hosts: ['a b']\n"), "allowed_hosts: a b is not a host name"),
    # what runs beside the agents
    (agent(RIGHT, "scripted: {script: nope.yaml, port: 2}\n"), "scripted.script: there is no file nope.yaml"),
    (agent(RIGHT, "scripted: {port: 2}\n"), "scripted.script: is missing"),
    (agent(RIGHT, "scripted: {script: agents.yaml}\n"), "scripted.port: is missing"),
    (agent(RIGHT, "servers: {x: {url: 'http://a/'}}\n"), "servers.x.command: is missing"),
    (agent(RIGHT, "servers: {x: {command: y}}\n"), "servers.x.url: is missing"),
    (agent(RIGHT, "servers: {x: {command: y, url: 'localhost:1'}}\n"), "servers.x.url: is not an http URL"),
    (agent(RIGHT, "servers: {x: {command: y, url: 'http://a:99999/'}}\n"), "servers.x.url: is not a URL"),
    (
        agent(RIGHT, "servers: {x: {command: \"a 'b\", url: 'http://a'}}\n"),
        "command: cannot be split into words",
    ),
    (agent(RIGHT, "servers: {x: {command: [], url: 'http://a'}}\n"), "servers.x.command: is empty"),
    (
        agent(RIGHT, "servers: {x: {command: y, url: 'http://a', cwd: no-where}}\n"),
        "cwd: there is no such folder",
    ),
    (agent(RIGHT, "servers: {x: {command: y, url: 'http://a', start_timeout: 0}}\n"), "allowed: 0.1 to 600"),
    (
        agent(RIGHT, "servers: {x: {command: y, url: 'http://a', env: {A: [1]}}}\n"),
        "servers.x.env.A: is a list",
    ),
    (
        agent(RIGHT, "servers: {x y: {command: y, url: 'http://a'}}\n"),
        "servers.x y: is not a name for a server",
    ),
    (
        agent(RIGHT + "servers: {vault: {required: true}}\n"),
        "agents.jarvis.servers.vault: there is no server vault under mcp.servers",
    ),
    (agent(RIGHT + "servers: {vault: {requird: true}}\n"), "servers.vault.requird: unknown key"),
    (agent(RIGHT + "servers: [vault]\n"), "agents.jarvis.servers: is a list, where a mapping is needed"),
]


def test_servers_that_an_agent_requires_are_its_own_and_programs_that_it_calls(folder: Folder) -> None:
    folder.agents(
        agent(
            RIGHT + "servers: {a: {required: true}, b: {required: false}}\n",
            "servers: {store: {command: x, url: 'http://127.0.0.1:9/mcp', required: true}}\n",
        )
    )
    folder.config(
        "mcp: {servers: {a: {url: 'http://a'}, b: {url: 'http://b'}, c: {url: 'http://127.0.0.1:9'}}}\n"
    )
    assert folder.load().agents["jarvis"].required == ("a", "c")


@pytest.mark.parametrize(("text", "said"), MISTAKES)
def test_a_mistake_says_where_what_and_how_to_mend_it(folder: Folder, text: str, said: str) -> None:
    lines = folder.agents(text).lines()
    assert any(said in line for line in lines), lines
    assert all(line.startswith("agents.yaml:") for line in lines)
    with pytest.raises(ConfigError):
        folder.load()


def test_all_mistakes_come_together_in_the_order_of_lines(folder: Folder) -> None:
    folder.agents(
        """\
agents:
  b: {module: agents.nope, port: 99999, depends_on: [zed]}
  jarvis: {module: agents.jarvis, port: 5, titel: x}
name: 3
version: 1.5
"""
    ).config("mcp: {servers: {x: {url: nope}}}\n")
    with pytest.raises(ConfigError) as caught:
        folder.load()
    found = [(mistake.where.file, mistake.where.line, mistake.key) for mistake in caught.value.mistakes]
    assert found == [
        ("agents.yaml", 2, "agents.b.module"),
        ("agents.yaml", 2, "agents.b.port"),
        ("agents.yaml", 2, "agents.b.depends_on"),
        ("agents.yaml", 3, "agents.jarvis.titel"),
        ("agents.yaml", 4, "name"),
        ("agents.yaml", 5, "version"),
        ("fastagent.config.yaml", 1, "mcp.servers.x.url"),
    ]


def test_a_long_ring_is_printed_from_its_first_agent(folder: Folder) -> None:  # PR-6
    names = ["c", "a", "b"]
    needs = {"a": "b", "b": "c", "c": "a"}
    entries = "".join(
        f"  {name}: {{module: agents.jarvis, port: {number}, depends_on: [{needs[name]}]}}\n"
        for number, name in enumerate(names, start=1)
    )
    lines = folder.agents("name: demo\nagents:\n" + entries).lines()
    assert lines == [
        "agents.yaml:3: agents.c.depends_on: is circular: c -> a -> b -> c; "
        "allowed: agents that do not wait for this one"
    ]


def test_two_rings_are_both_told(folder: Folder) -> None:  # PR-6
    pairs = {"a": "b", "b": "a", "c": "d", "d": "c"}
    entries = "".join(
        f"  {name}: {{module: agents.jarvis, port: {number}, depends_on: [{need}]}}\n"
        for number, (name, need) in enumerate(pairs.items(), start=1)
    )
    lines = folder.agents("name: demo\nagents:\n" + entries).lines()
    assert ["a -> b -> a" in lines[0], "c -> d -> c" in lines[1], len(lines)] == [True, True, 2]


def test_text_from_the_file_cannot_drive_a_terminal(folder: Folder) -> None:
    folder.agents(AGENTS + '    "ti\\e[31mtle": x\n    title: "a\\u202eb"\n')
    (line,) = folder.lines()
    assert "\x1b" not in line
    project = folder.agents(AGENTS + '    title: "a\\u202eb"\n').load()
    assert project.agents["jarvis"].title == "a\\u202eb"
