"""The commands for a conversation's settings: ``/set``, ``/system``, ``/save`` and others."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from pallas.model import Params
from pallas.model.params import PER_CALL_KEYS, SYSTEM_KEYS
from pallas.safe_text import one_line

from . import parameter_text
from .command_host import ChatHost, ShownParameter, Tunable
from .command_registry import CommandOutcome

_SETTING: Final = re.compile(r"([^\s=]+)\s*(?:[\s=]\s*(.*))?\Z", re.DOTALL)


async def set_(host: ChatHost, rest: str) -> CommandOutcome:
    """``/set``, ``/set NAME``, ``/set NAME VALUE``, ``/set NAME=VALUE``."""
    found = _SETTING.match(rest)
    if found is None:
        return CommandOutcome(_all(host))
    name, value = found[1], (found[2] or "").strip()
    own = next((each for each in host.parameters() if each.name == name.lower()), None)
    if own is not None:
        return CommandOutcome(await host.set(own.name, value) if value else _one(own))
    if not isinstance(host, Tunable):
        return CommandOutcome(_untold(host, name), ok=False)
    return _tune(host, name, value)


def set_values(host: ChatHost, rest: str) -> Iterable[str]:
    """Complete the text after ``/set``."""
    own = host.parameters()
    name, space, _ = rest.partition(" ")
    if not space:
        return [each.name for each in own] + list(parameter_text.names() if isinstance(host, Tunable) else ())
    named = next((each.values for each in own if each.name == name.lower()), None)
    return parameter_text.some_values(name) if named is None else named


async def unset(host: ChatHost, rest: str) -> CommandOutcome:
    """``/unset NAME``."""
    if not isinstance(host, Tunable):
        return CommandOutcome(_NO_PARAMETERS, ok=False)
    if not rest:
        return CommandOutcome("Which one? /set lists what is set.", ok=False)
    host.override(parameter_text.unset(host.overrides(), rest))
    return CommandOutcome(f"{one_line(rest, 60)} is reset to the agent's own value.")


def unset_values(host: ChatHost, rest: str) -> Iterable[str]:
    """Complete the text after ``/unset``."""
    return [name for name, _ in parameter_text.lines(host.overrides())] if isinstance(host, Tunable) else ()


async def system(host: ChatHost, rest: str) -> CommandOutcome:
    """``/system TEXT`` replaces the instruction; ``/system`` alone undoes that and shows the agent's."""
    notice = ""
    if isinstance(host, Tunable):
        if rest and rest not in ('""', "''"):
            host.override(parameter_text.changed(host.overrides(), "systemOverride", rest))
            return CommandOutcome(
                "From the next message on, this is the instruction, in this conversation only."
            )
        notice = _taken_back(host, "systemOverride")
    elif rest:
        return CommandOutcome(
            "An agent's instruction is written where it is defined; no MCP client can change it. /system "
            "alone shows it.",
            ok=False,
        )
    detail = await host.describe()
    where = f"\n\n(defined in {detail.defined})" if detail.defined else ""
    text = detail.instruction.strip() or f"{detail.name} does not show its instruction."
    return CommandOutcome(notice + text + where)


async def append(host: ChatHost, rest: str) -> CommandOutcome:
    """``/append TEXT`` follows the instruction; ``/append`` alone undoes that."""
    if not isinstance(host, Tunable):
        return CommandOutcome(_NO_PARAMETERS, ok=False)
    if rest and rest not in ('""', "''"):
        host.override(parameter_text.changed(host.overrides(), "systemAppend", rest))
        return CommandOutcome(
            "From the next message on, this text follows the instruction, in this conversation only."
        )
    return CommandOutcome(
        _taken_back(host, "systemAppend").strip() or "No text was added to the agent's instruction."
    )


async def save(host: ChatHost, rest: str) -> CommandOutcome:
    """``/save``: the settings become the agent's default, except for ``/system`` and ``/append`` (AG-13)."""
    if rest:
        return CommandOutcome(
            "/save keeps what /set has set, as the agent's defaults, and takes nothing. To write the "
            f"transcript: /export {one_line(rest, 60)}",
            ok=False,
        )
    if not isinstance(host, Tunable):
        return CommandOutcome(_NO_PARAMETERS, ok=False)
    keep = host.overrides().without(PER_CALL_KEYS)
    if not keep:
        return CommandOutcome(
            "Nothing is set that could be saved: /set temperature 0.2 is an example. What /system and "
            "/append say holds for the conversation only, and so does model.",
            ok=False,
        )
    return CommandOutcome(await host.save(keep))


_NO_PARAMETERS: Final = (
    "This agent's server takes no parameters of its model: they are set where the agent is defined."
)


def _tune(host: Tunable, name: str, value: str) -> CommandOutcome:
    if not value:
        return CommandOutcome(_shown(host.overrides(), name))
    params = parameter_text.changed(host.overrides(), name, value)
    host.override(params)
    key = parameter_text.key_of(name)
    now = parameter_text.value_of(params, name)
    if key is not None:
        cleared = params.cleared(key)
        return CommandOutcome(
            f"{key} is cleared: the provider's default applies." if cleared else f"{key} is {now} now."
        )
    hint = f" Did you mean {close}?" if (close := parameter_text.near(name)) else ""
    return CommandOutcome(
        f"extra.{one_line(name.removeprefix('extra.'), 60)} is {now} now. It is not a known parameter, so "
        f"it is sent to the provider as it is.{hint}"
    )


def _shown(params: Params, name: str) -> str:
    value = parameter_text.value_of(params, name)
    about = parameter_text.about(name)
    key = parameter_text.key_of(name) or f"extra.{one_line(name.removeprefix('extra.'), 60)}"
    return f"{key}  {'not set here' if value is None else value}" + (f"\n  {about}" if about else "")


def _all(host: ChatHost) -> str:
    own = host.parameters()
    params = parameter_text.lines(host.overrides()) if isinstance(host, Tunable) else []
    width = max(len(name) for name in (*(each.name for each in own), *(name for name, _ in params), "")) + 2
    lines = [f"{each.name.ljust(width)}{each.value}\n  {each.help}" for each in own]
    lines += [f"{name.ljust(width)}{value}" for name, value in params]
    if isinstance(host, Tunable) and not params:
        lines.append("No parameter of the model is set here; /set NAME VALUE sets one:")
        lines.append("  " + ", ".join(parameter_text.names()))
    return "\n".join(lines)


def _one(parameter: ShownParameter) -> str:
    some = f"\n  for example {', '.join(parameter.values[:8])}" if parameter.values else ""
    return f"{parameter.name}  {parameter.value}\n  {parameter.help}{some}"


def _untold(host: ChatHost, name: str) -> str:
    if parameter_text.key_of(name) is not None or name.lower() == "model":
        return (
            f"{name} cannot be set from here: this agent's server takes no parameters of its model. They "
            "are set where the agent is defined."
        )
    names = [each.name for each in host.parameters()]
    near = get_close_matches(name.lower(), names, 1, 0.5)
    hint = f"Did you mean {near[0]}?" if near else f"There are {', '.join(names)}."
    return f"There is no parameter or option {one_line(name, 40)}. {hint}"


def forget_instruction(host: object) -> str:
    """Undo ``/system`` and ``/append`` when another conversation begins; returns a line that says so."""
    if not isinstance(host, Tunable):
        return ""
    now = host.overrides()
    if not SYSTEM_KEYS.intersection(now.values):
        return ""
    host.override(now.without(SYSTEM_KEYS))
    return "The agent's own instruction applies again: /system and /append are for one conversation."


def _taken_back(host: Tunable, key: str) -> str:
    """Undo it; returns its value, or an empty string if it was not set."""
    now = host.overrides()
    if key not in now.values:
        return ""
    host.override(now.without(frozenset({key})))
    return f"Removed: {parameter_text.shown(now.get(key, ''))}\n\n"
