"""A cluster on one Linux machine: hosts are network namespaces, their links are shaped to a rate, ranks talk TCP.

    python benchmarks/cluster.py --hosts 6 --rate 1gbit -- spardl bench --size 1000000 --label "1 Gbit/s"
    python benchmarks/cluster.py --rate 1gbit,1gbit,100mbit --timeout 300 -- spardl bench --size resnet20
    python benchmarks/cluster.py --hosts 3 --rate 100mbit --check
    python benchmarks/cluster.py --clean

Runs the command under MPICH's mpiexec, --ranks-per-host ranks on every host. Exits with mpiexec's exit code, with 124
after --timeout, with 2 if something is missing here. The command has no input and sees no network but the cluster's;
`python` and `spardl` are those that belong to the Python that runs this. --rate is one for all hosts or one for each; a
host sends and, at the same time, receives at its rate, headers included, which leaves 95 % to TCP. --delay is added
once on the way from host to host.
All hosts share this machine's cores: the more ranks, the longer it takes to compute, so compare ratios within a run;
and moving bytes takes them too, so --check measures whether the links reach their rates, alone and all at once.

Nothing outside the namespaces is changed, and they go when the run ends, also by an error, Ctrl-C or SIGTERM; what a
run leaves that was killed outright is removed by --clean. Needs root, or a user namespace, where that is allowed:

    sudo "$(command -v python)" benchmarks/cluster.py …
    unshare --user --map-root-user --net --mount sh -c 'mount -t tmpfs tmpfs /run && python benchmarks/cluster.py …'
"""

import argparse
import atexit
import contextlib
import ctypes
import json
import math
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, TypeVar

T = TypeVar("T")
PREFIX = "spardl-"  # of all our names: spardl-<pid of the owner>-<random>-<which>
NAMESPACES = Path("/var/run/netns")  # where `ip netns` keeps them
FRAME = 1514  # bytes of a full Ethernet frame, as tc counts them
SLACK = 2e-4  # seconds by which a shaper's timer may be late
QUEUE = 2e-2  # seconds that packets may queue up for a link before some are dropped,
BUFFER = 1 << 20  # or bytes, if that is more: what a switch may have for a port
MAX_HOSTS = 250
TIMED_OUT = 124  # as timeout(1) has it
UNITS = {"kbit": 1e3, "mbit": 1e6, "gbit": 1e9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
CAPABILITIES = {12: "CAP_NET_ADMIN", 21: "CAP_SYS_ADMIN"}
PACKAGES = {"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "mount": "mount", "hostname": "hostname"}
MODULES = {"veth": "veth", "bridge": "bridge", "tbf": "sch_tbf", "netem": "sch_netem"}

# Takes ssh's place: `launch -x HOST COMMAND…`. The host gets a hostname of its own, and the others' names resolve.
LAUNCH = """#!/bin/sh
shift; host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c 'hostname "$0" && mount --bind {hosts} /etc/hosts && eval exec "$@"' \\
    "$host" "$@"
"""


class ClusterError(RuntimeError):
    """What is missing here, and how to get it."""


class Host(NamedTuple):
    name: str  # of its namespace, and what its ranks see as their hostname
    address: str
    rate: int  # bit/s


class Cluster:
    """Hosts with shaped links, for the length of a ``with`` block; the arguments are those of the command line.

    with Cluster(3, "1gbit,1gbit,100mbit") as cluster:
        cluster.run(["spardl", "bench"], timeout=300)
        print(cluster.bytes_sent())
    """

    def __init__(self, hosts: int | None = None, rate: str = "1gbit", delay: str = "", ranks_per_host: int = 1) -> None:
        if ranks_per_host < 1:
            raise ValueError(f"ranks per host must be at least 1, got {ranks_per_host}")
        self.name = f"{PREFIX}{os.getpid()}-{secrets.token_hex(3)}-"
        self.hosts = [Host(f"{self.name}{i}", f"10.77.0.{i + 1}", r) for i, r in enumerate(parse_rates(rate, hosts))]
        self.ranks_per_host = ranks_per_host
        self._delay = quantity("delay", delay, "50us or 2ms", ("us", "ms", "s")) if delay else 0.0
        self._switch = f"{self.name}switch"
        self._handled: list[signal.Signals] = []

    def __enter__(self) -> "Cluster":
        self._mpiexec = find_tools()
        atexit.register(self.close)  # in case an interrupt hits the few instructions around the with block
        if threading.current_thread() is threading.main_thread():
            # By default these end Python on the spot. Whoever handles or ignores them goes on doing so.
            self._handled = [s for s in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(s) is signal.SIG_DFL]
            for number in self._handled:
                signal.signal(number, _leave)
        try:
            self._bring_up()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends whatever still runs on the hosts and removes them. May be called again."""
        with _uninterrupted():
            remove(self.name)
            atexit.unregister(self.close)
            while self._handled:
                signal.signal(self._handled.pop(), signal.SIG_DFL)

    def _bring_up(self) -> None:
        folder = Path(tempfile.mkdtemp(prefix=self.name))
        hosts, self._launch = folder / "hosts", folder / "launch"
        hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{host.address} {host.name}\n" for host in self.hosts))
        self._launch.write_text(LAUNCH.format(hosts=shlex.quote(str(hosts))))
        self._launch.chmod(0o700)
        for namespace in (self._switch, *(host.name for host in self.hosts)):
            _call("ip", "netns", "add", namespace)
            _call("ip", "-n", namespace, "link", "set", "lo", "up")
        # The bridge has a namespace too, in which mpiexec runs.
        _call("ip", "-n", self._switch, "link", "add", "br0", "type", "bridge")
        _call("ip", "-n", self._switch, "address", "add", "10.77.0.254/24", "dev", "br0")
        _call("ip", "-n", self._switch, "link", "set", "br0", "addrgenmode", "none", "up")
        for i, host in enumerate(self.hosts):
            self._plug_in(host, f"port{i}")

    def _plug_in(self, host: Host, port: str) -> None:
        _call("ip", "-n", self._switch, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", host.name)
        # What may leave at once after a pause. More, and small messages would not feel the rate; less than what is due
        # when a timer fires late, and the rate would not be reached.
        burst = max(4 * FRAME, math.ceil(host.rate / 8 * SLACK))
        limit = max(BUFFER, math.ceil(host.rate / 8 * QUEUE))
        shape = ("tbf", "rate", f"{host.rate}bit", "burst", str(burst), "limit", str(limit))
        # Linux hands down up to 64 KiB as one packet, which saves much time but must fit into a burst, with room left.
        size = str(min(burst // 2, 65536))
        for namespace, device in ((host.name, "eth0"), (self._switch, port)):
            _call("tc", "-n", namespace, "qdisc", "add", "dev", device, "root", "handle", "1:", *shape)
            _call("ip", "-n", namespace, "link", "set", device, "gso_max_size", size, "addrgenmode", "none", "up")
        if self._delay:  # at the switch: TCP holds back when its packets wait in the sender's own queue
            packets = max(1000, math.ceil(host.rate / 8 * (QUEUE + self._delay) / FRAME))
            netem = ("netem", "delay", f"{self._delay * 1e6:.0f}us", "limit", str(packets))
            _call("tc", "-n", self._switch, "qdisc", "add", "dev", port, "parent", "1:1", *netem)
        _call("ip", "-n", self._switch, "link", "set", port, "master", "br0")
        _call("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")

    def run(
        self,
        command: Sequence[str],
        ranks: int | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        capture: bool = False,
    ) -> "subprocess.CompletedProcess[str]":
        """Runs a command under mpiexec, host after host; its output passes through, or is captured as text.

        ``env`` comes on top of the environment. After ``timeout`` seconds everything that was started is killed and
        ``subprocess.TimeoutExpired`` raised.
        """
        most = self.ranks_per_host * len(self.hosts)
        ranks = most if ranks is None else ranks
        if not 1 <= ranks <= most:
            raise ValueError(f"ranks must be from 1 to {most} on this cluster, got {ranks}")
        job = ["ip", "netns", "exec", self._switch, self._mpiexec, "-launcher", "ssh", "-launcher-exec"]
        job += [str(self._launch), "-iface", "br0", "-hosts", ",".join(host.name for host in self.hosts)]
        job += ["-ppn", str(self.ranks_per_host), "-n", str(ranks), *command]
        # TCP through the shaped interface, whatever MPICH would choose by itself.
        network = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp", "FI_TCP_IFACE": "eth0"}
        environment = {**os.environ, "PATH": search_path(), **network, **(env or {})}
        pipe = subprocess.PIPE if capture else None
        # In a session of its own, so that there is a process group to kill.
        process = subprocess.Popen(
            job, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True, env=environment, start_new_session=True
        )
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            with _uninterrupted():
                self._kill(process)
            raise
        return subprocess.CompletedProcess(job, process.returncode, out, err)

    def _kill(self, process: "subprocess.Popen[str]") -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for namespace in _namespaces(self.name):  # what mpiexec starts on the hosts leaves its group
            kill_all(namespace)
        process.communicate()

    def bytes_sent(self) -> dict[str, int]:
        """By host name: what left its interface so far, with headers and mpiexec's own few kilobytes."""
        sent = {}
        for host in self.hosts:
            (link,) = json.loads(_call("ip", "-n", host.name, "-s", "-j", "link", "show", "eth0"))
            sent[host.name] = link["stats64"]["tx"]["bytes"]
        return sent


def parse_rates(text: str, hosts: int | None) -> list[int]:
    """Bit/s of every host."""
    rates = [round(quantity("rate", rate, "1gbit or 100mbit", ("kbit", "mbit", "gbit"))) for rate in text.split(",")]
    hosts = len(rates) if hosts is None else hosts
    if not 1 <= hosts <= MAX_HOSTS:
        raise ValueError(f"hosts must be from 1 to {MAX_HOSTS}, got {hosts}")
    if len(rates) not in (1, hosts):
        raise ValueError(f"rate must be one for all hosts or one for each of the {hosts}, got {len(rates)}")
    return rates if len(rates) == hosts else rates * hosts


def quantity(name: str, text: str, example: str, units: Sequence[str]) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([a-z]+)", text.strip())
    if match is None or match[2] not in units or float(match[1]) == 0:
        raise ValueError(f"{name} must be like {example}, got {text!r}")
    return float(match[1]) * UNITS[match[2]]


# -- what the machine has ----------------------------------------------------------------------------------------------


def find_tools() -> str:
    """The path of MPICH's mpiexec, once everything else is known to be there."""
    find_root()
    for tool, package in PACKAGES.items():
        if shutil.which(tool) is None:
            raise ClusterError(f"no `{tool}` on the PATH: install it, e.g. with apt install {package}")
    mpiexec = shutil.which("mpiexec", path=search_path())
    if mpiexec is None:
        raise ClusterError("no `mpiexec`, neither beside this Python nor on the PATH: pip install mpich")
    if "HYDRA" not in _call(mpiexec, "--version"):
        raise ClusterError(f"{mpiexec} is not MPICH's: pip install mpich, into a virtualenv without another MPI")
    return mpiexec


def find_root() -> None:
    if sys.platform != "linux":
        raise ClusterError(f"needs Linux for its network namespaces, this is {sys.platform}")
    if os.geteuid() != 0:
        raise ClusterError("needs root to make network namespaces: use sudo, or the unshare line that --help shows")
    (effective,) = re.findall(r"CapEff:\s*(\w+)", Path("/proc/self/status").read_text())
    lacking = [name for bit, name in CAPABILITIES.items() if not int(effective, 16) >> bit & 1]
    if lacking:
        raise ClusterError(f"this root lacks {' and '.join(lacking)}: start its container with --privileged")


def search_path() -> str:
    """What belongs to this Python comes first."""
    return os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])


def _call(*command: str) -> str:
    """Output of a tool that must succeed."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        return done.stdout
    said = (done.stderr or done.stdout).strip()
    if re.search(r"qdisc (kind is unknown|not found)|Unknown device type|not supported", said):  # iproute2's words
        for kind in MODULES.keys() & command:
            raise ClusterError(f"this kernel has no {kind}: modprobe {MODULES[kind]}, or use a kernel with it ({said})")
    if command[1:3] == ("netns", "add"):
        raise ClusterError(f"cannot make network namespaces: the kernel must have them, CONFIG_NET_NS ({said})")
    raise ClusterError(f"`{shlex.join(command)}` failed: {said}")


# -- taking down -------------------------------------------------------------------------------------------------------


def clean() -> list[str]:
    """Removes what is left of runs whose process is gone; returns the namespaces."""
    find_root()
    names = [*_namespaces(PREFIX), *(folder.name for folder in _folders(PREFIX))]
    ours = (re.match(rf"{PREFIX}(\d+)-[0-9a-f]{{6}}-", name) for name in names)
    dead = {match[0] for match in ours if match and not Path("/proc", match[1]).exists()}
    return [namespace for name in sorted(dead) for namespace in remove(name)]


def remove(name: str) -> list[str]:
    """Takes down the cluster with this name; returns its namespaces."""
    namespaces = _namespaces(name)
    for namespace in namespaces:
        kill_all(namespace)
        subprocess.run(["ip", "netns", "delete", namespace], capture_output=True)
    for folder in _folders(name):
        shutil.rmtree(folder, ignore_errors=True)
    if left := _namespaces(name):
        raise ClusterError(f"could not remove {', '.join(left)}: try `ip netns delete`")
    return namespaces


def _namespaces(prefix: str) -> list[str]:
    return sorted(path.name for path in NAMESPACES.glob(f"{prefix}*"))


def _folders(prefix: str) -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob(f"{prefix}*"))


def kill_all(namespace: str) -> None:
    """Whatever runs in a namespace of ours was started by us."""
    for _ in range(100):  # they may be starting others
        pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True).stdout.split()
        if not pids:
            break
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
        time.sleep(0.02)


def _leave(number: int, _: object) -> None:
    raise SystemExit(128 + number)


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """Signals wait, also for the tools that are called: Ctrl-C goes to every process of the terminal."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


# -- measuring ---------------------------------------------------------------------------------------------------------


class Link(NamedTuple):
    rate: float  # bit/s of one TCP stream
    latency: float  # seconds that one byte takes


def measure(sender: Host, receiver: Host, seconds: float = 0.5) -> Link:
    """What TCP gets from one host to another."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(_inside(receiver, lambda: socket.create_server((receiver.address, 0))))
        near = stack.enter_context(_inside(sender, lambda: socket.create_connection(server.getsockname(), timeout=10)))
        far = stack.enter_context(server.accept()[0])
        far.settimeout(10)
        latency = _ping_pong(near, far)
        return Link(_stream(near, far, seconds), latency)


def _inside(host: Host, function: Callable[[], T]) -> T:
    """Calls it in a thread that has moved into the host's namespace; a socket opened there stays there."""

    def call() -> T:
        with (NAMESPACES / host.name).open() as namespace:
            if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"setns to {host.name}")
        return function()

    with ThreadPoolExecutor(1) as pool:  # the thread ends here
        return pool.submit(call).result()


def _ping_pong(near: socket.socket, far: socket.socket, rounds: int = 200) -> float:
    seconds = []
    for end in (near, far):
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for _ in range(rounds):  # both ends in one thread: nobody has to be woken up
        started = time.perf_counter()
        for source, sink in ((near, far), (far, near)):
            source.send(b"x")
            sink.recv(1)
        seconds.append((time.perf_counter() - started) / 2)
    return statistics.median(seconds)


def _stream(near: socket.socket, far: socket.socket, seconds: float) -> float:
    """The sender goes on until it is cut off; the first part does not count, in which TCP gets up to speed."""
    buffer = bytearray(1 << 18)

    def send() -> None:
        with contextlib.suppress(OSError):
            while True:
                near.sendall(buffer)

    def receive(seconds: float) -> float:
        received, started = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            received += far.recv_into(buffer)
        return 8 * received / elapsed

    with ThreadPoolExecutor(1) as pool:
        pool.submit(send)
        try:
            receive(seconds / 2)
            return receive(seconds)
        finally:
            near.shutdown(socket.SHUT_RDWR)


def check(cluster: Cluster) -> None:
    """A table of every host sending to the next one: each while the others are silent, and all at once."""
    from spardl.bench.table import Column, print_table  # for this alone: the rest needs nothing but Python

    hosts = cluster.hosts
    if len(hosts) < 2:
        raise ValueError("--check needs two hosts or more")
    nexts = hosts[1:] + hosts[:1]
    alone = list(map(measure, hosts, nexts))
    with ThreadPoolExecutor(len(hosts)) as pool:
        together = list(pool.map(measure, hosts, nexts))
    rows = []
    for i, link in enumerate(alone):
        asked = min(hosts[i].rate, nexts[i].rate)
        row = {"link": f"{i} → {(i + 1) % len(hosts)}", "asked": asked / 1e6, "latency": link.latency * 1e6}
        row |= {"alone": link.rate / 1e6, "alone_share": link.rate / asked}
        rows.append(row | {"together": together[i].rate / 1e6, "together_share": together[i].rate / asked})
    columns = (
        Column("hosts", "link"),
        Column("Mbit/s asked", "asked", ",.1f"),
        Column("alone", "alone", ",.1f"),
        Column("share", "alone_share", ".1%"),
        Column("all at once", "together", ",.1f"),
        Column("share", "together_share", ".1%"),
        Column("one byte, µs", "latency", ".0f"),
    )
    advice = "Shares far below 95 %: this machine is too slow, or too busy, for these rates; ask for lower ones."
    print_table(f"{len(hosts)} hosts, TCP from each to the next", columns, rows, caption=advice)


# -- all of it ---------------------------------------------------------------------------------------------------------


def parse_args() -> argparse.Namespace:
    flags = argparse.ArgumentParser(
        usage="%(prog)s [options] -- COMMAND …",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    flags.add_argument("--hosts", type=int, metavar="N", help="how many (default: as many as there are rates)")
    flags.add_argument("--rate", default="1gbit", help="of all hosts, or of each: 1gbit,1gbit,100mbit (default: 1gbit)")
    flags.add_argument("--delay", default="", help="one way, e.g. 50us; needs netem in the kernel (default: none)")
    flags.add_argument("--ranks-per-host", type=int, default=1, metavar="N", help="(default: %(default)s)")
    flags.add_argument("--timeout", type=float, metavar="SECONDS", help="kill the command after this time")
    flags.add_argument("--check", action="store_true", help="measure the links, before the command if there is one")
    flags.add_argument("--clean", action="store_true", help="remove what killed runs have left, and do nothing else")
    flags.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND", help="what mpiexec is to run")
    args = flags.parse_args()
    if args.command[:1] == ["--"]:
        del args.command[0]
    if not (args.command or args.check or args.clean):
        flags.error("nothing to do: give -- COMMAND, --check or --clean")
    return args


def run(args: argparse.Namespace) -> int:
    if args.clean:
        print("\n".join(clean()) or "nothing to clean")
        return 0
    with Cluster(args.hosts, args.rate, args.delay, args.ranks_per_host) as cluster:
        if args.check:
            check(cluster)
        return cluster.run(args.command, timeout=args.timeout).returncode if args.command else 0


def main() -> int:
    args = parse_args()
    try:
        return run(args)
    except (ClusterError, ValueError) as error:
        print(f"cluster: {error}", file=sys.stderr)
        return 2
    except subprocess.TimeoutExpired:
        print(f"cluster: killed after {args.timeout:g} s", file=sys.stderr)
        return TIMED_OUT
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


if __name__ == "__main__":
    sys.exit(main())
