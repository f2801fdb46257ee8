"""Limits on messages and bodies of others, at their edges."""

import gzip
import zlib
from collections.abc import AsyncIterator, Iterable

import httpx2
import pytest

from pallas.bounds import MAX_ENTRIES, MAX_MESSAGE, MAX_NODES, MAX_PARTS, fleet_answer
from pallas.bounds.bodies import TooLarge, accept_bounded_encodings, bound
from pallas.bounds.message_nodes import too_many_nodes, too_many_parts
from pallas.model import Fault

EVENTS = {"content-type": "text/event-stream"}


class Chunks(httpx2.AsyncByteStream):
    """A body in these chunks."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = chunks

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for chunk in self._chunks:
            yield chunk


async def read(chunks: Iterable[bytes], headers: dict[str, str], **limits: int) -> bytes:
    """The body of an answer that is limited."""
    response = httpx2.Response(200, headers=headers, stream=Chunks(chunks))
    bound(response, **limits)
    return await response.aread()


@pytest.mark.parametrize("text", [str, str.encode])
def test_objects_and_arrays_are_counted_and_those_in_strings_are_not(text: type) -> None:
    assert too_many_nodes(text("[" + "{}," * (MAX_NODES - 1) + "]")) is None
    assert too_many_nodes(text("[" + "{}," * MAX_NODES + "]")) is not None
    assert too_many_nodes(text('["' + '{\\"[' * MAX_NODES + '"]')) is None
    assert too_many_nodes(text('["\\\\", ' + "[]," * MAX_NODES)) is not None


@pytest.mark.parametrize(
    ("key", "most"), [("content", MAX_PARTS), ("contents", MAX_PARTS), ("tools", MAX_ENTRIES)]
)
def test_parts_and_entries_of_a_result_are_counted(key: str, most: int) -> None:
    assert too_many_parts({key: [{}] * most}) is None
    assert f"{most:,} are taken" in (too_many_parts({key: [{}] * (most + 1)}) or "")


@pytest.mark.parametrize("pack", [gzip.compress, zlib.compress])
async def test_packed_bodies_are_unfolded_in_whole(pack: type) -> None:
    encoding = {"content-encoding": "gzip" if pack is gzip.compress else "deflate"}
    data = bytes(range(256)) * 8_000
    packed = bytes(pack(data))
    assert await read((packed[i : i + 7] for i in range(0, len(packed), 7)), encoding) == data
    if pack is gzip.compress:  # two members are one body
        assert await read([packed + packed], encoding) == data + data


async def test_a_body_may_have_its_limit_and_no_byte_more() -> None:
    assert len(await read([b"a" * MAX_MESSAGE], {})) == MAX_MESSAGE
    with pytest.raises(TooLarge, match="more than 16 MiB"):
        await read([b"a" * MAX_MESSAGE, b"a"], {})


async def test_a_line_of_a_stream_has_a_limit_and_so_has_the_whole() -> None:
    lines = [b"a" * 1_000 + b"\n"] * 100
    assert await read(lines, EVENTS, line=1_000) == b"".join(lines)
    with pytest.raises(TooLarge, match="a line"):
        await read([b"\n", b"a" * 900, b"a" * 900], EVENTS, line=1_000)
    with pytest.raises(TooLarge, match="decoded"):
        await read(lines, EVENTS, line=1_000, stream=50_000)


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip"])
async def test_encodings_that_were_not_asked_for_are_refused(encoding: str) -> None:
    with pytest.raises(TooLarge, match="gzip, deflate are accepted"):
        await read([b"x"], {"content-encoding": encoding})


async def test_what_is_no_gzip_is_refused() -> None:
    with pytest.raises(TooLarge, match="not encoded as its Content-Encoding header says"):
        await read([b"plain text"], {"content-encoding": "gzip"})


def test_only_what_can_be_limited_is_asked_for() -> None:
    request = httpx2.Request("GET", "http://localhost/", headers={"accept-encoding": "gzip, br, zstd"})
    accept_bounded_encodings(request)
    assert request.headers["accept-encoding"] == "gzip, deflate"


async def test_an_answer_of_a_fleet_is_read_as_far_as_its_limit() -> None:
    whole = b"x" * 2**20
    assert await fleet_answer.read_answer(httpx2.Response(200, content=whole), 2**20) == whole
    with pytest.raises(Fault, match="larger than 1 MiB"):
        await fleet_answer.read_answer(httpx2.Response(200, content=whole + b"x"), 2**20)
