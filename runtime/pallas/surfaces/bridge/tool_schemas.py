"""The input schemas and annotations of the bridge's tools (DR-1)."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple


class ToolListing(NamedTuple):
    """A tool as it is listed. ``reads`` marks it read-only, ``again`` idempotent."""

    name: str
    title: str
    description: str
    schema: Mapping[str, Any]
    reads: bool = False
    again: bool = False


def _takes(properties: Mapping[str, Any], *required: str) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object", "properties": dict(properties)}
    if required:
        schema["required"] = list(required)
    return schema | {"additionalProperties": False}


RUNTIME_PARAMS: Final[Mapping[str, Any]] = {
    **_takes(
        {
            "model": {"type": "string"},
            "temperature": {"type": "number", "minimum": 0, "maximum": 2},
            "maxTokens": {"type": "integer", "minimum": 1},
            "topP": {"type": "number", "minimum": 0, "maximum": 1},
            "topK": {"type": "integer", "minimum": 1},
            "stopSequences": {"type": "array", "items": {"type": "string"}, "maxItems": 4},
            "systemPrompt": {
                "type": "string",
                "description": "Replaces the agent's instruction for this prompt.",
            },
            "detail": {"type": "string", "enum": ["auto", "low", "high", "original"]},
            "providerSpecific": {
                "type": "object",
                "description": "Further parameters of the provider.",
            },
        }
    ),
    "description": "Parameters of the model for this prompt, over the session's and the agent's own.",
}
"""``runtimeParams``: strict, in camelCase."""

_SESSION: Final = {"type": "string", "description": "The session, as sessions_create named it."}
_AGENT: Final = {
    "type": "string",
    "description": "Which agent, by its id in agents_discover; without it the fleet's default.",
}
_PROMPT: Final = {"type": "string", "description": "What to say to the agent."}
_TIMEOUT: Final = {
    "type": "integer",
    "exclusiveMinimum": 0,
    "description": "Milliseconds for the whole answer; after them the work is cancelled.",
}
_METADATA: Final = {
    "type": "object",
    "description": "provider: which of the agent's providers answers. runtimeParams: parameters for every "
    "prompt of the session. threadId: a thread of yours with that agent, to go on with. resume: the id of a "
    "failed session, to go on with it. Anything else is handed to the agent.",
}

HEALTH: Final = ToolListing(
    "bridge_health",
    "Health of the fleet",
    "Whether the fleet can work now: how many agents there are and are ready, how many sessions are open.",
    _takes({}),
    reads=True,
    again=True,
)
DISCOVER: Final = ToolListing(
    "agents_discover",
    "Find agents",
    "The agents that you may use, each with what it can do and whether it is ready, busy or unavailable.",
    _takes(
        {
            "capability": {"type": "string", "description": "Only agents that list this capability."},
            "refresh": {
                "type": "boolean",
                "default": False,
                "description": "Has no effect: the list is always current.",
            },
        }
    ),
    reads=True,
    again=True,
)
CREATE: Final = ToolListing(
    "sessions_create",
    "Open a session",
    "Open a session with an agent. What is said in it is remembered; close it when you are done.",
    _takes(
        {
            "agentId": _AGENT,
            "workerId": {"type": "string", "description": "The old name of agentId.", "deprecated": True},
            "metadata": _METADATA,
        }
    ),
)
PROMPT: Final = ToolListing(
    "sessions_prompt",
    "Say something in a session",
    "Say something in a session and get the agent's answer. One prompt at a time, unless queue is true.",
    _takes(
        {
            "sessionId": _SESSION,
            "prompt": _PROMPT,
            "timeout": _TIMEOUT,
            "runtimeParams": RUNTIME_PARAMS,
            "queue": {
                "type": "boolean",
                "default": False,
                "description": "Wait for the prompt that is under way instead of being refused.",
            },
        },
        "sessionId",
        "prompt",
    ),
)
STATUS: Final = ToolListing(
    "sessions_status",
    "State of a session",
    "Whether a session is active, busy, idle or failed, and when something happened in it last.",
    _takes({"sessionId": _SESSION}, "sessionId"),
    reads=True,
    again=True,
)
CLOSE: Final = ToolListing(
    "sessions_close",
    "Close a session",
    "Close a session. What was said in it stays in its thread.",
    _takes(
        {"sessionId": _SESSION, "reason": {"type": "string", "description": "Why, for the agent."}},
        "sessionId",
    ),
    again=True,
)
CANCEL: Final = ToolListing(
    "sessions_cancel",
    "Cancel a prompt",
    "Cancel what is under way in a session; the session stays open. Harmless where nothing is.",
    _takes(
        {
            "sessionId": _SESSION,
            "requestId": {"type": "string", "description": "Only this request; without it whatever runs."},
        },
        "sessionId",
    ),
    again=True,
)
DELEGATE: Final = ToolListing(
    "tasks_delegate",
    "Delegate a task",
    "Give an agent one piece of work and get the answer: a session is opened for it and closed after it.",
    _takes(
        {
            "prompt": _PROMPT,
            "agentId": _AGENT,
            "timeout": _TIMEOUT,
            "metadata": _METADATA,
            "runtimeParams": RUNTIME_PARAMS,
        },
        "prompt",
    ),
)

TOOLS: Final = (HEALTH, DISCOVER, CREATE, PROMPT, STATUS, CLOSE, CANCEL, DELEGATE)
"""The eight, in their fixed order."""
