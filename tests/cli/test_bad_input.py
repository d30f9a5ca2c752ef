"""Bad input: one message that names field or file, value and what would do; exit code 2; no debris."""

import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lntrust import LNTrustError
from lntrust.world import load_dataset

Refuse = Callable[..., str]


@pytest.fixture
def refused(lntrust: Any, tiny_file: Path, tmp_path: Path) -> Refuse:
    """Runs a study that must be refused; its message. `study` is the tiny one unless given."""

    def call(*arguments: str | Path, study: str | Path = tiny_file, untouched: bool = True) -> str:
        out = tmp_path / "out"
        got = lntrust("run", study, "--out", out, "--json", *arguments)
        assert got.code == 2, got
        assert got.out == ""
        assert got.err.startswith("error: ")
        assert got.err.count("error: ") == 1
        assert "Traceback" not in got.err
        if untouched:
            assert not out.exists()
        return str(got.err.removeprefix("error: ").rstrip("\n"))

    return call


class TestFields:
    def test_unknown_field(self, refused: Refuse, tiny_file: Path) -> None:
        message = refused("--set", "graph.nodez=5")
        assert message == f"study {tiny_file}: unknown field graph.nodez; did you mean nodes?"

    def test_unknown_field_in_the_file(self, refused: Refuse, tmp_path: Path) -> None:
        path = tmp_path / "typo.toml"
        path.write_text('inherits = "digits"\n[training]\nbatch_size = 3\n')
        assert refused(study=path) == f"study {path}: unknown field training.batch_size; did you mean batch?"

    def test_wrong_type(self, refused: Refuse) -> None:
        assert "training.batch = 'large': input should be a valid integer" in refused(
            "--set", "training.batch=large"
        )

    def test_more_classes_per_node_than_exist(self, refused: Refuse) -> None:
        message = refused("--set", "partition.classes_per_node=12")
        assert message == "partition.classes_per_node = 12: digits has 10 classes"

    def test_negative_rounds(self, refused: Refuse) -> None:
        assert "training.stage2_rounds = -3: input should be greater than or equal to 0" in refused(
            "--set", "training.stage2_rounds=-3"
        )

    def test_probability_above_one(self, refused: Refuse) -> None:
        assert "graph.density = 1.5: input should be less than or equal to 1" in refused(
            "--set", "graph.density=1.5"
        )

    def test_more_data_than_there_is(self, refused: Refuse) -> None:
        message = refused("--set", "partition.labelled=5000")
        assert "partition.labelled = 5000 and partition.pool = 600 need 5600 examples" in message
        assert "digits has 1797" in message

    def test_a_view_that_the_dataset_has_not(self, refused: Refuse) -> None:
        message = refused("--set", "population.learners.1.view=sound")
        assert message == "view = 'sound': digits has no such view; it has pixels, image"

    def test_a_kind_of_learner_that_is_not(self, refused: Refuse) -> None:
        message = refused("--set", "population.learners.0.kind=transformer")
        assert message.startswith("learner linear: kind = 'transformer': must be one of linear, mlp")

    def test_an_option_that_the_kind_has_not(self, refused: Refuse) -> None:
        message = refused("--set", "population.learners.0.options.depth=3")
        assert message.startswith("learner linear: kind = 'linear' with options {'depth': 3}")

    def test_syntax_of_set(self, refused: Refuse) -> None:
        assert refused("--set", "graph.nodes") == "--set graph.nodes: must look like path.to.field=value"


class TestNames:
    def test_unknown_method(self, refused: Refuse) -> None:
        message = refused("--method", "unifrom")
        assert message.startswith("--method unifrom: did you mean uniform? Must be one of centralized, ")
        assert message.endswith("or your own as package.module:Name")

    def test_an_unknown_method_stops_the_known_ones_too(self, refused: Refuse) -> None:
        refused("--method", "independent", "--method", "nothing")

    def test_own_method_that_is_none(self, refused: Refuse) -> None:
        assert (
            refused("--method", "math:tau")
            == "--method math:tau: must be a subclass of lntrust.methods.Method"
        )

    def test_unknown_study(self, refused: Refuse) -> None:
        assert refused(study="wearable").startswith("study wearable: did you mean wearables? ")

    def test_unknown_setting_of_a_method(self, refused: Refuse, tmp_path: Path) -> None:
        path = tmp_path / "own.toml"
        path.write_text('inherits = "tiny.toml"\n[methods.independent]\nx = 1\n')
        message = refused("--method", "independent", study=path)
        assert message.startswith("methods.independent.x = 1: ")
        assert message.endswith("settings of independent: lr")

    def test_impossible_setting_of_a_method(self, refused: Refuse) -> None:
        message = refused("--method", "centralized", "--set", "methods.centralized.epochs=0")
        assert message.startswith(
            "methods.centralized.epochs = 0: input should be greater than or equal to 1"
        )

    def test_settings_of_an_unknown_method(self, refused: Refuse) -> None:
        message = refused("--set", "methods.centralised.epochs=3")
        assert message.startswith(
            "methods.centralised: settings of an unknown method; did you mean centralized?"
        )


class TestGraphFile:
    def test_a_node_too_many(self, refused: Refuse, tmp_path: Path) -> None:
        path = tmp_path / "path.edges"
        path.write_text("0 1\n1 2\n2 3\n3 4\n4 5\n")
        message = refused("--set", "graph.kind=file", "--set", f"graph.file={path}")
        assert message.startswith(f"graph.file = '{path}': node 5 is outside 0…4; graph.nodes = 5")

    def test_no_such_file(self, refused: Refuse) -> None:
        message = refused("--set", "graph.kind=file", "--set", "graph.file=nowhere.edges")
        assert message.startswith("graph.file = 'nowhere.edges': there is no such file")


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


def features(folder: Path, step: np.ndarray | None = None) -> Path:
    """A small cifar10 folder: 40 images, 8 features. The path of the MobileNetV2 file."""
    folder = folder / "cifar10"
    folder.mkdir(parents=True)
    np.savez(folder / "labels.npz", y=(np.arange(40) % 10).astype(np.uint8))
    codes = np.random.default_rng(0).integers(0, 256, (40, 8)).astype(np.uint8)
    one, zero = np.ones(8, np.float32), np.zeros(8, np.float32)
    np.savez(folder / "efficientnet_b0.npz", codes=codes, step=one, offset=zero)
    path = folder / "mobilenet_v2.npz"
    np.savez(path, codes=codes, step=one if step is None else step, offset=zero)
    return path


def _refusal(folder: Path) -> str | None:
    try:
        load_dataset("uci_har", folder)
    except LNTrustError as error:
        return str(error)
    return None


class TestData:
    def test_missing_says_how_to_get_it(
        self, refused: Refuse, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("LNTRUST_DATA", str(tmp_path / "empty"))
        message = refused(study="sparse-cifar10")
        first = tmp_path / "empty" / "cifar10" / "labels.npz"
        assert message.startswith(f"dataset cifar10: {first} is not there.")
        assert "\n  lntrust data download cifar10 --to cifar10-raw\n" in message
        for backbone in ("mobilenet_v2", "efficientnet_b0"):
            assert f"lntrust data extract cifar10 --images cifar10-raw --backbone {backbone}" in message
        assert "--data or LNTRUST_DATA" in message

    def test_missing_in_the_folder_that_was_named(self, refused: Refuse, tmp_path: Path) -> None:
        message = refused("--data", tmp_path / "here", study="wearables")
        assert str(tmp_path / "here" / "uci_har" / "windows.npz") in message
        assert "lntrust data extract uci_har --images uci_har-raw --data" in message

    def test_a_corrupt_archive(self, refused: Refuse, tmp_path: Path) -> None:
        path = windows(tmp_path)
        path.write_bytes(path.read_bytes()[:-200])
        message = refused("--data", tmp_path, study="wearables")
        assert message.startswith(f"{path}: not a readable npz archive: ")

    def test_not_an_archive_at_all(self, refused: Refuse, tmp_path: Path) -> None:
        path = windows(tmp_path)
        np.save(path.with_suffix(".npy"), np.zeros(3))
        path.with_suffix(".npy").replace(path)
        assert refused("--data", tmp_path, study="wearables").startswith(
            f"{path}: not a readable npz archive"
        )

    def test_nan_in_windows(self, refused: Refuse, tmp_path: Path) -> None:
        x = np.zeros((60, 9, 16), np.float16)
        x[3, 4, 5] = np.nan
        path = windows(tmp_path, x=x)
        message = refused("--data", tmp_path, study="wearables")
        place = "dataset uci_har, view windows: row 3, column 4, 5"
        assert message == f"{path}: {place} is nan; all must be finite"

    @pytest.mark.parametrize("bad", [np.nan, np.inf])
    def test_nan_in_features(self, refused: Refuse, tmp_path: Path, bad: float) -> None:
        step = np.ones(8, np.float32)
        step[[2, 5]] = bad
        path = features(tmp_path, step)
        message = refused("--data", tmp_path, study="dense-cifar10")
        place = "dataset cifar10, view mobilenet_v2, step: column 2"
        assert message == f"{path}: {place} is {bad}; all must be finite"

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"y": np.full(60, 6, np.uint8)}, "y runs from 6 to 6; labels must be 0…5"),
            ({"y": np.zeros(59, np.uint8)}, "y has shape (59,); must be one label for each of 60 rows"),
            ({"x": np.zeros((60, 3, 16), np.float16)}, "x has shape (60, 3, 16); must be [N, 9, samples]"),
            ({"subject": np.zeros(7, np.uint8)}, "subject has shape (7,); x has 60 rows"),
        ],
    )
    def test_arrays_that_do_not_fit(
        self, refused: Refuse, tmp_path: Path, changes: dict[str, np.ndarray], message: str
    ) -> None:
        path = windows(tmp_path, **changes)
        assert refused("--data", tmp_path, study="wearables") == f"{path}: {message}"

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


class TestMachine:
    @pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
    def test_a_gpu_that_is_not_there(self, refused: Refuse) -> None:
        message = refused("--device", "cuda")
        assert message.startswith("--device cuda: torch sees no GPU here; use --device cpu, or auto")

    def test_output_path_that_is_a_file(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        path = tmp_path / "taken"
        path.write_text("mine")
        got = lntrust("run", tiny_file, "--out", path)
        assert (got.code, got.out) == (2, "")
        assert got.err == f"error: --out {path}: is a file; must be a folder, or a name for a new one\n"
        assert path.read_text() == "mine"

    def test_output_path_below_a_file(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> None:
        (tmp_path / "taken").write_text("mine")
        got = lntrust("run", tiny_file, "--out", tmp_path / "taken" / "runs")
        assert got.code == 2
        assert got.err.startswith(f"error: cannot write {tmp_path / 'taken' / 'runs'}")
        assert len(got.err.splitlines()) == 1

    @pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="a file that cannot be read by anybody")
    @pytest.mark.parametrize("command", ["run", "sweep"])
    def test_graph_file_that_cannot_be_read(
        self, lntrust: Any, tiny_file: Path, tmp_path: Path, command: str
    ) -> None:
        drawn = ["--set", "graph.kind=file", "--set", "graph.file=/proc/self/mem"]
        got = lntrust(command, tiny_file, *drawn, "--device", "cpu", "--out", tmp_path / "out")
        assert got.code == 2
        assert "graph.file = '/proc/self/mem': not readable" in got.err
        assert "internal" not in got.err

    def test_graph_file_of_another_kind(self, lntrust: Any, tmp_path: Path) -> None:
        got = lntrust("graph", "-o", tmp_path / "graph.gif")
        assert got.code == 2
        assert got.err == f"error: --out {tmp_path / 'graph.gif'}: must end in .png, .pdf or .svg\n"
        assert list(tmp_path.iterdir()) == []

    def test_a_value_of_an_option(self, lntrust: Any, tmp_path: Path) -> None:
        for wrong in (
            ["--device", "tpu"],
            ["--seed", "-1"],
            ["--seed", "x"],
            ["--backend", "fast"],
            ["--zzz"],
        ):
            got = lntrust("run", "--out", tmp_path / "out", *wrong)
            assert (got.code, got.out) == (2, "")
            assert wrong[0] in got.err
        assert not (tmp_path / "out").exists()


class TestResume:
    def run_once(self, lntrust: Any, tiny_file: Path, tmp_path: Path) -> Path:
        assert lntrust("run", tiny_file, "--method", "independent", "--out", tmp_path / "out").code == 0
        (folder,) = (tmp_path / "out" / "tiny" / "independent").iterdir()
        (folder / "summary.json").unlink()
        return Path(folder)

    @pytest.mark.parametrize("how", ["cut", "noise", "empty"])
    def test_a_corrupt_checkpoint(
        self,
        how: str,
        lntrust: Any,
        refused: Refuse,
        tiny_file: Path,
        tmp_path: Path,
    ) -> None:
        checkpoint = self.run_once(lntrust, tiny_file, tmp_path) / "checkpoint.safetensors"
        whole = checkpoint.read_bytes()
        damaged = {"cut": whole[: len(whole) // 2], "noise": b"\xff" * 300, "empty": b""}[how]
        checkpoint.write_bytes(damaged)
        message = refused("--method", "independent", untouched=False)
        assert message.startswith(f"{checkpoint}: not a readable safetensors file: ")
        assert message.endswith("remove it to start over")
        assert checkpoint.read_bytes() == damaged

    def test_a_corrupt_evaluation(
        self,
        lntrust: Any,
        refused: Refuse,
        tiny_file: Path,
        tmp_path: Path,
    ) -> None:
        file = self.run_once(lntrust, tiny_file, tmp_path) / "evaluations" / "round-00004.safetensors"
        file.write_bytes(file.read_bytes()[:-1])
        assert refused("--method", "independent", untouched=False).startswith(f"{file}: ")
        file.unlink()
        assert refused("--method", "independent", untouched=False).startswith(f"{file}: ")


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
    run = [
        sys.executable,
        "-m",
        "lntrust.cli",
        "run",
        "digits",
        "--seed",
        "0",
        "--method",
        "independent",
        "--json",
    ]
    for field in ("graph.nodes=5", "partition.labelled=250", "evaluation.checkpoint_every=1"):
        run += ["--set", field]
    run += ["--out", str(disk)]
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


def test_debug_shows_the_traceback() -> None:
    command = [sys.executable, "-m", "lntrust.cli", "studies", "nothing", "--debug"]
    got = subprocess.run(command, capture_output=True, text=True, check=False)
    assert got.returncode != 0
    assert "Traceback" in got.stderr
    assert "study nothing: Neither" in got.stderr
