"""The words for kinds of things, as a person types them."""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pallas.model import ResourceKind


@dataclass(frozen=True, slots=True)
class KindInfo:
    """``path`` is the kind's list in the API; ``has_document``: it can be changed and has a document.

    Of a kind without ``has_names`` there is only the list.
    """

    word: str
    plural: str
    has_document: bool = False
    has_names: bool = True

    def is_in(self, words: list[str]) -> bool:
        """Whether names of this kind are asked for."""
        first = words[0].strip().lower()
        return first.partition("/")[0] in (self.word, self.plural) and (len(words) > 1 or "/" in first)

    @property
    def path(self) -> str:
        """Below ``/api/v1``."""
        return f"/{self.plural}"


KINDS: Final = {
    kind.word: kind
    for kind in (
        KindInfo("agent", "agents", has_document=True),
        KindInfo("llm", "llms", has_document=True),
        KindInfo("secret", "secrets", has_document=True),
        KindInfo("project", "projects", has_document=True),
        KindInfo("thread", "threads"),
        KindInfo("run", "runs"),
        KindInfo("question", "questions"),
        KindInfo("audit", "audit"),
        KindInfo("replica", "replicas"),
        KindInfo("limit", "limits", has_names=False),
        KindInfo("storage", "storage", has_names=False),
        KindInfo("cost", "costs", has_names=False),
    )
}
MADE: Final[tuple["ResourceKind", ...]] = ("agent", "llm", "secret", "project")
DELETABLE: Final = (*MADE, "thread")
ORDER: Final[tuple["ResourceKind", ...]] = ("secret", "llm", "project", "agent")
"""Each after those that it refers to."""


_ELSEWHERE: Final = {"task": "pallas tasks list"}
"""What is shown by another command."""


class NoSuchKind(ValueError):
    """An unknown kind; the message lists the known ones."""


def kind_of(word: str, among: tuple[str, ...] = tuple(KINDS)) -> KindInfo:
    """Return the kind that ``word`` names, singular or plural, in any case. Raises NoSuchKind."""
    plain = word.strip().lower()
    for name in among:
        kind = KINDS[name]
        if plain in (kind.word, kind.plural):
            return kind
    near = get_close_matches(plain, [*among, *(KINDS[name].plural for name in among)], 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(among)}"
    if (command := _ELSEWHERE.get(plain.removesuffix("s"))) is not None:
        hint = f"see {command}"
    shown = word[:40] if word.isprintable() else ascii(word)[:40]
    raise NoSuchKind(f"{shown}: no such kind; {hint}")


def how_to_list(kind: str) -> str:
    """Return the command that lists the things of a kind; empty for a word that is none."""
    return _ELSEWHERE.get(kind) or (f"pallas get {KINDS[kind].plural}" if kind in KINDS else "")


def split(words: list[str], among: tuple[str, ...] = tuple(KINDS)) -> list[tuple[KindInfo, str]]:
    """Parse ``agent a b`` and ``agent/a llm/b`` into kinds and names; a kind alone has an empty name.

    Raises NoSuchKind.
    """
    if not words:
        raise NoSuchKind(f"name the kind: {', '.join(among)}")
    if nameless := next((kind for kind in KINDS.values() if not kind.has_names and kind.is_in(words)), None):
        raise NoSuchKind(f"{nameless.plural} have no names; write `pallas get {nameless.plural}`")
    apart = "/" not in words[0]
    if odd := next((word for word in words if ("/" not in word) is not apart), None):
        raise NoSuchKind(f"{odd[:60]}: write kind/name for each, or one kind and then the names")
    if not apart:
        pairs = [word.partition("/") for word in words]
        return [(kind_of(kind, among), name) for kind, _, name in pairs]
    kind = kind_of(words[0], among)
    return [(kind, name) for name in words[1:]] or [(kind, "")]
