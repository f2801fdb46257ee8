"""The metrics of all worker processes in one answer, each with the label ``worker``."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

import httpx2
from starlette.requests import Request

from .connection_shares import ConnectionShares
from .metrics import Metrics

ALONE: Final = "pallas-worker-alone"
"""A header of a request that asks for the metrics of one process."""
_ANSWER_S: Final = 2.0
_SAMPLE: Final = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})?( .+)")
_ABOUT: Final = re.compile(r"# (?:HELP|TYPE) (\S+)")


async def metrics_of_all(request: Request, metrics: Metrics, shares: ConnectionShares, scheme: str) -> bytes:
    """Return the metrics of this process and of those others that answer within two seconds."""
    if ALONE in request.headers:
        return metrics.render()
    texts = {shares.number: metrics.render().decode()}
    headers = {"host": request.headers.get("host", ""), ALONE: "1"}
    async with httpx2.AsyncClient(timeout=_ANSWER_S, trust_env=False, verify=False) as client:

        async def ask(number: int, port: int) -> None:
            with suppress(httpx2.HTTPError):
                answer = await client.get(f"{scheme}://127.0.0.1:{port}/metrics", headers=headers)
                if answer.status_code == 200:
                    texts[number] = answer.text

        await asyncio.gather(*(ask(number, port) for number, port in shares.other_ports().items()))
    return merged(texts).encode()


def merged(texts: Mapping[int, str]) -> str:
    """Return these metrics as one text: each metric once, with the samples of every process."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for number, text in sorted(texts.items()):
        for lines in _metrics_in(text.splitlines()):
            about = [line for line in lines if line.startswith("#")]
            name = _ABOUT.match(about[0]) if about else None
            _, samples = found.setdefault(name[1] if name else lines[0], (about, []))
            samples += [_labelled(line, number) for line in lines if not line.startswith("#")]
    return "".join(f"{line}\n" for about, samples in found.values() for line in (*about, *samples))


def _metrics_in(lines: Sequence[str]) -> list[list[str]]:
    """Return the lines of each metric: its description, its type and its samples."""
    parts: list[list[str]] = []
    for line in lines:
        if line.startswith("# HELP") or not parts:
            parts.append([])
        if line:
            parts[-1].append(line)
    return [each for each in parts if each]


def _labelled(sample: str, worker: int) -> str:
    match = _SAMPLE.fullmatch(sample)
    if match is None:
        return sample
    name, labels, value = match.groups()
    others = f",{labels}" if labels else ""
    return f'{name}{{worker="{worker}"{others}}}{value}'
