"""The fast-agent files: what Pallas reads from them, and what it leaves to fast-agent."""

from pathlib import Path

import pytest
from support.config_folder import AGENTS, Folder

from pallas.config import Capabilities, ConfigError


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def server(body: str) -> str:
    lines = "".join(f"      {line}\n" for line in body.splitlines())
    return f"mcp:\n  servers:\n    docs:\n{lines}"


@pytest.mark.parametrize("name", ["fast-agent.yaml", "fast-agent.config.yaml", "fastagent.config.yaml"])
def test_each_of_its_file_names_is_read(folder: Folder, name: str) -> None:  # PR-1
    project = folder.agents().write(name, "default_model: openai.gpt-4.1\n").load()
    assert (project.config_file, project.model) == (folder.root / name, "gpt-4.1")


def test_two_of_its_file_names_are_a_mistake_that_names_both(folder: Folder) -> None:
    folder.config("").write("fast-agent.yaml", "")
    assert folder.lines() == [
        "fast-agent.yaml: is one of 2: fast-agent.yaml and fastagent.config.yaml; keep one of them"
    ]


def test_without_the_file_a_project_loads(folder: Folder) -> None:
    project = folder.agents().load()
    assert (project.config_file, project.provider, project.model) == (None, "", "")


@pytest.mark.parametrize(
    ("spec", "provider", "model"),
    [
        ("openai.gpt-4.1", "openai", "gpt-4.1"),  # PR-12
        ("anthropic.claude-sonnet-4-5", "anthropic", "claude-sonnet-4-5"),
        ("openai.o3-mini?reasoning=high", "openai", "o3-mini"),
        ("generic.scripted", "generic", "scripted"),
        ("anthropic-vertex.claude-4.5", "anthropic-vertex", "claude-4.5"),
        ("openai/gpt-4.1", "openai", "gpt-4.1"),
        ("hf.moonshotai/Kimi-K2.5:groq", "hf", "moonshotai/Kimi-K2.5:groq"),
        ("acme.thing", "acme", "thing"),
        ("gpt-4.1", "", "gpt-4.1"),
        ("haiku", "", "haiku"),
        ("$fleet.main", "openai", "gpt-5"),
        ("${MODEL:anthropic.x}", "anthropic", "x"),
    ],
)
def test_default_model_is_split_at_its_first_dot(
    folder: Folder, spec: str, provider: str, model: str
) -> None:
    folder.config(f'default_model: "{spec}"\nmodel_references: {{fleet: {{main: openai.gpt-5}}}}\n')
    project = folder.load()
    assert (project.provider, project.model) == (provider, model)


def test_a_reference_may_lead_to_another(folder: Folder) -> None:
    references = "{system: {default: $system.fast, fast: anthropic.x}}"
    project = folder.config(f"default_model: $system.default\nmodel_references: {references}\n").load()
    assert (project.provider, project.model) == ("anthropic", "x")
    (line,) = folder.config("default_model: $a.b\nmodel_references: {a: {b: $a.c, c: $a.b}}\n").lines()
    assert "there is no a." in line


def test_a_reference_that_leads_nowhere_is_a_mistake(folder: Folder) -> None:
    (line,) = folder.config("default_model: $fleet.main\n").lines()
    assert "there is no fleet.main under model_references" in line


def test_capabilities_have_their_defaults(folder: Folder) -> None:  # PR-13, PI-4
    project = folder.config("model_capabilities: {vision: true}\n").load()
    expected = Capabilities(vision=True, context_window=131_072, max_output_tokens=16_384)
    assert project.capabilities == expected
    assert project.agents["jarvis"].model_capabilities == expected
    assert folder.config("model_capabilities: {}\n").load().capabilities == Capabilities()
    assert folder.config("model_capabilities:\n").load().capabilities is None


def test_an_agents_own_capabilities_lie_over_the_fleets(folder: Folder) -> None:  # PR-13
    own = "    model_capabilities: {context_window: 10}\n"
    folder.agents(AGENTS + own).config("model_capabilities: {vision: true, max_output_tokens: 5}\n")
    assert folder.load().agents["jarvis"].model_capabilities == Capabilities(True, 10, 5)


def test_secrets_are_merged_over_the_configuration_and_expanded(folder: Folder) -> None:  # PR-10
    folder.environ["ANTHROPIC_API_KEY"] = "sk-planted"
    folder.config("anthropic: {api_key: none, base_url: http://a}\n")
    folder.write("fastagent.secrets.yaml", 'anthropic:\n  api_key: "${ANTHROPIC_API_KEY}"\n')
    assert folder.load().settings["anthropic"] == {"api_key": "sk-planted", "base_url": "http://a"}


def test_a_variable_that_is_not_set_is_never_sent_as_it_is_written(folder: Folder) -> None:  # PR-10
    folder.config('openai: {api_key: "${NOT_SET}", base_url: "${URL:http://local/v1}"}\nx: ["${OTHER}"]\n')
    project = folder.load()
    assert project.settings["openai"] == {"api_key": "", "base_url": "http://local/v1"}
    assert project.settings["x"] == [""]
    assert project.unset == ("NOT_SET", "OTHER")
    assert "${" not in repr(dict(project.settings))


def test_the_key_of_the_active_provider_is_missed_aloud(folder: Folder) -> None:
    folder.config('default_model: anthropic.x\nanthropic: {api_key: "${A_KEY}"}\nopenai: {api_key: "${B}"}\n')
    (warning,) = folder.load().warnings
    assert str(warning) == (
        "fastagent.config.yaml:2: anthropic.api_key: A_KEY is not set, and default_model uses anthropic; "
        "set A_KEY in the environment or in .env"
    )


@pytest.mark.parametrize(
    ("config", "environ", "url"),
    [
        ("", {}, "https://api.openai.com/v1"),
        ("openai: {api_key: x}\n", {}, "https://api.openai.com/v1"),
        ('openai: {base_url: "${OPENAI_BASE_URL}"}\n', {}, "https://api.openai.com/v1"),
        ('openai: {base_url: "${OPENAI_BASE_URL}"}\n', {"OPENAI_BASE_URL": "http://l/v1"}, "http://l/v1"),
        ("openai: {api_key: x}\n", {"OPENAI_BASE_URL": "http://l/v1"}, "http://l/v1"),
        ("openai: {base_url: http://mine/v1}\n", {"OPENAI_BASE_URL": "http://l/v1"}, "http://mine/v1"),
        ("openai:\n", {}, "https://api.openai.com/v1"),
    ],
)
def test_the_openai_url_has_a_default(
    folder: Folder, config: str, environ: dict[str, str], url: str
) -> None:  # PR-11
    folder.environ.update(environ)
    assert folder.config(config).load().settings["openai"]["base_url"] == url


def test_the_log_level_is_read(folder: Folder) -> None:
    assert folder.config("logger: {level: debug, type: none}\n").load().log_level == "debug"
    assert folder.config("logger: {type: none}\n").load().log_level is None


def test_downstreams_are_read_as_fast_agent_reads_them(folder: Folder) -> None:
    folder.environ["TOKEN"] = "tok-planted"
    project = folder.config(
        """\
mcp:
  servers:
    plain: {url: "http://a.example.com", forward_inbound_auth: true}
    full: {url: "http://a.example.com/mcp/", headers: {Authorization: "Bearer ${TOKEN}", X-A: b}}
    query: {url: "http://a.example.com/x?y=1"}
    old: {transport: sse, url: "http://a.example.com/sse"}
    both: {url: "http://a.example.com/mcp", command: npx}
    local: {command: npx, args: [-y, server], env: {A: b}, forward_inbound_auth: false}
    short: {target: "npx -y 'my server'"}
    link: {target: "https://a.example.com/sse"}
    token: {url: "http://a.example.com/mcp", access_token: "Bearer t-planted"}
    theirs: {management: provider, url: "http://a.example.com/mcp"}
    hosted: {management: provider, connector_id: connector_x, access_token: x}
"""
    ).load()
    found = project.downstreams
    assert found["plain"].url == "http://a.example.com/mcp"
    assert found["plain"].forward_inbound_auth  # PR-28
    assert found["full"].headers == {"Authorization": "Bearer tok-planted", "X-A": "b"}
    assert not found["full"].forward_inbound_auth
    assert found["query"].url == "http://a.example.com/x?y=1"
    assert (found["old"].transport, found["old"].url) == ("sse", "http://a.example.com/sse")
    assert (found["both"].transport, found["both"].command) == ("http", ())
    assert (found["local"].transport, found["local"].command) == ("stdio", ("npx", "-y", "server"))
    assert found["short"].command == ("npx", "-y", "my server")
    assert found["link"].transport == "sse"
    assert found["token"].headers == {"Authorization": "Bearer t-planted"}
    assert {"theirs", "hosted"}.isdisjoint(found)
    assert (found["old"].where.file, found["old"].where.line) == ("fastagent.config.yaml", 6)
    assert "planted" not in repr(project)  # PR-36
    assert project.settings["mcp"]["servers"]["plain"]["forward_inbound_auth"] is True


def test_an_unset_variable_in_a_header_is_one_warning_with_server_and_variable(
    folder: Folder,
) -> None:  # PR-9
    folder.config(
        server('url: http://a/mcp\nheaders: {Authorization: "Bearer ${T}", X-T: "${T}", X-U: "${U:}"}')
    )
    project = folder.load()
    assert project.downstreams["docs"].unset == ("T",)
    assert [str(warning) for warning in project.warnings] == [
        "fastagent.config.yaml:5: mcp.servers.docs.headers.Authorization: "
        "server docs needs T, which is not set; set T in the environment or in .env"
    ]


def test_headers_in_the_secrets_file_count(folder: Folder) -> None:  # PR-9
    folder.config(server("url: http://a/mcp"))
    folder.write("fastagent.secrets.yaml", server('headers:\n  Authorization: "Bearer ${T}"'))
    (warning,) = folder.load().warnings
    assert (warning.where.file, warning.where.line) == ("fastagent.secrets.yaml", 5)


def test_an_access_token_that_is_not_set_is_left_out(folder: Folder) -> None:  # PR-10
    project = folder.config(server('url: http://a/mcp\naccess_token: "${T}"')).load()
    assert "access_token" not in project.settings["mcp"]["servers"]["docs"]
    assert (project.downstreams["docs"].headers, project.downstreams["docs"].unset) == ({}, ("T",))


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("url: http://a/mcp\nforward_inbound_auht: true", "did you mean forward_inbound_auth"),  # PR-28
        ("url: http://a/mcp\nforward_inbound_auth: 'true'", "is text, where true or false is needed"),
        ("url: http://a/mcp\nheader: {a: b}", "unknown key"),
        ("url: a.example.com", "is not an http URL"),
        (
            "transport: streamable-http\nurl: http://a",
            "unknown value streamable-http; allowed: http, sse, stdio",
        ),
        ("command: [npx, x]", "command: is a list, where text is needed"),
        ("command: npx\nargs: [8080]", "args: is a number, where text is needed; quote it"),
        ("command: npx\nenv: {A: 1}", "env.A: is a number, where text is needed; quote it"),
        ("url: http://a\nheaders: {A: 1}", "headers.A: is a number"),
        ("url: http://a\ntarget: http://b", "url: is given beside target"),
        ('target: "npx \'x"', "target: cannot be split into words"),
        (
            "url: http://a\nheaders: {authorization: x}\naccess_token: y",
            "access_token: is given beside headers",
        ),
        ("- a", "docs: is a list, where a mapping is needed"),
    ],
)
def test_a_mistake_on_a_server_says_what_and_where(folder: Folder, body: str, said: str) -> None:
    lines = folder.config(server(body)).lines()
    assert any(said in line and "mcp.servers.docs" in line for line in lines), lines
    with pytest.raises(ConfigError):
        folder.load()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default_modle: x\n", "default_modle: unknown key; did you mean default_model"),
        ("model_capability: {}\n", "did you mean model_capabilities"),
        ("mpc: {}\n", "did you mean mcp"),
        ("loger: {}\n", "did you mean logger"),
        ("mcp: {server: {}}\n", "mcp.server: unknown key; did you mean servers"),
        (server("url: http://a/mcp\nauth: {oath: false}"), "auth.oath: unknown key; did you mean oauth"),
        (server("command: x\nforward_inbound_auth: true"), "has no effect on a command"),
    ],
)
def test_what_is_fast_agents_own_is_only_warned_about(folder: Folder, text: str, said: str) -> None:
    warnings = folder.config(text).load().warnings
    assert [warning.level for warning in warnings] == ["warning"]
    assert said in str(warnings[0])


@pytest.mark.parametrize("key", ["anthropic", "otel", "skills", "pallas", "my_own_block", "tui", "hf"])
def test_other_blocks_pass_without_a_word(folder: Folder, key: str) -> None:
    project = folder.config(f"{key}: {{a: 1}}\n").load()
    assert (project.warnings, project.settings[key]) == ((), {"a": 1})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("default_model: 5\n", "default_model: is a number, where text is needed"),
        ("model_capabilities: {mantle: true}\n", "model_capabilities.mantle: unknown key"),
        ("model_capabilities: true\n", "model_capabilities: is true, where a mapping is needed"),
        ("logger: {level: INFO}\n", "logger.level: unknown value INFO; allowed: debug, info, warning, error"),
        ("mcp: []\n", "mcp: is a list, where a mapping is needed"),
        ("mcp: {targets: []}\n", "mcp.targets: is no longer read by fast-agent"),
        ("- a\n", "holds no mapping at its top"),
        ("a: b: c\n", "not valid YAML: line 1, column 5"),
    ],
)
def test_what_pallas_reads_must_be_right(folder: Folder, text: str, said: str) -> None:
    lines = folder.config(text).lines()
    assert any(said in line for line in lines), lines
    with pytest.raises(ConfigError):
        folder.load()


@pytest.mark.parametrize(
    "text",
    [
        "anthropic: {api_key: *hunter2planted}\n",
        "anthropic: {api_key: !hunter2planted x}\n",
        server("url: http://a/mcp\nheaders: {A: 20240102999}\naccess_token: 20240102999"),
        "anthropic:\n  api_key: hunter2planted: x\n",
        "default_model: [hunter2planted]\n",
    ],
)
def test_a_secret_is_never_repeated_in_a_mistake(folder: Folder, text: str) -> None:  # PR-36
    lines = folder.agents().write("fastagent.secrets.yaml", text).lines()
    assert lines
    assert all("hunter2" not in line and "20240102999" not in line for line in lines)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("sampling: {model: generic.small, max_requests: 5, max_tokens: 100}", ""),
        ("sampling: {}", ""),
        ("sampling: {max_request: 5}", "mcp.servers.docs.sampling.max_request: unknown key"),
        ("sampling: {max_requests: 0}", "mcp.servers.docs.sampling.max_requests: is out of range"),
        ("sampling: true", "mcp.servers.docs.sampling: is"),
        ("elicitation: {mode: forms}", ""),  # fast-agent's default: the caller is asked
        ("elicitation: {mode: none}", ""),
    ],
)
def test_what_a_server_may_ask_of_its_client_is_checked(folder: Folder, body: str, says: str) -> None:
    folder.config(server(f"command: docs\n{body}"))
    found = "\n".join(folder.lines())
    assert says in found
    assert bool(found) == bool(says)


def test_sampling_for_all_servers_is_said_to_have_no_effect(folder: Folder) -> None:
    folder.config("mcp:\n  client: {auto_sampling: true}\n")
    assert "auto_sampling: has no effect" in "\n".join(folder.lines())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("args: [x]", "url and command are both missing"),
        ("env: {KEY: <your-api-key-here>}", "url and command are both missing"),
        ("url: ''", "url and command are both missing"),
        ("url: '${NOPE}'", "url: is empty because NOPE is not set; set NOPE in the environment or in .env"),
        ("command: '${NOPE}'", "command: is empty because NOPE is not set"),
        ("target: '${NOPE}'", "target: is empty because NOPE is not set"),
        ("transport: http\ncommand: x", "url: is missing; required with transport http"),
        ("transport: stdio\nurl: http://a", "command: is missing; required with transport stdio"),
    ],
)
def test_a_server_that_no_agent_uses_may_be_a_template(folder: Folder, body: str, said: str) -> None:
    project = folder.config(server(body)).load()
    (warning,) = project.warnings
    assert (warning.level, "docs" in project.downstreams) == ("warning", False)
    assert said in str(warning)
    assert str(warning).endswith("until then no agent can use this server")


def test_an_agent_that_requires_such_a_server_is_refused(folder: Folder) -> None:
    folder.agents(AGENTS + "    servers: {docs: {required: true}}\n").config(server("args: [x]"))
    lines = folder.lines()
    assert any(
        line.startswith("agents.yaml:6: agents.jarvis.servers.docs: this server cannot be used (fastagent")
        for line in lines
    ), lines


def test_of_a_key_that_is_given_twice_the_last_one_counts_as_in_fast_agent(folder: Folder) -> None:
    folder.config("default_model: openai.x\ngroq: {api_key: a}\ndefault_model: openai.y\n")
    folder.write("fastagent.secrets.yaml", "groq: {api_key: b}\ngroq: {base_url: http://c}\n")
    project = folder.load()
    assert project.model == "y"
    assert project.settings["groq"] == {"api_key": "a", "base_url": "http://c"}
    assert [str(each) for each in project.warnings] == [
        "fastagent.config.yaml:3: default_model: is given twice, first on line 1; "
        "this one counts; remove the other",
        "fastagent.secrets.yaml:2: groq: is given twice, first on line 1; this one counts; remove the other",
    ]


def test_the_files_in_fast_agents_home_go_first_as_in_fast_agent(folder: Folder) -> None:
    folder.config("default_model: openai.root\n").write("fastagent.secrets.yaml", "groq: {api_key: root}\n")
    folder.write(".fast-agent/fast-agent.secrets.yaml", "groq: {api_key: home}\n")
    assert folder.load().settings["groq"] == {"api_key": "root"}  # the secrets beside the configuration
    folder.write(".fast-agent/fast-agent.yaml", "default_model: openai.home\n")
    project = folder.load()
    assert (project.model, project.settings["groq"]) == ("home", {"api_key": "home"})
    assert project.config_file == folder.root / ".fast-agent" / "fast-agent.yaml"
    folder.write("other/fast-agent.yaml", "default_model: 5\n").environ["FAST_AGENT_HOME"] = "other"
    (line,) = folder.lines()
    assert line.startswith("other/fast-agent.yaml:1: default_model: is a number")
