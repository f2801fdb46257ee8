"""The values of secrets while the fleet lives: decrypted on reading, masked in the log, never shown."""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from pallas.ledger.kept import ResourceRow
from pallas.model import Fault
from pallas.model.redaction import forget, redact

from .specs import SecretSpec, Spec

if TYPE_CHECKING:
    from .secret_seal import Seal


class Vault:
    """Encrypts and decrypts the secrets of one fleet."""

    def __init__(self, seal: "Seal") -> None:
        self._seal = seal
        self._open: dict[str, tuple[bytes, dict[str, str]]] = {}
        self._problems: dict[str, Fault] = {}

    @property
    def unsealable(self) -> str:
        """Why nothing can be encrypted; empty if it can."""
        return self._seal.problem

    def look(self, secrets: Iterable[ResourceRow]) -> None:
        """Set the current rows of all secrets."""
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
        """Forget all values."""
        self.look(())

    def problem(self, secret: ResourceRow) -> str:
        """Why the secret cannot be decrypted; empty if it can."""
        return self._problems[secret.id].message if secret.id in self._problems else ""

    def values(self, secret: ResourceRow) -> Mapping[str, str]:
        """The values of the secret. Raises Fault (CONFIG) if it cannot be decrypted."""
        if secret.id in self._problems:
            raise self._problems[secret.id]
        return self._open[secret.id][1] if secret.id in self._open else {}

    def changes(self, secret: ResourceRow, given: Spec) -> bool:
        """Whether the given spec changes the secret; always if that cannot be decrypted."""
        if secret.kind != "secret" or not isinstance(given, SecretSpec) or not given.data:
            return False
        if secret.id in self._problems:
            return True
        held = self.values(secret)
        return any(held.get(key) != value for key, value in given.data.items())

    def columns(self, key: str, given: SecretSpec, row: ResourceRow | None) -> dict[str, Any]:
        """The columns of a secret with the given values, and its earlier values for other keys.

        Values that cannot be decrypted are lost; their keys stay only if they are given again.
        """
        held = dict(self._open[key][1]) if row is not None and key in self._open else {}
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
        """The secrets that an older key encrypted, by id, encrypted with the current one."""
        return {
            each.id: self._seal.close(each.id, self._open[each.id][1])
            for each in secrets
            if each.id in self._open and not self._seal.is_current(each.values["sealed"])
        }
