"""Which tools an agent may call, which ones a person is asked about, and which ones it does not even see."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, Literal

from .argument_conditions import ArgumentCondition

ToolAction = Literal["allow", "ask", "deny"]
ToolHint = Literal["destructive", "read_only"]

_UNNAMED: Final = "no rule names it"
_STRICTNESS: Final[Mapping[str, int]] = {"allow": 0, "ask": 1, "deny": 2}


@dataclass(frozen=True, slots=True)
class ToolPattern:
    """One entry of a rule: it fits calls of tools by name, and only with these arguments and hints."""

    pattern: str  # of ``server__tool``, or ``agent:NAME``; ``*`` stands for any text
    when: tuple[ArgumentCondition, ...] = ()
    hint: ToolHint | None = None  # what the tool's server says of it
    where: str = ""  # ``file:line``

    def fits(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        hints: frozenset[ToolHint] | None,
        *,
        careful: bool,
    ) -> bool:
        """Whether it fits a call. What cannot be decided fits where that is the ``careful`` side.

        Without ``arguments`` it is about the tool itself: a condition can then be neither met nor missed.
        ``hints`` are None where the server's word is not taken, or there is none.
        """
        if not fnmatchcase(name.casefold(), self.pattern.casefold()):
            return False
        if self.hint is not None and not (careful if hints is None else self.hint in hints):
            return False
        return all(self._meets(each, arguments, careful=careful) for each in self.when)

    @staticmethod
    def _meets(condition: ArgumentCondition, arguments: Mapping[str, Any] | None, *, careful: bool) -> bool:
        if arguments is None:
            return not careful
        held = condition.holds(arguments, for_all=not careful)
        return careful if held is None else held

    def __str__(self) -> str:
        hint = f" ({self.hint})" if self.hint else ""
        when = f" when {' and '.join(map(str, self.when))}" if self.when else ""
        return f"{self.pattern}{hint}{when}{f' ({self.where})' if self.where else ''}"


@dataclass(frozen=True, slots=True)
class ToolDecision:
    """What is done with a call, and the rule that says so in words."""

    action: ToolAction
    rule: str = ""

    def __str__(self) -> str:
        return self.rule if self.rule.startswith(self.action) else f"{self.action}: {self.rule or _UNNAMED}"


ALLOWED: Final = ToolDecision("allow")


@dataclass(frozen=True, slots=True)
class ToolRuleSet:
    """The rules of a project or of an agent: ``deny`` is looked at first, then ``ask``, then ``allow``."""

    allow: tuple[ToolPattern, ...] | None = None  # None: whatever is not denied
    ask: tuple[ToolPattern, ...] = ()
    deny: tuple[ToolPattern, ...] = ()
    whose: str = ""  # ``the project``, or the agent's name

    def decide(
        self, name: str, arguments: Mapping[str, Any] | None, hints: frozenset[ToolHint] | None
    ) -> ToolDecision:
        """As ``ToolRules``, by these rules alone."""
        for action, patterns in (("deny", self.deny), ("ask", self.ask)):
            for each in patterns:
                if each.fits(name, arguments, hints, careful=True):
                    return ToolDecision(action, f"{action} of {self.whose}: {each}")  # type: ignore[arg-type]
        if self.allow is None:
            return ALLOWED
        for each in self.allow:
            if each.fits(name, arguments, hints, careful=False):
                return ToolDecision("allow", f"allow of {self.whose}: {each}")
        return ToolDecision("deny", f"the allow list of {self.whose} does not name it")


@dataclass(frozen=True, slots=True)
class ToolRules:
    """The rules that hold for an agent: of several sets the strictest decides.

    ``trusted`` are the servers whose word is taken for what their tools do.
    """

    sets: tuple[ToolRuleSet, ...] = ()
    trusted: tuple[str, ...] = ()

    @property
    def are_empty(self) -> bool:
        """Whether every call is allowed."""
        return not any(each.ask or each.deny or each.allow is not None for each in self.sets)

    def decide(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        server: str = "",
        hints: Iterable[ToolHint] | None = None,
    ) -> ToolDecision:
        """What is done with a call of that name; without ``arguments``, whether the tool is shown at all.

        ``hints`` are what ``server`` says of the tool, None if it says nothing.
        """
        known = frozenset(hints) if hints is not None and server in self.trusted else None
        found = [each.decide(name, arguments, known) for each in self.sets]
        # Of two that say the same, the one with a rule says why.
        return max(found, key=lambda each: (_STRICTNESS[each.action], bool(each.rule)), default=ALLOWED)

    def words(self, name: str, *, server: str = "", hints: Iterable[ToolHint] | None = None) -> str:
        """Which rule decides about a tool, for people; empty where there are no rules."""
        if self.are_empty:
            return ""
        hints = None if hints is None else frozenset(hints)
        plain = self.decide(name, server=server, hints=hints)
        # No argument is there, so every condition is on the careful side.
        careful = self.decide(name, {}, server=server, hints=hints)
        if careful.action == plain.action:
            return str(plain)
        return f"{plain}; with some arguments {careful}"


NO_TOOL_RULES: Final = ToolRules()


def hints_of(annotations: Any) -> frozenset[ToolHint] | None:
    """What MCP's annotations of a tool say; None without any. A tool that may change things may destroy them,
    unless it says otherwise, as MCP defines it.
    """
    if annotations is None:
        return None
    if annotations.read_only_hint:
        return frozenset({"read_only"})
    return frozenset() if annotations.destructive_hint is False else frozenset({"destructive"})
