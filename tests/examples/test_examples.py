"""The examples run, learn and resume; and their reader of CIFAR-10 takes both layouts and nothing else."""

import io
import json
import os
import pickle
import struct
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from mpi.launcher import launch, run_job
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import cifar_data
import models

ROOT = Path(__file__).parents[2]


def run(ranks, program, *arguments):
    done = launch(ranks, ROOT / program, *arguments, python_flags=("-m", "mpi4py"))
    assert done.returncode == 0, done.stdout[-8000:]
    return done.stdout


# -- CIFAR-10 as Python 2 pickled it -----------------------------------------------------------------------------------


class Python2Pickler(pickle._Pickler):
    """Strings as Python 2 had them, which no pickle of Python 3 contains."""

    dispatch: ClassVar = dict(pickle._Pickler.dispatch)

    def save_string(self, text):
        data = text.encode("ascii") if isinstance(text, str) else text
        self.write(pickle.BINSTRING + struct.pack("<i", len(data)) + data)
        self.memoize(text)

    dispatch[bytes] = dispatch[str] = save_string


def pickled_by_python2(batch):
    file = io.BytesIO()
    Python2Pickler(file, protocol=2).dump(batch)
    return file.getvalue().replace(b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n")


def pickled_by_python3(batch):
    return pickle.dumps(batch, protocol=4)


def write_pickles(folder, each=8, dumps=pickled_by_python2):
    """A CIFAR-10 of random images; returns all images and labels, those for testing last."""
    rng = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    images = rng.integers(256, size=(6 * each, 3072), dtype=np.uint8)
    labels = rng.integers(10, size=6 * each)
    for number, name in enumerate(cifar_data.PICKLES):
        part = slice(number * each, (number + 1) * each)
        batch = {b"batch_label": b"some batch", b"data": images[part].copy(), b"labels": labels[part].tolist()}
        (folder / name).write_bytes(dumps(batch))
    return images.reshape(-1, 3, 32, 32), labels


@pytest.mark.parametrize("dumps", [pickled_by_python2, pickled_by_python3])
@pytest.mark.parametrize("below", ["", "cifar-10-batches-py"])
def test_pickles_are_read_back(tmp_path, below, dumps):
    images, labels = write_pickles(tmp_path / below, dumps=dumps)
    data = cifar_data.load(tmp_path)
    np.testing.assert_array_equal(np.concatenate([data.train_images, data.test_images]), images)
    np.testing.assert_array_equal(np.concatenate([data.train_labels, data.test_labels]), labels)
    assert (len(data.test_images), data.classes) == (8, 10)


class Malicious:
    def __init__(self, function, *arguments):
        self.how = (function, arguments)

    def __reduce__(self):
        return self.how


@pytest.mark.parametrize(
    ("function", "named"), [(os.mkdir, "posix.mkdir"), (eval, "builtins.eval"), (np.load, "numpy.load")]
)
def test_malicious_pickle_is_rejected(tmp_path, function, named):
    write_pickles(tmp_path)
    victim = tmp_path / "made"
    argument = f"__import__('os').mkdir({str(victim)!r})" if function is eval else str(victim)
    (tmp_path / "data_batch_3").write_bytes(pickle.dumps({b"data": Malicious(function, argument), b"labels": []}))
    with pytest.raises(cifar_data.DataError, match=rf"data_batch_3 is not a batch of CIFAR-10: it asks for {named}"):
        cifar_data.load(tmp_path)
    assert not victim.exists()


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        ({b"labels": [1]}, "is not a batch of CIFAR-10"),
        ({b"data": [1], b"labels": [1]}, "expected uint8 images of 3 x 32 x 32"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "expected 2 labels from 0 to 9"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1, 10]}, "expected 2 labels from 0 to 9"),
    ],
)
def test_damaged_batch_is_named(tmp_path, batch, text):
    write_pickles(tmp_path)
    (tmp_path / "test_batch").write_bytes(pickled_by_python3(batch))
    with pytest.raises(cifar_data.DataError, match=rf"test_batch.*{text}"):
        cifar_data.load(tmp_path)


# -- CIFAR-10 as JPEGs -------------------------------------------------------------------------------------------------


def write_archives(folder, sizes=(6, 3), side=32):
    """Images of one colour each, which JPEG keeps; returns the colours of the training images, and the labels."""
    rng = np.random.default_rng(0)
    folder.mkdir(exist_ok=True)
    written = []
    for name, size in zip(cifar_data.ARCHIVES, sizes, strict=True):
        colours, labels = rng.integers(256, size=(size, 3), dtype=np.uint8), rng.integers(10, size=size, dtype=np.uint8)
        files = []
        for colour in colours:
            file = io.BytesIO()
            Image.fromarray(np.full((side, side, 3), colour, np.uint8)).save(file, "JPEG", quality=95)
            files.append(file.getvalue())
        np.savez(
            folder / name,
            jpeg=np.frombuffer(b"".join(files), np.uint8),
            offset=np.cumsum([0, *map(len, files)]),
            label=labels,
            classes=[f"class {number}" for number in range(10)],
        )
        written.append((colours, labels))
    return written[0]


def test_archives_are_decoded_once(tmp_path, monkeypatch):
    colours, labels = write_archives(tmp_path)
    data = cifar_data.load(tmp_path)
    assert data.train_images.shape == (6, 3, 32, 32)
    assert data.test_images.shape == (3, 3, 32, 32)
    assert np.abs(data.train_images.astype(int) - colours[:, :, None, None]).max() <= 4
    np.testing.assert_array_equal(data.train_labels, labels)

    monkeypatch.setattr(cifar_data, "_decode", lambda *_: pytest.fail("decoded again"))
    again = cifar_data.load(tmp_path)
    np.testing.assert_array_equal(again.train_images, data.train_images)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".npy", ".npy", ".npz", ".npz"]

    monkeypatch.undo()
    other, _ = write_archives(tmp_path, sizes=(4, 3))  # another archive of that name
    assert len(cifar_data.load(tmp_path).train_images) == len(other) == 4


def test_folder_that_is_not_for_writing_stays_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    write_archives(tmp_path / "data")
    (tmp_path / "data").chmod(0o555)
    cifar_data.load(tmp_path / "data")
    (tmp_path / "data").chmod(0o755)
    assert {path.name for path in (tmp_path / "data").iterdir()} == set(cifar_data.ARCHIVES)
    assert len(list((tmp_path / "cache" / "spardl").iterdir())) == 2


def test_archive_of_other_images_is_refused(tmp_path):
    write_archives(tmp_path, side=16)
    with pytest.raises(cifar_data.DataError, match=r"cifar10_train\.npz.*image 0 is not a JPEG of 32 x 32"):
        cifar_data.load(tmp_path)
    assert not list(tmp_path.glob("*.npy*"))


def test_missing_data_says_what_was_expected(tmp_path):
    with pytest.raises(cifar_data.DataError, match=r"no CIFAR-10 in .*expected cifar10_train\.npz and .*test_batch"):
        cifar_data.load(tmp_path)
    write_pickles(tmp_path)
    (tmp_path / "data_batch_2").unlink()
    with pytest.raises(cifar_data.DataError, match=r"is incomplete: data_batch_2 not found"):
        cifar_data.load(tmp_path)


# -- batches and models ------------------------------------------------------------------------------------------------


def test_ranks_share_the_batches_of_one():
    rng = np.random.default_rng(0)
    images, labels = rng.integers(256, size=(50, 3, 32, 32), dtype=np.uint8), np.arange(50)

    def batches(rank, ranks):
        return list(
            cifar_data.training_batches(images, labels, 12, seed=3, epoch=1, rank=rank, ranks=ranks),
        )

    whole = batches(0, 1)
    assert [len(truth) for _, truth in whole] == [12] * 4
    for parts, (all_images, all_labels) in zip(
        zip(*(batches(r, 3) for r in range(3)), strict=True), whole, strict=True
    ):
        for rank, (some_images, some_labels) in enumerate(parts):
            assert torch.equal(some_images, all_images[rank::3])
            assert torch.equal(some_labels, all_labels[rank::3])


def test_crops_are_windows_of_the_padded_image():
    image = np.arange(1, 3073, dtype=np.int64).astype(np.uint8).reshape(1, 3, 32, 32)
    whole, shifted, flipped = (
        cifar_data._crop(image, np.array([top]), np.array([left]), np.array([flip]))
        for top, left, flip in ((4, 4, False), (0, 8, False), (4, 4, True))
    )
    np.testing.assert_array_equal(whole, image)
    np.testing.assert_array_equal(shifted[:, :, 4:, :-4], image[:, :, :-4, 4:])
    assert not shifted[:, :, :4].any()
    assert not shifted[:, :, :, -4:].any()
    np.testing.assert_array_equal(flipped, image[:, :, :, ::-1])


@pytest.mark.parametrize(
    ("name", "classes", "count"),
    [("vgg16", 10, 14_728_266), ("vgg19", 100, 20_086_692), ("resnet20", 10, 269_722)],
)
def test_models_have_as_many_parameters_as_in_the_paper(name, classes, count):
    model = models.MODELS[name](classes)
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, classes)


# -- whole programs ----------------------------------------------------------------------------------------------------


@pytest.mark.launches
@pytest.mark.parametrize("rows", [[], ["--sparse-embedding"]])
def test_lstm_learns(tmp_path, rows):
    path = tmp_path / "lstm.json"
    size = ["--texts", 1200, "--length", 3, "--width", 32]
    run(2, "examples/lstm.py", *size, "--epochs", 4, "--batch", 16, "--density", 0.1, "--json", path, *rows)
    result = json.loads(path.read_text())
    assert result["test_accuracy"] > 0.8
    assert result["stats"]["compression"] > 2


@pytest.mark.launches
def test_lstm_reads_texts(tmp_path):
    data, path = tmp_path / "texts.tsv", tmp_path / "lstm.json"
    data.write_text("good\tfine fine day\nbad\tawful, as ever\n" * 40, encoding="utf-8")
    run(2, "examples/lstm.py", "--data", data, "--epochs", 3, "--batch", 8, "--json", path)
    assert json.loads(path.read_text())["test_accuracy"] == 1
    data.write_text("good\tfine\nno tab here\n")
    done = launch(1, ROOT / "examples/lstm.py", "--data", data)
    assert done.returncode != 0
    assert "texts.tsv, line 2: expected label<TAB>text, got 'no tab here" in done.stdout


SHARED = """
import sys
from pathlib import Path
import numpy as np
from mpi4py import MPI
sys.path.insert(0, sys.argv[1])
import cifar_data
shared, read = cifar_data.load_shared(MPI.COMM_WORLD, Path(sys.argv[2]), 5), cifar_data.load(Path(sys.argv[2]))
for got, expected in zip(shared, (read[0][:5], read[1][:5], *read[2:]), strict=True):
    np.testing.assert_array_equal(got, expected, strict=isinstance(expected, np.ndarray))
"""


@pytest.mark.launches
def test_cifar_is_the_same_on_all_ranks(tmp_path):
    write_pickles(tmp_path)
    done = run_job(2, [sys.executable, "-m", "mpi4py", "-c", SHARED, str(ROOT / "examples"), str(tmp_path)])
    assert done.returncode == 0, done.stdout[-8000:]


@pytest.mark.launches
def test_cifar_trains_an_epoch(tmp_path):
    write_pickles(tmp_path, each=16)
    path = tmp_path / "cifar.json"
    shown = run(2, "examples/cifar.py", "--data", tmp_path, "--epochs", 1, "--batch", 16, "--json", path)
    result = json.loads(path.read_text())
    assert "test accuracy" in shown
    assert (result["ranks"], result["stats"]["steps"], len(result["epochs"])) == (2, 5, 1)
    assert 0 <= result["test_accuracy"] <= 1
    assert result["stats"]["compression"] > 20


@pytest.mark.launches
def test_cifar_without_data_ends_all_ranks(tmp_path):
    done = launch(2, ROOT / "examples/cifar.py", "--data", tmp_path)
    assert done.returncode != 0
    assert done.stdout.count("no CIFAR-10 in") == 1
    assert "Traceback" not in done.stdout


@pytest.mark.launches
def test_resumed_training_equals_uninterrupted(tmp_path):
    write_archives(tmp_path / "data", sizes=(48, 8))
    common = ["--data", tmp_path / "data", "--epochs", 2, "--batch", 16, "--density", 0.02, "--checkpoint"]
    run(2, "examples/cifar.py", *common, tmp_path / "straight.pt")
    run(2, "examples/cifar.py", *common, tmp_path / "resumed.pt", "--stop-after", 1)
    assert "going on after epoch 1" in run(2, "examples/cifar.py", *common, tmp_path / "resumed.pt", "--resume")
    straight, resumed = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("straight", "resumed"))
    assert len(resumed["history"]) == 2
    for part in ("model", "optimizer", "scheduler", "handle"):
        assert_same(straight[part], resumed[part], part)


@pytest.mark.launches
def test_training_goes_on_with_other_ranks(tmp_path):
    write_pickles(tmp_path)
    common = ["--data", tmp_path, "--epochs", 2, "--batch", 16, "--checkpoint", tmp_path / "cifar.pt", "--resume"]
    assert "cifar.pt yet" in run(1, "examples/cifar.py", *common, "--stop-after", 1).replace("\n", " ")
    assert "going on after epoch 1" in run(3, "examples/cifar.py", *common)
    handle = torch.load(tmp_path / "cifar.pt", weights_only=True)["handle"]
    assert [state["steps"] for state in handle["states"]] == [4, 4, 4]


def assert_same(one, other, where):
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), where
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), where
        for key in one:
            assert_same(one[key], other[key], f"{where}.{key}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), where
        for index, parts in enumerate(zip(one, other, strict=True)):
            assert_same(*parts, f"{where}[{index}]")
    else:
        assert one == other, where


@pytest.mark.launches
def test_convergence_compares_policies(tmp_path):
    write_pickles(tmp_path, each=8)
    path, plot = tmp_path / "out.json", tmp_path / "out.png"
    options = ["--images", 32, "--epochs", 1, "--batch", 16, "--residual", "global", "local", "--dense"]
    run(2, "benchmarks/convergence.py", "--data", tmp_path, *options, "--json", path, "--plot", plot)
    rows = json.loads(path.read_text())["rows"]
    assert [row["what"] for row in rows] == ["global", "local", "dense"]
    assert rows[0]["bytes_per_dense"] < 0.1 < rows[2]["bytes_per_dense"]
    with Image.open(plot) as picture:
        assert picture.format == "PNG"


@pytest.mark.launches
def test_the_minimal_script_learns():
    output = run(2, "examples/digits.py")
    accuracy = float(output.split("test accuracy ")[1].split("%")[0])
    assert accuracy > 90, output  # the last fifth of the images was written by other people than the rest
    assert float(output.split(" sent, ")[1].split(" ×")[0]) > 20
