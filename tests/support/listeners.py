"""The ports that a fleet serves."""

from pallas.fleet.fleet import Fleet
from pallas.surfaces.listener import Listener


def open_listeners(fleet: Fleet) -> tuple[tuple[str, Listener], ...]:
    """Each port that is served, by ``agent NAME``, ``registry`` and ``scripted``."""
    ports = fleet.ports
    own = (
        (f"agent {port.holder.config.name}", port.listener)
        for port in ports._ports.values()
        if port.holder is not None and port.listener is not None
    )
    return tuple((key, each) for key, each in (*ports._served, *own) if each.is_open)
