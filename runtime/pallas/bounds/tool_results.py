"""Checks results of MCP tools against the output schema that their server declares."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from . import CHECK_SECONDS, PATTERN_SECONDS

log = logging.getLogger(__name__)

_MAX_STEPS: Final = 2_000_000
# Characters of a schema error that are shown.
_SHOWN: Final = 300


async def check_result(tool: str, schema: Mapping[str, Any], value: Any) -> None:
    """Check the structured content of a tool's result in a thread, within ``CHECK_SECONDS``.

    Raises RuntimeError, as the SDK does, if the content does not fit, or the schema is invalid or too costly.
    Only this call fails.
    """
    problem = await asyncio.to_thread(_problem, schema, value)
    if problem is None:
        return
    if problem.startswith(_UNCHECKED):
        log.warning("the result of tool %s was refused: %s", _name(tool), problem)
    raise RuntimeError(f"tool {_name(tool)}: {problem}")


_UNCHECKED: Final = "its output schema cannot be checked: "


def _problem(schema: Mapping[str, Any], value: Any) -> str | None:
    from referencing.exceptions import Unresolvable

    from pallas.safe_text import one_line

    from .schema import BoundedSchema, TooCostly

    try:
        bounded = BoundedSchema(
            schema, steps=_MAX_STEPS, seconds=CHECK_SECONDS, pattern_seconds=PATTERN_SECONDS
        )
        error = next(bounded.errors(value), None)
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
            f"invalid structured content{f' at {where}' if where else ''}: {one_line(error.message, _SHOWN)}"
        )
    if bounded.unusable:
        words = ", ".join(sorted(bounded.unusable)[:5])
        return f"{_UNCHECKED}{words} is no pattern, or takes more than {PATTERN_SECONDS:g} s"
    return None


def _name(tool: str) -> str:
    from pallas.safe_text import one_line

    return one_line(tool, 100)
