"""get, describe, apply, create, delete and connect, typed at a fleet that is served."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep

import httpx2
import pytest
import yaml
from mcp import Client
from support import pallas_process
from support.offline import offline_project
from support.ports import free_ports
from support.served import Served, served

from pallas.cli.app import run

KEY = "sk-a-key-that-nobody-must-see"
SCRIPT = """
models: [scripted, qwen3-thinking]
rules:
  - when: {last: user}
    say: "It is fine."
"""
# As the seed has them; the model of the fleet stands for the one in that cluster.
SEED = """
pallas create secret litellm-key --data "API_KEY=${LITELLM_TOKEN}"
pallas create llm qwen3-thinking \\
--type openai --model qwen3-thinking \\
--url MODEL_URL \\
--api-key-ref litellm-key/API_KEY \\
--description "Qwen3-30B-A3B-Thinking-FP8 via in-cluster vLLM behind LiteLLM"
pallas create agent reviewer \\
--llm qwen3-thinking \\
--description "I review what you're shipping; ask after each major change." \\
--default-temperature 0.2 --default-max-tokens 4096
"""


@dataclass
class Typed:
    """What a command ended with and wrote."""

    status: int
    out: str
    err: str


class Shell:
    """Types commands in the project's folder."""

    def __init__(self, fleet: Served, capsys: pytest.CaptureFixture[str]) -> None:
        self.fleet = fleet
        self._capsys = capsys

    def __call__(self, *words: str) -> Typed:
        self._capsys.readouterr()
        status = run(["--project", str(self.fleet.root), *words])
        out, err = self._capsys.readouterr()
        return Typed(status, out, err)

    def version(self, path: str) -> int:
        """How often the thing there was changed."""
        body = httpx2.get(f"{self.fleet.registry}/api/v1{path}", trust_env=False, timeout=60).json()
        return int(body["version"])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("cli") / "project"
    offline_project(root, {"research": None}, SCRIPT, top={"bind": "127.0.0.1"})
    with served(root) as fleet:
        assert run(["ready", str(root), "--wait", "90"]) == 0, fleet.err
        yield fleet


@pytest.fixture
def typed(fleet: Served, capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(fleet, capsys)


def _model_url(fleet: Served) -> str:
    return f"http://127.0.0.1:{fleet.entries['scripted']['port']}/v1"


def _sh(fleet: Served, text: str) -> subprocess.CompletedProcess[str]:
    """What a shell in the project's folder makes of it."""
    programs = fleet.root.parent / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "pallas").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m pallas.server "$@"\n')
    (programs / "pallas").chmod(0o755)
    return subprocess.run(
        ["sh", "-ec", text],
        cwd=fleet.root,
        env={**os.environ, "LITELLM_TOKEN": KEY, "PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.slow
def test_the_seeds_commands_work_as_typed_and_the_key_is_shown_nowhere(fleet: Served, typed: Shell) -> None:
    # AG-29
    done = _sh(fleet, SEED.replace("MODEL_URL", _model_url(fleet)))
    assert (
        done.stdout == "secret/litellm-key created\nllm/qwen3-thinking created\nagent/reviewer created\n"
    ), done
    assert done.stderr == ""

    shown = [
        typed("get", kind, "-o", how)
        for kind in ("secrets", "llms", "agents")
        for how in ("table", "yaml", "json")
    ]
    for thing in ("secret/litellm-key", "llm/qwen3-thinking", "agent/reviewer"):
        shown += [typed("describe", thing), typed("get", *thing.split("/"), "-o", "yaml")]
    assert all(each.status == 0 for each in shown)
    assert "API_KEY" in shown[0].out and "litellm-key/API_KEY" in shown[3].out
    assert KEY not in done.stdout + done.stderr + "".join(each.out + each.err for each in shown)
    assert KEY not in fleet.log.read_text("utf-8")
    described = typed("describe", "agent", "reviewer").out
    for fact in (
        "qwen3-thinking",
        "temperature: 0.2",
        "max_tokens: 4096",
        "I review what you're shipping",
        "Threads:",
    ):
        assert fact in described
    declared = typed("describe", "agent", "research").out
    assert "Context:\n" in declared and " of 131,072 tokens (0.0 %), estimated\n" in declared
    assert "  PART          TOKENS   SHARE\n  instruction" in declared
    answer = httpx2.post(
        f"{fleet.registry}/api/v1/agents/reviewer/chat", json={"message": "hi"}, timeout=60, trust_env=False
    )
    assert answer.json()["text"] == "It is fine."


@pytest.mark.slow
def test_what_get_shows_apply_takes_and_nothing_changes(typed: Shell, tmp_path: Path) -> None:
    # AG-22
    document = tmp_path / "team.yaml"
    document.write_text(
        """
apiVersion: mcpctl.io/v1
kind: agent
metadata: { name: deployer }
spec:
  description: "I help you deploy code"
  llm: { name: plain }
  project: { name: mcpctl-dev }
  systemPrompt: |
    You are a deployment assistant for mcpctl. Always check fulldeploy.sh
    and the k8s context before suggesting actions.
  defaultParams:
    temperature: 0.2
    max_tokens: 4096
    top_p: 0.9
    stop: ["</deploy>"]
---
{apiVersion: pallas/v1, kind: Project, metadata: {name: mcpctl-dev}, spec: {prompts: [Be kind.]}}
---
apiVersion: pallas/v1
kind: LLM
metadata: {name: plain}
spec: {type: generic, model: scripted, url: MODEL_URL}
""".replace("MODEL_URL", _model_url(typed.fleet))
    )
    dry = typed("apply", "-f", str(document), "--dry-run")
    made = ["llm/plain created", "project/mcpctl-dev created", "agent/deployer created"]
    assert dry.out.splitlines() == [f"{line} (dry run)" for line in made]
    assert typed("get", "agent", "deployer").status == 1
    assert typed("apply", "-f", str(document)).out.splitlines() == made
    before = (
        typed.version("/agents/deployer"),
        typed.version("/llms/plain"),
        typed.version("/projects/mcpctl-dev"),
    )

    for kind, name in (("agent", "deployer"), ("llm", "plain"), ("project", "mcpctl-dev")):
        shown = typed("get", kind, name, "-o", "yaml")
        (tmp_path / f"{kind}.yaml").write_text(shown.out)
        back = typed("apply", "-f", str(tmp_path / f"{kind}.yaml"))
        assert (back.status, back.out, back.err) == (0, f"{kind}/{name} unchanged\n", "")
    piped = _sh(typed.fleet, "pallas get agent deployer -o yaml | pallas apply -f -")
    assert (piped.stdout, piped.stderr) == ("agent/deployer unchanged\n", "")
    everything = "".join(
        typed("get", kind, "-o", "yaml").out + "---\n" for kind in ("agents", "llms", "projects", "secrets")
    )
    (tmp_path / "everything.yaml").write_text(everything)
    back = typed("apply", "-f", str(tmp_path / "everything.yaml"))
    assert back.status == 0, back.err
    assert set(re.findall(r"^\S+ (\w+)$", back.out, re.MULTILINE)) == {"unchanged"}
    # The short form of the references says the same, sent to the fleet or compared here.
    short = (
        document.read_text()
        .replace("{ name: plain }", "plain")
        .replace("{ name: mcpctl-dev }", "mcpctl-dev", 1)
    )
    document.write_text(short)
    assert "agent/deployer unchanged" in typed("apply", "-f", str(document)).out
    assert before == (
        typed.version("/agents/deployer"),
        typed.version("/llms/plain"),
        typed.version("/projects/mcpctl-dev"),
    )

    document.write_text(short.replace("top_p: 0.9", "top_p: 0.8"))
    assert "agent/deployer configured" in typed("apply", "-f", str(document)).out
    assert typed.version("/agents/deployer") == before[0] + 1


def test_nothing_is_changed_where_one_document_is_wrong(typed: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: pallas/v1\nkind: secret\nmetadata: {name: fine}\nspec: {data: {K: v}}\n"
    )
    (tmp_path / "b.yaml").write_text(
        "apiVersion: pallas/v1\nkind: agent\nmetadata: {name: odd}\nspec:\n  llm: nowhere\n  systemPromt: x\n"
    )
    done = typed("apply", "-f", str(tmp_path))
    assert (done.status, done.out) == (1, "")
    assert f"{tmp_path}/b.yaml:5: spec.llm: there is no llm nowhere" in done.err
    assert (
        f"{tmp_path}/b.yaml:6: spec.systemPromt: there is no such key; did you mean systemPrompt" in done.err
    )
    assert "nothing was changed" in done.err
    assert typed("get", "secret", "fine").status == 1


def test_what_a_file_declares_is_refused_at_the_line_of_the_document(typed: Shell, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(
        "apiVersion: pallas/v1\nkind: agent\nmetadata: {name: research}\nspec:\n  description: mine\n"
    )
    done = typed("apply", "-f", str(tmp_path / "a.yaml"))
    assert (done.status, done.out) == (1, "")
    assert f"{tmp_path}/a.yaml:5: spec.description: is declared in agents.yaml:" in done.err
    # What can only be known there comes back to the line as well.
    (tmp_path / "a.yaml").write_text(
        "apiVersion: pallas/v1\nkind: llm\nmetadata: {name: lost}\nspec:\n  model: x\n  type: anthropic\n"
        "  url: http://127.0.0.1:9/\n---\n"
        "apiVersion: pallas/v1\nkind: agent\nmetadata: {name: my_one}\nspec: {}\n---\n"
        "apiVersion: pallas/v1\nkind: agent\nmetadata: {name: my-one}\nspec: {}\n"
    )
    done = typed("apply", "-f", str(tmp_path / "a.yaml"))
    assert (done.status, done.out) == (1, "llm/lost created\nagent/my_one created\n")
    assert f"{tmp_path}/a.yaml:14: agent my_one is published as my-one already" in done.err


@pytest.mark.slow
def test_what_is_in_use_stays_and_its_users_are_named(typed: Shell, tmp_path: Path) -> None:
    # AG-2
    url = _model_url(typed.fleet)
    typed("create", "llm", "shared", "--type", "generic", "--model", "scripted", "--url", url, "--no-probe")
    for name in ("one", "two"):
        assert typed("create", "agent", name, "--llm", "shared").status == 0
    refused = typed("delete", "llm", "shared", "--yes")
    assert (refused.status, refused.out) == (1, "")
    assert "one" in refused.err and "two" in refused.err
    detached = tmp_path / "one.yaml"
    detached.write_text("apiVersion: pallas/v1\nkind: agent\nmetadata: {name: one}\nspec: {llm: null}\n")
    assert typed("apply", "-f", str(detached)).out == "agent/one configured\n"
    assert typed("delete", "agent", "two").out == "agent/two deleted\n"
    assert typed("delete", "llm/shared").out == "llm/shared deleted\n"
    assert typed("get", "agent", "one").status == 0
    assert typed("get", "llm", "shared").status == 1


@pytest.mark.slow
def test_agents_of_a_project_and_what_was_said(typed: Shell, tmp_path: Path) -> None:
    prompt = tmp_path / "rules.md"
    prompt.write_text("Say little.\n")
    made = typed("create", "project", "shop", "--description", "Lamps", "--prompt-file", str(prompt))
    assert made.status == 0, made.err
    url = _model_url(typed.fleet)
    typed("create", "llm", "fast", "--type", "generic", "--model", "scripted", "--url", url)
    typed("create", "agent", "seller", "--project", "shop", "--llm", "fast")
    assert [
        line.split()[0] for line in typed("get", "agents", "--project-name", "shop").out.splitlines()
    ] == [
        "NAME",
        "seller",
    ]
    assert " scripted " in typed("get", "agent", "research").out
    assert "Say little." in typed("get", "project", "shop", "-o", "yaml").out
    api = f"{typed.fleet.registry}/api/v1"
    said = httpx2.post(
        f"{api}/agents/seller/chat", json={"message": "how?"}, timeout=60, trust_env=False
    ).json()
    thread = said["threadId"]
    assert thread in typed("get", "threads", "--agent", "seller").out
    found = typed("get", "threads", "--search", "is FINE").out
    assert thread in found and "It is fine." in found
    assert "no threads" in typed("get", "threads", "--search", "nobody said so").err
    assert "--search is not for runs" in typed("get", "runs", "--search", "x").err
    shown = typed("get", "thread", thread).out
    assert "user" in shown and "how?" in shown and "It is fine." in shown
    body = yaml.safe_load(typed("get", "thread", thread, "-o", "yaml").out)
    assert [each["role"] for each in body["messages"]] == ["user", "assistant"]
    runs = json.loads(typed("get", "runs", "--thread", thread, "-o", "json").out)["items"]
    assert [run["id"] for run in runs] == [said["runId"]]
    assert "Threads:" in typed("describe", "agent", "seller").out
    # JSON shows what the text does, as one object.
    agent = json.loads(typed("describe", "agent", "seller", "-o", "json").out)
    assert agent["name"] == "seller" and agent["threads"] >= 1
    several = json.loads(typed("describe", "agent/seller", "project/shop", "-o", "json").out)
    assert "seller" in several[1]["agents"]
    assert typed("delete", "thread", thread).status == 0
    assert typed("get", "thread", thread).status == 1


def test_piped_tables_are_whole_and_hold_no_escape_codes(typed: Shell) -> None:
    long = "words " * 60
    url = _model_url(typed.fleet)
    typed(
        "create",
        "llm",
        "wordy",
        "--type",
        "generic",
        "--model",
        "scripted",
        "--url",
        url,
        "--description",
        long,
    )
    shown = typed("get", "llms").out
    assert long.strip() in shown
    assert "\x1b" not in shown
    assert (
        len(
            {
                line.index("TYPE") if "TYPE" in line else line.index("generic")
                for line in shown.splitlines()
                if "generic" in line or "TYPE" in line
            }
        )
        == 1
    )


def test_a_made_agent_is_connected_to_by_what_the_registry_says(typed: Shell) -> None:
    url = _model_url(typed.fleet)
    typed("create", "llm", "linked", "--type", "generic", "--model", "scripted", "--url", url)
    typed("create", "agent", "linked", "--llm", "linked")
    known = json.loads(typed("connect").out)["mcpServers"]
    assert {"research", "linked"} <= set(known)
    for words in (("connect", "linked"), ("connect", "linked", "--url", typed.fleet.registry)):
        printed = typed(*words)
        assert printed.status == 0, printed.err
        (entry,) = json.loads(printed.out)["mcpServers"].values()
        assert entry == known["linked"]
    (virtual,) = json.loads(typed("connect", "linked", "--virtual").out)["mcpServers"].values()
    (project,) = json.loads(typed("connect", "--virtual").out)["mcpServers"].values()
    assert asyncio.run(_tools(known["linked"]["url"])) == {"send_message", "get_health"}
    assert asyncio.run(_tools(virtual["url"])) == {"chat"}
    assert asyncio.run(_tools(project["url"])) == {"agent-research__chat"}
    nowhere = typed("connect", "--project", "nowhere")
    assert (nowhere.status, nowhere.out) == (2, "") and "there is no project nowhere" in nowhere.err


async def _tools(url: str) -> set[str]:
    """What a client finds there that was told of it so."""
    async with Client(url) as client:
        return {tool.name for tool in (await client.list_tools()).tools}


def test_a_shell_completes_kinds_and_names(typed: Shell) -> None:
    def complete(*words: str) -> list[str]:
        done = pallas_process.run(
            env={
                **os.environ,
                "_PALLAS_COMPLETE": "complete_bash",
                "COMP_WORDS": " ".join(("pallas", *words)),
                "COMP_CWORD": str(len(words)),
            },
            cwd=typed.fleet.root,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.stdout.split()

    assert complete("get", "ag") == ["agent"]
    assert "research" in complete("get", "agents", "re")
    assert "research" in complete("connect", "res")


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        (("get", "secretts"), 2, "did you mean secrets"),
        (("get", "agents", "-o", "xml"), 2, "allowed: table, yaml, json"),
        (("get", "llms", "--agent", "x"), 2, "--agent is not for llms"),
        (("get", "agent", "reserch"), 1, "did you mean research? Known agents: research"),
        (("describe", "agent", "reserch"), 1, "`pallas get agents` lists them"),
        (("delete", "agent", "reserch", "-y"), 1, "agent/reserch: there is no agent 'reserch'; did you mean"),
        (("delete", "agent", "reserch", "-y"), 1, "Known agents: research"),
        (("get", "project", "nowhere"), 1, "there is no project 'nowhere'; "),
        (("get", "run", "nowhere"), 1, "`pallas get runs` lists them"),
        (("describe", "thread", "nowhere"), 1, "`pallas get threads` lists them"),
        (("delete", "thread", "nowhere", "-y"), 1, "`pallas get threads` lists them"),
        (("delete", "thread"), 2, "name the thread; `pallas get threads` lists them"),
        (("record", "nowhere"), 1, "run/nowhere: run not found: "),
        (("record", "nowhere"), 1, "`pallas get runs` lists them"),
        (("tasks", "show", "nowhere"), 1, "`pallas tasks list` lists them"),
        (("answer", "nowhere", "--yes"), 1, "`pallas get questions` lists them"),
        (("get", "zebra"), 2, "replica, limit, storage, cost"),
        (("get", "costs", "x"), 2, "costs have no names; write `pallas get costs`"),
        (("describe", "agent"), 2, "name the agent"),
        (("delete", "run", "x"), 2, "there are agent"),
        (("apply",), 2, "-f FILE"),
        (("apply", "-f", "/no/such/file.yaml"), 2, "cannot be read"),
        (("create", "secret", "x"), 2, "--data"),
        (("create", "agent", "Not A Name"), 1, "name"),
        (("create", "agent", "x", "--default-temperature", "9"), 1, "temperature"),
        (("get", "agents", "--url", "http://127.0.0.1:9"), 3, "pallas --serve"),
    ],
)
def test_what_goes_wrong_is_told_in_a_line_and_by_the_status(
    typed: Shell, words: tuple[str, ...], status: int, told: str
) -> None:
    done = typed(*words)
    assert (done.status, done.out) == (status, "")
    assert told in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("key", ["", "lost-key/K"])
def test_describe_shows_that_the_llm_of_a_made_agent_cannot_be_reached(
    fleet: Served, typed: Shell, key: str
) -> None:
    # PI-12, PR-21
    name = "keyed" if key else "keyless"
    (port,) = free_ports(1)
    more = ("--api-key-ref", key) if key else ()
    if key:
        assert typed("create", "secret", "lost-key", "--data", f"K={KEY}").status == 0
    made = typed(
        "create", "llm", f"{name}-llm", "--type", "generic", "--model", "m",
        "--url", f"http://127.0.0.1:{port}/v1", "--no-probe", *more,
    )  # fmt: skip
    assert made.status == 0, made
    assert typed("create", "agent", name, "--llm", f"{name}-llm").status == 0
    says = f"degraded (LLM: {name}-llm: cannot connect to 127.0.0.1:{port} (ConnectError))"
    deadline = monotonic() + 60
    while True:
        described = typed("describe", "agent", name)
        (health,) = [line for line in described.out.splitlines() if line.startswith("Health")]
        if health.split(None, 1)[1].startswith("degraded"):
            break
        assert monotonic() < deadline, described.out
        sleep(0.05)
    assert health.split(None, 1)[1] == says
    body = json.loads(typed("get", "agent", name, "-o", "json").out)
    assert KEY not in json.dumps(body)


def test_a_described_run_shows_what_its_model_was_asked_and_answered(typed: Shell) -> None:
    registry = typed.fleet.registry
    with httpx2.Client(base_url=f"{registry}/api/v1", trust_env=False, timeout=30) as api:
        asked = api.post("/agents/research/chat", json={"message": "How is it?", "stream": False})
        run_id = asked.headers["pallas-run-id"]
        assert api.get(f"/runs/{run_id}/steps/2").status_code == 404
    told = typed("describe", "run", run_id)
    assert told.status == 0, told.err
    lines = told.out.splitlines()
    first = next(line.strip() for line in lines if line.strip().startswith("1  model scripted"))
    figures = r"; done; [\d.]+ m?s; first token after [\d.]+ m?s; tokens \d+ in, \d+ out; \$0"
    assert re.search(figures, first)
    assert "    user: How is it?" in lines
    assert "    answer: It is fine." in lines
    whole = json.loads(typed("describe", "run", run_id, "-o", "json").out)
    (step,) = whole["recordedSteps"]
    assert step["request"]["messages"][-1] == {"role": "user", "content": "How is it?"}
    assert step["response"]["choices"][0]["message"]["content"] == "It is fine."
    assert (step["state"], step["attempts"][0]["status"]) == ("done", 200)
    assert whole["usage"] == {key: step["usage"][key] for key in ("inputTokens", "outputTokens")}
    assert typed("describe", "run", run_id, "-o", "xml").status == 2
