"""Which network interfaces this process talks over, as far as TCP goes: Linux tells of every socket."""

import fcntl
import os
import socket
import struct
from pathlib import Path

_ESTABLISHED = "01"
_SIOCGIFADDR = 0x8915


def tcp_interfaces() -> list[str]:
    """Names of the interfaces of open connections to other hosts."""
    try:
        table = Path("/proc/self/net/tcp").read_text()
        mine = _own_sockets()
    except OSError:
        return []
    addresses = local_addresses(table, mine)
    names = {_address_of(name): name for _, name in socket.if_nameindex()}
    return sorted(names.get(address, address) for address in addresses)


def local_addresses(table: str, inodes: set[str]) -> set[str]:
    """This side's addresses of the established connections in /proc/net/tcp that are ours and leave the host."""
    found = set()
    for line in table.splitlines()[1:]:
        _, local, remote, state, *_, inode = line.split()[:10]
        here, there = (_dotted(end.split(":")[0]) for end in (local, remote))
        if state == _ESTABLISHED and inode in inodes and there != here and not there.startswith("127."):
            found.add(here)
    return found


def _dotted(word: str) -> str:
    return socket.inet_ntoa(struct.pack("=I", int(word, 16)))


def _own_sockets() -> set[str]:
    inodes = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            target = os.readlink(entry)
        except OSError:  # closed meanwhile
            continue
        if target.startswith("socket:["):
            inodes.add(target[len("socket:[") : -1])
    return inodes


def _address_of(interface: str) -> str:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            answer = fcntl.ioctl(any_socket, _SIOCGIFADDR, struct.pack("256s", interface.encode()[:15]))
        except OSError:  # it has no address
            return ""
    return socket.inet_ntoa(answer[20:24])
