"""Odd MCP servers, generated: each costs at most its own tools, and health tells the truth about each.

A server is a transport, some sound tools, and one to three faults (``support.odd_servers``). Through a real
fleet, a scripted model calls every tool of every server: of few servers that have each kind of fault once, of
each kind alone, and of the servers of seeds 1 to 375, in blocks that share a fleet. A failure shows the line
of each server with which something is wrong. To run some seeds or kinds alone::

    O="-m slow --show-capture=no tests/integration/test_odd_servers.py"
    PALLAS_ODD_SEEDS=17,40-45 .venv/bin/pytest $O -k seeds
    PALLAS_ODD_KINDS=batch,deep .venv/bin/pytest $O -k alone
"""

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from support.odd_findings import PATIENCE_S, reports
from support.odd_fleets import EVERY, called, odd_fleet
from support.odd_http_faults import HTTP_FAULTS
from support.odd_json_faults import JSON_FAULTS
from support.odd_result_faults import RESULT_FAULTS
from support.odd_servers import OddServer, build, covering, odd_server
from support.odd_stress_faults import STRESS_FAULTS
from support.odd_tool_faults import TOOL_FAULTS
from support.odd_transport_faults import TRANSPORT_FAULTS
from support.odd_wire_faults import WIRE_FAULTS
from support.waiting import poll

FAULTS = {
    **TOOL_FAULTS,
    **WIRE_FAULTS,
    **RESULT_FAULTS,
    **TRANSPORT_FAULTS,
    **STRESS_FAULTS,
    **JSON_FAULTS,
    **HTTP_FAULTS,
}
COVERING = covering(FAULTS)
BLOCK = 25
# Seconds for the servers of a fleet: on a busy machine they have what ``support.odd_findings`` gives each.
patient = pytest.mark.timeout(900)


def seed_blocks() -> list[list[int]]:
    """The seeds that share a fleet: those of the environment, else 1 to 375."""
    seeds: list[int] = []
    for part in os.environ.get("PALLAS_ODD_SEEDS", "1-375").split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return [seeds[start : start + BLOCK] for start in range(0, len(seeds), BLOCK)]


def kind_blocks() -> list[list[str]]:
    """The kinds of faults that share a fleet: those of the environment, else all."""
    kinds = [*filter(None, os.environ.get("PALLAS_ODD_KINDS", "").split(","))] or sorted(FAULTS)
    return [kinds[start : start + BLOCK // 2] for start in range(0, len(kinds), BLOCK // 2)]


def covering_blocks() -> list[list[OddServer]]:
    """The servers that have each kind of fault once, as they share fleets."""
    return [COVERING[start : start + BLOCK // 2] for start in range(0, len(COVERING), BLOCK // 2)]


async def hold(root: Path, servers: Sequence[OddServer]) -> None:
    """Fail with a report of each server with which something is wrong."""
    async with odd_fleet(root, servers) as fleet:
        wrong = await reports(fleet, servers)
    if wrong:
        pytest.fail(f"{len(wrong)} of {len(servers)} servers\n" + "\n".join(wrong.values()), pytrace=False)


@pytest.mark.slow
@patient
@pytest.mark.parametrize(
    "servers", covering_blocks(), ids=lambda block: f"{block[0].label}-{block[-1].label}"
)
async def test_a_fault_costs_no_more_than_it_must(tmp_path: Path, servers: list[OddServer]) -> None:
    await hold(tmp_path, servers)


@pytest.mark.slow
@patient
async def test_one_agent_can_have_all_of_them(tmp_path: Path) -> None:
    sound = {tool.key: tool for each in COVERING if not each.why for tool in each.tools if tool.is_sound}
    async with odd_fleet(tmp_path, COVERING, together=True) as fleet:

        async def lost() -> list[str]:
            read, problem, _ = await called(fleet, EVERY, [*sound])
            return [problem, *(key for key, tool in sound.items() if not tool.is_answered(read.get(key)))]

        await poll(lost, lambda found: found == [""], timeout=PATIENCE_S)


@pytest.mark.slow
@patient
@pytest.mark.parametrize("kinds", kind_blocks(), ids=lambda kinds: f"{kinds[0]}-{kinds[-1]}")
async def test_a_fault_alone_costs_no_more_than_it_must(tmp_path: Path, kinds: list[str]) -> None:
    await hold(
        tmp_path,
        [
            build(
                f"{number}v{each}",
                fault.transports[(number + each) % len(fault.transports)],
                [fault],
                Random(each),
            )
            for number, fault in enumerate(FAULTS[kind] for kind in kinds)
            for each in (1, 2)
        ],
    )


@pytest.mark.slow
@patient
@pytest.mark.parametrize("seeds", seed_blocks(), ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
async def test_servers_of_seeds_cost_no_more_than_they_must(tmp_path: Path, seeds: list[int]) -> None:
    await hold(tmp_path, [odd_server(seed, FAULTS) for seed in seeds])
