"""The credentials pane: for each run, which credential went to which downstream."""

from collections.abc import Hashable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget

from ...actions import bindings
from ...frame import FleetFrame
from ...runs.credential_line import CredentialLine
from ...runs.credential_requests import CredentialRequests
from ...targets import Reveal, RunTarget, Target
from ...text import UNICODE, Glyphs, Line, count, joined
from ..filter_line import FilterLine
from ..list_pane import ListPane, ShowText
from ..row_list import RowList
from .credential_view import credential_line, header, request_details

_HINT = (
    "No requests yet.\n"
    "Ask an agent something in the chat (2): each request of the run to a server appears here, with the"
    " fingerprint of the credential it carried, its source, and how the server answered.\n"
    "A caller's own token goes only to servers that have forward_inbound_auth: true."
)


class CredentialHeader(Widget):
    """The names of the columns."""

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs

    def render(self) -> Content:
        """Render as wide as the lines below, which leave room for a scrollbar."""
        return Content.assemble(" ", *header(max(0, self.content_size.width - 1), self._glyphs))


class CredentialList(RowList[CredentialLine]):
    """One line a request. Follows at the end; elsewhere lines stay in place."""

    def __init__(self, kept: CredentialRequests, glyphs: Glyphs) -> None:
        super().__init__(glyphs, id="credential-list")
        self.follow = True
        self.findings_only = False
        self._kept = kept
        self._words: tuple[str, ...] = ()
        self._seen = 0

    def row_key(self, row: CredentialLine) -> Hashable:
        return row.key

    @property
    def unseen(self) -> int:
        """How many requests were added since it stopped following."""
        return 0 if self.follow else max(0, len(self.rows) - self._seen)

    def advance(self, now: float, changed: bool) -> None:
        """Update the time, and with ``changed`` the lines."""
        if changed:
            self._now = now
            self.rebuild()
        else:
            self.set_time(now)

    def rebuild(self) -> None:
        """Rebuild the lines."""
        self.show_rows(self._kept.lines(self._words, findings_only=self.findings_only))

    def filter_by(self, words: tuple[str, ...]) -> None:
        """Show only requests that every word matches."""
        self._words = words
        self.rebuild()

    def set_findings_only(self, findings_only: bool) -> None:
        """Show only requests with findings, or all."""
        self.findings_only = findings_only
        self.rebuild()

    def set_follow(self, follow: bool) -> None:
        """Follow the end from now on, or stay here."""
        if self.follow and not follow:
            self._seen = len(self.rows)
        self.follow = follow

    def moved(self, scrolled: bool) -> None:
        self.follow_from(scrolled)
        super().moved(scrolled)

    def action_last(self) -> None:
        self.set_follow(True)
        self.reload()
        self.moved(scrolled=False)

    def line_at(self, index: int, width: int) -> Line:
        return credential_line(self.rows[index], width, self._now, self._glyphs, alone=self.findings_only)

    def empty_text(self) -> str:
        total = self._kept.requests
        if total and self.findings_only:
            return f"There is no finding in the {count(total, 'request')} that are kept. Press o to see all."
        return "No request matches.\nEscape clears the filter." if total else _HINT


class CredentialsPane(ListPane):
    """The requests of the fleet's runs, with the credential of each."""

    TITLE = "Credentials"
    HELP = """\
Which credential went where: one line for each run, below it one for each of its requests to servers. The
runs of other agents that it called are below the request that called them.

A key is never shown, only its **fingerprint**: the same fingerprint is the same key. **caller** is the key
that the run was called with, **forward** the caller's key passed on, **config** a key of the project's files.
The countdown shows when the key expires, as the key itself claims.

A mark in front shows a finding: no key where others had one, a key that had expired or is not the
caller's, 401 or 403. **o** shows only requests with a finding, **enter** shows the reason. **r** goes to the
run, **l** to its log.

The filter finds words anywhere; `agent:` `to:` `source:` `status:` `key:` `run:` search in that part only.
"""
    BINDINGS: ClassVar[list[BindingType]] = bindings("credentials")

    def __init__(self, glyphs: Glyphs | None = None, *, id: str = "credentials") -> None:  # noqa: A002
        """Without ``glyphs`` those of the application are used."""
        super().__init__(id=id)
        self.kept = CredentialRequests()
        self._glyphs = glyphs or UNICODE
        self._own_glyphs = glyphs is None
        self._now = 0.0
        self._painted_version = -1

    def compose(self) -> ComposeResult:
        if self._own_glyphs:
            self._glyphs = getattr(self.app, "glyphs", UNICODE)
        yield CredentialHeader(self._glyphs)
        yield CredentialList(self.kept, self._glyphs)
        yield FilterLine("words, agent:x, to:x, source:none, status:401, key:x", id="credential-filter")

    @property
    def requests(self) -> CredentialList:
        """The list of requests."""
        return self.query_one(CredentialList)

    def absorb(self, frame: FleetFrame) -> None:
        self._now = frame.now
        self.kept.absorb(frame)
        self._paint()

    def show_pane(self) -> None:
        super().show_pane()
        self.call_after_refresh(self._paint)

    def _paint(self) -> None:
        if not self.is_showing or not self.is_mounted:
            return
        changed = self.kept.version != self._painted_version
        self._painted_version = self.kept.version
        self.requests.advance(self._now, changed)
        self._say()

    def _say(self) -> None:
        """Update the title bar with what the list cannot show."""
        words = []
        if unseen := self.requests.unseen:
            words.append(f"{unseen} new below")
        if self.requests.findings_only:
            words.append(
                f"{count(self.requests.line_count(), 'request')} of {self.kept.requests} with a finding"
            )
        if self.filter.words:
            words.append("filter: " + " ".join(self.filter.words))
        if self.kept.left_out:
            words.append(f"{count(self.kept.left_out, 'request')} left out")
        if self.kept.lost:
            words.append(f"{count(self.kept.lost, 'event')} missed")
        self.caption = joined(words, self._glyphs)

    def selection_changed(self) -> None:
        self._say()

    def filter_by(self, words: tuple[str, ...]) -> None:
        self.requests.filter_by(words)

    def full_text(self) -> tuple[str, str] | None:
        line = self.requests.selected
        return None if line is None else (f"{line.sender} to {line.to}", request_details(line, self._now))

    def choose(self) -> None:
        """Show the details of the request."""
        if (text := self.full_text()) is not None:
            self.post_message(ShowText(*text))

    def action_findings(self) -> None:
        """Show only requests with findings, or all again."""
        self.requests.set_findings_only(not self.requests.findings_only)
        self._say()
        self.refresh_bindings()

    def action_follow(self) -> None:
        """Go to the end and follow it."""
        self.requests.action_last()

    def action_elsewhere(self, pane: str) -> None:
        """Show the run in another pane."""
        if (line := self.requests.selected) is not None:
            self.post_message(Reveal(RunTarget(line.run_id, pane)))

    def action_unfilter(self) -> None:
        """Clear the filter, then the view of findings."""
        if self.filter.words:
            super().action_unfilter()
        else:
            self.requests.set_findings_only(False)
            self._say()
            self.refresh_bindings()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Allow escape only where some requests are hidden."""
        if action == "unfilter" and self.is_mounted:
            return (bool(self.filter.words) or self.requests.findings_only) and not self.returns
        return super().check_action(action, parameters)

    def reveal(self, target: Target) -> bool:
        if not isinstance(target, RunTarget):
            return False
        words = (f"run:{target.run_id.lower()}",)
        found = self.kept.lines(words)
        if not found:
            return False
        self.filter.value = words[0]
        self.filter.display = True
        self.requests.findings_only = False
        self.requests.set_follow(False)
        self.requests.filter_by(words)
        self.requests.action_move_to(0)
        self._say()
        return True
