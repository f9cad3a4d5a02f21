"""The GPU benchmark where there is no GPU: what it tells of one, and that it checks results (in the simulator)."""

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "gpu.py"


def run(*arguments, **environment):
    command = [sys.executable, str(PROGRAM), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, env=os.environ | environment)


def test_model_needs_no_gpu():
    done = run("--model", "--size", "14728266")
    assert done.returncode == 0, done.stderr
    assert "accumulate" in done.stdout
    assert "1500 GB/s" in done.stdout


def test_without_a_gpu_it_says_so():
    done = run("--size", "1000", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2, done.stdout
    assert "need no GPU" in done.stderr


def test_in_the_simulator_all_results_are_right():
    done = run("--size", "200", "--density", "0.05", "--repeats", "2", "--warmup", "1", NUMBA_ENABLE_CUDASIM="1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("yes") == 8
