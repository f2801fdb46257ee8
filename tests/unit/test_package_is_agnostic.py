"""The package names no host, port, model or agent of any deployment: those are in a project's files."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import yaml

import pallas

PACKAGE: Final = Path(pallas.__file__).parent
SAMPLE: Final = Path(__file__).parents[2] / "sample_project" / "agents.yaml"

# What is there on purpose, by kind. Everything else is a value of some deployment.
HOSTS: Final = {
    "127.0.0.1": "this machine",
    "api.anthropic.com": "where the provider is, unless the project says otherwise",
    "api.openai.com": "where the provider is, unless the project says otherwise",
    **dict.fromkeys(
        (
            "api.deepseek.com",
            "api.groq.com",
            "api.meta.ai",
            "api.moonshot.ai",
            "api.x.ai",
            "api.z.ai",
            "dashscope-intl.aliyuncs.com",
            "generativelanguage.googleapis.com",
            "localhost",
            "openrouter.ai",
            "router.huggingface.co",
        ),
        "where fast-agent finds the provider, unless the project says otherwise",
    ),
    "openai.com": "to tell OpenAI from servers that are compatible with it",
    "id.example.com": "an example in an error",
    "my-host.example.com": "an example in an error",
    "json.schemastore.org": "the schema of SARIF",
    "json-schema.org": "the dialect of a JSON Schema",
    "static.modelcontextprotocol.io": "schemas of the protocol",
    "www.googleapis.com": "the name of a right that Google's credentials are asked for",
    "www.w3.org": "namespaces of XML",
    "xml-pipeline.org": "namespaces of messages",
}
PORTS: Final = {
    11434: "where fast-agent finds Ollama",
    1024: "the first port that needs no privilege",
    3000: "where fast-agent finds TensorZero",
    8024: "pallas dev --web",
    8080: "an example in a help text",
    8765: "the default of organism.yaml",
    24200: "the default of registry_port",
    24250: "an example in an error",
    24290: "the scripted model as a program of its own",
    65535: "the highest port",
}
MODELS: Final = {
    "claude-sonnet-4-5": "what the preflight asks Anthropic for where the project names none of its models",
    "gpt-4o": "an example in an error",
    "gpt-4.1": "an example in an error",
    **dict.fromkeys(("gpt-5", "o4-mini"), "its provider publishes how its pictures are counted"),
}
# Names of agents in the sample project that are also words of MCP or of the configuration.
WORDS: Final = {"vision", "offers"}
AGENTS: Final = {"harper", "jarvis", "engineering", "infra", "reviewer", "deployer", "desk"}

_URL: Final = re.compile(r"https?://([\w.-]+)")
_NAME: Final = re.compile(
    r"^[\w-]+(?:\.[\w-]+)*\.(?:com|org|net|io|ai|dev|ca|eu|de|local|lan|incus|internal)$"
)
_AT: Final = re.compile(r":(\d{4,5})(?!\d)")
_MODEL: Final = re.compile(
    r"\b(?:gpt-\d[\w.]*|o[134]-\w+|claude-(?:sonnet|opus|haiku|\d)[\w.-]*|gemini-\d[\w.-]*|grok-\d[\w.-]*"
    r"|(?:qwen|llama|mistral|mixtral|phi|kimi)-?\d[\w.-]*|deepseek-\w+)",
    re.IGNORECASE,
)


def _documented(tree: ast.AST) -> set[int]:
    """Docstrings and strings that stand alone: they document."""
    lone = (node for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return {id(node.value) for node in lone if isinstance(node.value, ast.Constant)}


def _names(node: ast.AST) -> Iterator[tuple[str, ast.expr | None]]:
    """Each value of a statement or call with the name that it is given."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((_spelled(target), value) for target in targets)
        case ast.AnnAssign(target=target, value=value):
            yield _spelled(target), value
        case ast.keyword(arg=str(arg), value=value):
            yield arg, value
        case ast.Dict(keys=keys, values=values):
            yield from ((_spelled(key), value) for key, value in zip(keys, values, strict=True) if key)
        case ast.arguments(args=args, defaults=defaults, kwonlyargs=more, kw_defaults=others):
            yield from ((arg.arg, value) for arg, value in zip(args[::-1], defaults[::-1], strict=False))
            yield from ((arg.arg, value) for arg, value in zip(more, others, strict=True))


def _spelled(node: ast.expr) -> str:
    match node:  # the usual ones at once: to write down any other takes long
        case ast.Name(id=name) | ast.Constant(value=str(name)):
            return name
        case _:
            return ast.unparse(node)


def deployment_values(source: str) -> Iterator[tuple[str, str]]:
    """Kind and value of each host, port, model and agent that the source of a module names."""
    tree = ast.parse(source)
    documented = _documented(tree)
    for node in ast.walk(tree):
        for name, value in _names(node):
            numbers = (
                (each.value for each in ast.walk(value) if isinstance(each, ast.Constant)) if value else ()
            )
            if "port" in re.split(r"[^a-z]+", name.lower()):
                yield from (("port", str(each)) for each in numbers if isinstance(each, int) and each > 1)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in documented:
            yield from _in_text(node.value)


def _in_text(text: str) -> Iterator[tuple[str, str]]:
    yield from (("host", found) for found in _URL.findall(text) if not found.isupper() and found != "host")
    if _NAME.match(text):
        yield "host", text
    yield from (("port", found) for found in _AT.findall(text))
    yield from (("model", found.rstrip(".")) for found in _MODEL.findall(text))
    if text in _agents():
        yield "agent", text


@cache
def _agents() -> frozenset[str]:
    return frozenset(AGENTS) | (set(yaml.safe_load(SAMPLE.read_text("utf-8"))["agents"]) - WORDS)


@pytest.mark.slow
def test_no_module_names_a_host_port_model_or_agent_of_a_deployment() -> None:
    # PR-1
    allowed = {
        "host": set(HOSTS),
        "port": {str(each) for each in PORTS},
        "model": set(MODELS),
        "agent": set(),
    }
    seen: dict[str, set[str]] = {kind: set() for kind in allowed}
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        if "templates" in path.relative_to(PACKAGE).parts:  # files of the project that `pallas init` makes
            continue
        for kind, value in deployment_values(path.read_text("utf-8")):
            seen[kind].add(value)
            if value not in allowed[kind]:
                wrong.append(f"{path.relative_to(PACKAGE)}: {kind} {value}")
    assert wrong == []
    assert {kind: allowed[kind] - seen[kind] for kind in allowed if allowed[kind] - seen[kind]} == {}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ('URL = "http://puck.incus:23030"', [("host", "puck.incus"), ("port", "23030")]),
        ('HOST: Final = "daedalus.ouranos.helu.ca"', [("host", "daedalus.ouranos.helu.ca")]),
        ("REGISTRY_PORT = 24100", [("port", "24100")]),
        ("class A:\n    registry_port: int = 23_030", [("port", "23030")]),
        ("def serve(host, port=8080): ...", [("port", "8080")]),
        ("serve(port=24101)", [("port", "24101")]),
        ('MODEL = "qwen3-8b-q5"', [("model", "qwen3-8b-q5")]),
        ('return f"anthropic.claude-opus-4-1"', [("model", "claude-opus-4-1")]),
        ('if agent == "harper": pass', [("agent", "harper")]),
        ('"""Serves http://puck.incus:23030."""', []),
        ("port = 0\nlimit = 24101", []),
    ],
)
def test_a_value_of_a_deployment_is_found(line: str, found: list[tuple[str, str]]) -> None:
    assert sorted(deployment_values(line.replace("return ", "x = "))) == sorted(found)
