"""What servers that changed said that they offer: asked by one fork, known to each later one."""

from typing import Final

from pallas.fleet.asked_servers import AskedServers

ASKED: Final = AskedServers()
