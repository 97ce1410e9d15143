"""Free ports of the loopback for servers that are yet to start."""

import contextlib
import random
import socket


def free_ports(count: int) -> list[int]:
    """Ports on which neither TCP nor UDP is in use.

    They are below those that Linux gives to clients (`ip_local_port_range`), so that none is taken between this call
    and the server's start.
    """
    found: list[int] = []
    for port in random.SystemRandom().sample(range(10_000, 32_768), 1000):
        with (
            contextlib.suppress(OSError),
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        ):
            udp.bind(("127.0.0.1", port))
            tcp.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == count:
            return found
    raise OSError(f"{len(found)} ports are free, expected {count}")
