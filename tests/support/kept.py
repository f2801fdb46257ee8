"""A kernel on a real ledger, and what is asked of it and read there."""

from typing import Any

from pallas.ledger import Ledger
from pallas.model import MessageRecord, RunRequest
from pallas.runs.kernel import Kernel
from pallas.telemetry.event_hub import EventHub

from .executors import FakeAgent, FakeExecutor
from .waiting import poll


def kernel_on(ledger: Ledger, executor: FakeExecutor, **agent: Any) -> Kernel:
    """A kernel with the agent ``echo``, as another start of the fleet would make it."""
    kernel = Kernel(EventHub())
    kernel.use_ledger(ledger)
    kernel.attach(FakeAgent(executor, **agent))
    return kernel


def asked(text: str, handle: str, *, new: bool = False, **more: Any) -> RunRequest:
    """A message to it in the conversation of that handle."""
    return RunRequest("echo", text, conversation=handle, new_conversation=new, **more)


async def written(ledger: Ledger, run: str) -> None:
    """Until the events and steps of a run that is over are stored."""
    await poll(lambda: ledger.runs.events(run))


async def rows(ledger: Ledger, thread: str) -> list[MessageRecord]:
    """All rows of a thread."""
    return list((await ledger.threads.messages(thread, limit=200)).items)
