"""The JSON Schema of a recording: of an object that has the documents of its YAML files by their path."""

import json
from typing import Any, Final

from pydantic import TypeAdapter

from pallas.model import Message, RecordedRun, Step
from pallas.model.server_offer import ServerOffer

from .recording_folder import FORMAT, HEAD

_IN_FOLDER: Final = "^[1-9][0-9]*-[^/]*/"
"""Of the path of a file of a run."""
_AS_IN: Final[dict[str, Any]] = {
    "type": "object",
    "description": "What the request shares with that of an earlier step of the run: these fields "
    "as a whole, and "
    "this many messages from the beginning of the conversation.",
    "properties": {
        "step": {"type": "integer", "minimum": 1},
        "fields": {"type": "array", "items": {"type": "string"}},
        **{name: {"type": "integer", "minimum": 1} for name in ("messages", "input", "contents")},
    },
    "required": ["step", "fields"],
    "additionalProperties": False,
}
_STEP: Final[dict[str, Any]] = {
    "headers": {
        "type": "object",
        "description": "What is shown of the request's headers",
        "additionalProperties": {"type": "string"},
    },
    "as_in": {"$ref": "#/$defs/AsIn"},
    "request": {
        "description": "What was sent, without the parts that as_in names; for a tool call its arguments"
    },
    "response": {"description": "What came back: the model's answer, or the result of the call"},
}


def schema_text() -> str:
    """The schema as JSON, as `pallas schema recording` prints it."""
    return json.dumps(recording_schema(), indent=2) + "\n"


def recording_schema() -> dict[str, Any]:
    """The schema as a value."""
    definitions: dict[str, Any] = {"AsIn": _AS_IN}
    run = _object(RecordedRun, definitions, without=("steps",))
    run["properties"]["parent"]["description"] = "The folder of the run that asked for it"
    step = _object(Step, definitions, without=("run_id", "number"))
    step["properties"] |= _STEP
    run["properties"]["offers"]["description"] = "The files of offers/ by server, without .yaml"
    offer = _object(ServerOffer, definitions, without=())
    definitions |= {"Message": _object(Message, definitions, without=("native",)), "Run": run, "Step": step}
    definitions["Offer"] = offer
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A recording of Pallas",
        "description": "Each file of YAML by its path in the folder. Times are seconds after the first run "
        "began. `picture:NAME` in place of base64 is the file pictures/NAME.",
        "type": "object",
        "properties": {
            HEAD: {
                "type": "object",
                "properties": {
                    "format": {"const": FORMAT},
                    "project": {"type": "string"},
                    "runs": {
                        "type": "array",
                        "description": "The folders of the runs, each after the run that asked for it",
                        "items": {"type": "string"},
                        "minItems": 1,
                    },
                    "missing": {
                        "type": "array",
                        "description": "A line for each part that could not be recorded",
                        "items": {"type": "string"},
                    },
                },
                "required": ["format", "project", "runs"],
                "additionalProperties": False,
            },
            "history.yaml": {
                "type": "object",
                "properties": {"messages": {"type": "array", "items": {"$ref": "#/$defs/Message"}}},
                "required": ["messages"],
                "additionalProperties": False,
            },
        },
        "patternProperties": {
            f"{_IN_FOLDER}run\\.yaml$": {"$ref": "#/$defs/Run"},
            "^offers/[^/]*\\.yaml$": {"$ref": "#/$defs/Offer"},
            f"{_IN_FOLDER}[0-9]{{3,9}}-[^/]*\\.yaml$": {"$ref": "#/$defs/Step"},
        },
        "required": [HEAD],
        "additionalProperties": False,
        "$defs": dict(sorted(definitions.items())),
    }


def _object(kind: type, definitions: dict[str, Any], *, without: tuple[str, ...]) -> dict[str, Any]:
    """The schema of a value as a document; those of the values in it become ``definitions``.

    A field that a document does not have is left out there, and so is each that has its default.
    """
    schema = TypeAdapter(kind).json_schema()
    definitions |= {name: _closed(each) for name, each in schema.pop("$defs", {}).items()}
    schema["properties"] = {name: each for name, each in schema["properties"].items() if name not in without}
    schema["required"] = [name for name in schema.get("required", ()) if name not in without]
    return _closed(schema)


def _closed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "additionalProperties": False} if schema.get("type") == "object" else schema
