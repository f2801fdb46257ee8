"""The values of secrets while the fleet lives: opened when they are read, masked in the log, never shown."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pallas.ledger.kept import ResourceRow
from pallas.model import Fault
from pallas.model.redaction import forget, redact

from .specs import SecretSpec, Spec

if TYPE_CHECKING:
    from .secret_seal import Seal


class Vault:
    """Opens and seals the secrets of one fleet."""

    def __init__(self, seal: "Seal") -> None:
        self._seal = seal
        self._open: dict[str, tuple[bytes, dict[str, str]]] = {}
        self._problems: dict[str, Fault] = {}

    @property
    def unsealable(self) -> str:
        """Why nothing can be sealed; empty when it can."""
        return self._seal.problem

    def look(self, secrets: Iterable[ResourceRow]) -> None:
        """These are all that there are now."""
        known = {each.id: each for each in secrets}
        for key, (sealed, values) in list(self._open.items()):
            if key not in known or known[key].values["sealed"] != sealed:
                forget(*values.values())
                del self._open[key]
        self._problems.clear()
        for key, each in known.items():
            if key in self._open:
                continue
            try:
                values = self._seal.open(key, each.values["sealed"])
            except Fault as fault:
                self._problems[key] = fault
            else:
                redact(*values.values())
                self._open[key] = (each.values["sealed"], values)

    def close(self) -> None:
        """Forget all of them."""
        self.look(())

    def problem(self, secret: ResourceRow) -> str:
        """Why it cannot be opened; empty when it can."""
        return self._problems[secret.id].message if secret.id in self._problems else ""

    def values(self, secret: ResourceRow) -> Mapping[str, str]:
        """What it holds. Raises Fault (CONFIG) when it cannot be opened."""
        if secret.id in self._problems:
            raise self._problems[secret.id]
        return self._open[secret.id][1] if secret.id in self._open else {}

    def changes(self, secret: ResourceRow, given: Spec) -> bool:
        """Whether what was given makes another secret of it; one that cannot be opened is always another."""
        if secret.kind != "secret" or not isinstance(given, SecretSpec) or not given.data:
            return False
        if secret.id in self._problems:
            return True
        held = self.values(secret)
        return any(held.get(key) != value for key, value in given.data.items())

    def columns(self, key: str, given: SecretSpec, kept: ResourceRow | None) -> dict[str, Any]:
        """The row of a secret that has what was given, and else what it had before.

        What cannot be opened is gone: its keys stay as long as they are written anew.
        """
        held = dict(self._open[key][1]) if kept is not None and key in self._open else {}
        for name, value in (given.data or {}).items():
            if value is None:
                held.pop(name, None)
            else:
                held[name] = value
        redact(*held.values())  # before the first line about it is written
        try:
            return {"sealed": self._seal.close(key, held), "keys": sorted(held)}
        finally:
            forget(*held.values())

    def resealed(self, secrets: Iterable[ResourceRow]) -> dict[str, bytes]:
        """Those that an older key had sealed, by id, sealed with the one of now."""
        return {
            each.id: self._seal.close(each.id, self._open[each.id][1])
            for each in secrets
            if each.id in self._open and not self._seal.is_current(each.values["sealed"])
        }
