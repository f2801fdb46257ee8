"""Parse the request of a chat completion into the facts that rules test."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pallas.bounds.picture_header import PictureHeader, picture_of

Last = Literal["user", "tool"]


class BadRequest(Exception):
    """The request is not one; the message says what is wrong and lists the allowed values."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool; ``tool`` is empty when no call of that id is in the conversation."""

    tool: str
    text: str


@dataclass(frozen=True, slots=True)
class ScriptedConversation:
    """The conversation that the model received.

    ``last`` tells whether the newest entry is a user's message or tool results; ``results`` are those newest
    results, in order, empty when a user's message is newest. ``images`` counts the pictures of the last user
    message, ``picture`` is the last one sent in any message. ``calls`` counts the tool calls so far,
    ``characters`` all text.
    """

    model: str
    system: str
    users: tuple[str, ...]
    last: Last
    results: tuple[ToolResult, ...]
    images: int
    picture: PictureHeader | None
    calls: int
    characters: int
    stream: bool
    include_usage: bool

    @property
    def user(self) -> str:
        """The last user message."""
        return self.users[-1] if self.users else ""

    @property
    def first(self) -> str:
        """The first user message."""
        return self.users[0] if self.users else ""

    @property
    def result(self) -> str:
        """The newest tool results, joined."""
        return "\n\n".join(result.text for result in self.results)

    @property
    def newest(self) -> str:
        """What ``text`` and ``regex`` test: the tool results when they are last, else the user's text."""
        return self.result if self.last == "tool" else self.user


def read_conversation(body: Any) -> ScriptedConversation:
    """The conversation in a request's body. Raises BadRequest."""
    if not isinstance(body, Mapping):
        raise BadRequest("the body is not a JSON object")
    messages = body.get("messages")
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise BadRequest("messages is missing or empty; send a list of {role, content}")
    reader = _Reader()
    for number, message in enumerate(messages):
        reader.add(message, f"messages[{number}]")
    options = body.get("stream_options")
    tools = body.get("tools")
    return ScriptedConversation(
        model=str(body.get("model") or ""),
        system="\n".join(reader.system),
        users=tuple(reader.users),
        last="tool" if reader.results else "user",
        results=tuple(reader.results),
        images=reader.images,
        picture=picture_of(reader.picture) if reader.picture else None,
        calls=len(reader.tools),
        characters=reader.characters + (len(str(tools)) if tools else 0),
        stream=body.get("stream") is True,
        include_usage=isinstance(options, Mapping) and options.get("include_usage") is True,
    )


class _Reader:
    """Goes through the messages once, oldest first."""

    def __init__(self) -> None:
        self.system: list[str] = []
        self.users: list[str] = []
        self.results: list[ToolResult] = []
        self.tools: dict[str, str] = {}
        self.images = 0
        self.picture = ""
        self.characters = 0

    def add(self, message: Any, where: str) -> None:
        if not isinstance(message, Mapping):
            raise BadRequest(f"{where} is not an object with role and content")
        texts, images = _content(message.get("content"), where)
        text = "\n".join(texts)
        self.characters += len(text)
        if images:
            self.picture = images[-1]
        match message.get("role"):
            case "system" | "developer":
                self.system.append(text)
            case "user":
                self._user(text, len(images))
            case "tool" | "function":
                tool = self.tools.get(str(message.get("tool_call_id")), "")
                self.results.append(ToolResult(tool or str(message.get("name") or ""), text))
            case "assistant":
                self.results.clear()
                self._calls(message.get("tool_calls"))
            case other:
                raise BadRequest(
                    f"{where}.role is {str(other)[:40]!r}; allowed: system, developer, user, assistant, tool"
                )

    def _user(self, text: str, images: int) -> None:
        # A picture among a tool's results travels as a user message of its own, without words.
        if self.results and images and not text.strip():
            return
        self.results.clear()
        self.users.append(text)
        self.images = images

    def _calls(self, calls: Any) -> None:
        for call in calls if isinstance(calls, Sequence) else ():
            function = call.get("function") if isinstance(call, Mapping) else None
            if isinstance(function, Mapping):
                self.tools[str(call.get("id"))] = str(function.get("name") or "")
                self.characters += len(str(function.get("arguments") or ""))


def _content(content: Any, where: str) -> tuple[list[str], list[str]]:
    """Texts and image URLs of a message's content."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [content], []
    if not isinstance(content, Sequence):
        raise BadRequest(f"{where}.content is neither text nor a list of parts")
    texts: list[str] = []
    images: list[str] = []
    for part in content:
        if not isinstance(part, Mapping):
            raise BadRequest(f"{where}.content holds a part that is not an object")
        if isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif part.get("type") == "image_url":
            image = part.get("image_url")
            images.append(str(image.get("url") if isinstance(image, Mapping) else image))
    return texts, images
