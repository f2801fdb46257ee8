"""Projects of tests in one process have their own modules."""

import sys
from pathlib import Path

import pytest
from support.live import running
from support.project_modules import module_at
from support.typed import typed_project

HANDLER = """
from dataclasses import dataclass

from toolbox.words import WORD

@dataclass
class Question:
    text: str

async def echo(payload, metadata): ...
"""


def project(root: Path) -> Path:
    files = {"toolbox/__init__.py": "", "toolbox/words.py": f"WORD = {root.name!r}\n"}
    return typed_project(root, HANDLER, {"echo": {"payload": "Question"}}, files=files)


async def test_two_fleets_at_once_each_have_their_modules_and_the_first_has_them_back(tmp_path: Path) -> None:
    first, second = (project(tmp_path / name) for name in ("first", "second"))
    async with running(first):
        desk = module_at(first, "desk")
        async with running(second):
            assert module_at(second, "desk").WORD == "second"
            with pytest.raises(AssertionError, match="another project"):
                module_at(first, "desk")
        assert module_at(first, "desk") is desk
        assert desk.WORD == "first"
    assert not {"desk", "toolbox", "toolbox.words"} & {*sys.modules}


async def test_a_folder_that_is_imported_as_a_package_hides_no_package_of_a_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "checkout" / "toolbox").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path / "checkout"))
    import toolbox  # type: ignore[import-not-found]

    root = project(tmp_path / "project")
    async with running(root):
        assert module_at(root, "toolbox.words").WORD == "project"
    assert sys.modules.pop("toolbox") is toolbox
