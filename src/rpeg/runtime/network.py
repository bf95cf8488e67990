"""The network interfaces of this machine."""

from __future__ import annotations


def interface_of(address: str) -> str | None:
    """The name of the interface that has this IP address; None where none has it.

    Collectives are bound to it: left to themselves libraries take the interface that the host's name resolves to.
    """
    import psutil

    if address.startswith("127."):
        return "lo"
    for name, addresses in psutil.net_if_addrs().items():
        if any(found.address == address for found in addresses):
            return str(name)
    return None
