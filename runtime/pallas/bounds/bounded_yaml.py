"""libyaml within bounds: it recurses in C, where a text that is nested too deep would end the process."""

from typing import Any, Final

import yaml

MAX_YAML_DEPTH: Final = 64
"""Levels of nesting in a YAML file."""

_LIBYAML: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class BoundedLoader(_LIBYAML):  # type: ignore[misc]
    """A safe YAML loader that raises RecursionError far beyond ``MAX_YAML_DEPTH``.

    Who checks the tree names the line of what is only a little too deep.
    """

    _depth = 0

    def descend_resolver(self, parent: yaml.Node | None, index: Any) -> None:
        # This and the next method are called around every node.
        self._depth += 1
        if self._depth > 2 * MAX_YAML_DEPTH:
            raise RecursionError
        super().descend_resolver(parent, index)

    def ascend_resolver(self) -> None:
        self._depth -= 1
        super().ascend_resolver()
