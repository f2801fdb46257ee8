"""HAProxy before the replicas, twice: by requests, and by connections.

No caller is kept with its replica. The first frontend chooses a replica for each request. The second one
chooses one for each connection: a session with a handshake is known to the process that opened it alone.
"""

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CONFIG: Final = """
global
    maxconn 4000

defaults
    timeout connect 2s
    timeout client 120s
    timeout server 120s
    retries 3
    option redispatch
    balance random

frontend requests
    mode http
    timeout http-keep-alive 30s
    timeout http-request 10s
    bind 127.0.0.1:{requests}
    default_backend replicas

backend replicas
    mode http
    {checks}
{servers}

listen connections
    mode tcp
    bind 127.0.0.1:{connections}
    {checks}
{servers}
"""
_CHECKS: Final = """option httpchk
    http-check send meth GET uri /readyz ver HTTP/1.1 hdr Host localhost
    http-check expect status 200
    default-server check inter 500ms fall 2 rise 1"""


@contextmanager
def balancer(folder: Path, requests: int, connections: int, replicas: Sequence[int]) -> Iterator[None]:
    """A running HAProxy with a frontend at each of the two ports."""
    program = shutil.which("haproxy", path="/usr/sbin:/usr/local/sbin:/usr/bin:/bin")
    if program is None:
        raise SystemExit("HAProxy is not installed: make system-packages")
    servers = "\n".join(
        f"    server replica{number} 127.0.0.1:{each}" for number, each in enumerate(replicas)
    )
    config = folder / "haproxy.cfg"
    config.write_text(
        _CONFIG.format(requests=requests, connections=connections, checks=_CHECKS, servers=servers)
    )
    with (folder / "haproxy.log").open("w") as log:
        running = subprocess.Popen(
            [program, "-db", "-f", config], stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            yield
        finally:
            running.terminate()
            running.wait(20)
