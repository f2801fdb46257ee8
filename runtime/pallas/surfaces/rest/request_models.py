"""The bodies that the REST API accepts, as in the OpenAPI document.

Resources are plain objects here: the catalog parses them and words the errors.
"""

from typing import Annotated, Any, Final, Literal

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema

from pallas.bounds.images import MAX_IMAGES
from pallas.bounds.sizes import MAX_TEXT
from pallas.model import ResourceKind

_TEXT: Final = {"type": "string"}
_OBJECT: Final = {"type": "object", "additionalProperties": True}


def _null(schema: dict[str, Any], description: str = "") -> dict[str, Any]:
    more = {"description": description} if description else {}
    if isinstance(kind := schema.get("type"), str) and "enum" not in schema:
        return {**schema, "type": [kind, "null"], **more}
    return {"anyOf": [schema, {"type": "null"}], **more}


def _written(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **({"required": list(required)} if required else {}),
    }


NAME: Final = {
    "type": "string",
    "pattern": "^[a-z0-9][a-z0-9._-]*$",
    "maxLength": 100,
    "description": "Lower case letters, digits and . _ - after the first.",
}
_REFERENCE: Final = {
    "anyOf": [
        {"type": "string", "maxLength": 200},
        _written({"id": {"type": ["string", "null"]}, "name": _TEXT}, "name"),
        _written({"id": _TEXT}, "id"),
        {"type": "null"},
    ]
}
_KEY_REF: Final = {
    "anyOf": [
        {"type": "string", "description": "SECRET/KEY"},
        _written({"name": _TEXT, "key": _TEXT}, "name", "key"),
        {"type": "null"},
    ]
}
_COUNT: Final = {"type": "integer", "minimum": 1}
_AGENT: Final[dict[str, Any]] = {
    "description": _null(_TEXT),
    "systemPrompt": _null(_TEXT),
    "llm": _REFERENCE,
    "project": _REFERENCE,
    "llmId": _null(_TEXT, "The same as `llm`, by id or name."),
    "projectId": _null(_TEXT, "The same as `project`, by id or name."),
    "proxyModelName": _null(_TEXT, "Kept and shown; has no effect."),
    "defaultParams": _null(_OBJECT, "Default parameters of its runs."),
    "maxIterations": _null(_COUNT, "The most steps of a run."),
    "loopRepeatThreshold": _null(
        {"type": "integer", "minimum": 0},
        "A run ends after this many equal calls with equal results; 0 is off.",
    ),
    "extras": _null(_OBJECT),
}
_LLM: Final[dict[str, Any]] = {
    "type": _null(_TEXT),
    "model": _null(_TEXT),
    "url": _null(_TEXT),
    "apiKeyRef": _KEY_REF,
    "description": _null(_TEXT),
    "defaultParams": _null(_OBJECT),
    "maxOutputTokens": _null(
        _COUNT, "The most tokens that the model can write in one answer; requests ask for no more."
    ),
    "extra": _null(_OBJECT),
    "probe": _null({"type": "boolean"}, "False: create it without asking the provider."),
}
_SECRET: Final[dict[str, Any]] = {
    "data": _null(
        {"type": "object", "additionalProperties": _null(_TEXT)},
        "Values by key. They are written here and never returned; null removes a key.",
    ),
    "keys": _null({"type": "array", "items": _TEXT}, "Accepted because it is returned; has no effect."),
}
_PROJECT: Final[dict[str, Any]] = {
    "description": _null(_TEXT),
    "servers": _null({"type": "array", "items": {}}),
    "prompts": _null({"type": "array", "items": {}}),
}
_OF_ALL: Final = frozenset({"id", "ownerId", "version", "createdAt", "updatedAt"})
READ_ONLY: Final[dict[ResourceKind, frozenset[str]]] = {
    "agent": _OF_ALL
    | {
        "source",
        "kind",
        "capabilities",
        "availability",
        "state",
        "health",
        "healthMessage",
        "url",
        "model",
        "reason",
        "problem",
    }
    | {"shadowed", "shadows", "serves", "payload", "context", "toolRules"},
    "llm": _OF_ALL | {"warning"},
    "secret": _OF_ALL | {"problem"},
    "project": _OF_ALL | {"source"},
}
"""Read-only keys of a response, ignored if it is sent back in a change."""


def _body(title: str, properties: dict[str, Any], *required: str) -> Any:
    schema = {"title": title, **_written({"name": NAME, **properties}, *required)}
    return Annotated[dict[str, Any], WithJsonSchema(schema), Body(title=title)]


AgentMade = _body("AgentMade", _AGENT, "name")
_VERSION: Final[dict[str, Any]] = {
    "version": _null(
        {"type": "integer", "minimum": 1},
        "The version that you read: if it has changed since, the change is refused (409).",
    )
}
AgentChange = _body("AgentChange", _AGENT | _VERSION)
LlmMade = _body("LlmMade", _LLM, "name")
LlmChange = _body("LlmChange", _LLM | _VERSION)
SecretMade = _body("SecretMade", _SECRET, "name")
SecretChange = _body("SecretChange", _SECRET | _VERSION)
ProjectMade = _body("ProjectMade", _PROJECT, "name")
ProjectChange = _body("ProjectChange", _PROJECT | _VERSION)


class ThreadMade(BaseModel):
    """The thread to create."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str = Field(default="", max_length=200)


class ThreadChange(BaseModel):
    """The fields of a thread that can be changed."""

    model_config = ConfigDict(extra="forbid", strict=True)

    title: str = Field(max_length=200)


class QuestionAnswerBody(BaseModel):
    """The answer to a question. ``content`` is what a form asks for; ``always`` is for calls."""

    model_config = ConfigDict(extra="forbid", strict=True)

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] = Field(default_factory=dict)
    always: bool = False


class ImageGiven(BaseModel):
    """An image of a message: ``data`` is base64."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    data: str = Field(min_length=1)
    mime_type: str = Field(alias="mimeType", examples=["image/png"])


_PARAMS: Final[dict[str, Any]] = {
    "temperature": {"type": "number", "minimum": 0, "maximum": 2},
    "top_p": {"type": "number", "minimum": 0, "maximum": 1},
    "top_k": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
    "max_tokens": {"type": "integer", "minimum": 1, "maximum": 100_000_000},
    "stop": {
        "anyOf": [
            {"type": "string", "minLength": 1},
            {"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1, "maxItems": 4},
        ]
    },
    "presence_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "frequency_penalty": {"type": "number", "minimum": -2, "maximum": 2},
    "seed": {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1},
    "response_format": {
        "type": "object",
        "properties": {"type": {"enum": ["text", "json_object", "json_schema"]}},
        "required": ["type"],
    },
    "tool_choice": {
        "anyOf": [
            {"enum": ["auto", "none", "required"]},
            {
                "type": "object",
                "properties": {
                    "type": {"const": "function"},
                    "function": {
                        "type": "object",
                        "properties": {"name": {"type": "string", "minLength": 1}},
                        "required": ["name"],
                    },
                },
                "required": ["type", "function"],
            },
        ]
    },
    "tools_allowlist": {"type": "array", "items": _TEXT, "maxItems": 1_000},
    "systemOverride": {"type": "string", "maxLength": 200_000},
    "systemAppend": {"type": "string", "maxLength": 200_000},
    "messages": {"type": "array", "items": _OBJECT, "minItems": 1},
    "model": {"type": "string", "pattern": "^[!-~]{1,200}$"},
    "extra": {"type": "object", "maxProperties": 64},
}


def _with_params(schema: dict[str, Any]) -> None:
    schema["properties"] |= {key: _null(each) for key, each in _PARAMS.items()}


class Fork(BaseModel):
    """The step of a run from which another run goes on, and what is different there.

    Parameters, such as `model`, as for a chat. `version` is a revision of git that the project has then.
    """

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra=_with_params)

    step: int = Field(ge=1, le=10**9)
    message: str | None = Field(default=None, max_length=MAX_TEXT)
    result: str | None = Field(default=None, max_length=MAX_TEXT)
    version: str | None = Field(default=None, min_length=1, max_length=200)
    stream: bool | None = None


class Chat(BaseModel):
    """A message, and parameters of its run, in snake_case or camelCase. Any other key goes to `extra`."""

    model_config = ConfigDict(extra="allow", strict=True, json_schema_extra=_with_params)

    message: str | None = Field(default=None, max_length=MAX_TEXT)
    images: list[ImageGiven] | None = Field(default=None, max_length=MAX_IMAGES)
    threadId: str | None = Field(default=None, min_length=1, max_length=200)
    provider: str | None = Field(default=None, min_length=1, max_length=100)
    stream: bool | None = None
