"""`foredraft certificates`: an authority, and a certificate for each role of a cluster (`mtls`)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from foredraft.errors import ConfigError
from foredraft.rpc.transport import Role

app = typer.Typer(add_completion=False, help="Make certificates for `mtls`.")

_AUTHORITY = "ca"
# Clocks of machines differ.
_EARLY = timedelta(minutes=5)


@app.command()
def main(
    folder: Annotated[Path, typer.Argument(help="Where they go; made if there is none.")],
    days: Annotated[int, typer.Option(min=1, max=3650, help="How long they are valid.")] = 365,
) -> None:
    """Make a certificate and key for orchestrator, verifier and drafter.

    The authority in the folder signs them; one is made if there is none. Its key, ca.key, belongs
    on no node; each node needs ca.crt and the files of the roles that run there.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    now = datetime.now(UTC)
    authority = _Authority.read_or_make(folder, now, days)
    for role in Role:
        authority.sign(folder, role, now, days)
    typer.echo(f"{', '.join(Role)}: valid for {days} days, signed by {folder / 'ca.crt'}")


class _Authority:
    """Signs the roles' certificates."""

    def __init__(self, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
        self._certificate, self._key = certificate, key

    @classmethod
    def read_or_make(cls, folder: Path, now: datetime, days: int) -> _Authority:
        """Return the folder's authority; raise ConfigError where its files are no pair."""
        paths = folder / f"{_AUTHORITY}.crt", folder / f"{_AUTHORITY}.key"
        if not any(path.exists() for path in paths):
            return cls._make(folder, now, days)
        try:
            certificate = x509.load_pem_x509_certificate(paths[0].read_bytes())
            key = serialization.load_pem_private_key(paths[1].read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ConfigError(f"{folder} holds no whole authority: {error}") from None
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ConfigError(f"{paths[1]} is no key of this command's kind")
        return cls(certificate, key)

    @classmethod
    def _make(cls, folder: Path, now: datetime, days: int) -> _Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("foredraft")
        certificate = (
            _certificate(name, name, key, now, days)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        _write(folder, _AUTHORITY, certificate, key)
        return cls(certificate, key)

    def sign(self, folder: Path, role: Role, now: datetime, days: int) -> None:
        """Write a role's certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            _certificate(_name(role.host), self._certificate.subject, key, now, days)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(role.host)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        _write(folder, role, certificate, key)


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _EARLY)
        .not_valid_after(now + timedelta(days=days))
    )


def _write(
    folder: Path, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey
) -> None:
    """Write NAME.crt, and NAME.key that its owner alone can read."""
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    file = folder / f"{name}.key"
    file.unlink(missing_ok=True)
    file.touch(mode=0o600)
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
