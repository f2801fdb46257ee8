"""What is made of odd content: of calls, of prompts and of resources."""

from typing import Any

import pytest
from support.sdk_answers import HANDSHAKE, MODERN, usable, whole

both_eras = pytest.mark.parametrize("version", [HANDSHAKE, MODERN])


def called(version: str = HANDSHAKE, **keys: Any) -> tuple[dict[str, Any], list[str]]:
    return usable("tools/call", {"resultType": "complete", **keys} if version == MODERN else keys, version)


def text(value: str) -> dict[str, str]:
    return {"type": "text", "text": value}


IMAGE = {"type": "image", "data": "AAAA", "mimeType": "image/png"}
RESOURCE = {"uri": "mem://a", "mimeType": "text/plain", "text": "one"}
BLOCKS: list[tuple[Any, Any]] = [
    ("one", text("one")),
    (None, text("null")),
    (5, text("5")),
    ([1], text("[1]")),
    ({"text": "one"}, text("one")),
    ({"type": "text", "text": {"a": 1}}, text('{"a": 1}')),
    (
        {"type": "text", "text": None},
        text("[Left out: content of the type 'text'; its text should be a valid string]"),
    ),
    (
        {"type": "text", "value": "one"},
        text('[Left out: content of the type \'text\'; it has no text]\n{"value": "one"}'),
    ),
    ({**text("one"), "annotations": {"priority": 7}}, {**text("one"), "annotations": {}}),
    ({**text("one"), "annotations": "x", "_meta": 5}, text("one")),
    ({"data": "AAAA", "mimeType": "image/png"}, IMAGE),
    (
        {"type": "image", "data": "AAAA"},
        text("[Left out: content of the type 'image'; it has no mimeType; 3 bytes]"),
    ),
    (
        {"type": "image", "mimeType": "image/png"},
        text("[Left out: content of the type 'image'; it has no data; image/png]"),
    ),
    (
        {"type": "audio", "data": 5, "mimeType": "a/b"},
        text("[Left out: content of the type 'audio'; its data should be a valid string; a/b]"),
    ),
    (
        {
            "type": "hologram",
            "name": "h",
            "uri": "mem://h",
            "mimeType": "x/h",
            "size": 1234,
            "description": "A\nship",
        },
        text("[Left out: content of the type 'hologram'; h; mem://h; x/h; 1,234 bytes; A]"),
    ),
    ({"type": "markdown", "text": "# one"}, text("[Left out: content of the type 'markdown']\n# one")),
    (
        {"type": "json", "json": {"a": 1}},
        text('[Left out: content of the type \'json\']\n{"json": {"a": 1}}'),
    ),
    (
        {"type": "rows", "rows": ["x" * 5_000]},
        text("[Left out: content of the type 'rows']\n[5,014 characters of rows]"),
    ),
    ({}, text("[Left out: content without a type]")),
    ({"type": 5, "text": "one"}, text("one")),
    (
        {"type": "resource", "resource": {**RESOURCE, "mimeType": 5}},
        {"type": "resource", "resource": {"uri": "mem://a", "text": "one"}},
    ),
    (
        {"type": "resource", "resource": {**RESOURCE, "text": [1]}},
        {"type": "resource", "resource": {**RESOURCE, "text": "[1]"}},
    ),
    (
        {"type": "resource", **RESOURCE},
        {"type": "resource", **RESOURCE, "resource": RESOURCE},
    ),
    ({"type": "resource", "resource": {"text": "one"}}, text("one")),
    (
        {"type": "resource", "resource": {"uri": "mem://a", "text": None}},
        text("[Left out: content of the type 'resource'; its text should be a valid string; mem://a]"),
    ),
    (
        {"type": "resource", "resource": {"blob": "AAAA", "mimeType": "a/b"}},
        text("[Left out: content of the type 'resource'; it has no uri; a/b; 3 bytes]"),
    ),
    (
        {"type": "resource_link", "uri": "mem://a"},
        {"type": "resource_link", "uri": "mem://a", "name": "mem://a"},
    ),
    (
        {"type": "resource_link", "name": "a", "description": "b"},
        text("[Left out: content of the type 'resource_link'; it has no uri; a; b]"),
    ),
]


@both_eras
@pytest.mark.parametrize(("block", "made"), BLOCKS)
def test_a_block_that_does_not_fit_is_named_and_the_others_stay(block: Any, made: Any, version: str) -> None:
    result, found = called(version, content=[text("before"), block, IMAGE])
    first, shown, last = result["content"]
    if "type" in shown or block != shown:  # the SDK knows a block without a type itself, in the newer version
        assert shown == made and found and all(each.startswith("content 2: ") for each in found)
    assert (first, last) == (text("before"), IMAGE)


@both_eras
@pytest.mark.parametrize(
    ("keys", "content", "failed"),
    [
        ({"content": "one"}, ["one"], None),
        ({"content": text("one")}, ["one"], None),
        ({"content": None}, [], None),
        ({}, [], None),
        ({"structuredContent": {"a": 1}}, [], None),
        ({"output": "one"}, ["one"], None),
        ({"error": "one"}, ["one"], True),
        ({"toolResult": {"a": 1}, "code": 2}, ['{"toolResult": {"a": 1}, "code": 2}'], None),
        ({"content": [text("one")], "isError": "true"}, ["one"], "true"),
        ({"content": [text("one")], "isError": 1}, ["one"], 1),
        ({"content": [text("one")], "isError": None}, ["one"], False),
        ({"content": [text("one")], "isError": ""}, ["one"], False),
        ({"content": [text("one")], "isError": 7}, ["one"], True),
        ({"content": [text("one")], "isError": "not found"}, ["one", "not found"], True),
        ({"content": [], "isError": {"code": 5}}, ['{"code": 5}'], True),
    ],
)
def test_content_and_failure_of_a_wrong_type(
    keys: dict[str, Any], content: list[str], failed: Any, version: str
) -> None:
    made, _ = called(version, **keys)
    assert [each["text"] for each in made["content"]] == content
    assert made.get("isError") == failed


@pytest.mark.parametrize(
    ("value", "said", "texts"),
    [
        ([1, 2], [], ["[1, 2]"]),
        ("one", [text("one")], ["one"]),
        ([1], [text("[1]")], ["[1]"]),
        (7, [text("one")], ["one", "7"]),
        ({"a": 1}, [text("one")], ["one"]),
    ],
)
def test_structured_content_that_is_no_object_is_text_where_the_version_has_none(
    value: Any, said: list[Any], texts: list[str]
) -> None:
    made, _ = called(content=said, structuredContent=value)
    assert [each["text"] for each in made["content"]] == texts
    assert ("structuredContent" in made) == isinstance(value, dict)
    assert called(MODERN, content=said, structuredContent=value)[0]["structuredContent"] == value


@both_eras
def test_messages_of_a_prompt_are_made_of_what_is_there(version: str) -> None:
    messages = [
        {"role": "assistant", "content": "one"},
        {"role": "system", "content": text("two")},
        {"role": "user", "content": [text("three"), {"type": "x"}]},
        "four",
        {"content": None},
    ]
    raw = {"description": 5, "messages": messages, "resultType": "complete"}
    made, found = usable("prompts/get", raw, version)
    assert "description" not in made
    assert [(each["role"], each["content"]["text"]) for each in made["messages"]] == [
        ("assistant", "one"),
        ("user", "two"),
        ("user", "three"),
        ("user", "[Left out: content of the type 'x']"),
        ("user", "four"),
        ("user", "null"),
    ]
    assert 'content 2: its role is "system"; it is taken as the user\'s' in found
    for odd, texts in ((None, []), ("one", ["one"]), ({"role": "user", "content": "one"}, ["one"])):
        made, found = usable("prompts/get", {"messages": odd, "resultType": "complete"}, version)
        assert [each["content"]["text"] for each in made["messages"]] == texts and found


@both_eras
def test_contents_of_a_resource_are_made_of_what_is_there(version: str) -> None:
    contents = [
        {"uri": "mem://a", "text": "one", "mimeType": 5},
        {"text": "two"},
        "three",
        {"uri": "mem://b", "text": None},
        {"uri": "mem://c", "blob": 5, "mimeType": "a/b"},
        {"uri": "mem://d", "text": {"a": 1}},
        {"uri": "mem://e", "blob": "AAAA"},
    ]
    made, found = usable("resources/read", whole(version, contents=contents), version)
    assert made["contents"] == [
        {"uri": "mem://a", "text": "one"},
        {"uri": "unknown:", "text": "two"},
        {"uri": "unknown:", "text": "three"},
        {
            "uri": "mem://b",
            "text": "[Left out: the contents of a resource; its text should be a valid string; mem://b]",
        },
        {
            "uri": "mem://c",
            "text": "[Left out: the contents of a resource; its blob should be a valid string; mem://c; a/b]",
        },
        {"uri": "mem://d", "text": '{"a": 1}'},
        {"uri": "mem://e", "blob": "AAAA"},
    ]
    assert len(found) == 6
