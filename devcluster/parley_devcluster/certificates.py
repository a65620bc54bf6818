"""The cluster's certificate authority, the certificates it signs, and the service account key.

Names become permissions: the API server reads a client certificate's common name as the user and its
organisations as the groups. All files lie in one folder that only its owner may read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_VALID = timedelta(days=365)
_SLACK = timedelta(hours=1)  # for clocks that are slow


@dataclass(frozen=True)
class KeyPair:
    """The files of a certificate and its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True)
class Authority:
    """The certificate authority of one cluster, kept in `folder`."""

    folder: Path

    @classmethod
    def create(cls, folder: Path, now: datetime) -> Authority:
        """Create a new CA and a new service account key, replacing those in the folder."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        authority = cls(folder)
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("parley-devcluster", [])
        usage = _key_usage(signs_certificates=True)
        certificate = (
            _builder(name, name, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        _write_pair(authority.pair, certificate, key)
        _write_key(authority.service_account_key, ec.generate_private_key(ec.SECP256R1()))
        return authority

    @property
    def pair(self) -> KeyPair:
        """The CA's own certificate and key."""
        return self.named("ca")

    @property
    def service_account_key(self) -> Path:
        """The key that signs and verifies service account tokens."""
        return self.folder / "service-account.key"

    def named(self, name: str) -> KeyPair:
        """The files of the certificate of that file name, whether they exist or not."""
        return KeyPair(self.folder / f"{name}.crt", self.folder / f"{name}.key")

    def client(self, name: str, user: str, groups: Sequence[str], now: datetime) -> KeyPair:
        """A new client certificate for the user in those groups, in files called `name`."""
        return self._sign(name, _name(user, groups), [ExtendedKeyUsageOID.CLIENT_AUTH], [], now)

    def serving(self, name: str, hosts: Sequence[str], now: datetime) -> KeyPair:
        """A new serving certificate for host names and addresses, in files called `name`."""
        names = [_host(host) for host in hosts]
        return self._sign(name, _name(name, []), [ExtendedKeyUsageOID.SERVER_AUTH], names, now)

    def peer(self, name: str, hosts: Sequence[str], now: datetime) -> KeyPair:
        """A new certificate for these names, for both server and client authentication, in files called `name`."""
        names = [_host(host) for host in hosts]
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        return self._sign(name, _name(name, []), usages, names, now)

    def _sign(
        self,
        name: str,
        subject: x509.Name,
        usages: Sequence[x509.ObjectIdentifier],
        hosts: Sequence[x509.GeneralName],
        now: datetime,
    ) -> KeyPair:
        issuer = x509.load_pem_x509_certificate(self.pair.certificate.read_bytes())
        signer = serialization.load_pem_private_key(self.pair.key.read_bytes(), password=None)
        if not isinstance(signer, ec.EllipticCurvePrivateKey):
            raise TypeError(
                f"{self.pair.key} is not the elliptic curve key this program wrote: remove {self.folder}"
            )
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _builder(subject, issuer.subject, key.public_key(), now)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        )
        if hosts:
            builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        pair = self.named(name)
        _write_pair(pair, builder.sign(signer, hashes.SHA256()), key)
        return pair


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now.astimezone(UTC) - _SLACK)
        .not_valid_after(now.astimezone(UTC) + _VALID)
    )


def _name(common: str, organisations: Sequence[str]) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in organisations]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=not signs_certificates,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_pair(pair: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(pair.key, key)


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    """Write the file with its final mode from the start, so that others can never read it."""
    data = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
