"""A deployment's own certificate authority, and what it vouches for: each site, clients, the operator.

Under the directory: ``ca.pem`` and ``ca.key``, then in each of ``sites/NAME``, ``clients/client`` and
``clients/operator`` what one host needs and no more; a site's has a client of its own besides, for what comes
in and goes out by HTTP. The authority's key need not be on any host once that is done.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from anabranch.log import names
from anabranch.log.connection import Tls
from anabranch.site.config import ConfigError

AUTHORITY_DAYS = 3650
DAYS = 397
"""How long what the authority signs is good for."""
_EARLIER = timedelta(hours=1)
"""Clocks may be off by so much when a new certificate is used."""

CLIENTS = {"client": names.CLIENT, "operator": names.OPERATOR}


def of_site(directory: Path, site: str) -> Tls:
    return _files(directory / "sites" / site)


def of_endpoint(directory: Path, site: str) -> Tls:
    """Of what clients reach by HTTP at a site."""
    return _files(directory / "sites" / site / "client")


def of_client(directory: Path, name: str) -> Tls:
    """``client`` for producers and applications, ``operator`` for who installs plans."""
    return _files(directory / "clients" / name)


def _files(directory: Path) -> Tls:
    return Tls(directory / "ca.pem", directory / "certificate.pem", directory / "key.pem")


def create(directory: Path, hosts: Mapping[str, Sequence[str]], renew: bool = False) -> list[Path]:
    """Makes what is missing for the sites, of which ``hosts`` names the hosts; the directories that are new.
    ``renew``: makes all anew but the authority."""
    lowered = [site.lower() for site in hosts]
    for site in hosts:
        if lowered.count(site.lower()) > 1:
            raise ConfigError(
                f"site {site!r}: another one differs only in capital letters, which certificates do not tell "
                "apart; rename one"
            )
    authority = Authority(directory)
    made = []
    for site, places in hosts.items():
        if renew or not of_site(directory, site).key.is_file():
            authority.vouch(of_site(directory, site), site, names.user(site), [site, *places])
            authority.vouch(of_endpoint(directory, site), site, names.user(names.CLIENT), [])
            made.append(directory / "sites" / site)
    for name, role in CLIENTS.items():
        if renew or not of_client(directory, name).key.is_file():
            authority.vouch(of_client(directory, name), name, names.user(role), [])
            made.append(directory / "clients" / name)
    return made


class Authority:
    """The one of ``directory``; made there if there is none."""

    def __init__(self, directory: Path) -> None:
        self._certificate_file = directory / "ca.pem"
        key_file = directory / "ca.key"
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            if not self._certificate_file.exists():
                self._found(key_file)
            self._certificate = x509.load_pem_x509_certificate(self._certificate_file.read_bytes())
            key = serialization.load_pem_private_key(key_file.read_bytes(), None)
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{directory}: its certificate authority cannot be used ({error}); name another directory, "
                "or bring back ca.pem and ca.key"
            ) from None
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def _found(self, key_file: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("anabranch authority")
        now = datetime.now(UTC)
        certificate = (
            _certificate(name, name, key.public_key(), now + timedelta(days=AUTHORITY_DAYS))
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        _write(key_file, _pem(key))
        _write(self._certificate_file, certificate.public_bytes(serialization.Encoding.PEM))

    def vouch(
        self, files: Tls, name: str, user: str, places: Sequence[str], until: datetime | None = None
    ) -> None:
        """``places``: where a server of that name may be found; none: it is no server."""
        key = ec.generate_private_key(ec.SECP256R1())
        uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if places else [])]
        called: list[x509.GeneralName] = [x509.UniformResourceIdentifier(user)]
        called += [_place(place) for place in dict.fromkeys(places)]
        end = until or datetime.now(UTC) + timedelta(days=DAYS)
        certificate = (
            _certificate(
                _name(name),
                self._certificate.subject,
                key.public_key(),
                min(end, self._certificate.not_valid_after_utc),
            )
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
            .add_extension(x509.SubjectAlternativeName(called), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )
        files.key.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(files.key, _pem(key))
        _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))
        _write(files.ca, self._certificate.public_bytes(serialization.Encoding.PEM))


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime
) -> x509.CertificateBuilder:
    begin = min(datetime.now(UTC), until) - _EARLIER
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(until)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _place(place: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(place))
    except ValueError:
        return x509.DNSName(place)


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes) -> None:
    """Nobody but its owner reads it, from the beginning; there is the old one or the new one, never half."""
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    fresh.replace(path)
