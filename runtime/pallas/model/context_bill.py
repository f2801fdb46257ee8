"""What the parts of a request take of a model's context window, in tokens."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

ContextKind = Literal["instruction", "tools", "agent", "history", "images", "other"]
"""``tools``: those of one server; ``agent``: one that is called as a tool; ``other``: for example the schema
of the answer."""


@dataclass(frozen=True, slots=True)
class ContextPart:
    """One part of a request."""

    kind: ContextKind
    tokens: int
    name: str = ""  # the server, empty for the tools of the agent's own code; the called agent

    @property
    def label(self) -> str:
        """``tools of shop``."""
        return label_of(self.kind, self.name)


@dataclass(frozen=True, slots=True)
class ContextBill:
    """The parts of an agent's last request to its model; their tokens sum up to ``total``.

    ``total`` is the provider's own count; the parts share it by their sizes. ``is_estimated``: the version
    that answers has asked nothing yet, so these are its instruction and tools, estimated by their sizes.
    """

    total: int
    parts: tuple[ContextPart, ...]
    window: int = 0  # tokens that the model takes in at once; 0 if that is not known
    model: str = ""
    is_estimated: bool = False

    @property
    def heading(self) -> str:
        """``3,412 of 131,072 tokens (2.6 %), last request``."""
        of_window = f" of {self.window:,}" if self.window else ""
        share = f" ({100 * self.total / self.window:.1f} %)" if self.window else ""
        return (
            f"{self.total:,}{of_window} tokens{share}, {'estimated' if self.is_estimated else 'last request'}"
        )

    def share(self, part: ContextPart) -> float:
        """The part of the total, from 0 to 1."""
        return part.tokens / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class ContextChange:
    """A part that takes more or fewer tokens in a new version of an agent."""

    kind: ContextKind
    tokens: int  # more than before; negative for fewer
    name: str = ""  # as in ``ContextPart``

    @property
    def text(self) -> str:
        """``tools of shop: +3,100 tokens``."""
        return f"{label_of(self.kind, self.name)}: {self.tokens:+,} tokens"


def label_of(kind: ContextKind, name: str) -> str:
    """What a part is called on all surfaces."""
    if kind == "tools":
        return f"tools of {name}" if name else "tools of its own"
    return f"agent {name}" if kind == "agent" else kind


def bill_of(
    parts: Iterable[tuple[ContextKind, str, float]],
    *,
    total: int | None = None,
    window: int = 0,
    model: str = "",
    is_estimated: bool = False,
) -> ContextBill:
    """A bill of tokens by kind and name, the same ones added up.

    Parts of less than half a token are left out. They are whole numbers that sum up to ``total``, by default
    to their rounded sum.
    """
    sums: dict[tuple[ContextKind, str], float] = {}
    for kind, name, tokens in parts:
        sums[kind, name] = sums.get((kind, name), 0.0) + tokens
    counts = {key: round(tokens) for key, tokens in sums.items() if tokens >= 0.5}
    if total is None:
        total = sum(counts.values())
    elif counts:
        largest = max(counts, key=lambda key: counts[key])
        counts[largest] = max(0, counts[largest] + total - sum(counts.values()))
    found = tuple(ContextPart(kind, tokens, name) for (kind, name), tokens in counts.items())
    return ContextBill(total, found, window, model, is_estimated)


def context_changes(before: ContextBill, after: ContextBill) -> tuple[ContextChange, ...]:
    """The parts that differ between two bills, the largest difference first."""
    tokens = {(part.kind, part.name): -part.tokens for part in before.parts}
    for part in after.parts:
        key = part.kind, part.name
        tokens[key] = tokens.get(key, 0) + part.tokens
    found = [ContextChange(kind, more, name) for (kind, name), more in tokens.items() if more]
    return tuple(sorted(found, key=lambda each: -abs(each.tokens)))


def changes_text(changes: Sequence[ContextChange], most: int = 3) -> str:
    """The changes in a line, ``most`` of them: ``tools of shop: +3,100 tokens, instruction: -40 tokens``."""
    more = f", and {len(changes) - most} more" if len(changes) > most else ""
    return ", ".join(each.text for each in changes[:most]) + more
