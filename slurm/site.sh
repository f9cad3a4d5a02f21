# shellcheck shell=bash
# What differs from site to site, read by every script in this folder. Change it here once, or when you submit:
#
#   LAUNCHER=pmix VIRTUAL_ENV=$HOME/envs/spardl sbatch slurm/train.sbatch
#
# Whom to charge and where to run, sbatch has to know before it reads this: see the ##SBATCH lines of each script, or
# put `export SBATCH_ACCOUNT=… SBATCH_PARTITION=…` into your ~/.bashrc.

# Who starts the ranks. `srun --mpi=list` tells what your SLURM has; all have to be of the MPI that mpi4py uses.
#   pmi2     srun --mpi=pmi2: MPICH and its kin (Intel MPI, MVAPICH, Cray MPICH)
#   pmix     srun --mpi=pmix: Open MPI
#   mpiexec  the MPI's own mpiexec inside the allocation, where srun has neither
LAUNCHER=${LAUNCHER:-pmi2}

# Environment modules to load, e.g. "gcc/13 openmpi/5.0": those with which mpi4py was built. None if empty.
MODULES=${MODULES:-}

# The virtualenv with spardl in it: the one that is active when you submit, or .venv. Empty if a module brings spardl.
VIRTUAL_ENV=${VIRTUAL_ENV-.venv}

# The network interface for messages over TCP, e.g. ib0, where MPI takes the slow one by itself. Its choice if empty.
INTERFACE=${INTERFACE:-}

# -- what follows from that ------------------------------------------------------------------------------------------

if [ -n "$MODULES" ]; then
    read -ra modules <<<"$MODULES"
    module load "${modules[@]}"
fi
[ -z "$VIRTUAL_ENV" ] || PATH=$(realpath "$VIRTUAL_ENV")/bin:$PATH
if ! command -v spardl >/dev/null; then
    echo "site.sh: no spardl in '$VIRTUAL_ENV' nor on the PATH: set VIRTUAL_ENV or MODULES, here or when you submit" >&2
    exit 1
fi
if [ -n "$INTERFACE" ]; then
    export FI_TCP_IFACE=$INTERFACE                                                   # MPICH
    export OMPI_MCA_btl_tcp_if_include=$INTERFACE PRTE_MCA_prte_if_include=$INTERFACE # Open MPI
fi
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}  # the kernels' threads; without this each rank would take all cores
export SRUN_CPUS_PER_TASK=${SLURM_CPUS_PER_TASK:-1} # srun has not taken it over from sbatch by itself since 22.05

# shellcheck disable=SC2034 # for the scripts: "${launch[@]}" -n RANKS COMMAND…
case $LAUNCHER in
pmi2 | pmix) launch=(srun "--mpi=$LAUNCHER") ;;
mpiexec) launch=(mpiexec) ;;
*)
    echo "site.sh: LAUNCHER must be pmi2, pmix or mpiexec, got '$LAUNCHER'" >&2
    exit 1
    ;;
esac
SCRIPTS=$(dirname "${BASH_SOURCE[0]}")
export PATH SCRIPTS
