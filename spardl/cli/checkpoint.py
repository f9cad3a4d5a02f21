"""A training's state on all ranks in one file, for a command that is stopped and started again."""

import errno
import io
import os
from pathlib import Path
from typing import Any

import click
import torch
from mpi4py import MPI
from xxhash import xxh3_64_digest

import spardl.torch as spt
from spardl.agreement import gather_json
from spardl.cli.course import Course
from spardl.runtime.group import resolve
from spardl.runtime.mpi import default_timeout

_CHECKSUM_BYTES = 8  # at the end of the file


class Checkpoint:
    """Where one training is kept. All ranks call its methods together; the file has to be one that all of them see.

    ``settings`` is what a training that goes on from here must have in common with the one that was saved. The number
    of ranks may differ: then what the ranks still owe is dealt out anew.
    """

    def __init__(self, comm: MPI.Intracomm, path: Path, settings: dict[str, Any]) -> None:
        self._timeout = default_timeout()
        self._group = resolve(comm, self._timeout)
        self._path, self._settings = path, settings

    def load_into(self, course: Course) -> bool:
        """Brings a fresh training to where the saved one was. False if none was saved."""
        saved: dict[str, Any] | None = None
        problem = ""
        try:
            saved = self._read() if self._path.exists() else None
        except (OSError, ValueError) as error:
            problem = str(error)
        self._fail_together(problem, "loading a checkpoint")
        found = None if saved is None else saved["shared"]["iteration"]
        everyone = gather_json(self._group, found, self._timeout, "loading a checkpoint")
        if any(other != everyone[0] for other in everyone):
            steps = ", ".join("none" if step is None else f"one of step {step}" for step in everyone)
            raise click.ClickException(
                f"{self._path}: the ranks see different checkpoints ({steps}). Its folder must be on a file system "
                "that all nodes share."
            )
        if saved is None:
            return False
        own = saved["own"]
        course.load(saved["shared"], own[self._group.me % len(own)], saved["handle"])
        return True

    def save(self, course: Course) -> None:
        """Replaces the file by one with the present state; whenever it is read, it is whole."""
        assert isinstance(course.handle, spt.Handle)
        own = gather_json(self._group, course.own_state(), self._timeout, "saving a checkpoint")
        handle = course.handle.gathered_state_dict()
        problem = ""
        if self._group.me == 0:
            state = {"settings": self._settings, "shared": course.shared_state(), "own": own, "handle": handle}
            try:
                self._replace(state)
            except OSError as error:
                problem = f"{self._path} cannot be saved: {error}"
        self._fail_together(problem, "saving a checkpoint")

    def _fail_together(self, problem: str, call: str) -> None:
        """Raises the first rank's problem on all; returns if none has any."""
        for told in gather_json(self._group, problem, self._timeout, call):
            if told:
                raise click.ClickException(told)

    def _replace(self, state: dict[str, Any]) -> None:
        content = io.BytesIO()
        torch.save(state, content)
        folder = self._path.parent
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = self._path.with_suffix(".new")
        try:
            with unfinished.open("wb") as file:
                file.write(content.getbuffer())
                file.write(xxh3_64_digest(content.getbuffer()))
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        _sync_folder(folder)

    def _read(self) -> dict[str, Any]:
        try:
            saved: dict[str, Any] = torch.load(io.BytesIO(_checked_content(self._path)))
            settings = saved["settings"]
        except Exception as error:  # torch and pickle raise many kinds
            raise ValueError(f"{self._path} cannot be read, take it away to start a new training: {error}") from error
        for name, value in self._settings.items():
            if settings[name] != value:
                raise ValueError(
                    f"{self._path} is of a training with {name} {settings[name]}, not {value}: give the same options "
                    "to go on with it, or another folder to start a new one"
                )
        return saved


def _sync_folder(folder: Path) -> None:
    """Until then a crash of the machine may bring the old name back."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # some file systems cannot
            raise
    finally:
        os.close(descriptor)


def _checked_content(path: Path) -> bytes:
    """What was saved. Nothing of a damaged file is used."""
    data = path.read_bytes()
    content, checksum = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if xxh3_64_digest(content) != checksum:
        raise ValueError("its checksum does not fit: it is damaged, incomplete, or of another version of spardl")
    return content
