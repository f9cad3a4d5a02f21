"""The emulated cluster: its hosts, its rates, and that nothing of it stays. Skipped where it cannot be brought up."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "cluster.py"
sys.path.append(str(PROGRAM.parent))  # last: tests have folders of the same names
import cluster as emulated  # noqa: E402
from cluster import Cluster, ClusterError  # noqa: E402

pytestmark = pytest.mark.launches
LIMIT = 30  # seconds
WHERE = """
import json, socket
from mpi4py import MPI
name = socket.gethostname()
ranks = MPI.COMM_WORLD.gather([name, socket.gethostbyname(name), MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank)])
if ranks:
    print(json.dumps(ranks))
"""
SEND = """
import sys, time
import numpy as np
from mpi4py import MPI
comm, data = MPI.COMM_WORLD, np.zeros(int(sys.argv[1]), np.uint8)
comm.Barrier()
started = time.perf_counter()
if comm.rank == 0:
    comm.Send(data, 1)
elif comm.rank == 1:
    comm.Recv(data, 0)
    print(time.perf_counter() - started)
"""


@pytest.fixture(scope="module")
def three():
    """Three hosts, the last of them slow."""
    with contextlib.ExitStack() as stack:
        try:
            cluster = stack.enter_context(Cluster(rate="100mbit,100mbit,20mbit"))
        except ClusterError as error:
            if "` failed: " in str(error):  # nothing is missing, something is wrong
                raise
            pytest.skip(f"no emulated cluster here: {error}")
        yield cluster


def python(program, *arguments):
    return [sys.executable, "-m", "mpi4py", "-c", program, *map(str, arguments)]


def output(cluster, command, **options):
    done = cluster.run(command, timeout=LIMIT, capture=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def left(name):
    """What there is of a cluster whose name begins so: namespaces and folders."""
    return [*emulated._namespaces(name), *emulated._folders(name)]


@contextlib.contextmanager
def sleeping_run(*options):
    """A run of its own, whose ranks sleep; gives its process, its name, and the ranks' process ids."""
    command = [sys.executable, str(PROGRAM), "--hosts", "2", *options, "--", "sleep", "100"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=hear_signals) as process:
        name = f"{emulated.PREFIX}{process.pid}-"
        try:
            yield process, name, wait_for_sleepers(name)
        finally:
            process.kill()


def hear_signals():
    """Also where the tests run in the background, whose shell has them ignored."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def wait_for_sleepers(name):
    deadline = time.monotonic() + LIMIT
    while time.monotonic() < deadline:
        hosts = [namespace for namespace in emulated._namespaces(name) if not namespace.endswith("switch")]
        pids = [pid for host in hosts for pid in emulated._call("ip", "netns", "pids", host).split()]
        sleepers = [pid for pid in pids if runs_sleep(pid)]
        if len(sleepers) == 2:
            return sleepers
        time.sleep(0.05)
    raise AssertionError("the ranks did not start")


def runs_sleep(pid):
    try:
        return Path("/proc", pid, "cmdline").read_bytes().startswith(b"sleep\0")  # empty once it is a zombie
    except OSError:
        return False


# -- hosts -------------------------------------------------------------------------------------------------------------


def test_every_rank_has_a_host(three):
    expected = [[host.name, host.address, 3] for host in three.hosts]
    assert output(three, python(WHERE)) == expected
    assert len({host.name for host in three.hosts}) == len({host.address for host in three.hosts}) == 3


def test_fewer_ranks_and_environment(three):
    assert len(output(three, python(WHERE), ranks=2)) == 2
    shell = ["sh", "-c", 'echo "$SPARDL_TEST"']
    assert output(three, shell, ranks=1, env={"SPARDL_TEST": "12"}) == 12
    with pytest.raises(ValueError, match="ranks must be from 1 to 3 on this cluster, got 4"):
        three.run(shell, ranks=4)


def test_several_ranks_per_host(three):
    with Cluster(2, ranks_per_host=2) as cluster:  # beside the other
        names = [name for name, *_ in output(cluster, python(WHERE))]
    assert names == [cluster.hosts[i].name for i in (0, 0, 1, 1)]


# -- rates -------------------------------------------------------------------------------------------------------------


def test_messages_pass_the_shaped_link(three):
    size = 4_000_000
    before = three.bytes_sent()
    seconds = output(three, python(SEND, size))
    first, *others = (sent - before[name] for name, sent in three.bytes_sent().items())
    assert size < first < 1.1 * size
    assert max(others) < 0.1 * size
    assert seconds > 0.75 * size / (100e6 / 8)


def test_links_have_the_rates_asked_for(three):
    a, b, slow = three.hosts
    assert_rate(a, b, 100e6)
    assert_rate(a, slow, 20e6)  # it receives slowly
    assert_rate(slow, a, 20e6)  # and sends slowly


def assert_rate(source, target, asked):
    """Never faster than asked for, and as fast in one of a few tries: a busy machine may be slow to send."""
    rates = []
    while not any(rate > 0.75 * asked for rate in rates):
        assert len(rates) < 6, rates
        rates.append(emulated.measure(source, target).rate)
        assert rates[-1] < 1.25 * asked


def test_check_shows_every_link(three, capsys):
    emulated.check(three)
    shown = capsys.readouterr().out
    assert all(link in shown for link in ("0 → 1", "1 → 2", "2 → 0", "100.0", "20.0"))


def test_small_messages_do_not_wait(three):
    a, b, _ = three.hosts
    assert min(emulated.measure(a, b, seconds=0.01).latency for _ in range(5)) < 5e-3


# -- taking down -------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("three")
def test_nothing_stays_after_an_error():
    handler = signal.getsignal(signal.SIGTERM)
    with contextlib.suppress(KeyError), Cluster(2) as cluster:
        assert len(left(cluster.name)) == 4  # two hosts, a switch, a folder
        raise KeyError
    assert left(cluster.name) == []
    assert signal.getsignal(signal.SIGTERM) is handler
    cluster.close()  # once more does no harm


@pytest.mark.usefixtures("three")
def test_nothing_stays_if_bringing_up_fails(monkeypatch):
    monkeypatch.setattr(emulated.Cluster, "_plug_in", lambda *_: 1 / 0)
    cluster = Cluster(2)
    with pytest.raises(ZeroDivisionError), cluster:
        pass
    assert left(cluster.name) == []


@pytest.mark.usefixtures("three")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_nothing_stays_after_a_signal(number):
    with sleeping_run() as (process, name, sleepers):
        process.send_signal(number)
        assert process.wait(LIMIT) == 128 + number
        assert left(name) == []
        assert not any(map(runs_sleep, sleepers))


def test_clean_removes_what_a_killed_run_left_and_nothing_else(three):
    with sleeping_run() as (process, name, sleepers):
        theirs = emulated._namespaces(name)
        assert not set(theirs) & set(emulated.clean())  # alive
        process.kill()
        process.wait(LIMIT)
        assert emulated._namespaces(name) == theirs
        assert set(theirs) <= set(emulated.clean())
        assert left(name) == []
        assert not any(map(runs_sleep, sleepers))
    assert len(output(three, python(WHERE))) == 3


@pytest.mark.usefixtures("three")
def test_exit_code_passes_through():
    command = [sys.executable, str(PROGRAM), "--hosts", "2", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
    assert done.returncode == 7
    assert "out" in done.stdout
    assert "err" in done.stderr


@pytest.mark.usefixtures("three")
def test_timeout_kills():
    with sleeping_run("--timeout", "5") as (process, name, sleepers):
        assert process.wait(LIMIT) == 124
        assert "killed after 5 s" in process.stderr.read()
        assert left(name) == []
        assert not any(map(runs_sleep, sleepers))


def test_cluster_goes_on_after_a_timeout(three):
    with pytest.raises(subprocess.TimeoutExpired):
        three.run(["sleep", "100"], timeout=1)
    assert len(output(three, python(WHERE))) == 3


# -- errors ------------------------------------------------------------------------------------------------------------


def test_without_root(monkeypatch, capsys):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(sys, "argv", ["cluster.py", "--hosts", "2", "--", "true"])
    assert emulated.main() == 2
    assert "cluster: needs root to make network namespaces: use sudo" in capsys.readouterr().err


def test_root_without_capabilities(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(emulated, "CAPABILITIES", {63: "CAP_NET_ADMIN"})
    with pytest.raises(ClusterError, match=r"this root lacks CAP_NET_ADMIN: start its container with --privileged"):
        emulated.find_tools()


@pytest.mark.parametrize(
    ("missing", "hint"),
    [("ip", "apt install iproute2"), ("tc", "apt install iproute2"), ("mpiexec", "pip install mpich")],
)
def test_without_a_tool(monkeypatch, missing, hint):
    monkeypatch.setattr(emulated, "find_root", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda tool, path=None: None if tool == missing else f"/usr/bin/{tool}")
    with pytest.raises(ClusterError, match=f"no `{missing}`.*{hint}"):
        emulated.find_tools()


def test_with_another_mpi(monkeypatch):
    monkeypatch.setattr(emulated, "find_root", lambda: None)
    monkeypatch.setattr(shutil, "which", lambda tool, path=None: f"/usr/bin/{tool}")
    monkeypatch.setattr(emulated, "_call", lambda *_: "mpiexec (Open MPI) 5.0")
    with pytest.raises(ClusterError, match="/usr/bin/mpiexec is not MPICH's: pip install mpich"):
        emulated.find_tools()


@pytest.mark.parametrize(
    ("command", "said", "expected"),
    [
        ("tc qdisc add root tbf rate 1gbit", "Error: Specified qdisc kind is unknown.", "no tbf: modprobe sch_tbf"),
        ("tc qdisc add root netem delay 1us", "Error: Specified qdisc not found.", "no netem: modprobe sch_netem"),
        ("ip link add type veth", "Error: Unknown device type.", "no veth: modprobe veth"),
        ("ip netns add x", "Operation not permitted", "cannot make network namespaces.*CONFIG_NET_NS"),
        ("ip link set y up", "Cannot find device", "`ip link set y up` failed: Cannot find device"),
    ],
)
def test_kernel_lacks_something(monkeypatch, command, said, expected):
    monkeypatch.setattr(subprocess, "run", lambda call, **_: subprocess.CompletedProcess(call, 2, "", said + "\n"))
    with pytest.raises(ClusterError, match=expected):
        emulated._call(*command.split())


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((2, "1gb"), "rate must be like 1gbit or 100mbit, got '1gb'"),
        ((2, "0mbit"), "rate must be like 1gbit or 100mbit, got '0mbit'"),
        ((2, "1gbit,1gbit,1mbit"), "rate must be one for all hosts or one for each of the 2, got 3"),
        ((0, "1gbit"), "hosts must be from 1 to 250, got 0"),
        ((2, "1gbit", "50"), "delay must be like 50us or 2ms, got '50'"),
        ((2, "1gbit", "", 0), "ranks per host must be at least 1, got 0"),
    ],
)
def test_arguments_are_checked(arguments, expected):
    with pytest.raises(ValueError, match=expected):
        Cluster(*arguments)


def test_rates():
    assert emulated.parse_rates("1gbit", 3) == [10**9] * 3
    assert emulated.parse_rates("1.5gbit,512kbit", None) == [1_500_000_000, 512_000]
