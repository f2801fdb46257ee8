"""Checks results of MCP tools against the output schema that their server declares."""

import asyncio
import logging
from collections.abc import Mapping
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from . import CHECK_SECONDS, PATTERN_SECONDS

if TYPE_CHECKING:
    from .schema import BoundedSchema

log = logging.getLogger(__name__)

_MAX_STEPS: Final = 2_000_000
# Characters of a schema error that are shown.
_SHOWN: Final = 300


class ResultSchema:
    """The output schema of a tool. It is read at the first check, and only once."""

    def __init__(self, tool: str, schema: Mapping[str, Any]) -> None:
        self._tool = tool
        self._schema = schema
        self._bounded: BoundedSchema | None = None
        # One check at a time: its budget is that of the schema object.
        self._lock = Lock()

    async def check(self, value: Any) -> None:
        """Check the structured content of a result in a thread, within ``CHECK_SECONDS``.

        Raises RuntimeError, as the SDK does, if the content does not fit, or the schema is invalid or too
        costly. Only this call fails.
        """
        problem = await asyncio.to_thread(self._problem, value)
        if problem is None:
            return
        if problem.startswith(_UNCHECKED):
            log.warning("the result of tool %s was refused: %s", _name(self._tool), problem)
        raise RuntimeError(f"tool {_name(self._tool)}: {problem}")

    def _problem(self, value: Any) -> str | None:
        from referencing.exceptions import Unresolvable

        from pallas.safe_text import one_line

        from .schema import BoundedSchema, TooCostly

        try:
            with self._lock:
                if self._bounded is None:
                    self._bounded = BoundedSchema(
                        self._schema,
                        steps=_MAX_STEPS,
                        seconds=CHECK_SECONDS,
                        pattern_seconds=PATTERN_SECONDS,
                    )
                error = next(self._bounded.errors(value), None)
                unusable = sorted(self._bounded.unusable)
        except TooCostly:
            return f"{_UNCHECKED}it takes more than {CHECK_SECONDS:g} s"
        except RecursionError:
            return f"{_UNCHECKED}it refers to itself without end"
        except Unresolvable as missing:
            return f"{_UNCHECKED}it refers to {one_line(str(missing.ref), 80)}, which is not in it"
        except Exception as wrong:
            return f"{_UNCHECKED}it is not a JSON Schema ({type(wrong).__name__})"
        if error is not None:
            where = one_line("/".join(str(part) for part in error.absolute_path), 100)
            return (
                f"invalid structured content{f' at {where}' if where else ''}: "
                f"{one_line(error.message, _SHOWN)}"
            )
        if unusable:
            words = ", ".join(unusable[:5])
            return f"{_UNCHECKED}{words} is not a pattern, or takes more than {PATTERN_SECONDS:g} s"
        return None


async def check_result(tool: str, schema: Mapping[str, Any], value: Any) -> None:
    """Check one result, as ``ResultSchema.check``."""
    await ResultSchema(tool, schema).check(value)


_UNCHECKED: Final = "its output schema cannot be checked: "


def _name(tool: str) -> str:
    from pallas.safe_text import one_line

    return one_line(tool, 100)
