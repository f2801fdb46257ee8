"""Frames between a fleet and an agent's process: whole, bounded, and never waited for."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pallas.executors.ipc.channel import MAX_FRAME, Channel, ChannelBroken


@pytest.fixture
async def ends() -> AsyncIterator[tuple[Channel, Channel]]:
    pair = socket.socketpair()
    for each in pair:
        each.setblocking(False)
    one, other = await Channel.over(pair[0]), await Channel.over(pair[1])
    yield one, other
    one.close()
    other.close()


@pytest.fixture
async def raw() -> AsyncIterator[tuple[socket.socket, Channel]]:
    """A bare socket, and the channel at its other end."""
    mine, theirs = socket.socketpair()
    theirs.setblocking(False)
    channel = await Channel.over(theirs)
    yield mine, channel
    mine.close()
    channel.close()


async def test_frames_arrive_whole_and_in_order_in_both_directions(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    documents: list[Any] = [{"n": number, "text": "ü" * number * 1_000} for number in range(60)]
    documents.append({"big": "x" * 20_000_000})
    for sender, receiver in (ends, (other, one)):
        for document in documents:
            sender.send(document)
        async with asyncio.timeout(30):
            assert [await receiver.receive() for _ in documents] == documents
    one.close()
    assert await other.receive() is None


async def test_text_that_no_encoder_takes_is_made_visible(ends: tuple[Channel, Channel]) -> None:
    one, other = ends
    one.send({"text": "a\ud800b"})
    assert await other.receive() == {"text": "a\\ud800b"}


async def test_a_frame_that_is_too_large_is_neither_sent_nor_taken(
    raw: tuple[socket.socket, Channel],
) -> None:
    mine, channel = raw
    with pytest.raises(ChannelBroken, match="too many"):
        channel.send({"text": "x" * MAX_FRAME})
    mine.sendall((MAX_FRAME + 1).to_bytes(4, "big"))
    with pytest.raises(ChannelBroken, match="was announced"):
        await channel.receive()


async def test_what_is_no_json_breaks_the_channel(raw: tuple[socket.socket, Channel]) -> None:
    mine, channel = raw
    mine.sendall((3).to_bytes(4, "big") + b"{]}")
    with pytest.raises(ChannelBroken, match="not JSON"):
        await channel.receive()


async def test_half_a_frame_is_an_end(raw: tuple[socket.socket, Channel]) -> None:
    mine, channel = raw
    mine.sendall((100).to_bytes(4, "big") + b"{")
    mine.close()
    assert await channel.receive() is None


async def test_what_arrived_before_a_reset_is_received(raw: tuple[socket.socket, Channel]) -> None:
    mine, channel = raw
    channel.send("not read there")
    for last in (b"1", b"2"):
        mine.sendall((1).to_bytes(4, "big") + last)
    mine.close()
    async with asyncio.timeout(30):
        with pytest.raises(ConnectionError):
            while True:  # until the reset is noticed
                await channel.room()
                await asyncio.sleep(0)
        assert [await channel.receive() for _ in range(3)] == [1, 2, None]


async def test_where_nobody_reads_what_may_be_lost_is_and_the_rest_waits_for_room(
    ends: tuple[Channel, Channel],
) -> None:
    one, other = ends
    piece = {"text": "x" * 1_000_000}
    for _ in range(12):
        one.send(piece)
    for _ in range(5):
        one.send({"log": "x"}, may_be_lost=True)
    one.send({"result": "kept"})
    assert one.lost == 5
    room = asyncio.create_task(one.room())
    async with asyncio.timeout(30):
        for _ in range(12):
            assert await other.receive() == piece
        assert await other.receive() == {"result": "kept"}
        await room
    one.send({"log": "y"}, may_be_lost=True)
    assert await other.receive() == {"log": "y"}
    with pytest.raises(ChannelBroken, match="that wait"):
        for _ in range(300):
            one.send(piece)
