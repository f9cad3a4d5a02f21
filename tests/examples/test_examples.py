"""The examples run, learn and resume; and their reader of CIFAR-10 takes both layouts and nothing else."""

import io
import json
import os
import pickle
import shutil
import struct
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from mpi.launcher import launch, run, run_together
from PIL import Image

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import cifar_data
import lstm
import models

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "programs"


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


RESUMABLE = ["--epochs", 2, "--batch", 16, "--density", 0.02, "--checkpoint"]


@pytest.fixture(scope="module")
def on_two_ranks(tmp_path_factory):
    """The folder in which the programs left their files, and what each printed."""
    folder = tmp_path_factory.mktemp("examples")
    write_pickles(folder / "pickles", each=16)
    write_archives(folder / "archives", sizes=(48, 8))
    (folder / "texts.tsv").write_text("good\tfine fine day\nbad\tawful, as ever\n" * 40, encoding="utf-8")
    small = ["--texts", 1200, "--length", 3, "--width", 32, "--epochs", 4, "--batch", 16, "--density", 0.1]
    policies = ["--images", 32, "--epochs", 1, "--batch", 16, "--residual", "global", "local", "--dense"]
    pickles, archives = (["--data", folder / name] for name in ("pickles", "archives"))
    commands = {
        "lstm": ["examples/lstm.py", *small],
        "rows": ["examples/lstm.py", *small, "--sparse-embedding"],
        "texts": ["examples/lstm.py", "--data", folder / "texts.tsv", "--epochs", 3, "--batch", 8],
        "cifar": ["examples/cifar.py", *pickles, "--epochs", 1, "--batch", 16],
        "straight": ["examples/cifar.py", *archives, *RESUMABLE, folder / "straight.pt"],
        "stopped": ["examples/cifar.py", *archives, *RESUMABLE, folder / "stopped.pt", "--resume", "--stop-after", 1],
        "convergence": ["benchmarks/convergence.py", *pickles, *policies, "--plot", folder / "convergence.png"],
    }
    lines = [[ROOT / program, *rest, "--json", folder / f"{n}.json"] for n, (program, *rest) in commands.items()]
    others = {"digits": [ROOT / "examples" / "digits.py"], "shared": [PROGRAMS / "shared_cifar.py", folder / "pickles"]}
    outputs = run_together(2, *lines, *others.values(), limit=300)
    return folder, dict(zip([*commands, *others], outputs, strict=True))


@pytest.mark.launches
@pytest.mark.parametrize("name", ["lstm", "rows"])
def test_lstm_learns(on_two_ranks, name):
    result = json.loads((on_two_ranks[0] / f"{name}.json").read_text())
    assert result["test_accuracy"] > 0.8
    assert result["stats"]["compression"] > 2


@pytest.mark.launches
def test_lstm_reads_texts(on_two_ranks):
    assert json.loads((on_two_ranks[0] / "texts.json").read_text())["test_accuracy"] == 1


def test_lstm_names_the_line_that_is_no_text(tmp_path):
    (tmp_path / "texts.tsv").write_text("good\tfine\nno tab here\n")
    with pytest.raises(SystemExit, match=r"texts\.tsv, line 2: expected label<TAB>text, got 'no tab here"):
        lstm.read(tmp_path / "texts.tsv")


@pytest.mark.launches
def test_cifar_trains_an_epoch(on_two_ranks):
    folder, shown = on_two_ranks
    result = json.loads((folder / "cifar.json").read_text())
    assert "test accuracy" in shown["cifar"]
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
@pytest.mark.parametrize("ranks", [2, 3])
def test_resumed_training(on_two_ranks, tmp_path, ranks):
    """Begun on two ranks and finished in other processes: on two, it equals an uninterrupted one."""
    folder, shown = on_two_ranks
    assert "stopped.pt yet" in shown["stopped"].replace("\n", "")
    shutil.copy(folder / "stopped.pt", tmp_path / "resumed.pt")
    resume = ["--data", folder / "archives", *RESUMABLE, tmp_path / "resumed.pt", "--resume"]
    assert "going on after epoch 1" in run(ranks, ROOT / "examples" / "cifar.py", *resume)
    straight, resumed = (
        torch.load(path, weights_only=True) for path in (folder / "straight.pt", tmp_path / "resumed.pt")
    )
    assert len(resumed["history"]) == 2
    assert [state["steps"] for state in resumed["handle"]["states"]] == [6] * ranks
    if ranks == 2:
        for part in ("model", "optimizer", "scheduler", "handle"):
            assert_same(straight[part], resumed[part], part)


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
def test_convergence_compares_policies(on_two_ranks):
    folder, _ = on_two_ranks
    rows = json.loads((folder / "convergence.json").read_text())["rows"]
    assert [row["what"] for row in rows] == ["global", "local", "dense"]
    assert rows[0]["bytes_per_dense"] < 0.1 < rows[2]["bytes_per_dense"]
    with Image.open(folder / "convergence.png") as picture:
        assert picture.format == "PNG"


@pytest.mark.launches
def test_the_minimal_script_learns(on_two_ranks):
    output = on_two_ranks[1]["digits"]
    accuracy = float(output.split("test accuracy ")[1].split("%")[0])
    assert accuracy > 90, output  # the last fifth of the images was written by other people than the rest
    assert float(output.split(" sent, ")[1].split(" ×")[0]) > 20
