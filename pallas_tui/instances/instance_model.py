"""Values that describe a registered instance and its agents."""

from dataclasses import dataclass

from pallas.model import Health


@dataclass(frozen=True, slots=True)
class RegistryAgent:
    """An agent as its registry lists it; all text is sanitised.

    ``id`` is the part of ``name`` after the last ``/``; ``title`` is the name where there is none; ``icon``
    is the first icon's address as it was published, relative or not (PI-6). ``vision`` and the token counts
    are None where the registry does not say.
    """

    id: str
    name: str
    title: str
    url: str
    description: str = ""
    icon: str = ""
    version: str = ""
    model: str = ""
    vision: bool | None = None
    context_window: int | None = None
    max_output_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class RegistryListing:
    """A registry's document: its agents, and why each of the other entries was skipped."""

    agents: tuple[RegistryAgent, ...] = ()
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Remote:
    """An agent of an instance. ``health`` is what the last poll found, None before the first.

    ``since`` is when it was attached, in Unix seconds, and 0 while it is not.
    """

    listed: RegistryAgent
    since: float = 0.0
    health: Health | None = None

    @property
    def attached(self) -> bool:
        """Whether it is polled and can be talked to."""
        return self.since > 0


@dataclass(frozen=True, slots=True)
class RegisteredInstance:
    """One registered registry. ``url`` is that of its document, ``label`` a short unique name.

    ``busy`` names the current action, ``problem`` why the last reading failed; both may be empty. ``read_at``
    (Unix seconds) is 0 before the first reading.
    """

    url: str
    label: str
    attached: bool = False
    agents: tuple[Remote, ...] = ()
    skipped: tuple[str, ...] = ()
    busy: str = ""
    problem: str = ""
    read_at: float = 0.0
