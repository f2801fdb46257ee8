"""Certificates for tests: an authority, what it signs, and what nobody signed."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAMES = ("localhost", "agents.example")


@dataclass(frozen=True)
class Authority:
    """Signs certificates; ``file`` is what clients trust."""

    file: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def issue(self, folder: Path, name: str = "server", *, days: float = 90) -> tuple[Path, Path]:
        """Certificate and key for this machine's names and ``agents.example``; ``days`` may be past."""
        return _issue(folder, name, days, self)


def authority(folder: Path) -> Authority:
    """An authority of our own."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority of the tests")])
    now = datetime.now(UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    file = folder / "authority.pem"
    file.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    return Authority(file, key, built)


def self_signed(folder: Path, name: str = "own", *, days: float = 90) -> tuple[Path, Path]:
    """A certificate that nobody else signed, and its key."""
    return _issue(folder, name, days, None)


def encrypted(keyfile: Path) -> Path:
    """The key of ``keyfile`` under a password, beside it."""
    key = serialization.load_pem_private_key(keyfile.read_bytes(), None)
    path = keyfile.with_suffix(".locked.pem")
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    return path


def _issue(folder: Path, name: str, days: float, by: Authority | None) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signer = by.key if by is not None else key
    addresses = [x509.IPAddress(ip_address("127.0.0.1"))]
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(by.certificate.subject if by is not None else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(
            x509.SubjectAlternativeName([*(x509.DNSName(each) for each in NAMES), *addresses]), critical=False
        )
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .add_extension(_usage(signs=False), critical=True)
        .sign(signer, hashes.SHA256())
    )
    certfile, keyfile = folder / f"{name}.pem", folder / f"{name}.key.pem"
    certfile.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    keyfile.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return certfile, keyfile


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
