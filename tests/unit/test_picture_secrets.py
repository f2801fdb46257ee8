"""What is behind the end of a picture goes with its notes if it holds a secret."""

import base64
from io import BytesIO

import PIL.Image
import pytest

from pallas.model.picture_secrets import without_secrets

SECRET = "sk-proj-canary0123456789abcdefghijklmnop"


def picture_of(kind: str, **more: object) -> bytes:
    buffer = BytesIO()
    PIL.Image.effect_noise((40, 30), 60).convert("RGB").save(buffer, kind, **more)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("PNG", {}),
        ("JPEG", {}),
        ("JPEG", {"progressive": True}),
        ("WEBP", {}),
        ("WEBP", {"exif": b"MM\0*"}),
        ("GIF", {}),
    ],
)
def test_a_secret_behind_the_end_of_a_picture_is_taken_out(kind: str, more: dict[str, object]) -> None:
    picture = picture_of(kind, **more)
    for text, left in ((f"key {SECRET}", picture), ("Taken in May", picture + b"Taken in May")):
        given = base64.b64encode(picture + text.encode()).decode()
        kept = base64.b64decode(without_secrets(given))
        if kind == "WEBP" and more and left == picture:
            assert SECRET.encode() not in kept  # its EXIF is gone too
        else:
            assert kept == left
        assert PIL.Image.open(BytesIO(kept)).tobytes() == PIL.Image.open(BytesIO(picture)).tobytes()


def test_a_comment_between_the_scans_of_a_photo_is_a_note() -> None:
    photo = picture_of("JPEG", progressive=True)
    at = photo.rindex(b"\xff\xda")
    comment = f"key {SECRET}".encode()
    told = photo[:at] + b"\xff\xfe" + (len(comment) + 2).to_bytes(2, "big") + comment + photo[at:]
    assert base64.b64decode(without_secrets(base64.b64encode(told).decode())) == photo
