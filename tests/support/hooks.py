"""Takes a hook of Pallas out of a library again."""

from pallas.mcp_client import library_hooks
from pallas.mcp_client.library_hooks import Hook


def uninstall(hook: Hook) -> bool:
    """Remove the hook and leave the others on its target; return False if it was not there.

    Raises Fault (CONFIG) if other code has wrapped the target since: the wrappers cannot be separated then.
    """
    with library_hooks._lock:
        current = library_hooks._current(hook)
        stay: list[Hook] = []
        while (mark := library_hooks._ours.get(current)) is not None:
            current = current.__wrapped__
            if mark.name != hook.name:
                stay.append(mark)
                continue
            for other in reversed(stay):
                current = library_hooks._replacement(other, current)
            setattr(hook.owner, hook.attribute, current)
            return True
        if any(mark.name == hook.name for mark in library_hooks._marks(current)):
            raise library_hooks._fault(hook, "was wrapped by someone else since; take that out first")
        return False
