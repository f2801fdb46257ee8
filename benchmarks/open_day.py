"""A workbench that is open for a day, in an accelerated run: its memory as answers, feed rows and logs grow.

It is attached to a fleet of one agent with a scripted model; each answer calls tools that write log lines.
"""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path
from time import perf_counter

import yaml

from .programs import free_ports, process, until_line
from .report import Figure
from .screen import Screen, screen
from .terminal import HERE, ask, memory, processor_time

ANSWERS = int(os.environ.get("PALLAS_BENCH_ANSWERS", "2000"))
CALLS = 22
"""Tool calls of an answer: with its two questions to the model and its run 25 rows of the feed."""
LINES = 4
"""Log lines of a call."""
PARTS = 10
AGENT = f"""
import logging

from fast_agent import FastAgent

fast = FastAgent("clerk")
log = logging.getLogger("clerk")


def note(number: int) -> str:
    for line in range({LINES}):
        log.info("entry %d of call %d is written down in the book of today", line, number)
    return f"entry {{number}} is written"


@fast.agent(name="clerk", instruction="You are clerk.", function_tools=[note])
async def main() -> None: ...
"""
ANSWER = """## Entries of question {{ turns }}

All of them are **written down**, with `code` and words enough to fill more than one row of the screen.

| entry | state |
|:---|:---:|
| first | written |
| second | written |

```python
def total(rows):
    return sum(row["amount"] for row in rows)
```

That was answer {{ turns }}."""


def measure() -> Iterator[Figure]:
    """Yield the figures."""
    with opened() as workbench:
        sizes, took, numbers = [], [], count(1)
        for _ in range(PARTS):
            began, used = perf_counter(), processor_time(workbench.pid)
            for _ in range(ANSWERS // PARTS):
                ask(workbench, "write the entries")
                workbench.until(f"That was answer {next(numbers)}.", timeout=120)
            workbench.drain(3)
            sizes.append(memory(workbench.pid) / 1e6)
            took.append((processor_time(workbench.pid) - used) / (perf_counter() - began))
            print(f"  {sizes[-1]:.0f} MB, {100 * took[-1]:.0f} % of a core", file=sys.stderr, flush=True)
    rows, lines = ANSWERS * (CALLS + 3), ANSWERS * CALLS * LINES
    name = f"memory after {ANSWERS:,} answers, {rows:,} feed rows and {lines:,} log lines, against a tenth"
    yield Figure(name, sizes[-1] / sizes[0], 1.05, detail=" ".join(f"{size:.0f}" for size in sizes) + " MB")
    yield Figure("processor time for an answer, against the first tenth", took[-1] / took[0], 1.1)


@contextmanager
def opened() -> Iterator[Screen]:
    """A workbench attached to the fleet, ready to be asked."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pallas-bench-")))
        registry = _project(folder / "project")
        fleet = stack.enter_context(process("-m", "pallas.server", "--serve", cwd=folder / "project"))
        until_line(fleet, "] running")
        environment = {
            **os.environ,
            "PALLAS_LOG_FILE": str(folder / "project" / "pallas.log"),
            "PALLAS_WORKBENCH_CONFIG": str(folder / "workbench.yaml"),
        }
        attached = [sys.executable, "-m", "pallas.server", "dev", "--attach", f"http://127.0.0.1:{registry}"]
        workbench = stack.enter_context(screen(attached, environment, cwd=HERE))
        workbench.until("rite to")
        workbench.drain(1)
        yield workbench


def _project(root: Path) -> int:
    """Write the project; the port of its registry."""
    root.mkdir()
    registry, port, model = free_ports(3)
    (root / "clerk.py").write_text(AGENT)
    calls = [{"tool": "note", "arguments": {"number": number}} for number in range(CALLS)]
    rules = [{"when": {"last": "user"}, "call": calls}, {"say": ANSWER}]
    (root / "model.yaml").write_text(yaml.safe_dump({"rules": rules}))
    topology = {
        "name": "bench",
        "bind": "127.0.0.1",
        "registry_port": registry,
        "scripted": {"script": "model.yaml", "port": model},
        "agents": {"clerk": {"module": "clerk", "port": port}},
    }
    (root / "agents.yaml").write_text(yaml.safe_dump(topology))
    settings = {
        "default_model": "generic.scripted",
        "generic": {"api_key": "none", "base_url": f"http://127.0.0.1:{model}/v1"},
    }
    (root / "fastagent.config.yaml").write_text(yaml.safe_dump(settings))
    return registry
