"""Full-text search in what was said in threads: the index in each database, and the condition of a query.

The database keeps the index itself, so no release writes a row past it: SQLite in triggers on a table of
FTS5, PostgreSQL as an index on an expression. Both have the words of questions and answers, not those of the
results of tools, which are large. A term is the beginning of a word; one of one or two characters is a whole
word, since too many words begin so.

Some scripts have no spaces between words, so an index of words does not help. Their terms are looked for as
text, in the newest rows only. An index of trigrams would not help: words of Chinese have two characters.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from unicodedata import normalize

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    and_,
    bindparam,
    column,
    func,
    literal_column,
    or_,
    select,
    table,
)
from sqlalchemy.exc import OperationalError

from pallas.model import Fault, FaultType, ThreadRecord
from pallas.model.ledger_records import MAX_SEARCH
from pallas.safe_text import one_line

from .message_rows import thread_record
from .storable_text import storable
from .tables import messages, threads

MAX_HITS: Final = 20_000
"""Most messages of one search, the newest; terms in scripts without spaces are looked for in as many."""
SNIPPET: Final = 160
"""Most characters that are shown of a message."""
_LEAD: Final = 40
_BEGINNING: Final = 3
# Of a message. A tsvector has at most a mebibyte, and a longer one would fail the write.
_INDEXED: Final = 100_000
# For PostgreSQL, whose parser takes a URL or a path as one word.
_PUNCTUATION: Final = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_APART: Final = str.maketrans(dict.fromkeys(_PUNCTUATION, " "))
_WORD: Final = re.compile(r"[^\W_]")
_UNSPACED: Final = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]"
)

_ROLES: Final = "role IN ('user', 'assistant')"
_TEXT: Final = f"substr(%s.content, 1, {_INDEXED})"
_REMOVE: Final = (
    "INSERT INTO message_words (message_words, rowid, content) "
    f"SELECT 'delete', old.id, {_TEXT % 'old'} WHERE old.{_ROLES};"
)
_ADD: Final = f"INSERT INTO message_words (rowid, content) SELECT new.id, {_TEXT % 'new'} WHERE new.{_ROLES};"
_SQLITE: Final = (
    "CREATE VIRTUAL TABLE message_words USING fts5("
    "content, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')",
    # FTS5 writes to the file as it goes: the memory for this does not grow with the ledger.
    "INSERT INTO message_words (rowid, content) "
    f"SELECT id, {_TEXT % 'messages'} FROM messages WHERE {_ROLES} ORDER BY id",
    f"CREATE TRIGGER message_words_insert AFTER INSERT ON messages BEGIN {_ADD} END",
    f"CREATE TRIGGER message_words_delete AFTER DELETE ON messages BEGIN {_REMOVE} END",
    "CREATE TRIGGER message_words_update AFTER UPDATE OF id, role, content ON messages "
    f"BEGIN {_REMOVE} {_ADD} END",
)
_SPACES: Final = " " * len(_PUNCTUATION)
_VECTOR: Final = (
    f"to_tsvector('simple', translate(left(content, {_INDEXED}), "
    f"'{_PUNCTUATION.replace("'", "''")}', '{_SPACES}'))"
)
_POSTGRES: Final = (f"CREATE INDEX messages_words_ix ON messages USING gin ({_VECTOR}) WHERE {_ROLES}",)

_SEARCHED: Final[ColumnElement[bool]] = literal_column(f"messages.{_ROLES}")
_FTS: Final = table("message_words", column("rowid"))


def create_search(connection: Connection) -> None:
    """Index the messages from now on, and those that are there. Raises Fault (CONFIG) without FTS5."""
    try:
        for statement in _SQLITE if connection.dialect.name == "sqlite" else _POSTGRES:
            connection.exec_driver_sql(statement)
    except OperationalError as error:
        if "fts5" not in str(error.orig):
            raise
        raise Fault(
            FaultType.CONFIG,
            "the SQLite library of this Python was built without FTS5, which the ledger needs; use another "
            "build of Python, or a PostgreSQL database with database_url: in agents.yaml",
        ) from None


@dataclass(frozen=True, slots=True)
class SearchTerms:
    """What a person wrote, in ``terms``. Those of ``words`` are in the index, those of ``parts`` are not."""

    terms: tuple[str, ...]
    words: tuple[str, ...]
    parts: tuple[str, ...]

    @classmethod
    def of(cls, search: str) -> "SearchTerms":
        """The terms between the spaces. Raises Fault (PROTOCOL) for a search that is too long."""
        if len(search) > MAX_SEARCH:
            problem = f"search has at most {MAX_SEARCH} characters; leave some words out"
            raise Fault(FaultType.PROTOCOL, problem, data={"key": "search"})
        terms = tuple(storable(search.replace("\0", " ")).split())
        parts = tuple(each for each in terms if _UNSPACED.search(each))
        words = tuple(each for each in terms if each not in parts and _WORD.search(each))
        return cls(terms, words, parts)

    def fts5(self) -> str:
        """The query in the language of FTS5: every term is quoted, so none of it is an operator."""
        return " ".join(
            f'"{each.replace('"', " ")}"{"*" if len(each) >= _BEGINNING else ""}' for each in self.words
        )

    def tsquery(self) -> str:
        """The query in the language of PostgreSQL, quoted too."""
        found = []
        for each in self.words:
            quoted = [f"'{one}'" for one in each.translate(_APART).split()]
            found.append(" <-> ".join(quoted) + (":*" if len(each) >= _BEGINNING else ""))
        return " & ".join(found)

    def snippet(self, text: str) -> str:
        """The part of a message in which the first of the terms is, in one line."""
        folded = _folded(text)
        start = 0
        if places := [at for each in self.terms if (at := _place(folded, each)) >= 0]:
            start = max(0, min(places) - _LEAD)
        # At the beginning of a word, if one begins before the term.
        if start and (space := text.find(" ", start, start + _LEAD)) >= 0:
            start = space + 1
        part = " ".join(text[start : start + 2 * SNIPPET].split())
        cut = one_line(part, SNIPPET)
        return f"…{cut}" if start else cut


def threads_in(
    connection: Connection,
    statement: Select[Any],
    terms: SearchTerms,
    of_viewer: Sequence[ColumnElement[bool]],
) -> list[ThreadRecord]:
    """The threads of ``statement``; with terms only those with all of them in one message, or in the title.

    ``of_viewer`` are the conditions for a thread that the viewer may see.
    """
    if not terms.terms:
        return [thread_record(row) for row in connection.execute(statement)]
    hits = _hits(terms, of_viewer, connection.dialect.name)
    title = and_(*(threads.c.title.icontains(each, autoescape=True) for each in terms.terms))
    wanted = (
        statement.add_columns(func.substr(messages.c.content, 1, _INDEXED).label("said"))
        .outerjoin(hits, hits.c.thread_id == threads.c.id)
        .outerjoin(messages, messages.c.id == hits.c.id)
        .where(or_(hits.c.id.is_not(None), title))
    )
    return [
        replace(thread_record(row), snippet=terms.snippet(row.said or ""))
        for row in connection.execute(wanted)
    ]


def _hits(terms: SearchTerms, of_viewer: Sequence[ColumnElement[bool]], dialect: str) -> Any:
    """The newest message that matches in each thread."""
    wanted = select(messages.c.id, messages.c.thread_id)
    wanted = wanted.join_from(messages, threads, threads.c.id == messages.c.thread_id)
    if terms.parts:
        wanted = wanted.add_columns(messages.c.content)
    if terms.words and dialect == "sqlite":
        wanted = wanted.join(_FTS, _FTS.c.rowid == messages.c.id)
        wanted = wanted.where(literal_column("message_words").op("MATCH")(bindparam(None, terms.fts5())))
        wanted = wanted.order_by(_FTS.c.rowid.desc())
    else:
        wanted = wanted.order_by(messages.c.id.desc())
    if terms.words and dialect != "sqlite":
        query = func.to_tsquery(literal_column("'simple'"), bindparam(None, terms.tsquery()))
        wanted = wanted.where(literal_column(_VECTOR.replace("content", "messages.content")).op("@@")(query))
    some = wanted.where(_SEARCHED, *of_viewer).limit(MAX_HITS).subquery("some")
    found = select(some.c.thread_id, func.max(some.c.id).label("id")).group_by(some.c.thread_id)
    if not terms.words and not terms.parts:
        found = found.where(literal_column("1 = 0"))
    for each in terms.parts:
        found = found.where(some.c.content.icontains(each, autoescape=True))
    return found.subquery("hits")


def _folded(text: str) -> str:
    """The text in lower case and without accents, of the same length."""
    if text.isascii():
        return text.lower()
    return "".join(normalize("NFD", each)[0].lower()[:1] for each in text)


def _place(folded: str, term: str) -> int:
    """Where a term begins in a text, else the first of its words; -1 if neither is there."""
    if (at := folded.find(whole := _folded(term))) >= 0:
        return at
    first = next(iter(whole.translate(_APART).split()), whole)
    return folded.find(first)
