"""A small fleet of a model and two typed handlers, to be talked to at a prompt."""

from pathlib import Path

from .live import agent_module
from .offline import offline_project

CODE = """
from dataclasses import dataclass

from pallas.contract import HandlerResponse


@dataclass
class Add:
    a: int
    b: int


@dataclass
class Sum:
    value: int


seen = []


async def add(payload, metadata):
    seen.append((metadata.thread_id, metadata.from_id))
    if payload.a < 0:
        return None
    return HandlerResponse(Sum(payload.a + payload.b), to=metadata.from_id)


async def fail(payload, metadata):
    raise ValueError("the reason stays here")
"""
SCRIPT = """
rules:
  - {when: {last: user}, say: "you said {{ last }}"}
"""


def project(root: Path) -> Path:
    """``desk`` is a model, ``add`` adds and has no answer for less than nothing, ``fail`` raises."""
    handler = {"module": None, "kind": "handler", "payload": "code_of:Add"}
    return offline_project(
        root,
        {"desk": agent_module("desk"), "add": None, "fail": None},
        SCRIPT,
        keys={
            "add": {**handler, "handler": "code_of:add", "description": "Adds two numbers"},
            "fail": {**handler, "handler": "code_of:fail"},
        },
        files={"code_of.py": CODE},
    )
