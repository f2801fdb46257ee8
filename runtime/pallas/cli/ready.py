"""`pallas ready`: report to scripts and containers whether the local fleet takes runs."""

import http.client
import json
import ssl
import sys
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from pallas.config import ConfigError, Project, load_project
from pallas.config.load import CERTFILE_VARIABLE
from pallas.safe_text import one_line
from pallas.surfaces.control.token_file import project_id

from .exit_status import UNUSABLE

NOT_READY: Final = 1
_TIMEOUT: Final = 3.0
_AGAIN: Final = 0.2
_MAX_BODY: Final = 1024 * 1024


def ready(root: Path, wait: float = 0.0) -> int:
    """Ask ``/readyz`` of the project's registry port, for up to ``wait`` seconds until it is ready.

    A fleet of another project is not. Returns 0 when it is ready, 1 with a line on stderr when it is not, 2
    when the project cannot be read.
    """
    try:
        project = load_project(root)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    deadline = monotonic() + wait
    while True:
        ok, found = _look(project)
        if ok or monotonic() >= deadline:
            break
        sleep(_AGAIN)
    print(f"{project.name}: {found}", file=sys.stdout if ok else sys.stderr)
    return 0 if ok else NOT_READY


def _look(project: Project) -> tuple[bool, str]:
    host = project.bind if project.bind not in (None, "0.0.0.0", "::", "localhost") else "127.0.0.1"
    assert host is not None
    where = f"{host}:{project.registry_port}"
    try:
        connection = _connection(host, project)
        try:
            connection.request("GET", "/readyz")
            answer = connection.getresponse()
            body: Any = json.loads(answer.read(_MAX_BODY))
        finally:
            connection.close()
    except (http.client.RemoteDisconnected, http.client.BadStatusLine) as error:
        return False, (
            f"what listens at {where} did not answer with HTTP ({one_line(str(error), 120)}); "
            f"where it was started with --ssl-certfile, set {CERTFILE_VARIABLE} here too"
        )
    except ssl.SSLError:
        return False, f"what listens at {where} does not use TLS"
    except (OSError, http.client.HTTPException) as error:
        why = one_line((isinstance(error, OSError) and error.strerror) or str(error), 120)
        return False, f"nothing answers at {where} ({why})"
    except ValueError:
        return False, f"what answers at {where} is not a fleet"
    if isinstance(body, dict) and body.get("project") != project_id(project.root):
        return False, f"what answers at {where} is the fleet of another project{_holder(body, project)}"
    return answer.status == http.client.OK, _told(body)


def _holder(body: dict[str, Any], project: Project) -> str:
    """Return which process it is, as far as this user may know, and what to do."""
    from pallas.surfaces.port_holder import holder_of

    pid = body.get("pid")
    who = holder_of(project.registry_port) or (f"process {pid}" if isinstance(pid, int) else "")
    port = f"stop it, or choose another port in {project.agents_file.name}"
    return (f" ({who})" if who else "") + f"; {port}"


def _connection(host: str, project: Project) -> http.client.HTTPConnection:
    port = project.registry_port
    if project.tls is None:
        return http.client.HTTPConnection(host, port, timeout=_TIMEOUT)
    # The request goes to this machine only, so the certificate's name does not matter.
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return http.client.HTTPSConnection(host, port, timeout=_TIMEOUT, context=context)


def _told(body: Any) -> str:
    """Return ``ready`` or ``starting: research connecting, desk waiting``."""
    if not isinstance(body, dict):
        return "what answers is not a fleet"
    states = body.get("agents")
    others = [
        f"{name} {state}"
        for name, state in (states.items() if isinstance(states, dict) else ())
        if state != "ready"
    ]
    return one_line(f"{body.get('status')}{': ' if others else ''}{', '.join(others)}", 400)
