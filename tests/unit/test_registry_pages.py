"""The pages that are made of registries have a place for each entry."""

import sys
from pathlib import Path
from typing import get_args

from pallas import hookspecs
from pallas.model import Event, FaultType, FleetPort, RunEvent, operations_of
from pallas_tui.actions import ACTIONS, Scope
from pallas_tui.settings.settings_schema import SCHEMA

DOCS = Path(__file__).parents[2] / "docs"
sys.path.insert(0, str(DOCS))
import registry_pages  # noqa: E402

sys.path.remove(str(DOCS))


def rows(page: str) -> list[str]:
    """What the first cell of each row names."""
    return [line.split("`")[1] for line in page.splitlines() if line.startswith("| `")]


def test_every_setting_is_in_its_page() -> None:
    assert rows(registry_pages.settings()) == [setting.key for setting in SCHEMA]


def test_every_action_is_in_the_page_of_keys_below_the_heading_of_its_scope() -> None:
    assert set(registry_pages.SCOPE_TITLES) == set(get_args(Scope))
    assert sorted(rows(registry_pages.keys())) == sorted(action.id for action in ACTIONS)


def test_every_operation_is_in_the_page_of_the_control_api() -> None:
    page = registry_pages.control_api()
    assert len(rows(page)) == len(operations_of(FleetPort))
    assert "| `POST agents/AGENT/start\\|stop\\|restart\\|reload\\|rollback` |" in page
    assert "| `GET threads` | `agent`, `limit`, `cursor`, `search`, `branches_of` | for texts, or" in page


def test_every_event_error_and_extension_point_is_in_its_page() -> None:
    def below(kind: type[Event]) -> set[str]:
        return {kind.__name__}.union(*(below(each) for each in kind.__subclasses__()))

    page = registry_pages.events()
    kinds = below(Event) - {Event.__name__, RunEvent.__name__}
    points = {name for name, each in vars(hookspecs).items() if hasattr(each, "pallas_spec")}
    found = [name.partition("(")[0] for name in rows(page)]
    assert sorted(found) == sorted([*kinds, *FaultType, *points])


def test_every_room_is_in_its_page_with_what_it_is_for() -> None:
    lines = registry_pages.rooms().splitlines()
    found = [line.split(" | ", 1) for line in lines if line.startswith("| `")]
    root = DOCS.parent
    for folder in (root / "runtime" / "pallas", root / "pallas_tui"):
        for each in folder.iterdir():
            if (each / "__init__.py").is_file() or (each.suffix == ".py" and each.stem != "__init__"):
                assert [about for room, about in found if room == f"| `{each.stem}`"], each
    assert [room for room, about in found if about == " |"] == []
