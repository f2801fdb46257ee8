"""Odd results of tools: the model must read what it can get, and a word about the rest."""

import base64
from random import Random
from typing import Any, Final

from .odd_servers import Faults, OddServer, short

RESULT_FAULTS: Final = Faults()
_PIXEL: Final = (
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
_FAILED: Final = r"fail|error|did not work"


def _text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


# What its tools answer.


@RESULT_FAULTS.kind("silent-failure")
def _silent_failure(server: OddServer, rng: Random) -> str:
    content = rng.choice([[], [_text("")], [_text(" \n")]])
    server.add_result(rng, {"content": content, "isError": True}, _FAILED)
    return short(content)


@RESULT_FAULTS.kind("files")
def _files(server: OddServer, rng: Random) -> str:
    kind, raw, reads = rng.choice(
        [
            ("text/csv", "a;17", ("a;17",)),
            ("application/json", '{"b": 18}', ("18",)),
            ("application/zip", "x" * 30, ("application/zip", "mem://odd/file")),
            ("text/plain; charset=utf-8", "größe", ("größe",)),
        ]
    )
    blob = base64.b64encode(raw.encode()).decode()
    block = {"type": "resource", "resource": {"uri": "mem://odd/file", "mimeType": kind, "blob": blob}}
    server.add_result(rng, {"content": [block]}, *reads)
    return kind


@RESULT_FAULTS.kind("broken-base64")
def _broken_base64(server: OddServer, rng: Random) -> str:
    broken = ["!!no base64!!", "abc", "größe", "AAAAA===", "", "\n \n", "data:image/png;base64,x"]
    data = rng.choice(broken)
    block: Any = rng.choice(
        [
            {"type": "image", "mimeType": "image/png", "data": data},
            {"type": "audio", "mimeType": "audio/wav", "data": data},
            {"type": "resource", "resource": {"uri": "mem://odd/file", "mimeType": "text/csv", "blob": data}},
            {"type": "resource", "resource": {"uri": "mem://odd/file", "blob": data}},
        ]
    )
    server.add_result(rng, {"content": [_text("beside it"), block]}, "beside it")
    return f"{block['type']} {short(data)}"


@RESULT_FAULTS.kind("resource-link")
def _resource_link(server: OddServer, rng: Random) -> str:
    link = {
        "type": "resource_link",
        "uri": "mem://odd/report",
        "name": "report",
        "mimeType": "application/x-report",
        "size": 1234,
        "description": "of the year",
    }
    beside = rng.choice([[], [_text("see there")]])
    reads = ["mem://odd/report", "application/x-report", "1,?234", "of the year"]
    server.add_result(rng, {"content": [*beside, link]}, *reads, *(["see there"] if beside else []))
    return "beside text" if beside else ""


@RESULT_FAULTS.kind("picture-and-text")
def _picture_and_text(server: OddServer, rng: Random) -> str:
    picture = {"type": "image", "mimeType": "image/png", "data": _PIXEL}
    content: Any = rng.choice([[_text("look there"), picture], [picture, _text("look there")]])
    server.add_result(rng, {"content": content}, "look there", r"image/png|\[picture\]")
    return f"{content[0]['type']} first"


@RESULT_FAULTS.kind("unknown-content")
def _unknown_content(server: OddServer, rng: Random) -> str:
    block: Any = rng.choice(
        [{"type": "video", "data": "eA==", "mimeType": "video/x-odd"}, {"type": "x-odd-chart", "points": [1]}]
    )
    server.add_result(rng, {"content": [_text("beside it"), block]}, "beside it", str(block["type"]))
    return str(block["type"])


@RESULT_FAULTS.kind("unfit-content")
def _unfit_content(server: OddServer, rng: Random) -> str:
    block: Any = rng.choice(
        [None, 5, "words", {"text": "no type"}, {"type": "text"}, {"type": "image", "data": 1}]
    )
    server.add_result(rng, {"content": [_text("beside it"), block]}, "beside it")
    return short(block)


@RESULT_FAULTS.kind("structured-and-text")
def _structured_and_text(server: OddServer, rng: Random) -> str:
    given: Any = rng.choice([{"rows": 4711}, {"list": [{"rows": 4711}]}])
    server.add_result(rng, {"content": [_text("two rows")], "structuredContent": given}, "two rows", "4711")
    return short(given)


@RESULT_FAULTS.kind("no-content")
def _no_content(server: OddServer, rng: Random) -> str:
    result: dict[str, Any] = rng.choice([{}, {"content": None}, {"content": []}, {"content": {}}])
    if rng.random() < 0.4:
        result = {**result, "structuredContent": {"rows": 4711}}
    server.add_result(rng, result, "4711" if "structuredContent" in result else ".")
    return short(result)


@RESULT_FAULTS.kind("text-as-content")
def _text_as_content(server: OddServer, rng: Random) -> str:
    result: Any = rng.choice([{"content": "just words"}, {"content": _text("just words")}])
    server.add_result(rng, result, "just words")
    return short(result)


@RESULT_FAULTS.kind("deep-result")
def _deep_result(server: OddServer, rng: Random) -> str:
    depth = rng.choice([30, 80])
    given: Any = 4711
    for _ in range(depth):
        given = {"in": given}
    server.add_result(rng, {"content": [_text("deep")], "structuredContent": given}, "deep", "4711")
    return str(depth)


@RESULT_FAULTS.kind("audio")
def _audio(server: OddServer, rng: Random) -> str:
    block: Any = {"type": "audio", "mimeType": rng.choice(["audio/wav", "audio/x-odd"]), "data": "UklGRg=="}
    server.add_result(rng, {"content": [_text("beside it"), block]}, "beside it", "audio/")
    return str(block["mimeType"])


@RESULT_FAULTS.kind("file-without-type")
def _file_without_type(server: OddServer, rng: Random) -> str:
    resource: dict[str, Any] = {"uri": rng.choice(["mem://odd/file", "odd file", ""]), "blob": "AAECAw=="}
    server.add_result(
        rng, {"content": [_text("beside it"), {"type": "resource", "resource": resource}]}, "4 bytes"
    )
    return short(resource["uri"])


@RESULT_FAULTS.kind("structured-failure")
def _structured_failure(server: OddServer, rng: Random) -> str:
    content = rng.choice([[], [_text("")], [_text("no such row")]])
    given: dict[str, Any] = {"content": content, "structuredContent": {"row": 4711}, "isError": True}
    reads = "no such row" if content and content[0]["text"] else "4711"
    server.add_result(rng, given, reads, "4711")
    return short(content)


@RESULT_FAULTS.kind("odd-flags")
def _odd_flags(server: OddServer, rng: Random) -> str:
    tool = server.add(rng)
    key, value = rng.choice(
        [
            ("isError", None),
            ("isError", "false"),
            ("_meta", []),
            ("_meta", None),
            ("_meta", "x"),
            ("_meta", 5),
        ]
    )
    tool.result[key] = value
    return f"{key} {short(value)}"


@RESULT_FAULTS.kind("odd-annotations")
def _odd_annotations(server: OddServer, rng: Random) -> str:
    tool = server.add(rng)
    value: Any = rng.choice([{"priority": 7}, {"audience": "user"}, [], "high", None, {"lastModified": 5}])
    tool.result["content"][0]["annotations"] = value
    return short(value)


@RESULT_FAULTS.kind("many-blocks")
def _many_blocks(server: OddServer, rng: Random) -> str:
    count = rng.choice([200, 1_000])
    blocks = [_text(f"part {number}") for number in range(count)]
    server.add_result(rng, {"content": blocks}, r"part 0\b", rf"part {count - 1}\b")
    return str(count)
