"""CIFAR-10 from a directory, and batches of it for every rank. Not run by itself.

Two layouts are read:

- ``data_batch_1`` … ``data_batch_5`` and ``test_batch``, the original Python version, in the directory itself or in
  ``cifar-10-batches-py/`` below it;
- ``cifar10_train.npz`` and ``cifar10_test.npz``, with the arrays ``jpeg`` (uint8, all files' bytes joined), ``offset``
  (image i is ``jpeg[offset[i]:offset[i + 1]]``), ``label`` and ``classes``. Decoded once, by Pillow, and kept as .npy.
"""

import contextlib
import hashlib
import io
import itertools
import os
import pickle
import uuid
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

if TYPE_CHECKING:
    from mpi4py import MPI  # importing it starts MPI, which a reader of files need not do

SIDE, PADDING = 32, 4
PICKLES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
ARCHIVES = ("cifar10_train.npz", "cifar10_test.npz")
MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)  # of the training images' channels, from 0 to 1

Images = npt.NDArray[np.uint8]  # (number, 3, 32, 32)
Labels = npt.NDArray[np.int64]


class Cifar(NamedTuple):
    train_images: Images
    train_labels: Labels
    test_images: Images
    test_labels: Labels
    classes: int


class DataError(ValueError):
    """The directory is not as it should be; the text says what was expected."""


# -- reading -----------------------------------------------------------------------------------------------------------


def load_shared(comm: "MPI.Intracomm", directory: Path, train: int | None = None, test: int | None = None) -> Cifar:
    """The first ``train`` and ``test`` images (None: all), read by rank 0 and sent to the others.

    So one rank decodes while the others wait, and only its machine needs the directory.
    """
    counts = np.zeros(3, np.int64)  # training images, test images, classes
    parts: list[npt.NDArray[Any]] = []
    problem = ""
    if comm.rank == 0:
        try:
            data = load(directory)
            cut = [*(part[:train] for part in data[:2]), *(part[:test] for part in data[2:4])]
            parts = [np.array(part, order="C") for part in cut]  # copies: of a cache, only this much is read
            counts[:] = len(parts[0]), len(parts[2]), data.classes
        except (DataError, OSError, ImportError) as error:
            problem = str(error)
    comm.Bcast(counts)
    *sizes, classes = map(int, counts)
    if classes == 0:
        raise SystemExit(problem or 1)
    if comm.rank > 0:
        parts = [part for n in sizes for part in (np.empty((n, 3, SIDE, SIDE), np.uint8), np.empty(n, np.int64))]
    for part in parts:
        comm.Bcast(part)
    return Cifar(*parts, classes)


def load(directory: Path) -> Cifar:
    """All of CIFAR-10, from whichever layout there is."""
    if _has_all(directory, ARCHIVES):
        (train, train_classes), (test, test_classes) = (_read_archive(directory / name) for name in ARCHIVES)
        if train_classes != test_classes:
            raise DataError(f"the archives in {directory} have different classes: {train_classes} and {test_classes}")
        return Cifar(*train, *test, len(train_classes))
    for folder in (directory, directory / "cifar-10-batches-py"):
        if _has_all(folder, PICKLES):
            *parts, test = (_read_pickle(folder / name) for name in PICKLES)
            images, labels = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
            return Cifar(images, labels, *test, 10)
    raise DataError(
        f"no CIFAR-10 in {directory}: expected {' and '.join(ARCHIVES)}, or the files of the Python version, "
        f"{', '.join(PICKLES)}, there or in cifar-10-batches-py/"
    )


def _has_all(folder: Path, names: tuple[str, ...]) -> bool:
    missing = [name for name in names if not (folder / name).is_file()]
    if 0 < len(missing) < len(names):
        raise DataError(f"CIFAR-10 in {folder} is incomplete: {', '.join(missing)} not found")
    return not missing


def _checked(images: Any, labels: Any, classes: int, source: Path) -> tuple[Images, Labels]:
    """Both in the shape and type that is used here, or an error that names the file."""
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8 or images.size != len(images) * 3 * SIDE * SIDE:
        raise DataError(f"{source}: expected uint8 images of 3 x {SIDE} x {SIDE}")
    labels = np.asarray(labels)
    whole = labels.shape == (len(images),) and labels.dtype.kind in "iu"
    if not whole or np.any((labels < 0) | (labels >= classes)):
        raise DataError(f"{source}: expected {len(images)} labels from 0 to {classes - 1}")
    return images.reshape(-1, 3, SIDE, SIDE), labels.astype(np.int64)


# -- the original pickles ----------------------------------------------------------------------------------------------

# A pickle may name any function for its reader to call. These files need to build an array, and nothing else is called.
_ARRAY_PARTS = {
    ("numpy.core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],
    ("numpy._core.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0],  # if written by NumPy 2
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
}


class _ArrayUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ARRAY_PARTS[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it asks for {module}.{name}, which no CIFAR-10 file needs; nothing of it was run"
            ) from None


def _read_pickle(path: Path) -> tuple[Images, Labels]:
    try:
        with path.open("rb") as file:
            batch = _ArrayUnpickler(file, encoding="bytes").load()  # Python 2 wrote them: all strings are bytes
        images, labels = batch[b"data"], batch[b"labels"]
    except OSError:
        raise
    except Exception as error:  # a damaged pickle can fail in any way
        raise DataError(f"{path} is not a batch of CIFAR-10: {error}") from error
    return _checked(images, labels, 10, path)


# -- archives of JPEGs -------------------------------------------------------------------------------------------------


def _read_archive(path: Path) -> tuple[tuple[Images, Labels], list[str]]:
    try:
        with np.load(path) as archive:
            classes = [str(name) for name in archive["classes"]]
            cache = _cache_of(path)
            images = np.load(cache, mmap_mode="r") if cache.exists() else _decode(archive["jpeg"], archive["offset"])
            labels = archive["label"]
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{path} is not an archive of CIFAR-10: {error}") from error
    checked = _checked(images, labels, len(classes), path)
    if not cache.exists():
        _store(cache, checked[0])
    return checked, classes


def _decode(jpeg: Images, offset: npt.NDArray[np.int64]) -> Images:
    try:
        from PIL import Image
    except ImportError:
        raise ImportError("decoding CIFAR-10's JPEGs needs Pillow: pip install pillow") from None
    images = np.empty((len(offset) - 1, 3, SIDE, SIDE), np.uint8)
    for number, (start, end) in enumerate(itertools.pairwise(offset)):
        try:
            with Image.open(io.BytesIO(jpeg[start:end].tobytes()), formats=["JPEG"]) as picture:
                images[number] = np.asarray(picture.convert("RGB")).transpose(2, 0, 1)
        except (OSError, ValueError) as error:
            raise DataError(f"image {number} is not a JPEG of {SIDE} x {SIDE}: {error}") from error
    return images


def _cache_of(archive: Path) -> Path:
    """Beside the archive, or in the user's cache where that is not possible. Another archive has another name."""
    state = archive.stat()
    key = f"{archive.resolve()} {state.st_size} {state.st_mtime_ns}".encode()
    name = f"{archive.stem}-{hashlib.blake2b(key, digest_size=6).hexdigest()}.npy"
    folder = archive.parent
    # Root may write everywhere, but a folder that nobody is meant to write to is left alone.
    if os.access(folder, os.W_OK) and folder.stat().st_mode & 0o222:
        return folder / name
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "spardl" / name


def _store(cache: Path, images: Images) -> None:
    """Under another name until it is complete: another job may be looking. No room for it is no reason to stop."""
    unfinished = cache.with_name(f"{cache.name}.{uuid.uuid4().hex}")
    try:
        cache.parent.mkdir(parents=True, exist_ok=True)
        with unfinished.open("wb") as file:
            np.save(file, images)
        os.replace(unfinished, cache)
    except OSError:
        with contextlib.suppress(OSError):
            unfinished.unlink()


# -- batches -----------------------------------------------------------------------------------------------------------


def training_batches(
    images: Images, labels: Labels, batch: int, *, seed: int, epoch: int, rank: int, ranks: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """This rank's part of every batch of an epoch, cropped and flipped at random.

    All ranks draw the same order, crops and flips, for all images: what is in a batch depends on seed and epoch, and
    not on how many ranks share it. Images that do not fill a batch are left out.
    """
    rng = np.random.default_rng([seed, epoch])
    order = rng.permutation(len(images))
    tops, lefts = rng.integers(2 * PADDING + 1, size=(2, len(images)))
    flips = rng.integers(2, size=len(images), dtype=bool)
    for start in range(0, len(order) - batch + 1, batch):
        mine = order[start + rank : start + batch : ranks]
        yield normalised(_crop(images[mine], tops[mine], lefts[mine], flips[mine])), torch.from_numpy(labels[mine])


def _crop(images: Images, tops: Any, lefts: Any, flips: Any) -> Images:
    padded = np.pad(images, ((0, 0), (0, 0), (PADDING, PADDING), (PADDING, PADDING)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (SIDE, SIDE), axis=(2, 3))
    crops = windows[np.arange(len(images)), :, tops, lefts]
    crops[flips] = crops[flips, :, :, ::-1]
    return crops


def normalised(images: Images) -> torch.Tensor:
    mean, std = (torch.tensor(numbers).reshape(3, 1, 1) for numbers in (MEAN, STD))
    pixels = torch.from_numpy(images).to(torch.float32, memory_format=torch.channels_last)
    return pixels.div_(255).sub_(mean).div_(std)
