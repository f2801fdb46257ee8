"""The generated pages of the reference: agents.yaml, the command line, the REST API and registries."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final, cast

import typer.main
from registry_pages import REGISTRY_PAGES
from typer.cli import get_docs_for_click

from pallas.cli.app import app
from pallas.commands.chat_commands import COMMANDS
from pallas.config.change_effects import effects_of
from pallas.config.json_schema import schema_text
from pallas.config.models import AgentConfig, Project, ServerConfig
from pallas.surfaces.rest.rest_app import document_of, rest_app

Schema = Mapping[str, Any]
_BOUNDS: Final = (
    ("minimum", ">="),
    ("maximum", "<="),
    ("maxLength", "characters <="),
    ("maxItems", "entries <="),
)
# Answers that each operation may give, and what is said of them once.
_EVERYWHERE: Final = ("400", "401", "403", "503", "default")
_TITLES: Final = {"LlmEntry": "An agent: `kind: llm`"} | {
    f"{kind.capitalize()}Entry": f"An agent: `kind: {kind}`"
    for kind in ("handler", "worker", "remote", "router")
}

_FIELDS: Final = {"needs": "depends_on"}
"""Fields of the configuration that have another name than their key."""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _link(name: str) -> str:
    return f"[{name}](#{name.lower()})"


def _value(schema: Schema) -> str:
    """What a value may be, in a few words. That any value may be a variable is said once, on the page."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return " or ".join(f"`{json.dumps(each)}`" for each in schema["enum"])
    bounds = " ".join(f"{sign} {schema[key]}" for key, sign in _BOUNDS if key in schema)
    if ways := schema.get("anyOf", schema.get("oneOf")):
        known = [way for way in ways if way.get("type") != "null" and way.get("$ref") != "#/$defs/Variable"]
        return f"{' or '.join(dict.fromkeys(filter(None, map(_value, known))))} {bounds}".strip()
    types = schema.get("type", "any")
    type_ = " or ".join(each for each in types if each != "null") if isinstance(types, list) else types
    if type_ == "array":
        type_ = f"list of {_value(schema['items'])}" if "items" in schema else "list"
    if type_ == "object" and isinstance(inner := schema.get("additionalProperties"), dict):
        return f"mapping of names to {_value(inner)}"
    return f"{type_} {bounds}".strip()


def _keys(schema: Schema) -> Iterator[str]:
    """The table of an object's keys."""
    yield "| key | value | default | |\n|---|---|---|---|\n"
    for name, each in schema.get("properties", {}).items():
        default = f"`{json.dumps(each['default'])}`" if "default" in each else ""
        if name in schema.get("required", ()):
            default = "required"
        example = f" Example: `{json.dumps(each['examples'][0])}`" if "examples" in each else ""
        about = _cell(each.get("description", "") + example)
        yield f"| `{name}` | {_cell(_value(each))} | {_cell(default)} | {about} |\n"


def _effects(whole: Schema) -> Iterator[str]:
    """What a change of each key does in a running fleet, as the fields of the configuration declare it."""
    entries = whole["$defs"]
    agent = {key for name in _TITLES for key in entries[name]["properties"]}
    yield "\n## What a saved change does\n\n| keys of | at once | new version | needs a restart |\n"
    yield "|---|---|---|---|\n"
    for title, config, keys in (
        ("the file", Project, set(whole["properties"])),
        ("an agent", AgentConfig, agent),
        ("a program under `servers:`", ServerConfig, set(entries["ProgramEntry"]["properties"])),
    ):
        words = {_FIELDS.get(name, name): effect.word for name, effect in effects_of(config).items()}
        cells = (
            " ".join(f"`{key}`" for key in sorted(keys) if words.get(key, "new version") == word)
            for word in ("at once", "new version", "at start")
        )
        yield f"| {title} | {' | '.join(cells)} |\n"


def agents_yaml() -> str:
    """Every key of agents.yaml, from the schema that `pallas schema` prints."""
    whole = json.loads(schema_text())
    parts = [
        "# Keys of agents.yaml\n\nMade of the schema that `pallas schema` prints. ",
        "[Configuration](../configuration.md) explains the keys. A value may also be `${NAME}`, a variable "
        "of the environment or of `.env`, or `${NAME:default}`.\n\n## The file\n\n",
        *_keys(whole),
        *_effects(whole),
    ]
    for name, schema in whole["$defs"].items():
        if name != "Variable" and "properties" in schema:
            title = _TITLES.get(name, name)
            parts += [
                f"\n## {title} {{ #{name.lower()} }}\n\n{schema.get('description', '')}\n\n",
                *_keys(schema),
            ]
    return "".join(parts)


def command_line() -> str:
    """Every command with its arguments and options, as `--help` has them."""
    group = typer.main.get_command(app)
    with group.make_context("pallas", [], resilient_parsing=True) as context:
        text = get_docs_for_click(obj=group, ctx=context, name="pallas", title="The command line")
    text += "\n## Commands of a conversation\n\nIn `pallas chat` and in the chat of the workbench.\n\n"
    text += "| command | does |\n|---|---|\n"
    text += "".join(f"| `/{_cell(each.usage)}` | {each.help} |\n" for each in COMMANDS.commands.values())
    # Uppercase words in brackets are names of arguments, not HTML.
    return re.sub(r"^(\* `[^`]*`: .*)$", lambda line: line[1].replace("<", "&lt;"), text, flags=re.MULTILINE)


def _operations(document: Schema) -> Iterator[str]:
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            yield f"\n### {method.upper()} {path.replace('{', '&#123;')}\n\n{operation.get('summary', '')}.\n"
            if (about := operation.get("description", "")) and about != operation.get("summary"):
                yield f"\n{about}\n"
            if given := operation.get("parameters"):
                yield "\n| parameter | in | value | |\n|---|---|---|---|\n"
                for each in given:
                    must = " (required)" if each.get("required") and each["in"] != "path" else ""
                    value, about = _cell(_value(each["schema"])), _cell(each.get("description", ""))
                    yield f"| `{each['name']}`{must} | {each['in']} | {value} | {about} |\n"
            for content in operation.get("requestBody", {}).get("content", {}).values():
                yield f"\nBody: {_value(content['schema'])}\n"
            for status, answer in operation["responses"].items():
                if status in _EVERYWHERE:
                    continue
                kinds = answer.get("content", {}).items()
                bodies = "; ".join(f"{kind} {_value(content.get('schema', {}))}" for kind, content in kinds)
                about = answer["description"].replace("Successful Response", "Done")
                yield f"\n- `{status}`: {about}{f': {bodies}' if bodies else ''}"
            yield "\n"


def _routes(document: Schema) -> Iterator[str]:
    """The table of grants."""
    yield "| route | grant | without a token |\n|---|---|---|\n"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            grant = f"`{found}`" if (found := operation.get("x-pallas-permission")) else "–"
            anonymous = "yes" if operation["x-pallas-anonymous"] else "no"
            yield f"| `{method.upper()} {path}` | {grant} | {anonymous} |\n"


def rest_api() -> str:
    """Every operation and body of the REST API, from its OpenAPI document."""
    nothing = SimpleNamespace(kernel=None, ledger=None, threads=None, catalog=None, grants=None)
    document = document_of(rest_app(cast(Any, nothing)))
    parts = [
        "# Operations of the REST API\n\nMade of the OpenAPI document that a fleet serves at "
        "`/api/v1/openapi.json`. [The REST API](../api.md) explains it. Paths are below `/api/v1`.\n\n"
        "Every operation may also answer 400 (something in the request is wrong; `data.key` says what), 401 "
        "(no valid token), 403 (a grant is missing) or 503 (not now; see `Retry-After`), each with a "
        "[FaultBody](#faultbody).\n\n## Grants\n\n"
        "What a caller needs where [rules](../auth.md#permissions) apply. A name in the path is the last "
        'part of the grant: `GET /agents/desk` needs `view:agents:desk`. "–" needs no grant: callers see '
        "what is their own, or more with other grants. The last column: whether a caller without a token may "
        "use it, if the rules give the grant to `anonymous`.\n\n",
        *_routes(document),
        "\n## Paths\n",
        *_operations(document),
        "\n## Bodies\n",
    ]
    for name, schema in sorted(document["components"]["schemas"].items()):
        about = f"\n{schema['description']}\n" if "description" in schema else ""
        fields = "".join(_keys(schema)) if "properties" in schema else f"{_value(schema)}\n"
        parts.append(f"\n### {name}\n{about}\n{fields}")
    return "".join(parts)


# By their paths in the site.
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "reference/agents-yaml.md": agents_yaml,
    "reference/command-line.md": command_line,
    "reference/rest-api.md": rest_api,
    **REGISTRY_PAGES,
}
