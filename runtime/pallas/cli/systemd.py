"""`pallas systemd`: print a systemd unit for the project."""

import math
import re
import stat
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pallas.config import ConfigError, Project, load_project

from .exit_status import CUT, UNUSABLE

# Seconds for stopping beyond the time that runs in flight have.
_LEEWAY: Final = 15
_START: Final = 180
_WATCHDOG: Final = 30
_LOWEST_FREE_PORT: Final = 1024
_CREDENTIAL: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(/.+)")
_NAME: Final = re.compile(r"[A-Za-z0-9:_.-]{1,200}")


@dataclass(frozen=True, slots=True)
class UnitOptions:
    """The options. ``run_as`` is a system user, empty for a dynamic one.

    ``credentials`` are ``NAME=/path`` of files that only the service may read, ``writable`` paths that its
    agents write to.
    """

    root: Path
    name: str = ""
    user: bool = False
    run_as: str = ""
    credentials: tuple[str, ...] = ()
    writable: tuple[Path, ...] = field(default=())


def systemd(options: UnitOptions) -> int:
    """Print the unit; returns the exit status, 2 when the project or an option cannot be used."""
    try:
        project = load_project(options.root)
        text = unit(project, options, program=(sys.executable, "-P", "-m", "pallas.server"))
    except ConfigError as error:
        print(error, file=sys.stderr)
        return UNUSABLE
    except ValueError as error:
        print(f"pallas systemd: {error}", file=sys.stderr)
        return UNUSABLE
    sys.stdout.write(text)
    if hint := _hidden(project, options):
        print(hint, file=sys.stderr)
    return 0


def unit(project: Project, options: UnitOptions, *, program: Sequence[str]) -> str:
    """Return the unit's text. Raises ValueError that names the unusable option."""
    name = options.name or re.sub(r"[^A-Za-z0-9_.-]+", "-", project.name).strip("-") or "fleet"
    if not _NAME.fullmatch(name):
        raise ValueError(f"--name {name}: allowed are letters, digits and : _ . -")
    sections = {
        "Unit": _unit(project),
        "Service": [*_service(project, name, program), *_rights(project, options, name), *_secrets(options)],
        "Install": [f"WantedBy={'default' if options.user else 'multi-user'}.target"],
    }
    kind = "user" if options.user else "system"
    place = "~/.config/systemd/user" if options.user else "/etc/systemd/system"
    head = f"# Made by `pallas systemd`: save it as {place}/pallas-{name}.service, then\n"
    head += f"#   systemctl --{kind} daemon-reload && systemctl --{kind} enable --now pallas-{name}\n"
    body = "\n\n".join(f"[{title}]\n" + "\n".join(lines) for title, lines in sections.items())
    return f"{head}\n{body}\n"


def _unit(project: Project) -> list[str]:
    return [
        f"Description=Pallas fleet {_escaped(project.name)}",
        "Wants=network-online.target",
        "After=network-online.target",
        # A fleet that cannot start is not restarted for ever.
        "StartLimitIntervalSec=300",
        "StartLimitBurst=5",
    ]


def _service(project: Project, name: str, program: Sequence[str]) -> list[str]:
    command = " ".join(_quoted(word) for word in (*program, "--serve", "--project", str(project.root)))
    return [
        "# Ready means that the fleet runs; from then on it has to show that its event loop turns.",
        "Type=notify",
        "NotifyAccess=main",
        f"WatchdogSec={_WATCHDOG}",
        f"WorkingDirectory={_escaped(str(project.root))}",
        f"ExecStart={command}",
        "# Reads the configuration and the certificate again; nothing is dropped.",
        "ExecReload=/bin/kill -HUP $MAINPID",
        f"TimeoutStartSec={_START}",
        "# Runs in flight may finish (drain_timeout), and the programs they use stay up until then.",
        f"TimeoutStopSec={math.ceil(project.drain_timeout) + _LEEWAY}",
        "KillMode=mixed",
        "Restart=on-failure",
        "RestartSec=2",
        f"# {UNUSABLE}: the project has mistakes, which another start would not fix. {CUT}: it stopped, "
        "and runs were cut short.",
        f"RestartPreventExitStatus={UNUSABLE}",
        f"SuccessExitStatus={CUT}",
        "Environment=PALLAS_LOG_STDERR=1 PYTHONUNBUFFERED=1",
        f"Environment=PALLAS_LOG_FILE=%L/pallas-{name}/pallas.log",
        f"LogsDirectory=pallas-{name}",
        f"StateDirectory=pallas-{name}",
        "LimitNOFILE=65536",
    ]


def _rights(project: Project, options: UnitOptions, name: str) -> list[str]:
    lines = ["UMask=0077", "NoNewPrivileges=yes", "PrivateTmp=yes", "ProtectSystem=strict"]
    lines += [f"ReadWritePaths={_escaped(str(path.absolute()))}" for path in options.writable]
    if options.user:
        return lines
    lines += [f"User={options.run_as}"] if options.run_as else ["DynamicUser=yes"]
    low = [port for port in _ports(project) if port < _LOWEST_FREE_PORT]
    capability = "CAP_NET_BIND_SERVICE" if low else ""
    return [
        *lines,
        f"Environment=HOME=%S/pallas-{name}",
        "ProtectHome=read-only",
        "PrivateDevices=yes",
        "ProtectClock=yes",
        "ProtectControlGroups=yes",
        "ProtectHostname=yes",
        "ProtectKernelLogs=yes",
        "ProtectKernelModules=yes",
        "ProtectKernelTunables=yes",
        "ProtectProc=invisible",
        "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6",
        "RestrictNamespaces=yes",
        "RestrictRealtime=yes",
        "RestrictSUIDSGID=yes",
        "LockPersonality=yes",
        "SystemCallArchitectures=native",
        "SystemCallFilter=@system-service",
        "SystemCallErrorNumber=EPERM",
        f"CapabilityBoundingSet={capability}",
        f"AmbientCapabilities={capability}",
    ]


def _secrets(options: UnitOptions) -> list[str]:
    lines = []
    for given in options.credentials:
        match = _CREDENTIAL.fullmatch(given)
        if match is None:
            raise ValueError(f"--credential {given.partition('=')[0]}: write NAME=/path/of/its/file")
        lines.append(f"LoadCredential={match[1]}:{_escaped(match[2])}")
    return lines


def _ports(project: Project) -> list[int]:
    return [project.registry_port, *(agent.port for agent in project.agents.values() if agent.port)]


def _hidden(project: Project, options: UnitOptions) -> str:
    """Return why a dynamic user could not read the project; empty when it can."""
    if options.user or options.run_as:
        return ""
    for folder in (project.root, *project.root.parents):
        try:
            mode = folder.stat().st_mode
        except OSError:
            continue
        if not mode & stat.S_IXOTH or (folder == project.root and not mode & stat.S_IROTH):
            return (
                f"pallas systemd: {folder} cannot be read by everyone, so not by the user that systemd makes "
                "up for the service; pass --run-as USER, or put the project elsewhere (such as /srv)"
            )
    return ""


def _escaped(text: str) -> str:
    """Escape the characters that systemd would expand."""
    return text.replace("%", "%%")


def _quoted(word: str) -> str:
    """Quote one word of a systemd command line."""
    text = _escaped(word).replace("$", "$$")
    if re.fullmatch(r"[\w@%+=:,./$-]+", text):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
