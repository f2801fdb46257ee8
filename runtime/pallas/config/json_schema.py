"""The JSON Schema of ``agents.yaml``, from the models that it is read with."""

import ast
import inspect
import json
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import Any, Final

from pydantic import BaseModel

from pallas import __version__

from .agent_entries import UnknownEntry
from .agents_file import AgentsFile
from .field_types import FileValue
from .params import PARAMS, PARAMS_SCHEMA

SCHEMA_FILE: Final = ".pallas/agents.schema.json"
"""Where ``pallas init`` writes it, from the project's folder."""
DRAFT: Final = "https://json-schema.org/draft/2020-12/schema"
_MADE_BY: Final = f"Written by Pallas {__version__}: pallas schema > {SCHEMA_FILE}"
_VARIABLE: Final = "Variable"
_SCALARS: Final = frozenset({"integer", "number", "boolean"})
_PATTERN: Final = r"\$\{[^}]+\}"
_PLAIN_KEYS: Final = frozenset(
    {"default", "examples", "enum", "const", "required", "dependentRequired", "propertyNames"}
)
# What belongs to a property, and not to one of the forms that its value may have.
_OUTSIDE: Final = ("description", "default", "examples", "deprecated")


def agents_schema() -> dict[str, Any]:
    """What ``agents.yaml`` may say, as JSON Schema, draft 2020-12.

    It is checked before variables are replaced: a text with ``${VAR}`` fits everywhere.
    """
    found = AgentsFile.model_json_schema()
    definitions = found.pop("$defs")
    del definitions[UnknownEntry.__name__]
    models = {model.__name__: model for model in _models(FileValue)}
    for name, schema in ((AgentsFile.__name__, found), *definitions.items()):
        if (model := models.get(name)) is not None:
            _describe(schema, model)
    definitions[PARAMS] = PARAMS_SCHEMA
    definitions[_VARIABLE] = {
        "type": "string",
        "pattern": _PATTERN,
        "description": "A variable of the environment or of .env, or ${NAME:default}.",
    }
    found = {"$schema": DRAFT, "$comment": _MADE_BY, **found, "$defs": definitions}
    tidied: dict[str, Any] = _tidy(found)
    return tidied


def schema_text() -> str:
    """The schema as a file."""
    return json.dumps(agents_schema(), indent=1, ensure_ascii=False) + "\n"


def is_stale(text: str) -> bool:
    """Whether the text of a schema was written by another version of Pallas."""
    return _MADE_BY not in text[:1_000]


def _models(base: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for model in base.__subclasses__():
        yield model
        yield from _models(model)


def _describe(schema: dict[str, Any], model: type[BaseModel]) -> None:
    """Put the docstrings of the fields into the properties."""
    schema["description"] = _plain(inspect.cleandoc(model.__doc__ or ""))
    for name, field in model.model_fields.items():
        owner = next(each for each in model.__mro__ if name in inspect.get_annotations(each))
        text = _docstrings(owner.__module__)[owner.__name__].get(name, "")
        schema["properties"][field.alias or name]["description"] = _plain(text)


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """The text at each field of each class of a module."""
    tree = ast.parse(inspect.getsource(import_module(module)))
    found: dict[str, dict[str, str]] = {}
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            fields = found.setdefault(statement.name, {})
            for field, text in zip(statement.body, statement.body[1:], strict=False):
                match field, text:
                    case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str(words))):
                        fields[name] = inspect.cleandoc(words)
    return found


def _plain(text: str) -> str:
    return text.replace("``", "`")


def _tidy(schema: Any) -> Any:
    """The schema with variables allowed for scalars, and without what says nothing."""
    if isinstance(schema, list):
        return [_tidy(each) for each in schema if each != {"$ref": f"#/$defs/{UnknownEntry.__name__}"}]
    if not isinstance(schema, dict):
        return schema
    if schema.get("$comment") == PARAMS:
        return {"description": schema["description"], "$ref": f"#/$defs/{PARAMS}"}
    found = {_keyword(key, value): _tidied(key, value) for key, value in schema.items()}
    found.pop("title", None)
    if found.get("default", ...) is None:
        del found["default"]
    if not _is_scalar(found):
        return found
    outside = {key: found.pop(key) for key in _OUTSIDE if key in found}
    return {**outside, "anyOf": [found, {"$ref": f"#/$defs/{_VARIABLE}"}]}


def _is_scalar(schema: dict[str, Any]) -> bool:
    """Whether a text with a variable could be in place of what it allows, and is not allowed yet."""
    types = schema.get("type", ())
    named = {types} if isinstance(types, str) else set(types)
    limited = bool(schema.keys() & {"pattern", "const", "enum"}) and schema.get("pattern") != _PATTERN
    return limited or bool(named & _SCALARS and "string" not in named)


def _keyword(key: str, value: Any) -> str:
    """``anyOf`` for a choice among models: a variable in place of the ``kind`` fits several."""
    return "anyOf" if key == "oneOf" and "$ref" in str(value) else key


def _tidied(key: str, value: Any) -> Any:
    if key in ("properties", "$defs"):
        return {name: _tidy(each) for name, each in value.items()}
    return value if key in _PLAIN_KEYS else _tidy(value)
