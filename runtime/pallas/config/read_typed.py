"""The keys of a typed handler beside ``handler:``, and ``peers:`` (SPEC 5.1). Nothing is imported."""

import re
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from pallas.model.safe_text import sanitize

from .files import is_folder, module_file, module_like, module_problem
from .kinds import TypedConfig
from .notes import suggest
from .section import Section
from .tree import Leaf
from .where import Where

TYPED_KEYS: Final = (
    "payload", "agent", "timeout", "broadcast", "group", "isolation", "memory", "env", "forward_inbound_auth",
    "files", "prompt", "peers",
)  # fmt: skip
"""Keys of a handler that need a ``payload``, and ``payload`` itself."""
MAX_PEERS: Final = 200
MAX_FILES: Final = 100
MAX_PROMPT: Final = 100_000
MAX_TIMEOUT: Final = 3_600.0
DEFAULT_TIMEOUT: Final = 30.0
MIN_MEMORY: Final = 64 << 20
MAX_MEMORY: Final = 1 << 40
_ISOLATION: Final = ("none", "process")
_SIZE: Final = re.compile(r"(\d{1,10})\s*([KMGT]?)i?B?", re.IGNORECASE)
_GROUP: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")

type Named = tuple[tuple[str, Where], ...]
"""Names of other agents, each with its place."""


def read_typed(section: Section, root: Path, name: str) -> TypedConfig | None:
    """The keys of a typed handler, None for a handler that takes plain text (its keys are noted then)."""
    if "payload" not in section:
        for key in TYPED_KEYS:
            if key in section:
                section.error(
                    key,
                    "is a key of typed handlers, and this one has no payload",
                    "write `payload: module:Class`, or leave it out",
                )
        return None
    payload = read_object(section, "payload", root, "my.code:Question")
    broadcast = section.flag("broadcast") or False
    group = section.text("group", check=_group_problem)
    if group and not broadcast:
        section.error("group", "needs `broadcast: true`", "write it, or leave group out")
    timeout = section.number("timeout", 0.1, MAX_TIMEOUT)
    return TypedConfig(
        payload=payload or "",
        agent=section.flag("agent") or False,
        timeout=DEFAULT_TIMEOUT if timeout is None else timeout,
        broadcast=broadcast,
        group=(group or name) if broadcast else "",
        memory=read_memory(section),
        files=read_files(section, root, isolated=section.choice("isolation", _ISOLATION) == "process"),
        forward_inbound_auth=section.flag("forward_inbound_auth") or False,
        prompt=read_prompt(section),
    )


def read_peers(section: Section) -> Named:
    """``peers``: the names of the agents that this one may send messages to, once each."""
    listed = section.texts("peers", "[coder, calculator]") if "peers" in section else ()
    if len(listed) > MAX_PEERS:
        section.error("peers", f"has {len(listed)} entries", f"allowed: at most {MAX_PEERS}")
    peers = dict(reversed(listed))
    return tuple((name, peers[name]) for name in dict.fromkeys(name for name, _ in listed))


def read_object(
    section: Section, key: str, root: Path, example: str, *, foreign: tuple[str, ...] = ()
) -> str | None:
    """``module:NAME`` or ``module.NAME`` under ``key`` as the former; noted where there is no such module.

    Whether there are modules of the packages ``foreign`` is seen when they are imported.
    """
    if not section.need(key, example):
        return None
    of_class = key.startswith("payload")
    text = section.text(key, check=class_problem if of_class else object_problem)
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


def read_memory(section: Section) -> int:
    """``memory`` in bytes, 0 for any: ``256MB``, ``2GB``, or a whole number of MiB."""
    node = section.table.get("memory")
    if node is None:
        return 0
    if section.choice("isolation", _ISOLATION) != "process":
        section.error("memory", "needs `isolation: process`", "write it, or leave memory out")
    raw = node.value if isinstance(node, Leaf) and not isinstance(node.value, bool) else None
    found = _SIZE.fullmatch(str(raw).strip()) if isinstance(raw, int | str) else None
    if found is None:
        section.error("memory", "is no size", "allowed: 256MB, 2GB, or a number of MiB", where=node.where)
        return 0
    number, unit = int(found[1]), found[2].upper()
    plain_bytes = not unit and str(raw).strip().lower().endswith("b")
    size = number if plain_bytes else number << {"": 20, "K": 10, "M": 20, "G": 30, "T": 40}[unit]
    if not MIN_MEMORY <= size <= MAX_MEMORY:
        section.error("memory", "is out of range", "allowed: 64MB to 1TB", where=node.where)
        return 0
    return size


def read_files(section: Section, root: Path, *, isolated: bool) -> tuple[str, ...]:
    """``files``: files and folders of the project that an isolated handler may open, relative to it."""
    if "files" not in section:
        return ()
    if not isolated:
        section.error("files", "needs a process of its own", "write `isolation: process`, or leave files out")
    listed = section.texts("files", "[data, templates/offer.txt]")
    if len(listed) > MAX_FILES:
        section.error("files", f"has {len(listed)} entries", f"allowed: at most {MAX_FILES}")
    for text, where in listed:
        path = (root / text).resolve()
        problem = "" if root.resolve() in path.parents else f"{text} is not in the project's folder"
        if not problem and not path.exists():
            problem = f"there is no {text}"
        if problem:
            section.error("files", problem, "name what is in the project's folder", where=where)
    return tuple(dict.fromkeys(text for text, _ in listed))


def read_prompt(section: Section) -> str:
    """``prompt``: text of any number of lines, sanitised; never repeated in a note."""
    node = section.table.get("prompt")
    if node is None or (isinstance(node, Leaf) and node.value is None):
        return ""
    quiet = Section(section.table, section.path, section.where, section.notes, echo=False)
    text = quiet.text_of(node, section.key("prompt"))
    if text is not None and len(text) > MAX_PROMPT:
        section.error("prompt", f"has {len(text)} characters", f"allowed: at most {MAX_PROMPT}")
    return sanitize((text or "").strip(), MAX_PROMPT)


def _group_problem(text: str) -> str | None:
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
