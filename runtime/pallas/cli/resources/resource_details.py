"""`pallas describe`: everything known about one thing."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pallas.model.money import cost_in
from pallas.model.step_view import view_of
from pallas.safe_text import one_line

from .cost_list import with_costs
from .fleet_requests import OK, USAGE, FleetLocation, complain, run_named, run_with_fleet
from .resource_kinds import KindInfo, NoSuchKind, split
from .text_output import as_json, as_yaml, seconds, when
from .text_output import when as clock
from .text_tables import pairs, table

if TYPE_CHECKING:
    from pallas.client import RestClient


FORMATS: Final = ("text", "json")
_COUNTED: Final = 1_000
_LAST: Final = ("systemPrompt", "partial", "fault")
"""Multi-line texts come last."""
_LABELS: Final = {
    "id": "ID",
    "url": "URL",
    "llm": "LLM",
    "apiKeyRef": "API key",
    "ownerId": "Owner",
    "proxyModelName": "Proxy model",
    "threadId": "Thread",
    "parentRunId": "Parent run",
    "treeCost": "Cost with runs below",
    "forkedFrom": "Forked from",
    "forkedAtStep": "Forked at step",
    "lastTurnAt": "Last turn",
    "seconds": "Took",
    "steps": "Loop steps",
    "lastBeatSeconds": "Last beat",
    "isHere": "Answered",
}
_HUMP: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def describe(words: Sequence[str], reach: FleetLocation, output: str = "text") -> int:
    """Print the things, one after the other; returns the exit status.

    ``output`` is ``text``, or ``json`` for one object or a list; both show the same.
    """
    try:
        things = split(list(words))
    except NoSuchKind as error:
        complain(f"pallas describe: {error}")
        return USAGE
    if not all(name for _, name in things):
        complain(
            f"pallas describe: name the {things[0][0].word}; `pallas get {things[0][0].plural}` lists them"
        )
        return USAGE

    if output not in FORMATS:
        complain(f"pallas describe: --output {output[:40]}: allowed: {', '.join(FORMATS)}")
        return USAGE

    async def work(api: "RestClient") -> int:
        if output == "json":
            documents = [await _document(api, kind, name) for kind, name in things]
            print(as_json(documents if len(documents) > 1 else documents[0]))
            return OK
        for number, (kind, name) in enumerate(things):
            print(("\n" if number else "") + await _described(api, kind, name))
        return OK

    return run_with_fleet(reach, work)


async def _document(api: "RestClient", kind: KindInfo, name: str) -> Any:
    """Return what the API says of a thing, what other things have to do with it, and what it shadows."""
    body = await _body(api, kind, name)
    if not isinstance(body, Mapping):
        return body
    found = {**body, **await _related(api, kind, str(body.get("name") or name), body)}
    if (shadowed := _shadowed(kind, body)) is not None:
        found["shadowedAgent"] = await _document(api, kind, shadowed)
    return found


async def _body(api: "RestClient", kind: KindInfo, name: str) -> Any:
    from pallas.client.rest_client import part

    return await api.get(f"{kind.path}/{part(await run_named(api, name) if kind.word == 'run' else name)}")


async def _steps(api: "RestClient", run: str) -> list[Any]:
    """Return the steps of a run with their texts."""
    from pallas.client.rest_client import part

    path = f"/runs/{part(run)}/steps"
    found = [each async for each in api.items(path, most=MAX_STEPS) if isinstance(each, Mapping)]
    return [await api.get(f"{path}/{each.get('number')}") for each in found]


async def _described(api: "RestClient", kind: KindInfo, name: str) -> str:
    body = await _body(api, kind, name)
    found = await _text(api, kind, name, body)
    if (shadowed := _shadowed(kind, body)) is not None:
        found += "\n" + await _text(api, kind, name, await _body(api, kind, shadowed))
    return found


def _shadowed(kind: KindInfo, body: Any) -> str | None:
    """Return the id of the agent made over the API that has the same name; its id alone leads to it."""
    is_two = kind.word == "agent" and isinstance(body, Mapping) and body.get("shadows")
    return str(body.get("id")) if is_two else None


async def _text(api: "RestClient", kind: KindInfo, name: str, body: Any) -> str:
    facts = with_costs(dict(body)) if isinstance(body, Mapping) else {}
    if message := facts.pop("healthMessage", None):
        facts["health"] = {"status": facts.get("health"), "message": f"({one_line(str(message), 400)})"}
    limits = facts.pop("limits", None) or ()
    more = [
        (_label(key), _steps_text(value) if key == "recordedSteps" else _value(key, value))
        for key, value in (await _related(api, kind, str(facts.get("name") or name), facts)).items()
    ]
    bill = facts.pop("context", None) if kind.word == "agent" else None
    rules = facts.pop("toolRules", None) or ()
    rows = [(_label(key), _value(key, value)) for key, value in facts.items() if key not in _LAST]
    if isinstance(bill, Mapping):
        rows.append(("Context", _bill(bill)))
    if decided := [
        (str(each.get("tool")), str(each.get("rule"))) for each in rules if isinstance(each, Mapping)
    ]:
        rows.append(("Tool rules", f"\n{table(('TOOL', 'RULE'), decided)}"))
    rows += more
    rows += [("Limit", _limit(each)) for each in limits if isinstance(each, Mapping)]
    rows += [(_label(key), _value(key, facts[key])) for key in _LAST if facts.get(key)]
    return pairs([(label, value or "-") for label, value in rows])


async def _related(api: "RestClient", kind: KindInfo, name: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what other things have to do with it, by key."""
    from pallas.client.rest_client import part

    if kind.word == "agent":
        return {"threads": await _count(api, "/threads", agent=name)}
    if kind.word == "run":
        return {"recordedSteps": await _steps(api, str(facts.get("id")))}
    if kind.word == "project":
        return {"agents": await _names(api, f"/projects/{part(name)}/agents", lambda _: True)}
    if kind.word == "llm":
        return {"usedBy": await _names(api, "/agents", lambda each: _refers(each.get("llm"), name))}
    if kind.word == "secret":
        return {"usedBy": await _names(api, "/llms", lambda each: _refers(each.get("apiKeyRef"), name))}
    return {}


def _steps_text(steps: Sequence[Any]) -> str:
    return "\n" + "\n".join(chain.from_iterable(map(lines_of, steps))) if steps else ""


def _limit(limit: Mapping[str, Any]) -> str:
    """Return a line: ``per_run.tokens (agents.yaml:3): used 1200 of 5000, 3800 left``."""
    name, where = limit.get("limit"), limit.get("where")
    place = f" ({where})" if where else ""
    return f"{name}{place}: used {limit.get('used')} of {limit.get('allowed')}, {limit.get('left')} left"


async def _count(api: "RestClient", path: str, *, agent: str) -> int | str:
    found = [each async for each in api.items(path, most=_COUNTED + 1, agent=agent)]
    return f"more than {_COUNTED}" if len(found) > _COUNTED else len(found)


async def _names(api: "RestClient", path: str, accepts: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    found = [each async for each in api.items(path, most=_COUNTED) if isinstance(each, Mapping)]
    return [str(each.get("name")) for each in found if accepts(each)]


def _refers(value: Any, name: str) -> bool:
    if isinstance(value, Mapping):
        return value.get("name") == name
    return isinstance(value, str) and value.partition("/")[0] == name


def _bill(bill: Mapping[str, Any]) -> str:
    """Return a context bill as a table below its sum."""
    from pallas.model import ContextBill, ContextPart

    given = [each for each in bill.get("parts") or () if isinstance(each, Mapping)]
    parts = [ContextPart(each.get("kind", "other"), int(each["tokens"]), str(each["name"])) for each in given]
    found = ContextBill(
        int(bill["total"]), tuple(parts), int(bill["window"]), is_estimated=bool(bill["isEstimated"])
    )
    rows = [(each.label, f"{each.tokens:,}", f"{100 * found.share(each):.1f} %") for each in parts]
    return f"\n{found.heading}\n{table(('PART', 'TOKENS', 'SHARE'), rows)}"


def _label(key: str) -> str:
    word = _LABELS.get(key) or _HUMP.sub(" ", key).replace("_", " ").lower().capitalize()
    return word.removesuffix(" at")


def _value(key: str, value: Any) -> str:
    if value in (None, "", [], {}):
        return ""
    if key.endswith("At") and isinstance(value, str):
        return clock(value) or value
    if key in ("seconds", "lastBeatSeconds"):
        return seconds(value)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if key in ("llm", "project") and isinstance(value, Mapping):
        return str(value.get("name") or value.get("id"))
    if key == "apiKeyRef" and isinstance(value, Mapping):
        return f"{value.get('name')}/{value.get('key')}"
    if key == "health" and isinstance(value, Mapping):
        return " ".join(str(value[each]) for each in ("status", "message") if value.get(each))
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    if isinstance(value, Mapping | list):
        # A line feed first: the text begins below its label.
        return "\n" + as_yaml([value])
    return str(value).rstrip("\n")


_MAX_LINE: Final = 300
MAX_STEPS: Final = 200
"""Most steps that are shown."""


def heading(step: Mapping[str, Any]) -> str:
    """The facts of a step in one line."""
    usage = step.get("usage") or {}
    counted = {
        "in": usage.get("inputTokens"),
        "out": usage.get("outputTokens"),
        "cached": usage.get("cachedTokens"),
        "written to the cache": usage.get("cacheWriteTokens"),
        "reasoning": usage.get("reasoningTokens"),
    }
    tokens = ", ".join(f"{number} {name}" for name, number in counted.items() if number is not None)
    speed = step.get("tokensPerSecond")
    facts = (
        when(step.get("startedAt")),
        str(step.get("state") or ""),
        seconds(step.get("seconds")),
        f"first token after {seconds(first)}" if (first := step.get("firstToken")) is not None else "",
        f"tokens {tokens}" if tokens else "",
        cost_in(step).words,
        f"{speed} tokens/s" if speed is not None else "",
        *(_attempt(each) for each in (step.get("attempts") or ())[:-1]),
        one_line(str(step.get("fault") or ""), _MAX_LINE),
    )
    parent = f" (called by step {step['parent']})" if step.get("parent") else ""
    return f"{step.get('number')}{parent}  {step.get('kind')} {step.get('name')}  " + "; ".join(
        each for each in facts if each
    )


def lines_of(step: Mapping[str, Any]) -> Iterator[str]:
    """A step with what was sent and what came back, a line for each message."""
    yield heading(step)
    view = view_of(json.dumps(step.get("request")), json.dumps(step.get("response")))
    rows: tuple[tuple[str, str], ...] = (
        ("instructions", view.instructions),
        ("tools", ", ".join(tool.name for tool in view.tools)),
        ("parameters", ", ".join(f"{name}={value}" for name, value in view.params)),
        *((message.role, message.text) for message in view.messages),
        ("reasoning", view.reasoning),
        ("answer", view.answer),
    )
    if step.get("kind") != "model":
        arguments = dict(view.params).get("arguments", "")
        rows = (("arguments", arguments), ("result", view.answer))
    for name, text in rows:
        if text:
            yield f"  {name}: {one_line(text, _MAX_LINE)}"
    yield from (f"  lacks: {one_line(str(each), _MAX_LINE)}" for each in step.get("lacks") or ())


def _attempt(attempt: Mapping[str, Any]) -> str:
    reason = attempt.get("reason") or f"HTTP {attempt.get('status')}"
    return f"{reason}, repeated after {seconds(attempt.get('wait')) or '0 s'}"
