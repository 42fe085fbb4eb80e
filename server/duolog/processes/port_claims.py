"""Are the ports free that the children will listen on? If not, who has them?"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

import psutil

from duolog.ports.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class PortClaim:
    setting: str
    """The setting that chose the port, for the error message."""
    host: str
    port: int


def check_ports(claims: Iterable[PortClaim]) -> None:
    """Raises ConfigurationError for the first port that cannot be had, naming the program that has it."""
    for claim in claims:
        try:
            _bind(claim)
        except OSError as error:
            raise ConfigurationError(_explain(claim, error)) from error


def _bind(claim: PortClaim) -> None:
    family, kind, protocol, _name, address = socket.getaddrinfo(claim.host, claim.port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)


def _explain(claim: PortClaim, error: OSError) -> str:
    if error.errno != errno.EADDRINUSE:
        return f"cannot listen on {claim.host}:{claim.port} ({error.strerror}); change `{claim.setting}` or the host."
    return (
        f"port {claim.port} (`{claim.setting}`) is taken by {_owner(claim.port)}; "
        f"stop it, or choose another port in `{claim.setting}`."
    )


def _owner(port: int) -> str:
    """Name and number of the program that listens on the port, as far as this user may know."""
    with suppress(psutil.Error, OSError):
        for connection in psutil.net_connections(kind="tcp"):
            listens_there = connection.status == psutil.CONN_LISTEN and connection.laddr[1:] == (port,)
            if listens_there and connection.pid:
                command = " ".join(psutil.Process(connection.pid).cmdline())[:80]
                return f"`{command}` (process {connection.pid})"
    return "another program"
