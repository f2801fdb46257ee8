"""Where the panes stand on the main screen, which of them can be seen, and how large they are."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from textual import events, on
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from ..text import Glyphs
from ..widgets.drag_edges import Dragged
from ..widgets.line_view import LineView
from ..widgets.pane import Pane, PaneUsed
from ..widgets.start_failure import Failure
from ..widgets.text_widget import takes_text
from ..widgets.title_bar import TitleBar
from .screen_layout import COLUMNS, TALL, WIDE, Layout, Layouts, SizeClass, is_tiny, size_class

if TYPE_CHECKING:  # it is imported after the first paint
    from textual.widgets import TextArea

_RAIL: Final = (24, 60)
_RAIL_AT_FIRST: Final = 32
"""Columns of the agents until somebody changes them, as in the style sheet."""
_DRAWER: Final = 36
_DOCK_LEAST: Final = 5
_CHAT_LEAST: Final = 8
_COLUMN_LEAST: Final = 40
"""Columns that the chat and the dock keep side by side."""
_BARS: Final = 2
"""Rows that are not the panes': the top line and the bottom line."""
_SAVE_AFTER: Final = 1.0
_BESIDE_DOCK: Final = ("agents", "chat")
_JUMPS: Final = 20


@dataclass(frozen=True, slots=True)
class LatePane:
    """A pane that is made after the first paint: ``make`` may import what takes its time."""

    id: str
    title: str
    make: Callable[[], Pane]


@dataclass(frozen=True, slots=True)
class _Jump:
    """From where something led to the pane ``to``: the pane, the widget, and the line the cursor was on."""

    to: str
    pane: str
    widget: Widget | None
    line: Hashable


class Places(Screen[None]):
    """Arranges panes in three places: rail, talk and dock.

    From 100 columns and 30 rows on all places are on screen; below that, and while zoomed, one pane is, and
    the rail can be opened over it as a drawer. From 180 columns on the dock is a third column. Sizes are
    kept for each class of terminal size.
    """

    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (WIDE, "-wide"), (COLUMNS, "-columns")]  # noqa: RUF012
    VERTICAL_BREAKPOINTS = [(0, "-short"), (TALL, "-tall")]  # noqa: RUF012 - Textual's class variables

    def __init__(self, late: Sequence[LatePane], glyphs: Glyphs, layouts: Layouts, id: str) -> None:  # noqa: A002
        super().__init__(id=id)
        self._glyphs = glyphs
        self._dock = ("feed", *(pane.id for pane in late if pane.id not in _BESIDE_DOCK))
        self._panes: dict[str, Pane] = {}
        self._current = "chat"
        self._split = True
        self._drawer = False
        self._layouts = layouts
        self._size_class: SizeClass | None = None
        self._layout = Layout()
        self._focus_before: Widget | None = None
        self._jumps: tuple[_Jump, ...] = ()

    def _title(self, id: str, *panes: tuple[str, str]) -> TitleBar:  # noqa: A002 - Textual's word
        titles = [(pane, f"show.{pane}", title) for pane, title in panes]
        return TitleBar(titles, self._glyphs, id=id)

    def _take_up(self, pane: Pane) -> None:
        self._panes[str(pane.id)] = pane
        self.watch(pane, "caption", lambda: self._tell_titles(), init=False)

    # Where one is

    @property
    def current(self) -> str:
        """The pane that was gone to last."""
        return self._current

    def show(self, pane: str) -> None:
        """Go to a pane: bring it into view and put the focus in it."""
        self._drawer = False
        self._go(pane)
        self._focus_current()

    def jump(self, pane: str) -> None:
        """Go to a pane that something in another one leads to: ``back`` returns there."""
        widget, jumps = self.focused, self._jumps
        origin = self._place_of(widget) or self._current
        line = widget.key_at(widget.cursor) if isinstance(widget, LineView) and widget.line_count() else None
        self.show(pane)
        if origin != pane:
            jumps = (*jumps, _Jump(pane, origin, widget, line))[-_JUMPS:]
        self._remember(jumps)

    def _remember(self, jumps: tuple[_Jump, ...]) -> None:
        self._jumps = jumps
        for name, pane in self._panes.items():
            pane.returns = bool(jumps) and jumps[-1].to == name
        self.refresh_bindings()

    def _return(self) -> None:
        *jumps, last = self._jumps
        self.show(last.pane)
        widget = last.widget
        if widget is not None and widget.is_attached and self._place_of(widget) == last.pane:
            self.set_focus(widget)
            if isinstance(widget, LineView) and (index := widget.find(last.line)) is not None:
                widget.action_move_to(index)
        self._remember(tuple(jumps))

    def on_text_area_changed(self, event: "TextArea.Changed") -> None:
        """Forget the way back: who writes stays."""
        if self._jumps and event.text_area.has_focus and event.text_area.text:
            self._remember(())

    @on(PaneUsed)
    def _on_pane_used(self) -> None:
        """Forget the way back, also when the text was sent before the screen could see it."""
        if self._jumps:
            self._remember(())

    def _go(self, pane: str) -> None:
        if pane != self._current and self._jumps:
            self._remember(())
        self._current = pane
        if pane in self._dock:
            self._change(tab=pane)
        if pane == "agents":
            self._change(rail_hidden=False)
        if self._layout.zoomed:
            self._change(zoomed=pane)
        self._arrange()

    @property
    def _dock_tab(self) -> str:
        return self._layout.tab if self._layout.tab in self._dock else "feed"

    @property
    def _zoomed(self) -> bool:
        return self._split and bool(self._layout.zoomed)

    @property
    def _in_columns(self) -> bool:
        """Whether the dock is next to the chat, not below it."""
        return self._size_class == "columns"

    def visible_panes(self) -> set[str]:
        """The panes that can be seen."""
        return {name for name, pane in self._panes.items() if pane.is_showing}

    def _visible(self) -> set[str]:
        if not self._split or self._zoomed:
            return {self._current} | ({"agents"} if self._drawer else set())
        return {"chat", self._dock_tab} | (set() if self._layout.rail_hidden else {"agents"})

    def _arrange(self) -> None:
        visible = self._visible()
        drawer = self._drawer and self._current != "agents"
        self.set_class(drawer, "-drawer")
        rail = self.query_one("#rail")
        rail.display = "agents" in visible
        rail.set_class(visible == {"agents"}, "-alone")
        self.query_one("#main-column").display = visible != {"agents"}
        self.query_one("#talk").display = "chat" in visible
        dock = self.query_one("#dock")
        dock.display = not visible.isdisjoint(self._dock)
        dock.set_class("chat" not in visible, "-alone")
        self._apply_sizes()
        failed = self.query_one(Failure).display
        for name, pane in self._panes.items():
            seen = name in visible and not (name == "chat" and failed)
            pane.display = seen
            if seen != pane.is_showing:
                self._show_or_hide(pane, seen)
        self._tell_titles()

    def _show_or_hide(self, pane: Pane, seen: bool) -> None:
        pane.show_pane() if seen else pane.hide_pane()

    def _focus_current(self) -> None:
        if self._current == "chat" and self.query_one(Failure).display:
            self.query_one(Failure).focus()
        elif (pane := self._panes.get(self._current)) is not None:
            pane.focus_pane()

    def _tell_titles(self) -> None:
        place = self._place_of(self.focused)
        for title, panes in (("rail", ("agents",)), ("talk", ("chat",)), ("dock", self._dock)):
            shown = self._dock_tab if panes is self._dock else panes[0]
            pane = self._panes.get(shown)
            words = (pane.caption if pane is not None else "", "zoomed" if self._zoomed else "")
            self.query_one(f"#{title}-title", TitleBar).tell(
                shown=shown, focused=place in panes, caption=", ".join(filter(None, words))
            )

    def _place_of(self, widget: DOMNode | None) -> str | None:
        for node in widget.ancestors_with_self if widget is not None else ():
            if isinstance(node, Pane):
                return node.id
            if isinstance(node, Failure):
                return "chat"
        return None

    def on_resize(self, event: events.Resize) -> None:
        """Large enough for all places, or one at a time, or too small for any."""
        width, height = event.size
        self._hide_all(is_tiny(width, height))
        kind = size_class(width, height)
        if kind != self._size_class:
            self._size_class = kind
            self._layout = self._layouts.of(kind)
            self._split = kind != "small"
            self.query_one("#dock-title", TitleBar).drags = not self._in_columns
            self._drawer = False
            if self._zoomed and self._layout.zoomed not in self._panes:
                # The pane is still to come, or is one of an older version.
                self._layout = replace(self._layout, zoomed="")
            elif self._zoomed:
                self._current = self._layout.zoomed
            elif self._split and self._current in self._dock:
                self._layout = replace(self._layout, tab=self._current)
        self._arrange()

    def _hide_all(self, is_hidden: bool) -> None:
        """Show only that the terminal is too small; the focus comes back with the panes."""
        if is_hidden == self.has_class("-tiny"):
            return
        if is_hidden:
            self._focus_before = self.focused
        self.set_class(is_hidden, "-tiny")
        if not is_hidden:
            self.call_after_refresh(self._focus_again)

    def _focus_again(self) -> None:
        before, self._focus_before = self._focus_before, None
        if before is not None and before.is_attached and self._place_of(before) == self._current:
            before.focus(scroll_visible=False)
        else:
            self._focus_current()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Record that the user went to a pane by a click or a tab.

        Of two keys pressed at once the focus of the first may be reported after the second was obeyed.
        """
        if event.widget is not self.focused:
            return
        place = self._place_of(event.widget)
        if self._drawer and place != "agents":
            self._drawer = False
            self._arrange()
        if place is not None and place != self._current and not self._drawer:
            self._go(place)
        self._tell_titles()

    def on_descendant_blur(self) -> None:
        """The mark leaves with the focus."""
        self._tell_titles()

    # Sizes

    def zoom(self) -> None:
        """The current pane takes the whole screen, or steps back."""
        if not self._split:
            return
        self._change(zoomed="" if self._layout.zoomed else self._current)
        self._arrange()
        self._focus_current()
        self.refresh_bindings()

    def resize_dock(self, cells: int) -> None:
        """Give the dock that many more lines or columns, as far as the chat stays usable."""
        dock = self.query_one("#dock")
        if self._split and dock.display and "chat" in self._visible():
            shown = dock.outer_size.width if self._in_columns else dock.size.height
            # Of several keys at once the later ones come before the size of the first is on the screen.
            now = self._dock_size(self._layout.dock) if self._layout.dock else shown
            self._change(dock=self._dock_size(now + cells))
            self._apply_sizes()

    def resize_rail(self, columns: int) -> None:
        """Give the agents that many more columns, between 24 and 60."""
        rail = self.query_one("#rail")
        if self._split and rail.display:
            now = self._layout.rail or rail.outer_size.width
            self._change(rail=max(_RAIL[0], min(now + columns, _RAIL[1])))
            self._apply_sizes()

    def reset_layout(self) -> None:
        """All places as they were at first, for this size of terminal."""
        self._layout = Layout()
        self._keep()
        self._arrange()
        self._focus_current()
        self.refresh_bindings()

    def _dock_size(self, cells: int) -> int:
        """Columns of the dock next to the chat, or rows below it, so that both can be used."""
        least, most = _DOCK_LEAST, self.size.height - _BARS - _CHAT_LEAST
        if self._in_columns:
            rail = 0 if self._layout.rail_hidden else self._layout.rail or _RAIL_AT_FIRST
            least, most = _COLUMN_LEAST, self.size.width - rail - _COLUMN_LEAST
        return max(least, min(cells, most))

    def _apply_sizes(self) -> None:
        """Set or take back what the style sheet says; only where it differs, for that lays out again."""
        rail, dock = self.query_one("#rail").styles, self.query_one("#dock").styles
        visible = self._visible()
        width = self._layout.rail if self._split and visible != {"agents"} else 0
        alone = "chat" not in visible
        cells = self._dock_size(self._layout.dock) if self._split and self._layout.dock and not alone else 0
        columns, lines = (cells, 0) if self._in_columns else (0, cells)
        if self._drawer:
            width = min(_DRAWER, max(20, self.size.width * 2 // 3))
        for styles, rule, cells in (
            (rail, "width", width),
            (dock, "width", columns),
            (dock, "height", lines),
        ):
            now = getattr(styles.inline, rule) if styles.inline.has_rule(rule) else None
            if cells and (now is None or now.value != cells):
                setattr(styles, rule, cells)
            elif not cells and now is not None:
                styles.inline.clear_rule(rule)
                self.query_one("#rail" if styles is rail else "#dock").refresh(layout=True)

    @on(Dragged)
    def _on_dragged(self, event: Dragged) -> None:
        event.stop()
        if event.edge.id == "rail":
            self.resize_rail(event.by)
        else:
            self.resize_dock(-event.by)

    def toggle_rail(self) -> None:
        """Hide the agents, or show them: next to the other panes, or over them in a small terminal."""
        if not self._split or self._zoomed:
            self._toggle_drawer()
            return
        self._change(rail_hidden=not self._layout.rail_hidden)
        if self._layout.rail_hidden and self._current == "agents":
            self._go("chat")
            self._focus_current()
        self._arrange()

    def _toggle_drawer(self) -> None:
        if self._current == "agents":
            self.show("chat")
            return
        self._drawer = not self._drawer
        self._arrange()
        if self._drawer and (pane := self._panes.get("agents")) is not None:
            pane.focus_pane()
        else:
            self._focus_current()
        self.refresh_bindings()

    def _change(self, **changes: str | int | bool) -> None:
        changed = replace(self._layout, **changes)  # type: ignore[arg-type]
        if changed != self._layout:
            self._layout = changed
            self._keep()

    def _keep(self) -> None:
        if self._size_class is None:
            return
        self._layouts.keep(self._size_class, self._layout)
        # Not with each cell that is dragged.
        self.set_timer(_SAVE_AFTER, self._layouts.save_if_possible)

    # Back

    @property
    def can_go_back(self) -> bool:
        """Whether ``back`` would do anything."""
        return self._came or self._zoomed or self._drawer or takes_text(self.focused)

    @property
    def _came(self) -> bool:
        return bool(self._jumps) and self._jumps[-1].to == self._current

    def back(self) -> None:
        """One step back: from a jump, out of a line of text, the drawer, or the zoom. Never further."""
        if takes_text(self.focused) and not self._came:
            self._leave_text()
        elif self._drawer:
            self._toggle_drawer()
        else:
            self.step_out()

    def step_out(self) -> bool:
        """Return from a jump, else from the zoom; False when there is neither."""
        steps = self._came or self._zoomed
        if self._came:
            self._return()
        elif self._zoomed:
            self.zoom()
        return steps

    def _leave_text(self) -> None:
        if "agents" in self._visible():
            self.show("agents")
        else:
            self.set_focus(None)

    def focus_target(self) -> Widget | None:
        """The widget whose help and keys are meant now."""
        return self.focused or self._panes.get(self._current)
