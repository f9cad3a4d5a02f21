"""What the test cluster says when it cannot be started, or is asked for nonsense."""

import os
import subprocess

import pytest

from slurm.user import TESTCLUSTER

pytestmark = [pytest.mark.launches, pytest.mark.slurm]


def call(*arguments, **options):
    return subprocess.run([TESTCLUSTER, *arguments], capture_output=True, text=True, timeout=60, **options)


def test_check_says_whether_it_can_be_started():
    assert call("check").returncode == 0


def test_needs_root():
    # From a copy: a user may not be able to see this folder.
    script = TESTCLUSTER.read_text()
    done = subprocess.run(
        ["bash", "-s", "check"], input=script, capture_output=True, text=True, timeout=60, cwd="/", user=65534
    )
    assert done.returncode == 2
    assert "testcluster: needs root" in done.stderr


def test_needs_a_way_to_install(tmp_path):
    for program in ("id", "xargs", "echo"):
        os.symlink(f"/usr/bin/{program}", tmp_path / program)
    script = TESTCLUSTER.read_text().replace("PATH=$PATH:/usr/sbin:/sbin", "")
    done = subprocess.run(
        ["/bin/bash", "-s", "check"],
        input=script,
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": f"{tmp_path}"},
    )
    assert done.returncode == 2
    assert "no apt-get here to install munged slurmctld slurmd sbatch with" in done.stderr


def test_one_cluster_in_a_folder(slurm):
    done = call("up", slurm.conf.parent)
    assert done.returncode == 2
    assert "has a cluster: slurm/testcluster down" in done.stderr
    assert "4 " not in slurm.call("sinfo", "--noheader", "--states=down")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "slurm/testcluster up DIR [NODES]"),
        (("up",), "slurm/testcluster up DIR [NODES]"),
        (("up", "a b"), "DIR may have no spaces in it, got 'a b'"),
        (("up", "somewhere", "none"), "NODES must be from 1 to 99, got 'none'"),
        (("down", "nowhere"), "there is no cluster in"),
    ],
)
def test_wrong_arguments(arguments, words, tmp_path):
    done = call(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert not list(tmp_path.iterdir())
