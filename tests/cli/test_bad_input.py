"""Bad input: one message that names field or file, value and what would do; exit code 2; no debris."""

import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lntrust import LNTrustError
from lntrust.world import load_dataset


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("graph.nodez=5", "study tiny.toml: unknown field graph.nodez; did you mean nodes?"),
        ("training.batch=large", "training.batch = 'large': input should be a valid integer"),
        ("partition.validation=fresh", "partition: validation = 'fresh': is no longer there; leave it out"),
        (
            "training.stage2_rounds=-3",
            "training.stage2_rounds = -3: input should be greater than or equal to 0",
        ),
        ("graph.density=1.5", "graph.density = 1.5: input should be less than or equal to 1"),
        (
            "partition.labelled=5000",
            "partition.labelled = 5000 and partition.pool = 600 need 5600 examples; digits has 1797",
        ),
        ("population.learners.1.view=sound", "view = 'sound': digits has no such view; it has pixels, image"),
        (
            "population.learners.0.kind=transformer",
            "learner linear: kind = 'transformer': must be one of linear, mlp",
        ),
        (
            "population.learners.0.options.depth=3",
            "learner linear: kind = 'linear' with options {'depth': 3}",
        ),
        ("graph.nodes", "--set graph.nodes: must look like path.to.field=value"),
        ("methods.independent.x=1", "methods.independent.x = 1: "),
        ("methods.independent.lr=-1", "methods.independent.lr = -1: input should be greater than 0"),
        (
            "methods.centralised.epochs=3",
            "methods.centralised: settings of an unknown method; did you mean centralized?",
        ),
    ],
)
def test_fields(refused: Any, tiny_file: Path, change: str, message: str) -> None:
    assert message in refused("run", "tiny.toml", "--set", change)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--method", "unifrom"], "--method unifrom: did you mean uniform? Must be one of centralized, "),
        (["--method", "unifrom"], "or your own as package.module:Name"),
        (["--method", "independent,nothing"], "--method nothing: "),
        (["--method", "lntrust+leen"], "did you mean lntrust+lean?"),
        (["--method", "math:tau"], "--method math:tau: must be a subclass of lntrust.methods.Method"),
        (["--method", "nowhere:fire:"], "--method = 'nowhere:fire:'"),  # and no emoji
        (["--set", "graph.kind=file", "--set", "graph.file=path.edges"],
         "graph.file = 'path.edges': node 5 is outside 0…4; graph.nodes = 5"),
        (["--set", "graph.kind=file", "--set", "graph.file=nowhere.edges"],
         "graph.file = 'nowhere.edges': there is no such file"),
        (["--out", "path.edges"], "--out path.edges: is a file; must be a folder, or a name for a new one"),
        (["--out", "path.edges/runs"], "cannot write path.edges/runs"),
        pytest.param(
            ["--device", "cuda"], "--device cuda: torch sees no GPU here; use --device cpu, or auto",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU"),
        ),
    ],
)  # fmt: skip
def test_names_and_places(refused: Any, tiny_file: Path, arguments: list[str], message: str) -> None:
    tiny_file.with_name("path.edges").write_text("0 1\n1 2\n2 3\n3 4\n4 5\n")
    assert message in refused("run", "tiny.toml", *arguments)


def test_a_study_and_its_file(refused: Any, here: Path) -> None:
    assert refused("run", "wearable").startswith("study wearable: did you mean wearables? ")
    Path("typo.toml").write_text('inherits = "digits"\n[training]\nbatch_size = 3\n')
    expected = "study typo.toml: unknown field training.batch_size; did you mean batch?"
    assert refused("run", "typo.toml") == expected


@pytest.mark.parametrize(
    "wrong", [["--device", "tpu"], ["--backend", "fast"], ["--preset", "fast"], ["--zzz"]]
)
def test_a_value_of_an_option(lntrust: Any, here: Path, wrong: list[str]) -> None:
    got = lntrust("run", *wrong)
    assert (got.code, got.out) == (2, "")
    assert wrong[0] in got.err
    assert list(here.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="a file that cannot be read by anybody")
@pytest.mark.parametrize("command", ["run", "sweep"])
def test_graph_file_that_cannot_be_read(lntrust: Any, tiny_file: Path, here: Path, command: str) -> None:
    drawn = ["--set", "graph.kind=file", "--set", "graph.file=/proc/self/mem"]
    got = lntrust(command, tiny_file, *drawn, "--device", "cpu")
    assert got.code == 2
    assert "graph.file = '/proc/self/mem': not readable" in got.err
    assert "internal" not in got.err


def windows(folder: Path, **changes: np.ndarray) -> Path:
    """A small uci_har archive: 60 windows of 3 people."""
    rng = np.random.default_rng(0)
    table: dict[str, np.ndarray] = {
        "x": rng.normal(size=(60, 9, 16)).astype(np.float16),
        "y": (np.arange(60) % 6).astype(np.uint8),
        "subject": (np.arange(60) % 3 + 1).astype(np.uint8),
        "segment": np.arange(60).astype(np.int16),
        "classes": np.array([f"class {c}" for c in range(6)]),
    }
    path = folder / "uci_har" / "windows.npz"
    path.parent.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(path, **(table | changes))  # type: ignore[arg-type]
    return path


def _refusal(folder: Path) -> str | None:
    try:
        load_dataset("uci_har", folder)
    except LNTrustError as error:
        return str(error)
    return None


class TestData:
    def test_missing_says_how_to_get_it(
        self, refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LNTRUST_DATA", str(tmp_path / "empty"))
        message = refused("run", "sparse-cifar10")
        first = tmp_path / "empty" / "cifar10" / "labels.npz"
        assert message.startswith(f"dataset cifar10: {first} is not there.")
        assert "\n  lntrust data download cifar10 --to cifar10-raw\n" in message
        for backbone in ("mobilenet_v2", "efficientnet_b0"):
            assert f"lntrust data extract cifar10 --images cifar10-raw --backbone {backbone}" in message
        assert "--data or LNTRUST_DATA" in message

    def test_missing_in_the_folder_that_was_named(self, refused: Any, tmp_path: Path) -> None:
        message = refused("run", "wearables", "--data", tmp_path / "here")
        assert str(tmp_path / "here" / "uci_har" / "windows.npz") in message
        assert "lntrust data extract uci_har --images uci_har-raw --data" in message

    @pytest.mark.parametrize("how", ["cut", "no archive"])
    def test_not_an_archive(self, refused: Any, tmp_path: Path, how: str) -> None:
        path = windows(tmp_path)
        if how == "cut":
            path.write_bytes(path.read_bytes()[:-200])
        else:
            with path.open("wb") as file:
                np.save(file, np.zeros(3))
        message = refused("run", "wearables", "--data", tmp_path)
        assert message.startswith(f"{path}: not a readable npz archive: ")

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_nan_in_features(self, refused: Any, tmp_path: Path, bad: float) -> None:
        """40 images of 8 features."""
        folder = tmp_path / "cifar10"
        folder.mkdir()
        np.savez(folder / "labels.npz", y=(np.arange(40) % 10).astype(np.uint8))
        codes, one = np.zeros((40, 8), np.uint8), np.ones(8, np.float32)
        step = np.where(np.isin(np.arange(8), [2, 5]), bad, one).astype(np.float32)
        for name, scale in (("efficientnet_b0", one), ("mobilenet_v2", step)):
            np.savez(folder / f"{name}.npz", codes=codes, step=scale, offset=0 * one)
        place = "dataset cifar10, view mobilenet_v2, step: column 2"
        expected = f"{folder / 'mobilenet_v2.npz'}: {place} is {bad}; all must be finite"
        assert refused("run", "dense-cifar10", "--data", tmp_path) == expected

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"y": np.full(60, 6, np.uint8)}, "y runs from 6 to 6; labels must be 0…5"),
            ({"y": np.zeros(59, np.uint8)}, "y has shape (59,); must be one label for each of 60 rows"),
            ({"x": np.zeros((60, 3, 16), np.float16)}, "x has shape (60, 3, 16); must be [N, 9, samples]"),
            ({"subject": np.zeros(7, np.uint8)}, "subject has shape (7,); x has 60 rows"),
            (
                {
                    "x": np.where(np.arange(60 * 9 * 16) == 501, np.nan, 0)
                    .reshape(60, 9, 16)
                    .astype(np.float16)
                },
                "dataset uci_har, view windows: row 3, column 4, 5 is nan; all must be finite",
            ),
        ],
    )
    def test_arrays_that_do_not_fit(
        self, refused: Any, tmp_path: Path, changes: dict[str, np.ndarray], message: str
    ) -> None:
        path = windows(tmp_path, **changes)
        assert refused("run", "wearables", "--data", tmp_path) == f"{path}: {message}"

    @settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255), length=st.integers(1, 40))
    def test_whatever_bytes_are_damaged_the_message_names_the_file(
        self, tmp_path: Path, place: float, flip: int, length: int
    ) -> None:
        path = windows(tmp_path)
        data = bytearray(path.read_bytes())
        start = int(place * len(data))
        data[start : start + length] = bytes(b ^ flip for b in data[start : start + length])
        path.write_bytes(data)
        message = _refusal(tmp_path)
        assert message is None or message.startswith(f"{path}: ")  # some damage does no harm

    def test_damage_inside_compressed_data(self, tmp_path: Path) -> None:
        """zlib's own error, which is no OSError."""
        path = windows(tmp_path)
        data = bytearray(path.read_bytes())
        name_end = data.index(b"x.npy") + len(b"x.npy") + 20
        data[name_end : name_end + 50] = bytes(50)
        path.write_bytes(data)
        with path.open("rb") as file, np.load(file) as archive, pytest.raises(zlib.error):
            archive["x"]
        with pytest.raises(LNTrustError, match="not a readable npz archive"):
            load_dataset("uci_har", tmp_path)


class TestResume:
    @pytest.fixture
    def begun(self, lntrust: Any, tiny_file: Path, here: Path) -> Path:
        """The folder of a run that was stopped."""
        assert lntrust("run", tiny_file, "--method", "independent").code == 0
        (folder,) = (here / "runs" / "tiny" / "independent").iterdir()
        (folder / "summary.json").unlink()
        return folder

    @pytest.mark.parametrize("how", ["cut", "noise", "empty"])
    def test_a_corrupt_checkpoint(self, how: str, refused: Any, begun: Path) -> None:
        checkpoint = begun / "checkpoint.safetensors"
        whole = checkpoint.read_bytes()
        damaged = {"cut": whole[: len(whole) // 2], "noise": b"\xff" * 300, "empty": b""}[how]
        checkpoint.write_bytes(damaged)
        message = refused("run", "tiny.toml", "--method", "independent")
        assert f"{checkpoint.relative_to(Path.cwd())}: not a readable safetensors file: " in message
        assert message.endswith("remove it to start over")
        assert checkpoint.read_bytes() == damaged

    def test_a_corrupt_evaluation(self, refused: Any, begun: Path) -> None:
        file = begun / "evaluations" / "round-00004.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        for _ in range(2):
            message = refused("run", "tiny.toml", "--method", "independent")
            assert message.startswith(f"{file.relative_to(Path.cwd())}: ")
            file.unlink(missing_ok=True)


def _private_mount(tmp_path: Path) -> list[str] | None:
    """How to mount a small disk that only one child sees, where that is permitted."""
    probe = tmp_path / "probe"
    probe.mkdir()
    for unshare in (["unshare", "-m"], ["unshare", "-rm"]):
        command = [*unshare, "mount", "-t", "tmpfs", "tmpfs", str(probe)]
        try:
            if subprocess.run(command, capture_output=True, check=False).returncode == 0:
                return unshare
        except FileNotFoundError:
            return None
    return None


def _small_files_only() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_full_disk(tmp_path: Path) -> None:
    """A real one of 64 kB: run.json fits, the first checkpoint does not."""
    disk = tmp_path / "disk"
    disk.mkdir()
    run = [sys.executable, "-m", "lntrust.cli", "run", "--seed", "0", "--method", "independent", "--json"]
    few = ("graph.nodes=5", "partition.labelled=250", "evaluation.checkpoint_every=1")
    run += [*(f"--set={each}" for each in few), "--out", str(disk)]
    listing = f"code=$?; find {disk} -type f; exit $code"  # before the disk goes with the child
    unshare = _private_mount(tmp_path)
    if unshare is not None:
        script = f'mount -t tmpfs -o size=64k tmpfs {disk} && {{ "$@"; {listing}; }}'
        command, limit = [*unshare, "sh", "-c", script, "sh", *run], None
    else:
        command, limit = ["sh", "-c", f'"$@"; {listing}', "sh", *run], _small_files_only
    got = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ, preexec_fn=limit
    )
    left = [Path(line) for line in got.stdout.splitlines()]
    assert got.returncode == 2, got.stderr
    assert got.stderr.startswith(f"error: cannot write {disk}/digits/independent/seed-0-")
    assert "checkpoint.safetensors: " in got.stderr
    assert "No space left" in got.stderr or "File too large" in got.stderr
    assert len(got.stderr.splitlines()) == 1
    assert [path.name for path in left if path.parent.name != "worlds"] == ["run.json"], (
        "nothing half-written"
    )
