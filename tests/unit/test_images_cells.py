"""Pictures as cells: bounded, whatever is in the file."""

import tracemalloc
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image
from support.pictures import bomb, hostile, picture

from pallas_tui.pictures.cells import MOST_PIXELS, Unreadable, decode, draw, fit, measure

BLACK = (0, 0, 0)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP", "GIF"])
def test_every_kind_that_is_sent_is_drawn(kind: str) -> None:
    data = picture(kind)
    assert measure(data) == (64, 48)
    drawn = draw(data, 40, 12, BLACK)
    assert (drawn.columns, len(drawn.strips)) == (32, 12)
    assert {strip.cell_length for strip in drawn.strips} == {32}
    first, *_, last = drawn.strips[5]
    assert first.text[0] == last.text[-1] == "▀"
    assert first.style is not None and last.style is not None
    left, right = first.style.color, last.style.color
    assert left is not None and left.triplet is not None and left.triplet.red > 150 > left.triplet.blue
    assert right is not None and right.triplet is not None and right.triplet.blue > 150 > right.triplet.red


@pytest.mark.parametrize("mode", ["1", "P", "L", "LA", "I;16", "RGBA"])
def test_a_large_picture_of_any_kind_of_colours_is_drawn_small(mode: str) -> None:
    buffer = BytesIO()
    if mode == "I;16":
        Image.new(mode, (900, 700), 40_000).save(buffer, "PNG")
    else:
        Image.open(BytesIO(picture(size=(900, 700)))).convert(mode).save(buffer, "PNG")
    drawn = draw(buffer.getvalue(), 36, 11, BLACK)
    assert (drawn.columns, len(drawn.strips)) == (28, 11)


def test_the_pictures_of_the_sample_project_are_drawn() -> None:
    for path in (Path(__file__).parents[2] / "sample_project" / "pictures").glob("*.png"):
        assert draw(path.read_bytes(), 24, 6, BLACK).strips, path.name


def test_ascii_draws_with_spaces_only() -> None:
    drawn = draw(picture(), 40, 12, BLACK, ascii_only=True)
    assert {character for strip in drawn.strips for character in strip.text} == {" "}
    assert len(drawn.strips) == 12


@pytest.mark.parametrize(
    ("pixels", "cells"),
    [
        ((64, 48), (32, 12)),
        ((16, 16), (16, 8)),
        ((10_000, 1), (40, 1)),
        ((1, 10_000), (1, 12)),
        ((0, 0), (1, 1)),
        ((4000, 3000), (32, 12)),
    ],
)
def test_a_picture_fits_and_is_never_enlarged(pixels: tuple[int, int], cells: tuple[int, int]) -> None:
    assert fit(pixels, 40, 12) == cells


@pytest.mark.parametrize("what", hostile())
def test_what_is_broken_is_told_and_never_raised_as_something_else(what: str) -> None:
    data = hostile()[what]
    assert len(measure(data)) == 2
    try:
        draw(data, 40, 12, BLACK)
    except Unreadable as reason:
        assert str(reason)


def test_a_small_file_cannot_unpack_to_a_huge_picture() -> None:
    data = bomb(9_000, 9_000)
    assert len(data) < 10_000 < MOST_PIXELS < 9_000 * 9_000
    tracemalloc.start()
    try:
        with pytest.raises(Unreadable, match="too many pixels to be shown: 9000 x 9000"):
            draw(data, 40, 12, BLACK)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["GIF", "WEBP"])
def test_of_one_that_moves_the_first_frame_is_shown(kind: str) -> None:
    drawn = draw(picture(kind, frames=4), 40, 12, BLACK)
    assert drawn.moving
    style = next(iter(drawn.strips[5])).style
    assert style is not None and style.color is not None and style.color.triplet is not None
    assert style.color.triplet.red > 150


def test_what_is_transparent_shows_the_ground() -> None:
    buffer = BytesIO()
    Image.new("RGBA", (8, 8), (255, 255, 255, 0)).save(buffer, "PNG")
    style = next(iter(draw(buffer.getvalue(), 8, 4, (10, 20, 30)).strips[0])).style
    assert style is not None and style.bgcolor is not None and style.bgcolor.triplet == (10, 20, 30)


def test_a_photograph_taken_sideways_stands_upright() -> None:
    image = Image.new("RGB", (80, 40), (200, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6
    buffer = BytesIO()
    image.save(buffer, "JPEG", exif=exif)
    assert measure(buffer.getvalue()) == (40, 80)
    assert decode(buffer.getvalue(), 80, 80)[0].size[1] > decode(buffer.getvalue(), 80, 80)[0].size[0]
