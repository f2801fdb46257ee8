"""`pallas init`: write a small project that runs as it is."""

import asyncio
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

from pallas.config.json_schema import SCHEMA_FILE, schema_text
from pallas.config.network import local_port, secret_in, url_problem
from pallas.config.notes import did_you_mean
from pallas.config.upstream import PROVIDERS, key_variable
from pallas.config.yamlfile import literal
from pallas.safe_text import one_line

from .project_ports import NoPorts, choose_ports

_TEMPLATE: Final = "templates/project"
_NAME: Final = "name: my-project\n"
# Installers, git and loaders of .env would act on a file with that name inside the package.
_RENAMED: Final = {"gitignore": ".gitignore", "env.example": ".env.example"}
_OFFLINE: Final = "offline"
_UNKNOWN_MODEL: Final = "default"
_LIST_TIMEOUT_S: Final = 5.0
_MAX_LIST: Final = 1024 * 1024
# Lines of the template between `# <offline>` and `# </offline>` are for a project without a model.
_BLOCK: Final = re.compile(r"^(?:#|<!--) <(\w+)>.*\n((?:.*\n)*?)(?:#|<!--) </\1>.*\n", re.MULTILINE)
_PORT: Final = re.compile(r"\b242(0\d)\b")


@dataclass(frozen=True, slots=True)
class _Model:
    """The model of the project; ``kind`` names the blocks of the template that are for it."""

    kind: str = _OFFLINE
    name: str = ""
    url: str = ""
    key: str = ""
    warning: str = ""


class _Refused(Exception):
    """An option cannot be used; the message says why and what to do."""


def init(target: Path, model: str = "", model_url: str = "") -> int:
    """Write a project of one agent with a tool server into ``target``.

    Without a model it follows a script. Returns the exit status: 0, or 2 when an option is wrong, a file is
    in the way or the folder cannot be written. Existing files are never overwritten.
    """
    with suppress(RuntimeError):
        target = target.expanduser()
    try:
        chosen = _at_url(model, model_url) if model_url else _hosted(model) if model else _Model()
    except _Refused as refused:
        return _fail(str(refused))
    wanted = [(name, text) for name, text in _template() if name != "model.yaml" or chosen.kind == _OFFLINE]
    taken = [name for name, _ in wanted if os.path.lexists(target / name)]
    if taken:
        return _fail(
            f"{target}: nothing written: {', '.join(taken)} would be overwritten; choose another folder, "
            "or remove them"
        )
    if links := sorted({link for name, _ in wanted for link in _links(target, name)}):
        names = ", ".join(links)
        return _fail(
            f"{target}: nothing written: {names} is a link; files would be written where it leads: "
            "choose another folder, or remove it"
        )
    try:
        target.mkdir(parents=True, exist_ok=True)
        first = choose_ports(target)
        for name, text in wanted:
            text = text if name == SCHEMA_FILE else _filled(text, chosen, first)
            _write(target / name, _named(text, target) if name == "agents.yaml" else text)
    except NoPorts as error:
        return _fail(str(error))
    except OSError as error:
        where = error.filename or target
        return _fail(f"{where}: cannot be written: {error.strerror or error}; choose another folder")
    _tell(target, [name for name, _ in wanted], chosen)
    return 0


def _links(target: Path, name: str) -> Iterator[str]:
    """Yield the folders between the project's and a file's that are links."""
    for folder in Path(name).parents:
        if (target / folder).is_symlink() and folder != Path():
            yield f"{folder}/"


def _fail(problem: str) -> int:
    print(problem, file=sys.stderr)
    return 2


def _tell(target: Path, names: list[str], model: _Model) -> None:
    place = shlex.quote(str(target))
    if model.warning:
        print(f"warning: {model.warning}", file=sys.stderr)
    print(f"created {place} with {', '.join(names)}")
    if model.key and not os.environ.get(model.key):
        print(f"first: write {model.key}=... into {shlex.quote(str(target / '.env'))}")
    print(f"next:  pallas dev {place}")


def _hosted(name: str) -> _Model:
    provider, _, model = name.partition(".")
    if not model or provider[-1:].isdigit():  # gpt-4.1 has a dot, too
        raise _Refused(f"--model {name}: the provider is missing; write for example openai.gpt-4.1")
    if provider not in PROVIDERS:
        meant = did_you_mean(provider, PROVIDERS) or f"known: {', '.join(sorted(PROVIDERS))}"
        raise _Refused(f"--model {name}: {provider} is not a provider; {meant.removeprefix('; ')}")
    if provider == "generic":
        raise _Refused(f"--model {name}: give its address with --model-url http://HOST:PORT/v1")
    return _Model("provider", name, key=key_variable(provider))


def _at_url(name: str, url: str) -> _Model:
    """A model of the server at a URL: the one that is named, else the first one that the server lists."""
    if problem := url_problem(url):
        raise _Refused(f"--model-url {url}: {problem}")
    if secret := secret_in(url):
        raise _Refused(
            f"--model-url: holds {secret}, which would be written to a file; put it into .env as "
            f"GENERIC_API_KEY"
        )
    url = url.rstrip("/")
    if url.count("/") == 2:  # without a path
        url += "/v1"
    warning = ""
    if not name:
        name, problem = asyncio.run(_first_model(url))
        if problem:
            warning = (
                f"{problem}; default_model in fastagent.config.yaml is generic.{_UNKNOWN_MODEL}: write the "
                "name of a model there if the server needs one"
            )
    return _Model(
        "server", f"generic.{(name or _UNKNOWN_MODEL).removeprefix('generic.')}", url, warning=warning
    )


async def _first_model(url: str) -> tuple[str, str]:
    """The first model in the list of a server that speaks OpenAI's protocol, else the problem with it."""
    import httpx2

    key = os.environ.get(key_variable("generic"), "")
    try:
        async with (
            asyncio.timeout(_LIST_TIMEOUT_S),
            httpx2.AsyncClient(trust_env=local_port(url) is None) as client,
            client.stream(
                "GET", f"{url}/models", headers={"Authorization": f"Bearer {key or 'none'}"}
            ) as answer,
        ):
            if answer.status_code != httpx2.codes.OK:
                return "", f"{url}/models answers HTTP {answer.status_code}"
            body = b""
            async for chunk in answer.aiter_bytes():
                body += chunk
                if len(body) > _MAX_LIST:
                    break
        return one_line(str(json.loads(body)["data"][0]["id"]), 200), ""
    except TimeoutError:
        return "", f"{url} does not answer within {_LIST_TIMEOUT_S:g} s"
    except (httpx2.HTTPError, OSError):
        return "", f"{url} does not answer; start the server of the model"
    except (ValueError, LookupError, TypeError):
        return "", f"{url}/models is not a list of models"


def _template() -> Iterator[tuple[str, str]]:
    """Yield relative name and text of the template's files, sorted by name, and of the schema for editors."""

    def below(folder: Traversable, prefix: str) -> Iterator[tuple[str, str]]:
        for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
            name = prefix + _RENAMED.get(entry.name, entry.name)
            if entry.is_dir():
                if entry.name != "__pycache__":
                    yield from below(entry, f"{name}/")
            else:
                yield name, entry.read_text(encoding="utf-8")

    yield from below(files("pallas") / _TEMPLATE, "")
    yield SCHEMA_FILE, schema_text()


def _filled(text: str, model: _Model, first_port: int) -> str:
    """The text with the blocks, names and ports of this project."""
    text = _BLOCK.sub(lambda found: found[2] if found[1] == model.kind else "", text)
    text = _PORT.sub(lambda found: str(first_port + int(found[1])), text)
    for word, value in (("MODEL", _quoted(model.name)), ("BASE_URL", _quoted(model.url))):
        text = text.replace(f": {word}\n", f": {value}\n")
    return text.replace("KEY_NAME=", f"{model.key}=" if model.key else "# It needs none.")


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _named(text: str, target: Path) -> str:
    """Return the text with the project named after its folder."""
    # In UTF-8, as every file of ours; the folder's name may be in no encoding at all.
    name = os.fsencode(target.resolve().name).decode("utf-8", "replace")
    name = " ".join(name.split())[:100]
    return text.replace(_NAME, f"name: {_quoted(literal(name))}\n", 1) if name else text


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # x: a file that appeared since the check is not overwritten either.
    with path.open("x", encoding="utf-8", newline="\n") as stream:
        stream.write(text)
