"""A node's own data: the same from every kind of file, and never other numbers than those that were given."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy import ndarray
from small_nodes import CLASSES, SHAPE, blobs, settings

from lntrust.core.errors import LNTrustError
from lntrust.fleet.settings import DTYPES, InputSettings
from lntrust.fleet.training.data import NodeData, Seen, as_inputs, load_data

Write = Callable[[Path, ndarray, Any], str]


def npz(folder: Path, x: ndarray, y: Any) -> str:
    np.savez(folder / "data.npz", x=x, y=y)
    return str(folder / "data.npz")


def parquet(folder: Path, x: ndarray, y: Any) -> str:
    pq.write_table(pa.table({"x": x.tolist(), "y": list(y)}), folder / "data.parquet")
    return str(folder / "data.parquet")


def load(source: str, before: Seen | None = None, **changes: Any) -> NodeData:
    data = {"labelled": source, "shard": "none", **changes.pop("data", {})}
    return load_data(settings(data=data, **changes), before)


# -- every kind of file ---------------------------------------------------------------------------


@pytest.mark.parametrize("write", [npz, parquet])
@pytest.mark.parametrize("named", [False, True])
def test_files_and_loaders_give_the_same(tmp_path: Path, write: Write, named: bool) -> None:
    x, y = blobs(0)
    labels = [CLASSES[c] for c in y] if named else y
    got, expected = load(write(tmp_path, x, labels)), load("small_nodes:labelled")
    np.testing.assert_array_equal(got.inputs, expected.inputs)
    np.testing.assert_array_equal(got.labels, expected.labels)
    assert got.inputs.dtype == np.float32
    assert got.fingerprint == expected.fingerprint


def test_inputs_of_any_depth_from_parquet(tmp_path: Path) -> None:
    x = np.arange(20, dtype=np.uint8).reshape(10, 2)
    got = load(parquet(tmp_path, x, [0, 1] * 5), input={"shape": [2], "dtype": "uint8"})
    assert sorted(map(tuple, got.inputs.tolist())) == sorted(map(tuple, x.tolist()))
    single = load(parquet(tmp_path, np.linspace(0, 1, 10), [0, 1] * 5), input={"shape": []})
    assert single.inputs.shape == (10,)


X = np.zeros((3, *SHAPE))


@pytest.mark.parametrize(
    ("x", "labels", "message"),
    [
        (X, [0, 1, 3], "data.labelled: label 3 is none of 0…2"),
        (X, [0, -1, 1], "label -1 is none of 0…2"),
        (X, ["ant", "bee", "dog"], "data.labelled: label 'dog' is none of ant, bee, cat"),
        (X, [0.0, 1.0, 2.0], "label '0.0' is none of"),
        (X, [[0], [1], [2]], "y has shape [3, 1], for 3 inputs"),
        (X, [0, 1], "y has shape [2], for 3 inputs"),
        (X[:, 0], [0, 1, 2], "data.labelled: inputs have shape [3, 4, 4]; must be [m, 1, 4, 4]"),
        (X[:, 0, 0, 0], [0, 1, 2], "inputs have shape [3]"),
        (X.astype("U1"), [0, 1, 2], "inputs are <U1; must be float32"),
        (X.astype(complex), [0, 1, 2], "inputs are complex128; must be float32"),
        (X * np.nan, [0, 1, 2], "data.labelled: x: row 0, column 0, 0, 0 is nan; all must be finite"),
    ],
)
def test_labels_and_inputs_that_do_not_fit(tmp_path: Path, x: ndarray, labels: Any, message: str) -> None:
    with pytest.raises(LNTrustError, match=re.escape(message)):
        load(npz(tmp_path, x, np.array(labels)))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    x, y = blobs(0)
    whole = Path(npz(tmp_path, x, y)).read_bytes()
    for name, content in (("half.npz", whole[: len(whole) // 2]), ("half.parquet", b"PAR1"), ("e.npz", b"")):
        (tmp_path / name).write_bytes(content)
    pq.write_table(pa.table({"x": [[1.0], [1.0, 2.0]], "y": [0, 1]}), tmp_path / "ragged.parquet")
    np.savez(tmp_path / "other.npz", a=1, b=2)
    np.savez(tmp_path / "bare.npz", x=x)
    says = dict.fromkeys(("half.npz", "half.parquet", "e.npz", "ragged.parquet"), "cannot be read")
    says["absent.npz"] = "cannot be read: .*No such file"
    says["other.npz"] = r"has no inputs, x \(a list of numbers a row\); it has a, b"
    says["bare.npz"] = "has no labels, y"
    for name, message in says.items():
        with pytest.raises(LNTrustError, match=f"data.labelled = .*{name}.*{message}"):
            load(str(tmp_path / name))


def test_a_file_is_data_and_never_a_program(tmp_path: Path) -> None:
    """A pickle runs what is in it when it is opened."""

    class Trap:
        def __reduce__(self) -> Any:
            return Path.touch, (tmp_path / "sprung",)

    np.savez(tmp_path / "trap.npz", x=np.array([Trap()], dtype=object), y=np.array([0]), allow_pickle=True)
    with pytest.raises(LNTrustError, match=r"cannot be read.*allow_pickle=False"):
        load(str(tmp_path / "trap.npz"))
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("small_nodes:broken", "data.labelled = 'small_nodes:broken': failed: RuntimeError: the camera is"),
        ("small_nodes:shard", "data.labelled = 'small_nodes:shard': has no labels, y"),
        ("small_nodes:absent", "small_nodes has nothing named absent"),
        ("no_such_module:load", "cannot import no_such_module"),
        ("small_nodes:nothing", "0 of 0 labelled examples would be withheld"),
        ("data.csv", "data.labelled = 'data.csv': must be a .npz or .parquet file, or package.module:loader"),
    ],
)
def test_loaders_that_fail(source: str, message: str) -> None:
    with pytest.raises(LNTrustError, match=re.escape(message)):
        load(source)


# -- what each example is for ---------------------------------------------------------------------


def rows(data: NodeData, ids: ndarray) -> set[bytes]:
    return {row.tobytes() for row in data.inputs[ids]}


def rows_with_labels(x: ndarray, y: ndarray) -> list[tuple[bytes, int]]:
    return sorted((row.tobytes(), int(label)) for row, label in zip(x, y, strict=True))


@given(st.integers(0, 2**31), st.integers(10, 30), st.integers(0, 60), st.sampled_from([0.2, 0.5, 0.8]))
def test_with_more_labels_nothing_is_validated_on_that_was_learned_from(
    seed: int, size: int, more: int, fraction: float
) -> None:
    """And what was withheld stays so, wherever the new ones stand, life after life."""
    x, y = blobs(0, size + more)
    order = np.random.default_rng(seed).permutation(size + more)
    with TemporaryDirectory() as folder:
        options: dict[str, Any] = {"seed": seed, "data": {"val_fraction": fraction}}
        first = load(npz(Path(folder), x[:size], y[:size]), **options)
        then = load(npz(Path(folder), x[order], y[order]), first.seen, **options)
        again = load(npz(Path(folder), x[order], y[order]), then.seen, **options)
    assert not rows(then, then.validation) & rows(first, first.train)
    assert rows(first, first.validation) <= rows(then, then.validation)
    assert len(then.validation) == min(round(fraction * (size + more)), len(first.validation) + more)
    assert again.fingerprint == then.fingerprint
    ids = np.concatenate([then.train, then.validation])
    assert rows_with_labels(then.inputs[ids], then.labels[ids]) == rows_with_labels(x, y), "each is used once"


@pytest.mark.parametrize("seed", range(3))
def test_inputs_that_stand_there_twice_change_no_sides(tmp_path: Path, seed: int) -> None:
    x, y = blobs(0, 12)
    source = npz(tmp_path, np.concatenate([x, x]), np.concatenate([y, y]))
    first = load(source, seed=seed)
    assert load(source, first.seen, seed=seed).fingerprint == first.fingerprint


def test_where_all_were_learned_from_it_is_said(caplog: pytest.LogCaptureFixture) -> None:
    all_learned = load("small_nodes:labelled", data={"probe_with": "none"})
    assert len(load("small_nodes:labelled", all_learned.seen).validation)
    assert "validation flatters" in caplog.text


def test_the_seed_decides_who_is_withheld_and_some_must_be(tmp_path: Path) -> None:
    a, b = (load("small_nodes:labelled", seed=seed) for seed in (0, 1))
    assert not np.array_equal(a.inputs[a.validation], b.inputs[b.validation])
    few = npz(tmp_path, *blobs(0, 3))
    for fraction, count in ((0.1, 0), (0.9, 3)):
        with pytest.raises(LNTrustError, match=f"data.val_fraction = {fraction}: {count} of 3 labelled"):
            load(few, data={"val_fraction": fraction})


def test_probes_and_shard_from_files_of_their_own(tmp_path: Path) -> None:
    x, y = blobs(2, 9)
    own = npz(tmp_path, x, y)
    got = load("small_nodes:labelled", data={"probe_with": own, "shard": own})
    assert len(got.train) == len(blobs(0)[0]), "then nothing is withheld"
    for ids, labels in ((got.validation, y), (got.shard, np.full(9, -1))):
        np.testing.assert_array_equal(got.inputs[ids], x)
        np.testing.assert_array_equal(got.labels[ids], labels)
    nothing = load("small_nodes:labelled", data={"probe_with": "none"})
    assert (len(nothing.train), len(nothing.validation), len(nothing.shard)) == (30, 0, 0)


def test_probes_and_shards_that_do_not_fit(tmp_path: Path) -> None:
    x, y = blobs(2, 9)
    np.savez(tmp_path / "shard.npz", x=np.zeros((2, 5)))
    for source, data, message in (
        ("labelled", {"probe_with": npz(tmp_path, x, y + 7)}, "data.probe_with: label 7 is none of"),
        ("labelled", {"shard": str(tmp_path / "shard.npz")}, "data.shard: inputs have shape [2, 5]"),
        ("nothing", {"probe_with": "none"}, "has no example to train on"),
    ):
        with pytest.raises(LNTrustError, match=re.escape(message)):
            load(f"small_nodes:{source}", data=data)


def test_the_fingerprint_changes_when_an_example_does() -> None:
    one = load("small_nodes:labelled", data={"probe_with": "none"})
    inputs, labels = one.inputs.copy(), one.labels.copy()
    inputs[3, 0, 0, 0] = np.nextafter(inputs[3, 0, 0, 0], np.float32(np.inf))
    labels[4] = (labels[4] + 1) % len(CLASSES)
    others = [replace(one, inputs=inputs), replace(one, labels=labels), replace(one, shard=one.train)]
    assert len({each.fingerprint for each in (one, *others)}) == 4, "what an example is for belongs to it"


# -- numbers --------------------------------------------------------------------------------------

KINDS = ["bool", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"]
# Near the places where one dtype holds a number and another does not.
WHOLE = [
    s * (2**p + d)
    for p in (0, 8, 11, 15, 16, 24, 31, 32, 53, 62, 63, 64)
    for d in (-1, 0, 1)
    for s in (1, -1)
]
NUMBERS = [*WHOLE, *map(float, WHOLE), 0.5, -0.25, math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_kept_or_refused(kind: str, dtype: str) -> None:
    wanted, target = InputSettings(shape=(), classes=("a", "b"), dtype=dtype), np.dtype(dtype)
    with np.errstate(all="ignore"):
        given_ = [np.array([n]).astype(kind) for n in NUMBERS if kind[0] == "f" or holds(np.dtype(kind), n)]
    for x in given_:
        (number,), before = x.tolist(), x.copy()
        try:
            (got,) = as_inputs(x, wanted).tolist()
        except LNTrustError as error:
            told = str(error)
            assert f"inputs are {x.dtype}, and as {dtype} their numbers would change" in told
            assert not holds(target, number), "and it is refused for a reason"
            continue
        np.testing.assert_array_equal(x, before)
        if x.dtype.kind == target.kind == "f":
            assert math.isfinite(number) == math.isfinite(got)
            assert not math.isfinite(number) or abs(number - got) <= max(abs(number) * 2**-10, 2**-24)
        else:
            assert number == got  # Python compares whole numbers and floats exactly


def holds(dtype: np.dtype[Any], number: float) -> bool:
    """Whether a dtype has this very number, up to rounding between floats."""
    if dtype.kind == "b":
        return number in (0, 1)
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            rounded = float(np.array(number).astype(dtype))
        if isinstance(number, float):
            return math.isfinite(rounded) == math.isfinite(number)
        return rounded == number
    limits = np.iinfo(dtype)
    return math.isfinite(number) and limits.min <= number <= limits.max and number == int(number)
