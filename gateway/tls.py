"""HTTPS for trying the page from a phone, which gives no microphone without it: a configured certificate or a self-signed one."""

from __future__ import annotations

import ipaddress
import shutil
import socket
import ssl
import subprocess
from pathlib import Path

from gateway.config import ConfigError, Settings

DAYS = 397  # the longest that browsers take


def context(settings: Settings) -> ssl.SSLContext:
    """The server's TLS context; makes a self-signed certificate in the cache folder where none is configured.

    Raises `ConfigError`.
    """
    certificate, key = settings.server.tls_certificate, settings.server.tls_key
    if not certificate:
        certificate, key = map(str, _self_signed(settings.cache_path / "tls"))
    for name, path in (("server.tls_certificate", certificate), ("server.tls_key", key)):
        _check_pem(name, Path(path))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"cannot load the certificate {certificate} with key {key}: {error}") from error
    return made


def _check_pem(name: str, path: Path) -> None:
    """OpenSSL's own words do not say which of the two files is meant. Raises `ConfigError`."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{name}: cannot read {path}: {error.strerror}") from error
    wanted = b"CERTIFICATE-----" if name.endswith("certificate") else b"PRIVATE KEY-----"
    if wanted not in text:
        raise ConfigError(f"{name}: {path} has {len(text)} bytes and no {wanted.decode()[:-5].lower()}; expected one in PEM form")


def _self_signed(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    if certificate.exists() and key.exists():
        return certificate, key
    openssl = shutil.which("openssl")
    if openssl is None:
        raise ConfigError(
            "--tls without a certificate needs the openssl command; install it, or set server.tls_certificate and server.tls_key"
        )
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"no certificate can be kept in {folder}: {error.strerror}; STRETTO_CACHE_DIR moves it") from error
    names = ",".join([*(f"DNS:{name}" for name in {"localhost", socket.gethostname()}), *(f"IP:{address}" for address in _addresses())])
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", str(key), "-out", str(certificate), "-days", str(DAYS)]
    done = subprocess.run(
        [*command, "-subj", "/CN=stretto", "-addext", f"subjectAltName={names}"], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ConfigError(f"openssl could not make a certificate: {done.stderr.strip().splitlines()[-1:]}")
    key.chmod(0o600)
    return certificate, key


def _addresses() -> list[str]:
    """This machine's addresses, as far as its own name tells."""
    found = {"127.0.0.1"}
    try:
        found |= {str(ipaddress.ip_address(info[4][0])) for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    except OSError:
        pass
    return sorted(found)
