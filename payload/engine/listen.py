"""Take the server's address before the minutes in which the engine is built, or say why not."""

from __future__ import annotations

import errno
import socket


def bind(host: str, port: int) -> list[socket.socket]:
    """Return a bound socket for each address of `host`; nobody can connect yet.

    Raises:
        ValueError: there is no such address, or its port can't be had; with what to do.
    """
    bound: list[socket.socket] = []
    for family, address in _addresses(host, port):
        listener = socket.socket(family, socket.SOCK_STREAM)
        bound.append(listener)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            listener.bind(address)
        except OSError as error:
            for opened in bound:
                opened.close()
            raise ValueError(refusal(host, port, error)) from error
    return bound


def refusal(host: str, port: int, error: OSError) -> str:
    """Return why an address can't be had, and what to do."""
    match error.errno:
        case errno.EADDRINUSE:
            who = f"`ss -ltnp 'sport = :{port}'` names who"
            return f"port {port} of {host} is in use: {who}; choose another --port"
        case errno.EACCES:
            return f"port {port} needs more rights ({error.strerror}); choose --port above 1023"
        case _:
            what = f"{host}:{port} can't be listened on ({error.strerror})"
            return f"{what}; --host takes an address of this machine, such as 127.0.0.1"


def _addresses(host: str, port: int) -> list[tuple[int, tuple[str | int, ...] | tuple[int, bytes]]]:
    if not host:  # would be every address: more likely a variable that nobody has set
        raise ValueError("--host is empty: 0.0.0.0 means all addresses, 127.0.0.1 only this host")
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError as error:
        raise ValueError(f"--host {host!r} is no name of a host: {error}") from error
    except OSError as error:
        raise ValueError(refusal(host, port, error)) from error
    return list(dict.fromkeys((family, address) for family, _, _, _, address in found))
