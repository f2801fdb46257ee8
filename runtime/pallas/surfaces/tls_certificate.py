"""The TLS certificate of our ports: checked before anything starts, and reloaded while the fleet runs."""

import logging
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from pallas.config.models import TlsConfig
from pallas.model import Fault, FaultType

log = logging.getLogger(__name__)

CERT_OPTION: Final = "--ssl-certfile"
KEY_OPTION: Final = "--ssl-keyfile"
SOON: Final = 21
"""Days before the expiry of a certificate from which a warning is given."""


class Certificate:
    """One certificate for all ports of a fleet. The constructor reads its files and raises Fault (CONFIG)."""

    def __init__(self, config: TlsConfig) -> None:
        self._config = config
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.set_alpn_protocols(["http/1.1"])
        self.reload()

    def reload(self) -> None:
        """Use the files' current content for new connections; existing connections stay.

        Raises Fault (CONFIG), and keeps the previous certificate.
        """
        _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), self._config)  # an invalid one changes nothing
        _load(self.context, self._config)

    def warning(self) -> str:
        """Return the problem with its dates, empty if there is none."""
        from cryptography import x509

        try:
            found = x509.load_pem_x509_certificates(self._config.certfile.read_bytes())[0]
        except (OSError, ValueError, IndexError):  # it could be loaded, so the clients decide
            return ""
        name, now = f"{CERT_OPTION} {self._config.certfile}", datetime.now(UTC)
        days = (found.not_valid_after_utc - now).days
        if found.not_valid_after_utc < now:
            return f"{name}: the certificate expired {-days} day(s) ago; callers refuse it: renew it"
        if found.not_valid_before_utc > now:
            return (
                f"{name}: the certificate is not valid before {found.not_valid_before_utc:%Y-%m-%d %H:%M} UTC"
            )
        if days < SOON:
            return f"{name}: the certificate expires in {days} day(s); renew it, then send SIGHUP"
        return ""


class _EncryptedError(Exception):
    """The key needs a password."""


def _no_password() -> str:
    raise _EncryptedError


def _load(context: ssl.SSLContext, config: TlsConfig) -> None:
    for option, path in ((CERT_OPTION, config.certfile), (KEY_OPTION, config.keyfile)):
        if problem := _unreadable(path):
            raise Fault(FaultType.CONFIG, f"{option} {path}: {problem}")
    pair = f"{CERT_OPTION} {config.certfile}, {KEY_OPTION} {config.keyfile}"
    try:
        context.load_cert_chain(config.certfile, config.keyfile, _no_password)
    except _EncryptedError:
        problem = "the key is encrypted; write it without a password, readable only for its user"
        raise Fault(FaultType.CONFIG, f"{KEY_OPTION} {config.keyfile}: {problem}") from None
    except ssl.SSLError as error:
        if error.reason in ("KEY_VALUES_MISMATCH", "KEY_TYPE_MISMATCH"):
            raise Fault(FaultType.CONFIG, f"{pair}: the key does not belong to the certificate") from None
        if problem := _no_pem(config.certfile, "CERTIFICATE"):
            raise Fault(FaultType.CONFIG, f"{CERT_OPTION} {config.certfile}: {problem}") from None
        if problem := _no_pem(config.keyfile, "PRIVATE KEY"):
            raise Fault(FaultType.CONFIG, f"{KEY_OPTION} {config.keyfile}: {problem}") from None
        reason = (error.reason or "unknown reason").lower().replace("_", " ")
        raise Fault(FaultType.CONFIG, f"{pair}: they cannot be used ({reason})") from None
    except (OSError, ValueError) as error:
        raise Fault(FaultType.CONFIG, f"{pair}: they cannot be used ({type(error).__name__})") from None


def _unreadable(path: Path) -> str:
    try:
        with path.open("rb"):
            return ""
    except FileNotFoundError:
        return "there is no such file"
    except IsADirectoryError:
        return "is a folder; name the PEM file in it"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def _no_pem(path: Path, kind: str) -> str:
    try:
        text = path.read_bytes()
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return "" if b"-----BEGIN " in text and kind.encode() in text else f"holds no {kind} in PEM form"
