"""The steps of a run as readable text."""

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pallas.model.money import cost_in
from pallas.model.step_view import view_of
from pallas.safe_text import one_line

from .text_output import seconds, when

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


def _attempt(attempt: Mapping[str, Any]) -> str:
    reason = attempt.get("reason") or f"HTTP {attempt.get('status')}"
    return f"{reason}, repeated after {seconds(attempt.get('wait')) or '0 s'}"
