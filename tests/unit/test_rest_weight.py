"""What the REST API is made with is imported by a fleet that has a ledger, and by nobody else."""

import subprocess
import sys

import pytest


@pytest.mark.slow
@pytest.mark.parametrize(
    "code",
    [
        "import pallas.surfaces.registry, pallas.fleet.fleet",
        "import pallas.surfaces.rest, pallas.surfaces.rest.endpoints, pallas.surfaces.rest.rest_parts",
        "from typer.testing import CliRunner\n"
        "from pallas.cli.app import app\n"
        "CliRunner().invoke(app, ['--help'])",
    ],
    ids=["fleet", "table", "help"],
)
def test_nobody_else_imports_it(code: str) -> None:
    code = f"import sys\n{code}\nprint([name for name in ('fastapi', 'sqlalchemy') if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
