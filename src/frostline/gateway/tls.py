"""TLS as configured, checked when the gateway starts and not when the first client comes."""

from __future__ import annotations

import ssl
from pathlib import Path

from frostline.config import GatewaySettings
from frostline.errors import ConfigError


def context(options: GatewaySettings) -> ssl.SSLContext | None:
    """None when no certificate is set; a file that cannot be used is named with the reason."""
    if not options.tls_cert and not options.tls_key:
        return None
    for name, path in (("tls_cert", options.tls_cert), ("tls_key", options.tls_key)):
        if not path:
            raise ConfigError(f"gateway.{name} is not set", hint="TLS needs both gateway.tls_cert and gateway.tls_key")
        _readable(name, Path(path).expanduser())
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        # Without a password callback an encrypted key would be asked for on the terminal.
        found.load_cert_chain(
            Path(options.tls_cert).expanduser(), Path(options.tls_key).expanduser(), password=lambda: ""
        )
    except (ssl.SSLError, OSError) as error:
        raise ConfigError(
            f"gateway.tls_cert {options.tls_cert} and gateway.tls_key {options.tls_key} cannot be used: "
            f"{getattr(error, 'reason', None) or error}",
            hint="both are PEM files, the key unencrypted and the certificate's own",
        ) from None
    return found


def _readable(name: str, path: Path) -> None:
    try:
        path.read_bytes()
    except OSError as error:
        raise ConfigError(f"gateway.{name} {path} cannot be read: {error.strerror}") from None
