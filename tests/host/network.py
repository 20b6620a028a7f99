"""The test hosts' own network: one bridge with a fixed IPv4 subnet and no route to anywhere else.

The bridge's first address is this machine's: what test hosts should reach (the local Hub) listens there.
"""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Iterable
from pathlib import Path

from .command import run
from .errors import HostError

BRIDGE = "gpuhost0"
SUBNET = ipaddress.IPv4Network(os.environ.get("GPUHOST_SUBNET", "10.231.0.0/24"))
GATEWAY = SUBNET.network_address + 1


def describe() -> dict[str, str]:
    """What a server for the test hosts needs to know; the same values the bridge is made with."""
    return {"bridge": BRIDGE, "address": str(GATEWAY), "subnet": str(SUBNET)}


def ensure() -> None:
    """Make the bridge and bring it up; nothing to do if it is there."""
    if not Path("/sys/class/net", BRIDGE).exists():
        run("ip", "link", "add", BRIDGE, "type", "bridge", "forward_delay", "0")
        run("ip", "link", "set", BRIDGE, "addrgenmode", "none")
    run("ip", "addr", "replace", f"{GATEWAY}/{SUBNET.prefixlen}", "dev", BRIDGE)
    run("ip", "link", "set", BRIDGE, "up")


def remove_unused() -> None:
    """Remove the bridge if it is there and nothing is plugged in."""
    ports = Path("/sys/class/net", BRIDGE, "brif")
    if ports.is_dir() and not any(ports.iterdir()):
        run("ip", "link", "del", BRIDGE)


def free_address(taken: Iterable[str]) -> str:
    """The lowest host address not in `taken`."""
    used = {*taken, str(GATEWAY)}
    for address in SUBNET.hosts():
        if str(address) not in used:
            return str(address)
    raise HostError(f"all addresses of {SUBNET} are taken: destroy some test hosts (`testhost list`)")


def machine_name(address: str) -> str:
    """A machine name short enough that systemd-nspawn names the host's end of the link `vb-` and it, whole."""
    return f"gh{int(ipaddress.IPv4Address(address)) - int(SUBNET.network_address)}"


def unplug(address: str) -> None:
    """Remove a host's link now; the kernel would do it some time after the host's last process ended."""
    link = f"vb-{machine_name(address)}"
    if Path("/sys/class/net", link).exists():
        run("ip", "link", "del", link, check=False)


def mac_address(address: str) -> str:
    """A MAC made from the address, so that a new host with an old address meets no stale neighbour entry."""
    octets = ipaddress.IPv4Address(address).packed
    return ":".join(f"{octet:02x}" for octet in (0x02, 0x67, *octets))
