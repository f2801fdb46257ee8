"""The base of what a file may say: pydantic models, read from a map of lines."""

from typing import Any, ClassVar

from pydantic import PrivateAttr, model_validator
from pydantic import ValidatorFunctionWrapHandler as Handler

from .field_types import ABSENT, SKIPPED, FileValue
from .section import Section
from .tree import Items, Leaf, Node
from .where import Where


class Given(dict[str, Any]):
    """A mapping as pydantic takes it, with the section of the file that it comes from."""

    def __init__(self, section: Section) -> None:
        super().__init__()
        self.section = section


def present(items: Items) -> list[tuple[int, Node]]:
    """The items that are not skipped, each with its number in the file."""
    numbered = enumerate(items.items)
    return [(at, node) for at, node in numbered if not (isinstance(node, Leaf) and node.value is SKIPPED)]


class FileModel(FileValue):
    """What a mapping of a file may say, and where: ``at`` is its section."""

    not_a_mapping: ClassVar[tuple[str, ...]] = ("write `key: value` lines",)
    """What to do where something else than a mapping is given."""

    _section: Section | None = PrivateAttr(default=None)

    @model_validator(mode="wrap")
    @classmethod
    def _from_file(cls, given: Any, handler: Handler) -> Any:
        found = handler(given)
        if isinstance(given, Given):
            found.note_section(given.section)
        return found

    @classmethod
    def known(cls) -> tuple[str, ...]:
        """The keys that may be given, those of its own before those that it shares."""
        names = {name: field.alias or name for name, field in cls.model_fields.items()}
        own = [key for name, key in names.items() if name in cls.__annotations__]
        return tuple(dict.fromkeys((*own, *names.values())))

    @classmethod
    def unknown_key(cls, key: str, section: Section) -> tuple[str, ...] | None:
        """What is wrong with a key that is none of these, and hints; None for the usual words."""
        return None

    def note_section(self, section: Section) -> None:
        """Note the section that it was read from."""
        self._section = section

    @property
    def at(self) -> Section:
        """Where it is in its file."""
        assert self._section is not None, "it was not read from a file"
        return self._section

    def is_given(self, key: str) -> bool:
        """Whether the key is there and its value was right."""
        node = self.at.table.get(key)
        return node is not None and not (isinstance(node, Leaf) and node.value is ABSENT)

    def listed(self, key: str) -> tuple[tuple[str, Where], ...]:
        """The texts of a list with the place of each; one alone is a list of one."""
        node, values = self.at.table.get(key), getattr(self, key) or ()
        if isinstance(node, Items):
            return tuple(zip(values, (item.where for _, item in present(node)), strict=True))
        return ((values, node.where),) if node is not None and isinstance(values, str) else ()
