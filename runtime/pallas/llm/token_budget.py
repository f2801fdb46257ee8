"""Token usage of handlers, and budgets of conversations (HC-30, HC-33)."""

from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pallas.invocation import TokenUsage
from pallas.model import Fault, FaultType

MAX_CONVERSATIONS: Final = 10_000
MAX_AGENTS: Final = 1_000
"""The number of handlers that are counted; the one that asked longest ago is forgotten first."""
_MARK: Final = "budgetExhausted"
WARN_AT: Final = 0.8
"""The share of its budget at which a conversation causes a warning, once."""


class BudgetExhausted(Fault):
    """A conversation has too few tokens left for this question (``llm.max_tokens_per_thread``).

    ``data`` has ``limit``, ``used`` and ``wanted``. Asking again in the same conversation does not help.
    """

    def __init__(self, limit: int, used: int, requested: int) -> None:
        super().__init__(
            FaultType.UPSTREAM,
            f"this conversation has used {used:,} of its {limit:,} tokens, and the question needs about "
            f"{requested:,}; begin another one, or raise llm.max_tokens_per_thread",
            retryable=False,
            data={_MARK: True, "limit": limit, "used": used, "wanted": requested},
        )


def revived(fault: Fault) -> Fault:
    """Return a Fault from another process as BudgetExhausted if it was one."""
    numbers = [fault.data.get(name) for name in ("limit", "used", "wanted")]
    if fault.data.get(_MARK) is not True or not all(isinstance(each, int) for each in numbers):
        return fault
    return BudgetExhausted(*numbers)  # type: ignore[arg-type]


@dataclass(slots=True)
class _Spent:
    used: int = 0
    promised: int = 0
    warned: bool = False


class TokenSpending:
    """One question's share of a budget; ``usage`` is set when it is answered."""

    def __init__(self) -> None:
        self.usage = TokenUsage()


class Budgets:
    """Token counts of conversations and of handlers.

    When a conversation comes near its limit, ``warn`` is called with the handler, the tokens used, and the
    limit.
    """

    def __init__(self, warn: Callable[[str, int, int], None]) -> None:
        self._warn = warn
        self._conversations: OrderedDict[str, _Spent] = OrderedDict()
        self._agents: OrderedDict[str, TokenUsage] = OrderedDict()

    @contextmanager
    def spending(self, conversation: str, agent: str, requested: int, limit: int) -> Iterator[TokenSpending]:
        """Reserve about ``requested`` tokens for the question asked in this block; ``limit`` 0 means none.

        Raises BudgetExhausted on entry. Concurrent questions count with their estimates.
        """
        spent = self._spent(conversation)
        expected = spent.used + spent.promised + requested
        self._look(spent, agent, expected, limit)
        if limit and expected > limit:
            raise BudgetExhausted(limit, spent.used, requested)
        spent.promised += requested
        spending = TokenSpending()
        try:
            yield spending
        finally:
            spent.promised -= requested
            spent.used += spending.usage.total
            self._count(agent, spending.usage)
            self._look(spent, agent, spent.used, limit)

    def used(self, conversation: str) -> int:
        """Return the tokens that a conversation has used."""
        spent = self._conversations.get(conversation)
        return spent.used if spent is not None else 0

    def usage(self, agent: str) -> TokenUsage:
        """Return the tokens that a handler has used."""
        return self._agents.get(agent, TokenUsage())

    def usages(self) -> Mapping[str, TokenUsage]:
        """Return the usage of all handlers that asked."""
        return dict(self._agents)

    def reset(self, agent: str | None = None) -> None:
        """Reset the counts of one handler or all; conversations keep what they used."""
        if agent is None:
            self._agents.clear()
        else:
            self._agents.pop(agent, None)

    def _look(self, spent: _Spent, agent: str, expected: int, limit: int) -> None:
        """Warn once near the limit, and in any case before a question is refused."""
        if limit and not spent.warned and expected >= WARN_AT * limit:
            spent.warned = True
            self._warn(agent, spent.used, limit)

    def _spent(self, conversation: str) -> _Spent:
        spent = self._conversations.setdefault(conversation, _Spent())
        self._conversations.move_to_end(conversation)
        while len(self._conversations) > MAX_CONVERSATIONS:
            oldest = next(iter(self._conversations))
            if self._conversations[oldest].promised:  # It is being answered, so it is not that old.
                self._conversations.move_to_end(oldest)
                break
            del self._conversations[oldest]
        return spent

    def _count(self, agent: str, usage: TokenUsage) -> None:
        before = self._agents.pop(agent, TokenUsage())
        self._agents[agent] = TokenUsage(before.prompt + usage.prompt, before.completion + usage.completion)
        while len(self._agents) > MAX_AGENTS:
            self._agents.popitem(last=False)
