"""What an echo heard, held against what each caller's token may do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .echo import HeardRequest


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found for one downstream of one agent. ``problems`` are lines; none of them holds a token."""

    agent: str
    downstream: str
    rule: str
    calls: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing crossed, nothing was missing."""
        return not self.problems


def judge(
    agent: str,
    downstream: str,
    rule: str,
    heard: Sequence[HeardRequest],
    callers: Mapping[str, str],
    expected: int,
) -> Verdict:
    """Hold what one downstream ``heard`` against the rule for it.

    ``rule`` is ``forwarded`` (each call with its caller's token, and a connection with that of one caller),
    ``configured`` or ``none`` (no caller's token at all). ``callers`` are tokens by the text their calls
    carry; a text that is not among them is a call without a token. ``expected`` calls should have come.
    """
    calls = [each for each in heard if each.what == "tools/call"]
    problems = [problem for each in calls if (problem := _call(each, rule, callers))]
    texts = {token: text for text, token in callers.items()}
    sessions: dict[str, set[str]] = {}
    for each in heard:
        if each.bearer not in texts:
            continue
        if rule != "forwarded" and each.what != "tools/call":
            problems.append(f"{each.what} carried the bearer of caller {texts[each.bearer]}")
        if each.session:
            sessions.setdefault(each.session, set()).add(texts[each.bearer])
    problems += [
        f"one MCP session carried the bearers of callers {', '.join(sorted(of))}"
        for of in sessions.values()
        if len(of) > 1
    ]
    if len(calls) != expected:
        problems.append(f"{len(calls)} of {expected} calls arrived")
    return Verdict(agent, downstream, rule, len(calls), tuple(problems))


def _call(heard: HeardRequest, rule: str, callers: Mapping[str, str]) -> str:
    own = callers.get(heard.text, "")
    if rule == "forwarded" and heard.bearer == own:
        return ""
    if rule == "forwarded" and not own:
        return f"the call {heard.text} carried a bearer"
    whose = next((text for text, token in callers.items() if token == heard.bearer), None)
    if rule != "forwarded":
        return f"the call of caller {heard.text} carried the bearer of caller {whose}" if whose else ""
    if not heard.bearer:
        return f"the call of caller {heard.text} carried no bearer"
    of = f"that of caller {whose}" if whose else "another one"
    return f"the call of caller {heard.text} did not carry its own bearer but {of}"
