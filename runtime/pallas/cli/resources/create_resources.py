"""`pallas create`: create one thing from command-line options."""

import getpass
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .fleet_requests import OK, USAGE, FleetLocation, Wrong, complain, run_with_fleet, warn_of
from .resource_kinds import KINDS

if TYPE_CHECKING:
    from pallas.client import RestClient

_MAX_FILE: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Defaults:
    """The ``--default-…`` flags of an agent or an LLM; None for those not given."""

    temperature: float | None = None
    max_tokens: int | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    params_file: Path | None = None

    def params(self) -> dict[str, Any]:
        """Return the parameters: those of the file, overridden by the flags. Raises Wrong."""
        params = _params_file(self.params_file) if self.params_file else {}
        for key in ("temperature", "max_tokens", "top_p", "top_k", "seed"):
            if (value := getattr(self, key)) is not None:
                params[key] = value
        if self.stop:
            params["stop"] = list(self.stop)
        if self.extra:
            params["extra"] = {**(params.get("extra") or {}), **dict(_extra(each) for each in self.extra)}
        return params


def create(kind: str, name: str, spec: Mapping[str, Any], reach: FleetLocation) -> int:
    """Create it, print so, and return the exit status. None and empty values in ``spec`` are left out."""
    body = {
        "name": name,
        **{key: value for key, value in spec.items() if value not in (None, "", [], {}, ())},
    }

    async def work(api: "RestClient") -> int:
        created = await api.post(KINDS[kind].path, body)
        print(f"{kind}/{name} created")
        warn_of(f"{kind}/{name}", created)
        return OK

    return run_with_fleet(reach, work)


def create_secret(name: str, data: Sequence[str], reach: FleetLocation) -> int:
    """Create a secret from ``KEY=VALUE`` words."""
    try:
        values = secret_data(data)
    except Wrong as error:
        complain(f"pallas create secret: {error}")
        return USAGE
    return create("secret", name, {"data": values}, reach)


def create_llm(
    name: str, spec: Mapping[str, Any], defaults: Defaults, probe: bool, reach: FleetLocation
) -> int:
    """Create an LLM; without ``probe`` the provider is not asked whether it accepts the key."""
    try:
        params = defaults.params()
    except Wrong as error:
        complain(f"pallas create llm: {error}")
        return USAGE
    asked: dict[str, Any] = {} if probe else {"probe": False}
    return create("llm", name, {**spec, "defaultParams": params, **asked}, reach)


def create_agent(
    name: str, spec: Mapping[str, Any], prompt_file: Path | None, defaults: Defaults, reach: FleetLocation
) -> int:
    """Create an agent."""
    try:
        if prompt_file is not None:
            if spec.get("systemPrompt"):
                raise Wrong("give --system-prompt or --system-prompt-file, not both")
            spec = {**spec, "systemPrompt": read_file(prompt_file)}
        params = defaults.params()
    except Wrong as error:
        complain(f"pallas create agent: {error}")
        return USAGE
    return create("agent", name, {**spec, "defaultParams": params}, reach)


def create_project(
    name: str,
    description: str,
    servers: Sequence[str],
    prompts: Sequence[str],
    prompt_files: Sequence[Path],
    reach: FleetLocation,
) -> int:
    """Create a project. A server is the name of one in the folder's configuration, or ``NAME=URL``."""
    try:
        texts: list[Any] = [{"name": path.stem, "text": read_file(path)} for path in prompt_files]
        spec = {
            "description": description,
            "servers": [_server(word) for word in servers],
            "prompts": [*texts, *prompts],
        }
    except Wrong as error:
        complain(f"pallas create project: {error}")
        return USAGE
    return create("project", name, spec, reach)


def secret_data(words: Sequence[str]) -> dict[str, str]:
    """Parse ``K=V``, ``K=@file`` and ``K=-`` (stdin) into keys and values; ``@@`` is a literal ``@``.

    Raises Wrong, which repeats no value.
    """
    found: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key:
            raise Wrong("--data takes KEY=VALUE, KEY=@file, or KEY=- for stdin")
        if key in found:
            raise Wrong(f"--data {key[:60]}: is given twice")
        if value == "-":
            if "-" in (w.partition("=")[2] for w in words[: len(found)]):
                raise Wrong("--data KEY=-: stdin can be read for one key only")
            value = _typed(key)
        elif value.startswith("@@"):
            value = value[1:]
        elif value.startswith("@"):
            value = _one_value(read_file(Path(value[1:])))
        if not value:
            raise Wrong(f"--data {key[:60]}: the value is empty")
        found[key] = value
    if not found:
        raise Wrong("--data KEY=VALUE is missing")
    return found


def read_file(path: Path) -> str:
    """Read a text file, or stdin for ``-``. Raises Wrong."""
    try:
        if str(path) == "-":
            return sys.stdin.read(_MAX_FILE)
        with path.expanduser().open("rb") as stream:
            data = stream.read(_MAX_FILE + 1)
        if len(data) > _MAX_FILE:
            raise Wrong(f"{path}: is larger than 1 MiB")
        return data.decode("utf-8-sig")
    except OSError as error:
        raise Wrong(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise Wrong(f"{path}: is not UTF-8") from error


def _typed(key: str) -> str:
    """Read one value from stdin, without an echo on a terminal."""
    try:
        return getpass.getpass(f"{key}: ") if sys.stdin.isatty() else _one_value(sys.stdin.read(_MAX_FILE))
    except (EOFError, UnicodeDecodeError) as error:
        raise Wrong(f"--data {key[:60]}=-: nothing was read") from error


def _one_value(text: str) -> str:
    # Editors and `echo` end a line; a key has no line ending.
    return text.removesuffix("\n").removesuffix("\r")


def _server(word: str) -> Any:
    name, equals, url = word.partition("=")
    if not name or (equals and not url):
        raise Wrong(f"--server {word[:80]}: write NAME, or NAME=URL")
    return {"name": name, "url": url} if equals else name


def _extra(word: str) -> tuple[str, Any]:
    key, equals, value = word.partition("=")
    if not key or not equals:
        raise Wrong(f"--default-extra {word[:80]}: write KEY=VALUE")
    return key, parsed(value)


def parsed(value: str) -> Any:
    """Return a number, true, false or null if the text is one, else the text."""
    words = {"true": True, "false": False, "null": None}
    if value in words:
        return words[value]
    for kind in (int, float):
        try:
            number = kind(value)
        except ValueError:
            continue
        # inf and nan stay text: JSON has no such numbers.
        return number if number - number == 0 else value
    return value


def _params_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(read_file(path))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise Wrong(f"{path}{f':{mark.line + 1}' if mark else ''}: is not YAML or JSON") from error
    if not isinstance(found, dict):
        raise Wrong(f"{path}: must hold a mapping of parameters, as in temperature: 0.2")
    return {str(key): value for key, value in found.items()}
