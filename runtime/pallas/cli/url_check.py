"""Fetch what instructions include from URLs, as fast-agent does when it makes the agents."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Final
from urllib.error import URLError
from urllib.request import Request, urlopen

from pallas.config import AgentConfig, Mistake, Project, Where
from pallas.config.agent_code import parsed
from pallas.config.included_files import included_urls, unfetched

_TIMEOUT_S: Final = 5.0
_MOST: Final = 32
_BYTES: Final = 1 << 20


def url_warnings(project: Project) -> tuple[Mistake, ...]:
    """Return a warning for each URL of an instruction that gives no text, within 5 s each; blocks.

    From another machine it may give one.
    """
    found = [
        (agent, where, url)
        for agent in project.agents.values()
        for where, url in included_urls(project.root, agent, parsed)
    ][:_MOST]
    if not found:
        return ()
    with ThreadPoolExecutor(8) as pool:
        failures = pool.map(lambda each: _failure(*each), found)
    return tuple(replace(each, level="warning") for each in failures if each is not None)


def _failure(agent: AgentConfig, where: Where, url: str) -> Mistake | None:
    mistake = partial(unfetched, agent, where, url)
    try:
        # The URL is one of http or https, written into the project.
        with urlopen(Request(url, headers={"User-Agent": "pallas"}), timeout=_TIMEOUT_S) as response:
            response.read(_BYTES)
    except (URLError, OSError, ValueError) as error:
        return mistake(error)
    return None
