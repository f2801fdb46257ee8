"""Typed handlers: the keys that go with ``handler:``, and ``peers:``. Nothing is imported."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema

from pallas.safe_text import sanitize

from .field_types import NAME_PATTERN, Loose, Secret
from .files import is_folder, module_file, module_like, module_problem
from .notes import suggest
from .section import Section
from .tree import Leaf
from .where import Where

MAX_PROMPT: Final = 100_000
MAX_TIMEOUT: Final = 3_600.0
DEFAULT_TIMEOUT: Final = 30.0
MIN_MEMORY: Final = 64 << 20
MAX_MEMORY: Final = 1 << 40
_SIZE: Final = re.compile(r"(\d{1,10})\s*([KMGT]?)i?B?", re.IGNORECASE)
_GROUP: Final = re.compile(NAME_PATTERN)

type Named = tuple[tuple[str, Where], ...]
"""Names of other agents, each with its place."""

Timeout = Annotated[float, Field(ge=0.1, le=MAX_TIMEOUT)]
Memory = Annotated[Any, WithJsonSchema({"type": ["string", "integer"]}), Field(examples=["256MB"])]
Files = Annotated[tuple[Loose, ...] | None, Field(max_length=100, examples=[["data", "templates/offer.txt"]])]
Prompt = Annotated[str | None, Field(json_schema_extra={"maxLength": MAX_PROMPT}), Secret()]
Peers = Annotated[tuple[Loose, ...] | None, Field(max_length=200, examples=[["coder", "calculator"]])]


def once_each(listed: Named) -> Named:
    """The names in their order, once each, at the first place of each."""
    first = dict(reversed(listed))
    return tuple((name, first[name]) for name in dict.fromkeys(name for name, _ in listed))


def object_named(
    section: Section, key: str, root: Path, text: str | None, *, foreign: tuple[str, ...] = ()
) -> str | None:
    """``module:NAME`` or ``module.NAME`` under ``key`` as the former; noted where there is no such module.

    Whether there are modules of the packages ``foreign`` is seen when they are imported.
    """
    if text is None:
        return None
    module, attribute = split_object(text)
    if module.partition(".")[0] not in foreign:
        check_module(section, key, root, module)
    return f"{module}:{attribute}"


def split_object(text: str) -> tuple[str, str]:
    """The module and the name in it, of ``module:NAME`` and of ``module.NAME``."""
    module, colon, attribute = text.partition(":")
    if not colon:
        module, _, attribute = text.rpartition(".")
    return module, attribute


def object_problem(text: str) -> str | None:
    """What is wrong with a text that should name something in a module."""
    module, attribute = split_object(text)
    if not module or not all(part.isidentifier() for part in attribute.split(".")):
        return "does not name an object; write module:NAME, such as handlers.upper:UPPER"
    return module_problem(module)


def class_problem(text: str) -> str | None:
    """The same of a text that should name a class."""
    problem = object_problem(text)
    return problem and problem.replace("NAME, such as handlers.upper:UPPER", "Class, such as pricing:Order")


def check_module(section: Section, key: str, root: Path, module: str) -> None:
    """Note that a module is neither in the project nor in a package that is installed."""
    if module_file(root, module) is not None or _is_installed(root, module):
        return
    file = module.replace(".", "/")
    section.error(
        key,
        f"there is no file for {module}",
        f"looked for {file}.py and {file}/__init__.py in the project, and for an installed package",
        suggest(module_like(root, module)),
    )


def memory_of(section: Section, *, isolated: bool) -> int:
    """``memory`` in bytes, 0 for any: ``256MB``, ``2GB``, or a whole number of MiB."""
    node = section.table.get("memory")
    if node is None:
        return 0
    if not isolated:
        section.error("memory", "needs `isolation: process`", "write it, or leave memory out")
    raw = node.value if isinstance(node, Leaf) and not isinstance(node.value, bool) else None
    found = _SIZE.fullmatch(str(raw).strip()) if isinstance(raw, int | str) else None
    if found is None:
        section.error("memory", "is not a size", "allowed: 256MB, 2GB, or a number of MiB", where=node.where)
        return 0
    number, unit = int(found[1]), found[2].upper()
    plain_bytes = not unit and str(raw).strip().lower().endswith("b")
    size = number if plain_bytes else number << {"": 20, "K": 10, "M": 20, "G": 30, "T": 40}[unit]
    if not MIN_MEMORY <= size <= MAX_MEMORY:
        section.error("memory", "is out of range", "allowed: 64MB to 1TB", where=node.where)
        return 0
    return size


def files_of(section: Section, root: Path, listed: Named, *, isolated: bool) -> tuple[str, ...]:
    """``files``: files and folders of the project that an isolated handler may open, relative to it."""
    if "files" in section and not isolated:
        section.error("files", "needs a process of its own", "write `isolation: process`, or leave files out")
    for text, where in listed:
        path = (root / text).resolve()
        problem = "" if root.resolve() in path.parents else f"{text} is not in the project's folder"
        if not problem and not path.exists():
            problem = f"there is no {text}"
        if problem:
            section.error("files", problem, "name what is in the project's folder", where=where)
    return tuple(dict.fromkeys(text for text, _ in listed))


def prompt_of(section: Section, text: str | None) -> str:
    """``prompt``: text of any number of lines, sanitised; never repeated in a note."""
    if text is not None and len(text) > MAX_PROMPT:
        section.error("prompt", f"has {len(text)} characters", f"allowed: at most {MAX_PROMPT}")
    return sanitize((text or "").strip(), MAX_PROMPT)


def group_problem(text: str) -> str | None:
    """What is wrong with a name that handlers share."""
    if _GROUP.fullmatch(text) and text != "system" and not text.startswith(("agent-", "system.")):
        return None
    return "is not a name; allowed: as for agents, a-z, 0-9 and . _ - after the first, at most 100"


def _is_installed(root: Path, module: str) -> bool:
    """Whether the module may come from a package that is installed; nothing of it is imported."""
    first = module.partition(".")[0]
    if module_file(root, first) is not None or is_folder(root / first):
        return False
    try:
        return find_spec(first) is not None
    except (ImportError, ValueError):
        return False
