"""How MCP clients are configured with a server, each in its own file and format.

Formats as the programs document them: mcp-remote for those that only start programs, `${VAR}` in .mcp.json,
`${env:VAR}` in Cursor, inputs in VS Code, `bearer_token_env_var` in Codex, `httpUrl` in the Gemini CLI.
"""

import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

TOKEN: Final = "PALLAS_TOKEN"
_INPUT: Final = "pallas-token"
_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")
_ODD: Final = re.compile(r"[^A-Za-z0-9_-]+")


@dataclass(frozen=True, slots=True)
class ServerEntry:
    """One MCP server. ``token``: callers need one. ``seconds`` is how long a run may take.

    ``command`` is a program that the client starts and speaks with on stdin and stdout, in place of ``url``;
    it finds the token in its environment.
    """

    name: str
    url: str
    token: bool = False
    seconds: int = 1800
    command: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """A name that every client accepts: it begins with a letter and has no dots."""
        plain = _ODD.sub("-", self.name).strip("-")
        return plain if plain[:1].isalpha() else f"agent-{plain}"


@dataclass(frozen=True, slots=True)
class McpClientFormat:
    """``text`` is the whole snippet; ``words`` say where it goes and what else to do."""

    title: str
    text: Callable[[Sequence[ServerEntry]], str]
    words: Callable[[Sequence[ServerEntry]], list[str]]


def _json(body: Mapping[str, Any]) -> str:
    return json.dumps(body, indent=2, ensure_ascii=False)


def _servers(entry: Callable[[ServerEntry], dict[str, Any]]) -> Callable[[Sequence[ServerEntry]], str]:
    return lambda targets: _json({"mcpServers": {target.key: entry(target) for target in targets}})


def _bearer(target: ServerEntry, variable: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {variable}"}} if target.token else {}


def _started(target: ServerEntry, variable: str) -> dict[str, Any]:
    """Return an entry for a program that the client starts, with the token as its only variable."""
    program, *arguments = target.command
    given = {"env": {TOKEN: variable}} if target.token else {}
    return {"command": program, "args": arguments, **given}


def _http(variable: str, **more: Any) -> Callable[[ServerEntry], dict[str, Any]]:
    def entry(target: ServerEntry) -> dict[str, Any]:
        if target.command:
            return {"type": "stdio", **_started(target, variable)}
        return {"type": "http", "url": target.url, **_bearer(target, variable), **more}

    return entry


def _bridged(target: ServerEntry) -> dict[str, Any]:
    """Return an entry through mcp-remote, for a client that can only start programs."""
    if target.command:
        return _started(target, f"${{{TOKEN}}}")
    parts = urlsplit(target.url)
    arguments = ["-y", "mcp-remote", target.url, "--transport", "http-only"]
    # It accepts plain HTTP only from this machine, unless an option allows more.
    if parts.scheme == "http" and parts.hostname not in ("localhost", "127.0.0.1"):
        arguments.append("--allow-http")
    entry: dict[str, Any] = {"command": "npx", "args": arguments}
    if target.token:
        # No space in an argument: some programs would split it there. mcp-remote fills the variable in.
        arguments += ["--header", "Authorization:${PALLAS_AUTHORIZATION}"]
        entry["env"] = {"PALLAS_AUTHORIZATION": f"Bearer ${{{TOKEN}}}"}
    return entry


def _vscode(targets: Sequence[ServerEntry]) -> str:
    body: dict[str, Any] = {}
    if any(target.token for target in targets):
        asked = {"type": "promptString", "id": _INPUT, "description": "Token for Pallas", "password": True}
        body["inputs"] = [asked]
    entry = _http(f"${{input:{_INPUT}}}")
    return _json({**body, "servers": {target.key: entry(target) for target in targets}})


def _codex(targets: Sequence[ServerEntry]) -> str:
    blocks = []
    for target in targets:
        lines = [f"[mcp_servers.{target.key if _BARE.fullmatch(target.key) else json.dumps(target.key)}]"]
        if target.command:
            lines.append(f"command = {json.dumps(target.command[0])}")
            lines.append(f"args = {json.dumps(list(target.command[1:]))}")
        else:
            lines.append(f"url = {json.dumps(target.url)}")
        if target.token:
            lines.append(f'env_vars = ["{TOKEN}"]' if target.command else f'bearer_token_env_var = "{TOKEN}"')
        # The default timeout for a tool is one minute.
        lines.append(f"tool_timeout_sec = {target.seconds}")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _gemini(target: ServerEntry) -> dict[str, Any]:
    variable = f"${{{TOKEN}}}"
    if target.command:
        return {**_started(target, variable), "timeout": target.seconds * 1000}
    return {"httpUrl": target.url, **_bearer(target, variable), "timeout": target.seconds * 1000}


def _cursor(target: ServerEntry) -> dict[str, Any]:
    variable = f"${{env:{TOKEN}}}"
    return _started(target, variable) if target.command else {"url": target.url, **_bearer(target, variable)}


def _said(*lines: str, token: str = f"export {TOKEN}=… before it is started") -> Callable[..., list[str]]:
    def words(targets: Sequence[ServerEntry]) -> list[str]:
        return [*lines, *([token] if any(target.token for target in targets) else [])]

    return words


def _desktop(targets: Sequence[ServerEntry]) -> list[str]:
    return _said(
        "add this to claude_desktop_config.json (Settings > Developer > Edit Config), beside the "
        "servers that it has; "
        "macOS: ~/Library/Application Support/Claude/, Windows: %APPDATA%\\Claude\\, "
        "Linux: ~/.config/Claude/",
        "restart Claude Desktop"
        if all(target.command for target in targets)
        else "needs Node.js: it starts mcp-remote with npx; restart Claude Desktop",
        token=f"replace ${{{TOKEN}}} by the token: Claude Desktop fills in no variables",
    )(targets)


def _code(targets: Sequence[ServerEntry]) -> list[str]:
    commands = [
        f"claude mcp add {target.key} -- {shlex.join(target.command)}"
        if target.command
        else f"claude mcp add --transport http {target.key} {target.url}"
        for target in targets
        if not target.token
    ]
    also = f"or: {commands[0]}" if commands else ""
    return [
        line for line in _said("goes into .mcp.json in the folder of your project", also)(targets) if line
    ]


def _inspector(targets: Sequence[ServerEntry]) -> list[str]:
    return _said(
        "goes into a file of its own, then: npx @modelcontextprotocol/inspector --config FILE"
        + (f" --server {targets[0].key}" if len(targets) == 1 else ""),
        token=f"replace ${{{TOKEN}}} by the token in the inspector, not into a file that others see",
    )(targets)


CLIENTS: Final[Mapping[str, McpClientFormat]] = {
    "generic": McpClientFormat(
        "any client",
        _servers(_http(f"${{{TOKEN}}}")),
        _said(
            "the usual form; --client NAME prints that of a certain program",
            token=f"replace ${{{TOKEN}}} by the token where the client fills in no variables",
        ),
    ),
    "claude-desktop": McpClientFormat("Claude Desktop", _servers(_bridged), _desktop),
    "claude-code": McpClientFormat("Claude Code", _servers(_http(f"${{{TOKEN}}}")), _code),
    "cursor": McpClientFormat(
        "Cursor",
        _servers(_cursor),
        _said("goes into .cursor/mcp.json of your project, or into ~/.cursor/mcp.json for all of them"),
    ),
    "vscode": McpClientFormat(
        "VS Code",
        _vscode,
        _said("goes into .vscode/mcp.json of your project", token="it asks for the token once, and keeps it"),
    ),
    "codex": McpClientFormat("Codex", _codex, _said("goes into ~/.codex/config.toml")),
    "gemini": McpClientFormat(
        "Gemini CLI",
        _servers(_gemini),
        _said("goes into ~/.gemini/settings.json, or .gemini/settings.json of your project"),
    ),
    "inspector": McpClientFormat(
        "MCP Inspector", _servers(_http(f"${{{TOKEN}}}", protocolEra="auto")), _inspector
    ),
}
