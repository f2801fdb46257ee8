"""The steps of deploy/Dockerfile without a container engine: `python deploy/rehearse.py PROJECT`, as root.

A root of its own is put together out of read-only mounts, with the project at /project and Pallas at
/opt/pallas; in it the image's ENTRYPOINT and CMD run as its USER, with its ENV and no rights, until SIGTERM
(the image's STOPSIGNAL) or Ctrl-C. The image's HEALTHCHECK is asked until it is content. With --build the
first stage's steps are run as well, into a folder; without, the environment that runs this stands for it.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

DEPLOY = Path(__file__).resolve().parent
PAUSE = 0.5
"""Seconds between two health checks, at least."""
# What a base image has of a machine; where it is not there, there is nothing to mount.
MACHINE = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc")


def main() -> int:
    """Rehearse; the exit status of the fleet, or 1 when a step failed."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("project", type=Path, help="the folder that is mounted at /project")
    options.add_argument("--build", action="store_true", help="run the first stage's steps too (minutes)")
    options.add_argument("--within", type=float, default=90.0, help="seconds until HEALTHCHECK is content")
    options.add_argument("--command", nargs=argparse.REMAINDER, help="what to run in their place")
    given = options.parse_args()
    if why := obstacle():
        print(f"rehearse.py cannot run here: {why}", file=sys.stderr)
        return 1
    build, image = stages((DEPLOY / "Dockerfile").read_text())
    with tempfile.TemporaryDirectory(prefix="pallas-image-") as scratch:
        root = Path(scratch) / "root"
        root.mkdir()
        pallas = built(build, Path(scratch)) if given.build else Path(sys.prefix)
        inside = Inside(image, root, given.project.resolve(), pallas)
        return inside.command(given.command) if given.command else inside.serve(given.within)


def obstacle() -> str:
    """Why no root of its own can be mounted on this machine; empty if one can."""
    if os.geteuid() != 0:
        return "mounting file systems needs root"
    for program in ("unshare", "setpriv"):
        if shutil.which(program) is None:
            return f"{program} is not installed (util-linux)"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, text=True, check=False)
    return "" if tried.returncode == 0 else f"no mount namespace ({tried.stderr.strip()})"


def stages(text: str) -> list[list[tuple[str, str]]]:
    """The instructions of each stage: name and arguments, lines joined."""
    text = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ")
    found: list[list[tuple[str, str]]] = []
    for line in filter(None, map(str.strip, text.splitlines())):
        name, _, arguments = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, arguments.strip()))
    return found


def built(steps: list[tuple[str, str]], scratch: Path) -> Path:
    """What the first stage makes at /opt/pallas: its COPY and RUN steps, in a folder."""
    source, target = scratch / "src", scratch / "pallas"
    source.mkdir()
    for name, arguments in steps:
        if name == "COPY":
            *files, _ = arguments.split()
            for file in files:
                path = DEPLOY.parent / file
                if path.is_dir():
                    shutil.copytree(path, source / file, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(path, source / file)
        elif name == "RUN":
            say(f"RUN {arguments}")
            command = arguments.replace("/opt/pallas", str(target)).replace(
                "python -m venv", f"{sys.executable} -m venv"
            )
            subprocess.run(command, shell=True, cwd=source, check=True)
    return target


class Inside:
    """A root of its own, in which commands run as the image says."""

    def __init__(self, image: list[tuple[str, str]], root: Path, project: Path, pallas: Path) -> None:
        self._image = image
        self._root, self._project, self._pallas = root, project, pallas
        self.user = self._value("USER")
        self.environ = dict(
            word.split("=", 1) for name, words in image if name == "ENV" for word in shlex.split(words)
        )
        self.folder = self._value("WORKDIR")

    def serve(self, within: float) -> int:
        """ENTRYPOINT and CMD until a signal; its exit status, or 1 if it is not healthy within that time."""
        words = json.loads(self._value("ENTRYPOINT")) + json.loads(self._value("CMD"))
        say(f"USER {self.user}, {shlex.join(words)}")
        fleet = subprocess.Popen(self._inside(words))
        stop = getattr(signal, self._value("STOPSIGNAL"))
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._forward(fleet.pid, stop))
        if not self._healthy(fleet, within):
            say("HEALTHCHECK is not content")
            self._forward(fleet.pid, stop)
            fleet.wait()
            return 1
        say("HEALTHCHECK is content")
        status = fleet.wait()
        say(f"ended with status {status}")
        return status

    def command(self, words: list[str]) -> int:
        """Another command in the same surroundings; its exit status."""
        return subprocess.run(self._inside(words), check=False).returncode

    def _healthy(self, fleet: "subprocess.Popen[bytes]", within: float) -> bool:
        check = json.loads(self._value("HEALTHCHECK").rpartition("CMD ")[2])
        deadline = time.monotonic() + within
        while fleet.poll() is None and (began := time.monotonic()) < deadline:
            asked = subprocess.run(self._inside(check), capture_output=True, text=True, check=False)
            if asked.returncode == 0:
                return True
            # A check takes processor time from the start that it asks about: at most half of the time.
            time.sleep(max(PAUSE, time.monotonic() - began))
        return False

    @staticmethod
    def _forward(outer: int, number: int) -> None:
        """The signal goes to the fleet itself: those before it are unshare and its shell, which became it."""
        try:
            os.kill(outer, number)
        except ProcessLookupError:
            return

    def _value(self, wanted: str) -> str:
        return [arguments for name, arguments in self._image if name == wanted][-1]

    def _inside(self, words: list[str]) -> list[str]:
        uid, _, gid = self.user.partition(":")
        # With -n, mount notes nothing in the machine's /run/mount.
        mounts = [
            "umask 022",
            "mount -n --make-rprivate /",
            f"mount -n -t tmpfs -o mode=755 none {self._root}",
            "mkdir -p " + " ".join(map(self._at, ("/tmp", "/proc", "/opt/pallas", self.folder))),
            *(self._bind(path, path) for path in MACHINE if Path(path).exists()),
            f"mount -n -t tmpfs -o mode=1777 none {self._at('/tmp')}",
            # Devices without the file systems below: the machine's /dev/shm is not the image's.
            self._bind("/dev", "/dev", "--bind"),
            f"[ ! -d /dev/shm ] || mount -n -t tmpfs -o mode=1777 none {self._at('/dev/shm')}",
            f"mount -n -t proc none {self._at('/proc')}",
            self._bind(str(self._project), self.folder),
            self._bind(str(self._pallas), "/opt/pallas"),
            # The interpreter behind the environment, and code that it was told to find elsewhere.
            *(self._bind(path, path) for path in self._elsewhere()),
            f"mount -n -o remount,bind,ro {self._root}",
        ]
        environ = shlex.join(f"{name}={value}" for name, value in self.environ.items())
        run = (
            f"exec chroot {self._root} /usr/bin/setpriv --reuid {uid} --regid {gid} --clear-groups "
            "--no-new-privs --bounding-set=-all --inh-caps=-all "
            f"/usr/bin/env -i -C {self.folder} {environ} {self._program(words)}"
        )
        return ["unshare", "--mount", "bash", "-euc", "\n".join([*mounts, run])]

    @staticmethod
    def _program(words: list[str]) -> str:
        # The script's first line names the environment's own place, which is another one here.
        if words[0] == "pallas":
            words = ["/opt/pallas/bin/python", "-m", "pallas.server", *words[1:]]
        return shlex.join(words)

    def _elsewhere(self) -> list[str]:
        found = {str(Path(sys.base_prefix).resolve())}
        if self._pallas == Path(sys.prefix):
            found.add(str(self._pallas))
            found |= {
                path for path in sys.path if path and Path(path).is_dir() and not path.startswith("/usr")
            }
            found.add(str(DEPLOY.parent))
        found -= {path for path in found for other in found if path != other and path.startswith(f"{other}/")}
        return sorted(found)

    def _bind(self, source: str, target: str, how: str = "--rbind") -> str:
        here = self._at(target)
        bind = f"mkdir -p {here} && mount -n {how} {shlex.quote(source)} {here}"
        return f"{bind} && mount -n -o remount,bind,ro {here}"

    def _at(self, path: str) -> str:
        return shlex.quote(f"{self._root}{path}")


def say(text: str) -> None:
    """Tell what happens."""
    print(f"[image] {text}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
