"""A virtual environment for each peer, in the folder ``.peers``, pinned by its file in ``requirements``."""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ENVIRONMENTS = ROOT / ".peers"
TIMEOUT = 900.0


class NotInstalledError(Exception):
    """A peer cannot be installed here; the message is the reason in one line."""


def requirements(name: str) -> Path:
    """The file with a peer's pinned packages."""
    return HERE / "requirements" / f"{name}.txt"


def versions(name: str) -> str:
    """The packages that the peer is about: those of its requirements before the first empty line."""
    first = requirements(name).read_text("utf-8").partition("\n\n")[0]
    return ", ".join(line.replace("==", " ") for line in first.splitlines() if "==" in line)


def python_of(name: str) -> Path:
    """The peer's Python, once its environment is as its requirements say; raises NotInstalledError."""
    folder = ENVIRONMENTS / name
    python = folder / "bin" / "python"
    wanted = f"{sys.version}\n{requirements(name).read_text('utf-8')}"
    stamp = folder / "installed.txt"
    if python.exists() and stamp.exists() and stamp.read_text("utf-8") == wanted:
        return python
    print(f"  installing {name}", flush=True)
    listed = ["-r", str(requirements(name))]
    if uv := shutil.which("uv"):
        _run(uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(folder))
        _run(uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", str(python), *listed)
    else:
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *listed)
    stamp.write_text(wanted, "utf-8")
    return python


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, cwd=ROOT, check=False)
    except subprocess.TimeoutExpired:
        raise NotInstalledError(f"the installation took longer than {TIMEOUT:.0f} s") from None
    if done.returncode:
        lines = (done.stdout + done.stderr).strip().splitlines()
        raise NotInstalledError(lines[-1] if lines else f"{command[0]} failed with {done.returncode}")
