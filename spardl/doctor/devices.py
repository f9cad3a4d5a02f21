"""GPUs and networks."""

from collections.abc import Sequence

from spardl.doctor.facts import Facts, by_host, count
from spardl.doctor.verdict import ADVICE, OK, Verdict

_NAMES = {"libucp": "UCX", "libfabric": "libfabric", "mca_btl_tcp": "TCP", "mca_pml_ucx": "UCX"}
_CHOICES = ("MPIR_CVAR_CH4_NETMOD", "FI_PROVIDER", "FI_TCP_IFACE", "UCX_TLS", "UCX_NET_DEVICES", "OMPI_MCA_pml")


def gpu(everyone: Sequence[Facts]) -> Verdict:
    found = {host: ranks[0].gpus for host, ranks in by_host(everyone).items()}
    if not any(found.values()):
        return Verdict("GPU", OK, "no GPU")
    counts = ", ".join(f"{host}: {number}" for host, number in found.items())
    without = [host for host, number in found.items() if number == 0]
    if without:
        return Verdict("GPU", ADVICE, f"{counts}; none on {', '.join(without)}", "Ask for GPUs on every node, or none")
    aware = "GPU memory" if all(facts.mpi_takes_gpu_memory for facts in everyone) else "host memory only"
    return Verdict("GPU", OK, f"{counts}; MPI takes {aware}")


def network(everyone: Sequence[Facts], interfaces: Sequence[Sequence[str]]) -> Verdict:
    """``interfaces``: by rank, those over which TCP connections to other hosts are open after the self-test."""
    first = everyone[0]
    hosts = len(by_host(everyone))
    libraries = ", ".join(dict.fromkeys(_NAMES.get(name, name) for name in first.transports)) or "unknown transport"
    chosen = ", ".join(f"{name}={first.settings[name]}" for name in _CHOICES if name in first.settings)
    what = f"{count(hosts, 'host')}; MPI loaded {libraries}{f' ({chosen})' if chosen else ''}"
    used = sorted({name for names in interfaces for name in names})
    if hosts == 1:
        return Verdict("network", OK, what)
    if not used:
        return Verdict("network", OK, f"{what}; no TCP in use between hosts")
    what += f"; TCP over {', '.join(used)}"
    if first.fabrics:
        todo = "If that is not meant, see docs/launch-errors.md on choosing the network"
        return Verdict("network", ADVICE, f"{what}, though there is {', '.join(first.fabrics)}", todo)
    return Verdict("network", OK, what)
