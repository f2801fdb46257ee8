"""Parameters of a run: one set, one way to read it, one order to merge it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final

from .param_checks import CHECKS, as_json, integer, one_of, wrong
from .param_checks import MAX_STOP as MAX_STOP
from .param_checks import is_json as is_json

KEYS: Final = (
    "temperature",
    "top_p",
    "top_k",
    "max_tokens",
    "stop",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "response_format",
    "tool_choice",
    "tools_allowlist",
    "systemOverride",
    "systemAppend",
    "messages",
    "model",
    "extra",
)
"""The keys as they are stored and shown. Callers may write them in ``snake_case`` or ``camelCase``."""

SYSTEM_KEYS: Final = frozenset({"systemOverride", "systemAppend"})
"""Keys that apply to one conversation and are never saved as an agent's default (AG-13)."""
PER_CALL_KEYS: Final = frozenset({"messages", "model", *SYSTEM_KEYS})
"""Keys that apply to one call or conversation only, and are refused among an agent's defaults."""

RUNTIME_KEYS: Final = {
    "model": "model",
    "temperature": "temperature",
    "maxTokens": "max_tokens",
    "topP": "top_p",
    "topK": "top_k",
    "stopSequences": "stop",
    "systemPrompt": "systemOverride",
    "detail": "detail",
    "providerSpecific": "extra",
}
"""The keys of a session's and a prompt's ``runtimeParams``, each with its key in ``KEYS``."""
DETAILS: Final = ("auto", "low", "high", "original")
"""How closely a model looks at pictures; stored as ``extra.detail``."""
# Parameters of single providers that have a key of their own here.
_LIFTED: Final = frozenset(
    {"presence_penalty", "frequency_penalty", "seed", "response_format", "tool_choice"}
)

_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def _snake(key: str) -> str:
    return _HUMP.sub("_", key).lower().replace("-", "_")


_BY_SNAKE: Final = {
    **{_snake(key): key for key in KEYS},
    # The names that single providers use.
    "max_completion_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "stop_sequences": "stop",
}


@dataclass(frozen=True, slots=True)
class Params:
    """Some of the parameters.

    An absent key is inherited, a key with the value None clears the inherited value.
    """

    # Keys of ``KEYS`` with checked values
    values: Mapping[str, Any] = field(default_factory=dict, hash=False)

    @staticmethod
    def read(given: Mapping[str, Any], *, strict: bool, refused: frozenset[str] = frozenset()) -> "Params":
        """Read parameters as a caller wrote them, in snake_case or camelCase (UN-5).

        If ``strict``, an unknown key is refused; otherwise it goes below ``extra``. Raises Fault
        (PROTOCOL) whose ``data["key"]`` names the wrong key in the caller's spelling.
        """
        found: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for name, value in given.items():
            key = _BY_SNAKE.get(_snake(str(name)))
            if key is None:
                if strict:
                    near = get_close_matches(_snake(str(name)), list(_BY_SNAKE), 1, 0.6)
                    hint = f"did you mean {_BY_SNAKE[near[0]]}?" if near else f"known: {', '.join(KEYS)}"
                    raise wrong(str(name), f"there is no such parameter; {hint}")
                extra[str(name)] = value
                continue
            if key in found:
                raise wrong(str(name), "is given twice, in two spellings; leave one out")
            if key in refused:
                raise wrong(str(name), "holds for one call only and cannot be a default; leave it out")
            found[key] = None if value is None else as_json(str(name), CHECKS[key](str(name), value))
        if extra:
            if found.get("extra", {}) is None:
                raise wrong(next(iter(extra)), "is not a parameter, and extra is null; leave one of them out")
            added = {name: as_json(name, value) for name, value in extra.items()}
            found["extra"] = CHECKS["extra"]("extra", {**found.get("extra", {}), **added})
        return Params(found)

    @staticmethod
    def read_runtime(given: Mapping[str, Any]) -> "Params":
        """Read the ``runtimeParams`` of a session or a prompt (DR-25), in camelCase or snake_case; unknown
        keys are refused.

        ``detail`` goes below ``extra``, and so do the keys of ``providerSpecific`` except those with a key of
        their own (``seed``). Raises Fault (PROTOCOL) as ``read`` does.
        """
        if not isinstance(given, Mapping):
            raise wrong("runtimeParams", "must be an object")
        names: dict[str, str] = {}
        found: dict[str, Any] = {}
        for name, value in given.items():
            wire = _RUNTIME_BY_SNAKE.get(_snake(str(name)))
            if wire is None:
                raise wrong(str(name), f"there is no such parameter; {_near_runtime(str(name))}")
            if wire in names:
                raise wrong(str(name), "is given twice, in two spellings; leave one out")
            names[wire] = str(name)
            check = _RUNTIME_CHECKS.get(wire) or CHECKS[RUNTIME_KEYS[wire]]
            found[wire] = None if value is None else as_json(str(name), check(str(name), value))
        lifted: dict[str, Any] = {}
        extra = found.pop("providerSpecific", {})
        if extra:
            lifted, extra = _specific(names["providerSpecific"], extra)
        if "detail" in found:
            extra = {**(extra or {}), "detail": found.pop("detail")}
        values = {RUNTIME_KEYS[wire]: value for wire, value in found.items()} | lifted
        if extra or extra is None:
            values["extra"] = extra
        return Params(values)

    def over(self, below: "Params") -> "Params":
        """These parameters on top of others: a key of these wins, None clears the one below (AG-8).

        ``extra`` is merged key by key, and null clears one of its keys. Build layers from the lowest up:
        ``request.over(agent.over(llm))``.
        """
        merged = {**below.values, **self.values}
        mine, theirs = self.values.get("extra"), below.values.get("extra")
        if mine is not None and theirs is not None:
            merged["extra"] = {**theirs, **mine}
        return Params(merged)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, ``default`` if it is absent or cleared."""
        value = self.values.get(key)
        return default if value is None else value

    def cleared(self, key: str) -> bool:
        """Whether the key was set to null: then not even the model's own default is sent."""
        return key in self.values and self.values[key] is None

    def without(self, keys: frozenset[str]) -> "Params":
        """All but these keys."""
        remaining = {key: value for key, value in self.values.items() if key not in keys}
        return Params(remaining)

    def to_json(self) -> dict[str, Any]:
        """The parameters as plain JSON values, cleared keys as null."""
        return dict(self.values)

    def __bool__(self) -> bool:
        return bool(self.values)

    def __reduce__(self) -> Any:
        return _restored, (dict(self.values),)


NO_PARAMS: Final = Params()


def _restored(values: dict[str, Any]) -> Params:
    return Params(values)


_RUNTIME_BY_SNAKE: Final = {_snake(key): key for key in RUNTIME_KEYS}
_RUNTIME_CHECKS: Final = {"topK": integer(1, 1_000_000), "detail": one_of(*DETAILS)}


def _near_runtime(name: str) -> str:
    near = get_close_matches(_snake(name), list(_RUNTIME_BY_SNAKE), 1, 0.6)
    return f"did you mean {_RUNTIME_BY_SNAKE[near[0]]}?" if near else f"known: {', '.join(RUNTIME_KEYS)}"


def _specific(name: str, value: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split ``providerSpecific`` into parameters with a key of their own, and the rest."""
    lifted: dict[str, Any] = {}
    extra: dict[str, Any] = {}
    for inner, each in as_json(name, CHECKS["extra"](name, value)).items():
        key, path = _snake(inner), f"{name}.{inner}"
        if key in _LIFTED:
            lifted[key] = None if each is None else CHECKS[key](path, each)
        elif key in _RUNTIME_BY_SNAKE:
            raise wrong(path, f"is a parameter of its own; write {_RUNTIME_BY_SNAKE[key]} beside {name}")
        else:
            extra[inner] = each
    return lifted, extra
