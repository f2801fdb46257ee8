import os
from pathlib import Path
from urllib.parse import quote

import pytest

from pallas.model import Fault
from pallas_tui.pictures.images import (
    MAX_BYTES,
    complete_path,
    pasted_images,
    read_image,
    size_text,
    user_path,
)

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 100


@pytest.fixture
def png(tmp_path: Path) -> Path:
    path = tmp_path / "my picture.png"
    path.write_bytes(PNG)
    return path


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (PNG, "image/png"),
        (b"\xff\xd8\xff\xe0" + b"\0" * 20, "image/jpeg"),
        (b"GIF89a" + b"\0" * 20, "image/gif"),
        (b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 20, "image/webp"),
    ],
)
def test_the_kind_is_told_by_the_content_not_by_the_name(tmp_path: Path, data: bytes, kind: str) -> None:
    path = tmp_path / "picture.txt"
    path.write_bytes(data)
    attachment = read_image(path)
    assert attachment.mime_type == kind
    assert attachment.size == len(data)
    assert attachment.image.mime_type == kind


def test_text_with_a_picture_name_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.png"
    path.write_text("not a picture")
    with pytest.raises(Fault, match=r"notes\.png is not a PNG, JPEG, GIF or WebP"):
        read_image(path)


def test_a_file_above_the_limit_is_refused_without_being_read(tmp_path: Path) -> None:
    path = tmp_path / "huge.png"
    with path.open("wb") as file:
        file.write(PNG)
        file.truncate(200 * 1024 * 1024)
    with pytest.raises(Fault, match=r"209\.7 MB; at most 3\.0 MB"):
        read_image(path)


def test_all_pictures_of_a_message_share_the_limit(png: Path) -> None:
    read_image(png, taken=MAX_BYTES - len(PNG), count=3)
    with pytest.raises(Fault, match="already attached"):
        read_image(png, taken=MAX_BYTES - len(PNG) + 1, count=3)
    with pytest.raises(Fault, match="at most 20 images"):
        read_image(png, count=20)


def test_the_limit_fits_the_request_cap_as_base64() -> None:
    assert (MAX_BYTES + 2) // 3 * 4 + 64 * 1024 <= 4 * 1024 * 1024


def test_what_is_no_file_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(Fault, match="There is no file"):
        read_image(tmp_path / "nothing.png")
    with pytest.raises(Fault, match="is a folder"):
        read_image(tmp_path)
    (tmp_path / "empty.png").touch()
    with pytest.raises(Fault, match="is empty"):
        read_image(tmp_path / "empty.png")
    with pytest.raises(Fault, match="cannot be read"):
        read_image(tmp_path / "a\0b.png")


def test_a_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    with pytest.raises(Fault, match="not a plain file"):
        read_image(tmp_path / "pipe.png")


def test_a_name_from_outside_cannot_drive_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b[2J.png"
    path.write_bytes(PNG)
    assert "\x1b" not in read_image(path).name


def test_dropped_files_are_recognised_in_every_form(png: Path, tmp_path: Path) -> None:
    other = tmp_path / "b.jpg"
    other.write_bytes(PNG)
    escaped = str(png).replace(" ", "\\ ")
    for text in (
        str(png),
        f"'{png}'",
        f'"{png}"',
        escaped,
        f"file://{quote(str(png))}",
        f"  {png} \n",
    ):
        assert pasted_images(text) == (png,), text
    assert pasted_images(f"{escaped} {other}") == (png, other)
    assert pasted_images(f"'{png}'\n{other}\n") == (png, other)


def test_a_paste_that_is_not_only_image_files_stays_text(png: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    for text in (
        "",
        "hello",
        f"look at {png}",
        str(tmp_path / "missing.png"),
        str(tmp_path / "notes.txt"),
        str(tmp_path),
        "picture.png",
        "it's \"broken",
        "a\0b.png",
        "x" * 100_000,
    ):
        assert pasted_images(text) == (), text


def test_a_written_path_may_be_relative_quoted_or_in_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    assert user_path("a.png", tmp_path) == tmp_path / "a.png"
    assert user_path("'/x/a b.png'") == Path("/x/a b.png")
    assert user_path("~/a.png") == Path("/home/someone/a.png")
    assert user_path("file:///x/a%20b.png") == Path("/x/a b.png")


def test_a_path_is_completed_to_images_and_folders_only(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for name in ("plan.png", "plan.txt", ".hidden.png"):
        (tmp_path / name).touch()
    assert complete_path("pi", tmp_path) == "pictures/"
    assert complete_path("pla", tmp_path) == "plan.png"
    assert complete_path("plan.t", tmp_path) is None
    assert complete_path("", tmp_path) == "pictures/"
    assert complete_path(".h", tmp_path) == ".hidden.png"
    assert complete_path(f"{tmp_path}/pl") == f"{tmp_path}/plan.png"
    assert complete_path("no/such/folder", tmp_path) is None


def test_sizes_are_short() -> None:
    assert [size_text(n) for n in (12, 84_000, 2_900_000)] == ["12 B", "84 KB", "2.9 MB"]
