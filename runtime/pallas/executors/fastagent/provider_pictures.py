"""How closely a model is to look at the pictures of a request: OpenAI's models alone can be told."""

from typing import Any

from pallas.model import Params
from pallas.model.params import DETAILS


def look(messages: Any, params: Params, kind: str) -> None:
    """How closely the model is to look at the pictures in ``messages`` (``detail`` of SPEC 7.4)."""
    detail = params.get("extra", {}).get("detail")
    if detail not in DETAILS:
        return
    for message in messages or ():
        blocks = message.get("content") if isinstance(message, dict) else None
        for block in blocks if isinstance(blocks, list) else ():
            if isinstance(block, dict) and block.get("type") == kind:
                inner = block.get("image_url") if kind == "image_url" else block
                if isinstance(inner, dict):
                    inner["detail"] = detail
