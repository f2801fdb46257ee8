"""Derives from the rows of the catalog which agents a fleet must have, and defaults of others."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from pallas.config import AgentConfig, Capabilities, Project
from pallas.config.downstreams import endpoint
from pallas.config.models import Definition, DownstreamConfig, LlmConfig
from pallas.config.where import Where
from pallas.ledger.kept import FOLDER_ID, ResourceRow, ResourceRows
from pallas.model import NO_PARAMS, Fault, FaultType, Params
from pallas.safe_text import one_line

from .secret_references import SecretRef, filled
from .spec_rows import limits_of
from .specs import read_params

SOURCE: Final = "api"
"""The source of an agent that no file declares."""

Opened = Callable[[ResourceRow], Mapping[str, str]]
"""Returns the values of a secret. Raises Fault (CONFIG) if they cannot be opened."""


@dataclass(frozen=True, slots=True)
class DesiredFleet:
    """The agents that a fleet must have."""

    # Those created over the API, by name
    agents: Mapping[str, AgentConfig] = field(default_factory=lambda: MappingProxyType({}))
    # Parameters of agents that files declare
    defaults: Mapping[str, Params] = field(default_factory=lambda: MappingProxyType({}))


def desired_fleet(rows: ResourceRows, project: Project, opened: Opened) -> DesiredFleet:
    """The agents that ``rows`` require in a fleet of ``project``.

    One that cannot be built has a problem instead.
    """
    build = _Build(rows, project, opened)
    return DesiredFleet(
        {each.name: build.agent(each) for each in rows.agents if each.values["made"]},
        {
            each.name: params_of(each)
            for each in rows.agents
            if not each.values["made"] and each.values["default_params"] is not None
        },
    )


def params_of(row: ResourceRow) -> Params:
    """The default parameters of a row; none if the stored ones are no longer valid."""
    given = row.values["default_params"]
    try:
        return read_params(given, "defaultParams") if isinstance(given, dict) else NO_PARAMS
    except Fault:
        return NO_PARAMS


class _Build:
    def __init__(self, rows: ResourceRows, project: Project, opened: Opened) -> None:
        self._project = project
        self._opened = opened
        self._llms = {each.id: each for each in rows.llms}
        self._secrets = {each.id: each for each in rows.secrets}
        self._by_name = {each.name: each for each in rows.secrets}
        self._projects = {each.id: each for each in rows.projects}

    def agent(self, row: ResourceRow) -> AgentConfig:
        title = row.name.title()
        llm = self._llms.get(row.values["llm_id"] or "")
        group = self._projects.get(row.values["project_id"] or "")
        try:
            definition = Definition(
                instruction=_joined(row.values["system_prompt"], _prompts(group)),
                prompts=_prompts(group),
                llm=self._llm(llm) if llm is not None else None,
                **self._servers(group),
            )
        except Fault as fault:
            definition = Definition(instruction=row.values["system_prompt"], problem=fault.message)
        return AgentConfig(
            name=row.name,
            port=0,
            title=title,
            description=row.values["description"] or title,
            definition=definition,
            params=params_of(row).over(params_of(llm)) if llm is not None else params_of(row),
            model_capabilities=_capabilities(llm) if llm is not None else None,
            **_loop(row),
            where=Where(SOURCE),
        )

    def _llm(self, row: ResourceRow) -> LlmConfig:
        values = row.values
        secret = self._secrets.get(values["secret_id"] or "")
        key = ""
        if secret is not None:
            key = self._value(secret, values["secret_key"], f"LLM {row.name}")
        return LlmConfig(row.name, values["type"], values["model"], values["url"], key)

    def _value(self, secret: ResourceRow, key: str, user: str) -> str:
        try:
            values = self._opened(secret)
        except Fault as fault:
            text = f"{user} needs secret {secret.name}, which cannot be opened: {fault.message}"
            raise Fault(fault.type, text) from None
        if key not in values:
            text = f"{user} needs {secret.name}/{key}, and that secret has no such key; write it there"
            raise Fault(FaultType.CONFIG, text)
        value = values[key].strip()  # a file ends in a newline
        if not value.isascii() or not value.isprintable():
            held = "which holds characters that no header can carry; write it again"
            text = f"{user} needs {secret.name}/{key}, {held}"
            raise Fault(FaultType.CONFIG, text)
        return value

    def _servers(self, group: ResourceRow | None) -> dict[str, Any]:
        if group is None:
            return {}
        if group.id == FOLDER_ID:
            return {"servers": tuple(self._project.downstreams)}
        names, own = list[str](), list[DownstreamConfig]()
        for each in group.values["servers"] or []:
            if isinstance(each, str):
                names.append(each)
            else:
                own.append(self._server(each, f"project {group.name}"))
        return {"servers": tuple(names), "own_servers": tuple(own)}

    def _server(self, server: Mapping[str, Any], user: str) -> DownstreamConfig:
        def value(ref: SecretRef) -> str:
            secret = self._by_name.get(ref.name)
            if secret is None:
                text = f"{user} needs secret {ref.name}, which does not exist; create it"
                raise Fault(FaultType.CONFIG, text)
            return self._value(secret, ref.key, user)

        headers = {name: filled(text, value) for name, text in server.get("headers", {}).items()}
        return DownstreamConfig(
            name=server["name"],
            transport="http",
            url=endpoint(server["url"]),
            headers=headers,
            where=Where(one_line(f"{user}, server {server['name']}")),
        )


def _prompts(group: ResourceRow | None) -> str:
    """The project's prompts, which follow the agent's own, highest priority first."""
    prompts: Sequence[Any] = (group.values["prompts"] or []) if group is not None else []
    whole: list[Mapping[str, Any]] = [{"text": each} if isinstance(each, str) else each for each in prompts]
    ordered = sorted(whole, key=lambda each: -each.get("priority", 0))
    return _joined(*(each["text"] for each in ordered))


def _joined(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text.strip())


def _loop(row: ResourceRow) -> dict[str, Any]:
    """The limits that the row sets for the agent's loop."""
    limits = limits_of(row)
    given = {
        "max_iterations": limits["maxIterations"],
        "loop_repeat_threshold": limits["loopRepeatThreshold"],
    }
    return {key: value for key, value in given.items() if value is not None}


def _capabilities(llm: ResourceRow) -> Capabilities | None:
    """The capabilities of an LLM's model, with ``maxOutputTokens`` also from ``extra``; None if it
    sets none.
    """
    extra: Mapping[str, Any] = llm.values["extra"] or {}
    given = {
        "vision": extra.get("vision"),
        "context_window": extra.get("contextWindow", extra.get("context_window")),
        "max_output_tokens": limits_of(llm)["maxOutputTokens"]
        or extra.get("maxOutputTokens", extra.get("max_output_tokens")),
    }
    known = {
        key: value
        for key, value in given.items()
        if (type(value) is bool if key == "vision" else type(value) is int and value > 0)
    }
    if not known:
        return None
    return replace(Capabilities(), **known, output_declared="max_output_tokens" in known)
