"""The offline model alone: ``python -m pallas.scripted SCRIPT --port N``."""

import argparse
import sys
from pathlib import Path
from typing import Final

import uvicorn

from ..config import ConfigError
from ..model import Fault
from ..surfaces.listener import bind
from .script_file import load_script
from .scripted_server import scripted_app

DEFAULT_PORT: Final = 24290
_HOST: Final = "127.0.0.1"


def main(arguments: list[str] | None = None) -> int:
    """Serve on loopback until interrupted; returns the exit status, 2 for a script with mistakes."""
    parser = argparse.ArgumentParser(prog="python -m pallas.scripted", description=__doc__)
    parser.add_argument("script", type=Path, help="the YAML file to follow")
    parser.add_argument("--port", type=int, default=DEFAULT_PORT, help="default: %(default)s; 0: any free")
    chosen = parser.parse_args(arguments)
    try:
        app = scripted_app(load_script(chosen.script.absolute()))
        sock = bind(_HOST, chosen.port, "scripted model")
    except ConfigError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    except Fault as fault:
        sys.stderr.write(f"{fault.message}\n")
        return 2
    sock.listen()  # A reader of the next line may connect at once.
    port = sock.getsockname()[1]
    sys.stderr.write(f"The scripted model answers at http://{_HOST}:{port}/v1, following {chosen.script}\n")
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, timeout_graceful_shutdown=1, ws="none"
    )
    try:
        uvicorn.Server(config).run(sockets=[sock])
    except KeyboardInterrupt:
        pass  # It was asked to end, and ended.
    finally:
        sock.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
