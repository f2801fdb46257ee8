"""The modules of a test's project: its own, whatever other tests of the process have imported."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from pallas.executors.fastagent.reimport import file_of, modules_of

_NEVER_HIDDEN: Final = sys.stdlib_module_names | {"pallas", "pallas_tui", "support"}


def module_at(root: Path, name: str) -> Any:
    """The module that the project at ``root`` has imported by that name."""
    module = sys.modules[name]
    assert file_of(module).startswith(f"{root}/"), f"{name} is that of another project: {file_of(module)}"
    return module


@contextmanager
def own_modules(root: Path) -> Iterator[None]:
    """Hide other modules of the names that the project at ``root`` has: of other projects, of the checkout.

    Afterwards those are back, and nothing of the project is left, also in ``sys.path``.
    """
    names = {path.stem for path in root.iterdir() if path.suffix == ".py" or path.is_dir()} - _NEVER_HIDDEN
    tops = {name for name in names if name in sys.modules and _is_elsewhere(root, name)}
    hidden = {name: sys.modules[name] for name in list(sys.modules) if name.partition(".")[0] in tops}
    for name in hidden:
        del sys.modules[name]
    try:
        yield
    finally:
        for name in modules_of(root):
            sys.modules.pop(name, None)
        with suppress(ValueError):
            sys.path.remove(str(root))
        sys.modules.update(hidden)


def _is_elsewhere(root: Path, name: str) -> bool:
    """Whether it is neither the project's nor an installed package."""
    file = file_of(sys.modules[name])
    return bool(file) and not file.startswith(f"{root}/") and "site-packages" not in file
