"""The tokens of pictures, by the formulas that providers publish.

OpenAI: https://platform.openai.com/docs/guides/images-vision#calculating-costs
Anthropic: https://docs.anthropic.com/en/docs/build-with-claude/vision
Google: https://ai.google.dev/gemini-api/docs/tokens
"""

from math import ceil, sqrt
from typing import Final

from .token_estimate import IMAGE_TOKENS

_ANTHROPIC_EDGE: Final = 1_568
"""Longest edge that models of Anthropic see; larger pictures are made smaller."""
_ANTHROPIC_MOST: Final = 1_600
_PIXELS_A_TOKEN: Final = 750
_GOOGLE_SMALL: Final = 384
_GOOGLE_TILE: Final = 258
_OPENAI: Final = frozenset({"openai", "responses", "azure", "codexresponses"})
_OPENAI_EDGE: Final = 2_048
_OPENAI_SHORT: Final = 768
_OPENAI_TILE: Final = 512
_PATCH: Final = 32
_MOST_PATCHES: Final = 1_536
# By the beginnings of names, the most exact first: patches with a factor, else a base and tokens of a tile.
_PATCHED: Final = (
    ("gpt-4.1-mini", 1.62),
    ("gpt-4.1-nano", 2.46),
    ("gpt-5-mini", 1.62),
    ("gpt-5-nano", 2.46),
    ("o4-mini", 1.72),
)
_TILED: Final = (("gpt-4o-mini", 2_833, 5_667), ("gpt-5", 70, 140), ("o1", 75, 150), ("o3", 75, 150))
_TILED_ELSE: Final = (85, 170)


def image_tokens(provider: str, model: str, width: int, height: int, *, is_low: bool = False) -> int:
    """The tokens of a picture of so many pixels; a constant if its size or the provider's formula is unknown.

    ``provider`` is fast-agent's name. ``is_low``: it is sent with OpenAI's ``detail: low``.
    """
    if width <= 0 or height <= 0:
        return IMAGE_TOKENS
    name = model.rpartition("/")[2].removeprefix("anthropic.")
    if provider.startswith("anthropic") or name.startswith("claude"):
        return _anthropic(width, height)
    if provider.startswith("google") or name.startswith("gemini"):
        return _google(width, height)
    if provider in ("openai", "responses", "azure", "codexresponses") or name.startswith(
        ("gpt-", "o1", "o3")
    ):
        return _openai(name, width, height, is_low=is_low)
    return IMAGE_TOKENS


def _anthropic(width: int, height: int) -> int:
    scale = min(1.0, _ANTHROPIC_EDGE / max(width, height))
    return min(_ANTHROPIC_MOST, ceil(width * scale * height * scale / _PIXELS_A_TOKEN))


def _google(width: int, height: int) -> int:
    if max(width, height) <= _GOOGLE_SMALL:
        return _GOOGLE_TILE
    unit = max(1, int(min(width, height) / 1.5))
    return ceil(width / unit) * ceil(height / unit) * _GOOGLE_TILE


def _openai(name: str, width: int, height: int, *, is_low: bool) -> int:
    factor = next((each for start, each in _PATCHED if name.startswith(start)), None)
    if factor is not None:
        return ceil(_patches(width, height) * factor)
    known = next(((base, tile) for start, base, tile in _TILED if name.startswith(start)), _TILED_ELSE)
    base, tile = known
    if is_low:
        return base
    fits = min(1.0, _OPENAI_EDGE / max(width, height))
    width, height = max(1, round(width * fits)), max(1, round(height * fits))
    short = min(1.0, _OPENAI_SHORT / min(width, height))
    wide, high = ceil(round(width * short) / _OPENAI_TILE), ceil(round(height * short) / _OPENAI_TILE)
    return base + tile * wide * high


def _patches(width: int, height: int) -> int:
    patches = ceil(width / _PATCH) * ceil(height / _PATCH)
    if patches <= _MOST_PATCHES:
        return patches
    scale = sqrt(_PATCH * _PATCH * _MOST_PATCHES / (width * height))
    wide, high = width * scale / _PATCH, height * scale / _PATCH
    scale *= min(int(wide) / wide, int(high) / high) if min(wide, high) >= 1 else 1.0
    return min(_MOST_PATCHES, ceil(width * scale / _PATCH) * ceil(height * scale / _PATCH))
