"""A slice of ``make sanitize``: the code that reads and writes frames, without Python, under ASAN and UBSAN."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"
HOSTILE = Path(__file__).parent / "hostile.cpp"
CHECKS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-O1", "-g1"]


def build(sources, target):
    command = [os.environ.get("CXX", "g++"), "-std=c++17", *CHECKS, "-Wall", "-Wextra", f"-I{sources}", str(HOSTILE)]
    subprocess.run([*command, str(sources / "simd.cpp"), "-o", str(target)], check=True, timeout=300)
    return target


def run(program, simd, frames):
    environment = os.environ | {"SPARDL_SIMD": simd, "ASAN_OPTIONS": "detect_leaks=0"}
    return subprocess.run([program, "1", str(frames)], env=environment, capture_output=True, text=True, timeout=300)


def test_hostile_frames_do_no_harm(tmp_path):
    program = build(CSRC, tmp_path / "hostile")
    for simd in ("auto", "portable"):
        done = run(program, simd, 100_000)
        assert done.returncode == 0, done.stderr[-4000:]
        refused, sound, not_written = (int(part.split()[0]) for part in done.stdout.split(", "))
        assert min(refused, sound, not_written) > 1000


@pytest.mark.parametrize(
    ("check", "without", "complaint"),
    [
        ("!is_sound()", "false", ""),
        ("stored[count - 1] < length", "true", ""),  # what is read is not sound: the program ends itself
        ("one >> 6 >= static_cast<std::uint64_t>(high_size)", "false", "ERROR: AddressSanitizer"),
        ("mean / 128 * 89 + mean % 128 * 89 / 128", "mean * (std::int64_t{1} << 60)", "signed integer overflow"),
    ],
)
def test_a_check_that_is_missing_is_noticed(tmp_path, check, without, complaint):
    sources = tmp_path / "csrc"
    shutil.copytree(CSRC, sources)
    changed = 0
    for header in (sources / "frame.hpp", sources / "pack.hpp"):
        text = header.read_text()
        changed += text.count(check)
        header.write_text(text.replace(check, without))
    assert changed == 1
    done = run(build(sources, tmp_path / "hostile"), "portable", 100_000)
    assert done.returncode != 0
    assert complaint in done.stderr
