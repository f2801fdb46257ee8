"""How a mistake in a resource is told: which key, what is wrong with it, how to mend it."""

from collections.abc import Iterable

from pallas.config.notes import nearest
from pallas.model import Fault, FaultType
from pallas.model.safe_text import one_line


def wrong(key: str, problem: str) -> Fault:
    """A Fault (PROTOCOL) that names the key, dotted, in its message and in its data."""
    shown = one_line(key, 120)
    return Fault(FaultType.PROTOCOL, f"{shown}: {problem}", data={"key": shown})


def unknown(key: str, name: str, known: Iterable[str]) -> Fault:
    """There is no such key: the nearest one that there is, or else all of them."""
    names = tuple(known)
    near = nearest(name, names)
    hint = f"did you mean {near}?" if near else f"known: {', '.join(names)}"
    return wrong(key, f"there is no such key; {hint}")
