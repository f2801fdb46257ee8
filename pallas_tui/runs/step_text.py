"""A step as lines, text, JSON, messages and a curl command. Nothing in here imports the screen."""

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, Final

from pallas.model import Cost, Step, StepAttempt, StepDetail
from pallas.model.step_view import StepView, view_of
from pallas.safe_text import sanitize

from ..text import Line, clock, count, duration
from .exchange_text import json_line, parsed, pretty

_STRONG: Final = "bold"
_DIM: Final = "dim"
_WARNING: Final = "$text-warning"
_KEY: Final = re.compile(r"\[key [^\]]*\]")
_KEY_NAMES: Final = {"responses": "OPENAI", "codexresponses": "CODEX"}


def state_of(step: Step) -> str:
    """Return how far it is, in a word or two."""
    if step.state == "begun":
        last = step.attempts[-1] if step.attempts else None
        return "waiting" if last is not None and last.seconds is not None else "running"
    return step.state


def went_wrong(step: Step) -> bool:
    """Return whether it failed."""
    return step.state in ("failed", "unknown")


def title_of(step: Step) -> str:
    """Return its number and its name."""
    return f"{step.number}. {name_of(step)}"


def spent_text(step: Step) -> str:
    """Return what was spent on it, in one line; empty if nothing is known."""
    tokens = step.usage
    shown: list[str] = []
    if tokens.input is not None or tokens.output is not None:
        shown.append(f"{_number(tokens.input)} in, {_number(tokens.output)} out")
    if not (cost := Cost.of(step)).is_empty:
        shown.append(cost.words)
    if len(step.attempts) > 1:
        shown.append(count(len(step.attempts), "attempt"))
    return "  ".join(shown)


def name_of(step: Step) -> str:
    """Return what was asked: a model, ``server/tool``, an agent, or for a summary."""
    if step.kind == "tool":
        return step.name.replace("__", "/", 1)
    return step.name or step.kind if step.kind == "model" else step.words


def facts_of(step: Step) -> Iterator[tuple[str, str]]:
    """Yield the facts of a step by name; unknown ones are left out."""
    tokens = step.usage
    yield step.kind, f"{step.provider}.{step.name}".strip(".")
    yield "caused by", f"step {step.parent}" if step.parent else ""
    yield "address", step.url
    yield "state", state_of(step) + ("" if step.seconds is None else f" after {duration(step.seconds)}")
    if step.fault:
        yield "fault", step.fault
    first, speed = step.first_token, step.tokens_per_second
    yield "first token", "" if first is None else f"after {duration(first)}"
    yield "speed", "" if speed is None else f"{speed:.1f} tokens/s"
    counted = (
        (tokens.input, "in"),
        (tokens.cached, "of them cached"),
        (tokens.cache_writes, "written to the cache"),
        (tokens.output, "out"),
        (tokens.reasoning, "of them reasoning"),
    )
    yield "tokens", ", ".join(f"{number:,} {name}" for number, name in counted if number is not None)
    yield "cost", Cost.of(step).text
    if len(step.attempts) > 1 or any(each.reason for each in step.attempts):
        for number, attempt in enumerate(step.attempts, 1):
            yield f"attempt {number}", _attempt(attempt)


def lines_of(detail: StepDetail) -> list[Line]:
    """Return all of it, line by line; a line may be wider than the screen."""
    step, view = detail.step, view_of(detail.request, detail.response)
    lines: list[Line] = [
        ((f"{clock(step.started_at)} {title_of(step)}  {spent_text(step)}".rstrip(), _STRONG),)
    ]
    for name, value in facts_of(step):
        if value:
            lines.append(((f"{name:<13}", _DIM), (value, _WARNING if name == "fault" else "")))
    lines += [((f"{'lacks':<13}", _DIM), (sanitize(each), _WARNING)) for each in detail.lacks]
    if step.kind == "model":
        lines += _model_lines(step, view)
    else:
        lines += _call_lines(view, is_open=step.seconds is None)
    for name, body in (("Request", detail.request), ("Response", detail.response)):
        if body:
            lines += [(), ((f"{name} as JSON", _STRONG),), *map(json_line, pretty(body).split("\n"))]
    return lines


def _call_lines(view: StepView, *, is_open: bool) -> Iterator[Line]:
    arguments = dict(view.params).get("arguments", "")
    yield from ((), (("Arguments", _STRONG),), *map(json_line, pretty(arguments).split("\n")))
    yield from _section("Result", view.answer or ("nothing yet" if is_open else "nothing"))


def _model_lines(step: Step, view: StepView) -> list[Line]:
    lines = _section("Instructions", view.instructions)
    lines += [(), ((f"Messages ({len(view.messages)})", _STRONG),)]
    for message in view.messages:
        lines += _indented(message.role, message.text)
    lines += [(), ((f"Tools ({len(view.tools)})", _STRONG),)] if view.tools else []
    for tool in view.tools:
        lines += _indented(tool.name, tool.description)
    lines += [(), (("Parameters", _STRONG),)] if view.params else []
    lines += [((f"{name}: ", _KEY_STYLE), (value, "")) for name, value in view.params]
    lines += _section("Reasoning", view.reasoning)
    return lines + _section("Answer", view.answer or ("nothing yet" if step.seconds is None else "nothing"))


def as_text(detail: StepDetail) -> str:
    """Return all of it as text to paste."""
    return "\n".join("".join(text for text, _ in line) for line in lines_of(detail))


def as_json(detail: StepDetail) -> str:
    """Return all of it as one JSON document."""
    document: dict[str, Any] = asdict(detail)
    document |= {"request": parsed(detail.request), "response": parsed(detail.response)}
    return sanitize(json.dumps(document, indent=2, ensure_ascii=False))


def as_messages(detail: StepDetail) -> str:
    """Return what was said as text: the instructions, each message, the answer; of a call what it got."""
    view = view_of(detail.request, detail.response)
    if detail.step.kind != "model":
        return f"{name_of(detail.step)} {dict(view.params).get('arguments', '')}\n\n{view.answer}".strip()
    said = [("system", view.instructions), *((each.role, each.text) for each in view.messages)]
    said.append(("assistant", view.answer))
    return "\n\n".join(f"{role}: {text}" for role, text in said if text)


def as_curl(detail: StepDetail) -> str:
    """Return a command that sends the request again, with the key in a variable."""
    provider = detail.step.provider
    name = re.sub(r"[^A-Z0-9]+", "_", _KEY_NAMES.get(provider, provider).upper()) or "MODEL"
    headers = [f'-H "{key}: {_KEY.sub(f"${name}_API_KEY", _quoted(value))}"' for key, value in detail.headers]
    parts = [f"curl '{detail.step.url.replace(chr(39), '%27')}'", *headers, "--data-binary @- <<'JSON'"]
    return " \\\n  ".join(parts) + f"\n{detail.request}\nJSON"


_KEY_STYLE: Final = "$text-accent"


def _quoted(value: str) -> str:
    return re.sub(r'([\\"`$])', r"\\\1", value)


def _section(name: str, text: str) -> list[Line]:
    return [(), ((name, _STRONG),), *(((line, ""),) for line in text.split("\n"))] if text else []


def _indented(name: str, text: str) -> list[Line]:
    head, *rest = text.split("\n")
    return [((f"{name}: ", _KEY_STYLE), (head, "")), *(((f"  {line}", ""),) for line in rest)]


def _attempt(attempt: StepAttempt) -> str:
    took = "" if attempt.seconds is None else f" after {duration(attempt.seconds)}"
    status = attempt.reason or (f"HTTP {attempt.status}" if attempt.status is not None else "no answer yet")
    again = f", repeated after {duration(attempt.wait)}" if attempt.reason else ""
    return f"{clock(attempt.at)} {status}{took}{again}"


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value:,}"
