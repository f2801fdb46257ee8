import json
import operator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pallas_tui.widgets.logs.filter_language import MAX_DEPTH, read_filter
from pallas_tui.widgets.logs.filter_terms import FilterMistake
from pallas_tui.widgets.logs.log_chunk import LogChunk
from pallas_tui.widgets.logs.log_index import LineBlock, OpenLogFile, Part, scan
from pallas_tui.widgets.logs.log_query import LogQuery, find

RECORDS: list[dict[str, Any] | str] = [
    {"level": "DEBUG", "logger": "httpx2", "message": "GET http://127.0.0.1:24201/mcp", "n": 0},
    {"level": "INFO", "logger": "pallas.fleet", "message": "research ready", "agent": "research", "n": 1},
    {"level": "WARNING", "logger": "mcp", "message": "Größe unbekannt", "agent": "Research-2", "n": 2},
    {"level": "ERROR", "logger": "pallas.probe", "message": 'he said "no"', "field": {"sub": 3}, "n": 3},
    {
        "level": "CRITICAL",
        "logger": "x",
        "message": "gone",
        "field": {"sub": "3.0"},
        "tags": ["a", "b"],
        "n": 4,
    },
    "no json at all, agent:research",
    {"level": "INFO", "logger": "y", "message": "the tool said level ERROR", "agent": None, "n": 6.5},
    {"level": "INFO", "logger": "y", "message": '"agent": "research"', "a.b": {"c": True}, "n": -7},
    {"time": "2026-06-01T12:00:00+00:00", "level": "INFO", "message": "empty", "agent": "", "n": 8},
]


def part_of(path: Path, lines: list[dict[str, Any] | str], *, ascii_only: bool = False) -> Part:
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=ascii_only) for line in lines]
    path.write_bytes("".join(f"{text}\n" for text in texts).encode())
    file = OpenLogFile.open(path)
    assert file is not None
    found = scan(file.read(0, file.state[0]), 0)
    return LineBlock(file, 0, found.starts, found.levels, found.end).part(0, len(found.starts))


@pytest.fixture(params=["mixed", "flat", "escaped"])
def part(tmp_path: Path, request: pytest.FixtureRequest) -> Part:
    """The records, also so that the quick way through lines without objects inside is taken."""
    lines = RECORDS
    if request.param == "flat":
        lines = [{**line, "field": 0, "a.b": 0} if isinstance(line, dict) else line for line in RECORDS]
    return part_of(tmp_path / "log", lines, ascii_only=request.param == "escaped")


def wanted(part: Part, text: str) -> list[int]:
    return list(find(part, LogQuery(text=text)).found)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", range(9)),
        ("   ", range(9)),
        ("research", [1, 2, 5, 7]),
        ("RESEARCH ready", [1]),
        ('"research ready"', [1]),
        ('"ready research"', []),
        ("größe", [2]),
        ('"\\"no\\""', [3]),
        ("http://127.0.0.1:24201", [0]),
        ("-research", [0, 3, 4, 6, 8]),
        ("level>=warning", [2, 3, 4]),
        ("level:warn", [2]),
        ("level=e", [3]),
        ("level<info", [0]),
        ("level!=info", [0, 2, 3, 4, 5]),
        ("-level:info", [0, 2, 3, 4, 5]),
        ("agent:research", [1, 2]),
        ("agent=research", [1]),
        ("agent=RESEARCH", [1]),
        ("agent!=research", [0, 2, 3, 4, 5, 6, 7, 8]),
        ("agent:*", [1, 2, 8]),
        ('agent=""', [8]),
        ("-logger:httpx2 level<=info", [1, 6, 7, 8]),
        ("n=6.5", [6]),
        ("n>2", [3, 4, 6, 8]),
        ("n>=2 n<4", [2, 3]),
        ("n=-7", [7]),
        ("n=3.0", [3]),
        ("tags:b", [4]),
        ("tags=a", [4]),
        ("message~^the.*error$", [6]),
        ("~ready|gone", [1, 4]),
        ('message~"said \\"no"', [3]),
        ("message~said.\\\"no", [3]),
        ("level=error OR level=critical", [3, 4]),
        ("(level=error OR level=critical) gone", [4]),
        ("-(level=error OR level=critical) n>1", [2, 6, 8]),
        ("research AND ready", [1]),
        ("logger:pallas -(message:ready)", [3]),
        ("time>=2026-06-01T11:59:59Z", [8]),
        ("time<2026-06-01T11:59:59Z", []),
    ],
)  # fmt: skip
def test_a_filter_chooses_lines(part: Part, text: str, lines: list[int]) -> None:
    assert wanted(part, text) == list(lines)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("field.sub=3", [3, 4]),
        ("field.sub>2", [3, 4]),
        ("field.sub:3.", [4]),
        ("field:sub", [3, 4]),
        ("a.b.c=true", [7]),
        ("a.b.d=true", []),
    ],
)
def test_a_field_within_a_field(tmp_path: Path, text: str, lines: list[int]) -> None:
    assert wanted(part_of(tmp_path / "log", RECORDS), text) == lines


@pytest.mark.parametrize(
    ("text", "at", "end", "words"),
    [
        ("level>=wrning", 7, 13, "no such level; did you mean warning?"),
        ("x level:zz", 8, 10, "no such level; there are debug, info, warning, error, critical"),
        ("agent:", 0, 6, 'a value is missing; to find it as text: "agent:"'),
        ('a "never', 2, 8, "the quotation mark is never closed"),
        ("(a b", 0, 1, "this bracket is never closed"),
        ("a b)", 3, 4, "this bracket has no opening bracket"),
        ("()", 1, 2, "there is nothing in here"),
        ("a OR", 4, 5, "OR needs something on both sides"),
        ("OR a", 0, 2, "OR needs something on both sides"),
        ("n>many", 2, 6, "> compares numbers"),
        ("levl>=warn", 6, 10, ">= compares numbers; did you mean level?"),
        ("time>noon", 5, 9, "> compares numbers or times such as 14:02 and 2026-06-01T14:02"),
        ("message~a(b", 11, 12, "regex: missing )"),
        ('m~"a[b"', 5, 6, "regex: unterminated character set"),
        ("a -", 2, 3, "what should be left out?"),
        ("~", 0, 1, "a value is missing"),
    ],
)
def test_a_mistake_says_what_and_where(text: str, at: int, end: int, words: str) -> None:
    with pytest.raises(FilterMistake) as caught:
        read_filter(text)
    assert words in str(caught.value)
    assert at - 1 <= caught.value.at <= at
    assert caught.value.at < caught.value.end <= max(end, at + 1)


def test_what_has_no_end_is_refused() -> None:
    with pytest.raises(FilterMistake, match="at most 2000 characters"):
        read_filter("x" * 2_001)
    with pytest.raises(FilterMistake, match=f"{MAX_DEPTH} deep at most"):
        read_filter("-" * (MAX_DEPTH + 1) + "x")
    assert read_filter("(" * (MAX_DEPTH - 1) + "x" + ")" * (MAX_DEPTH - 1)) is not None


@given(st.text(max_size=60))
def test_any_text_is_read_or_told_to_be_wrong_where_it_is(text: str) -> None:
    try:
        read_filter(text)
    except FilterMistake as mistake:
        assert 0 <= mistake.at < mistake.end <= len(text) + 1, (mistake.at, mistake.end)
        assert str(mistake)


words = st.text('abAB 0.\\"é:-(', min_size=1, max_size=6).filter(str.strip)


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


@pytest.mark.slow
@given(st.lists(words, min_size=1, max_size=12), words, st.sampled_from([":", "="]))
def test_a_field_is_found_as_json_reads_it(
    tmp_path_factory: pytest.TempPathFactory, values: list[str], text: str, sign: str
) -> None:
    path = tmp_path_factory.mktemp("field") / "log"
    part = part_of(path, [{"k": value} for value in values], ascii_only=len(values) % 2 == 0)
    same = operator.eq if sign == "=" else operator.contains

    def holds(value: str) -> bool:
        if same(value.casefold(), text.casefold()):
            return True
        try:
            return sign == "=" and float(value) == float(text)
        except ValueError:
            return False

    found = wanted(part, f"k{sign}{quoted(text)}")
    part.file.close()
    assert found == [number for number, value in enumerate(values) if holds(value)]


@pytest.mark.slow
@given(st.lists(st.integers(0, 3), min_size=1, max_size=300), st.integers(0, 3))
def test_many_hits_and_few_are_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[int], kind: int
) -> None:
    lines: list[dict[str, Any] | str] = [{"message": f"kind{each} "} for each in kinds]
    part = part_of(tmp_path_factory.mktemp("many") / "log", lines)
    expected = [number for number, each in enumerate(kinds) if each == kind]
    for text in (f"kind{kind}", f"message:kind{kind}", f"~kind{kind}", f"-(-kind{kind})"):
        assert wanted(part, text) == expected
    part.file.close()


def test_a_regex_never_finds_what_goes_over_two_lines(tmp_path: Path) -> None:
    part = part_of(tmp_path / "log", ["one two", "three one", "two one two", "end"])
    assert wanted(part, r"~one\s+two") == [0, 2]
    assert wanted(part, "~one$") == [1]
    assert wanted(part, "~^three") == [1]
    assert wanted(part, r"~[\s\S]*end") == [3]


@pytest.mark.slow
def test_a_regex_that_never_ends_is_given_up(tmp_path: Path) -> None:
    line = "a" * 40 + "c"
    few = part_of(tmp_path / "few", [line, "aab", *["x"] * 40])
    outcome = find(few, LogQuery(text="~^(a|aa)+b$"))
    assert (list(outcome.found), outcome.slow, outcome.trouble) == ([1], 1, "")
    many = part_of(tmp_path / "many", [line] * 60)
    assert "make it simpler" in find(many, LogQuery(text="~^(a|aa)+b$")).trouble


def test_a_line_of_a_truncated_file_holds_nothing(tmp_path: Path) -> None:
    part = part_of(tmp_path / "log", RECORDS)
    (tmp_path / "log").write_bytes(b"")
    for text in ("research", "agent:research", "~research", "n>1"):
        assert wanted(part, text) == []
    assert LogChunk(part).data == b""
