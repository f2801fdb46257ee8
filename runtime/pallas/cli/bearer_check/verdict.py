"""Compare what an echo received with what each caller's token may do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .echo import HeardRequest


@dataclass(frozen=True, slots=True)
class BearerVerdict:
    """The findings for one downstream of one agent. ``problems`` are lines; none of them contains a token."""

    agent: str
    downstream: str
    rule: str
    calls: int
    problems: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no token crossed and none was missing."""
        return not self.problems


def judge(
    agent: str,
    downstream: str,
    rule: str,
    requests: Sequence[HeardRequest],
    callers: Mapping[str, str],
    expected: int,
) -> BearerVerdict:
    """Compare the ``requests`` of one downstream with the rule for it.

    ``rule`` is ``forwarded`` (each call has its caller's token, and a connection has the token of one
    caller), ``configured`` or ``none`` (no caller's token at all). ``callers`` maps the text that a call
    carries to its caller's token; a text that is not in it belongs to a call without a token. ``expected`` is
    the number of calls that should have arrived.
    """
    calls = [each for each in requests if each.what == "tools/call"]
    problems = [problem for each in calls if (problem := _call(each, rule, callers))]
    texts = {token: text for text, token in callers.items()}
    sessions: dict[str, set[str]] = {}
    for each in requests:
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
    return BearerVerdict(agent, downstream, rule, len(calls), tuple(problems))


def _call(request: HeardRequest, rule: str, callers: Mapping[str, str]) -> str:
    own = callers.get(request.text, "")
    if rule == "forwarded" and request.bearer == own:
        return ""
    if rule == "forwarded" and not own:
        return f"the call {request.text} carried a bearer"
    whose = next((text for text, token in callers.items() if token == request.bearer), None)
    if rule != "forwarded":
        return f"the call of caller {request.text} carried the bearer of caller {whose}" if whose else ""
    if not request.bearer:
        return f"the call of caller {request.text} carried no bearer"
    of = f"that of caller {whose}" if whose else "another one"
    return f"the call of caller {request.text} did not carry its own bearer but {of}"
