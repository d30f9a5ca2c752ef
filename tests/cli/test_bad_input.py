"""Bad input: one message that names field or file, value and what would do; exit code 2; no debris."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lntrust import LNTrustError
from lntrust.world import load_dataset

WRITES = {"compare": ".md", "collect": ".parquet", "report": ".html", "figures": ""}
REFUSED = [
    ("run tiny.toml --set graph.nodez=5", "study tiny.toml: unknown field graph.nodez; did you mean nodes?"),
    ("run tiny.toml --set training.batch=large", "training.batch = 'large': input should be a valid integer"),
    ("run tiny.toml --set training.stage2_rounds=-3", "= -3: input should be greater than or equal to 0"),
    ("run tiny.toml --set partition.labelled=5000", "pool = 600 need 5600 examples; digits has 1797"),
    ("run tiny.toml --set population.learners.1.view=sound", "view = 'sound': digits has no such view"),
    ("run tiny.toml --set population.learners.0.kind=deep", "kind = 'deep': must be one of linear"),
    ("run tiny.toml --set population.learners.0.options.depth=3", "'linear' with options {'depth': 3}"),
    ("run tiny.toml --set methods.independent.x=1", "methods.independent: unknown field x; known here: lr"),
    ("run tiny.toml --set methods.independent.lr=-1", "lr = -1: input should be greater than 0"),
    ("run tiny.toml --method unifrom", "--method unifrom: did you mean uniform? Must be one of c"),
    ("run tiny.toml --method unifrom", "or your own as package.module:Name"),
    ("run tiny.toml --method independent,nothing", "--method nothing: "),
    ("run tiny.toml --method nowhere:fire:", "--method = 'nowhere:fire:'"),  # and no emoji
    ("run tiny.toml --set graph.kind=file --set graph.file=path.edges", "node 5 is outside 0…4"),
    ("run tiny.toml --out path.edges", "path.edges: is a file; must be a folder, or a name for a new one"),
    ("run tiny.toml --out path.edges/runs", "cannot write path.edges/runs"),
    ("run tiny.toml --device cuda", "--device cuda: torch sees no GPU here; use --device cpu, or auto"),
    ("run wearable", "study wearable: did you mean wearables? "),
    ("run typo.toml", "study typo.toml: unknown field training.batch_size; did you mean batch?"),
    ("sweep quick.toml --grid partition.skw=1,2", "unknown field partition.skw; did you mean skew?"),
    ("sweep quick.toml --method uniform,indepndent", "--method indepndent: did you mean independent?"),
    ("sweep quick.toml --address auto", "--address auto: is for --on ray"),
    ("sweep quick.toml --on ray --workers 2", "--workers 2: is for --on local"),
    ("sweep quick.toml --set data.dataset=cifar10 --data nowhere", "dataset cifar10: "),
    ("sweep quick.toml --out tiny.toml", "--out tiny.toml: is a file"),
    ("tune quick.toml --out study.json", "--out study.json: must end in .toml"),
    ("tune quick.toml --out quick.toml", "--out quick.toml: is the study itself"),
    ("tune quick.toml --method centralized", "--method centralized: a reference that trains until it stops"),
    ("tune quick.toml --method uniform,lntrst", "--method lntrst: did you mean lntrust?"),
    ("tune quick.toml --seed 0-1", "--seed 0-1: must be one seed here"),
    ("reproduce tabel", "Must be all, a .toml file, or one of"),
    ("reproduce sparse --method indepndent", "did you mean independent? Rows there are of independent,"),
    ("reproduce sparse --from nowhere", "neither a folder with runs nor a collection"),
    ("reproduce sparse --out tiny.toml", "--out tiny.toml: is a file"),
    ("reproduce sparse --to tiny.toml", "--to tiny.toml: is a file"),
    ("reproduce sparse --data nowhere", "dataset cifar10: "),
    ("methods nothing", "method nothing: Must be one of centralized, "),
    ("methods lntrust+leen", "method lntrust+leen: did you mean lntrust+lean? Must be one of c"),
    ("graph -o graph.gif", "--out graph.gif: must end in .png, .pdf or .svg"),
    ("compare nowhere -o table.html", "--out table.html: must end in .md, .tex or .parquet"),
    ("compare nowhere -o table.md -o table", "--out table: must end in"),
    ("compare nowhere -o folder.md", "--out folder.md: is a folder"),
    ("collect nowhere -o all.json", "--out all.json: must end in .parquet"),
    ("report nowhere -o page.pdf", "--out page.pdf: must end in .html"),
    ("figures nowhere -o text.parquet", "--out text.parquet: is a file; must be a folder"),
    *(
        (f"{command} {where} -o new{suffix}", message)
        for command, suffix in WRITES.items()
        for where, message in (
            ("empty", "empty: no finished run there"),
            ("nowhere", "nowhere: neither a folder with runs nor a collection of them"),
        )
    ),
]


@pytest.mark.parametrize(("command", "message"), REFUSED, ids=[command for command, _ in REFUSED])
def test_what_is_wrong_is_said_in_a_line_before_any_work(
    refused: Any, quick_file: Path, here: Path, monkeypatch: pytest.MonkeyPatch, command: str, message: str
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    (here / "path.edges").write_text("0 1\n1 2\n2 3\n3 4\n4 5\n")
    (here / "typo.toml").write_text('inherits = "digits"\n[training]\nbatch_size = 3\n')
    (here / "text.parquet").write_text("text")
    for name in ("empty", "folder.md"):
        (here / name).mkdir()
    assert message in refused(*command.split())


@pytest.mark.parametrize("wrong", ["--device tpu", "--backend fast", "--preset fast", "--zzz"])
def test_a_value_of_an_option(lntrust: Any, here: Path, wrong: str) -> None:
    got = lntrust("run", *wrong.split())
    assert (got.code, got.out) == (2, "")
    assert wrong.split()[0] in got.err
    assert list(here.iterdir()) == []


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="a file that cannot be read by anybody")
def test_graph_file_that_cannot_be_read(refused: Any, tiny_file: Path) -> None:
    drawn = ["--set", "graph.kind=file", "--set", "graph.file=/proc/self/mem"]
    assert "graph.file = '/proc/self/mem': not readable" in refused("run", tiny_file, *drawn)


def windows(folder: Path) -> Path:
    """A small uci_har archive: 60 windows of 3 people."""
    rng = np.random.default_rng(0)
    path, i = folder / "uci_har" / "windows.npz", np.arange(60)
    path.parent.mkdir(parents=True, exist_ok=True)
    x, classes = rng.normal(size=(60, 9, 16)).astype(np.float16), np.array([f"class {c}" for c in range(6)])
    np.savez_compressed(path, x=x, y=(i % 6).astype(np.uint8), subject=i % 3 + 1, segment=i, classes=classes)
    return path


class TestData:
    @pytest.mark.parametrize("how", ["cut", "no archive", "inside"])
    def test_an_archive_that_cannot_be_read(self, refused: Any, tmp_path: Path, how: str) -> None:
        """Inside compressed data it is zlib that fails, with an error of its own that is no OSError."""
        path = windows(tmp_path)
        data = path.read_bytes()
        at = data.index(b"x.npy") + 25
        ways = {
            "cut": data[:-200],
            "no archive": b"\x93NUMPY",
            "inside": data[:at] + bytes(50) + data[at + 50 :],
        }
        path.write_bytes(ways[how])
        message = refused("run", "wearables", "--data", tmp_path)
        assert message.startswith(f"{path}: not a readable npz archive: ")

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
        said = ""
        try:
            load_dataset("uci_har", tmp_path)  # some damage does no harm
        except LNTrustError as error:
            said = str(error)
        assert not said or said.startswith(f"{path}: ")


class TestResume:
    @pytest.fixture
    def begun(self, lntrust: Any, tiny_file: Path, here: Path) -> Path:
        """The folder of a run that was stopped."""
        assert lntrust("run", tiny_file, "--method", "independent").code == 0
        (folder,) = (here / "runs" / "tiny" / "independent").iterdir()
        (folder / "summary.json").unlink()
        return folder

    def test_a_corrupt_checkpoint(self, refused: Any, begun: Path) -> None:
        checkpoint = begun / "checkpoint.safetensors"
        for damaged in (checkpoint.read_bytes()[:-500], b"\xff" * 300, b""):
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


def _small_files_only() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))


def test_full_disk(tmp_path: Path) -> None:
    """As far as a limit on files can be one: run.json fits, the first checkpoint does not."""
    run = [sys.executable, "-m", "lntrust.cli", "run", "--seed", "0", "--method", "independent", "--json"]
    few = ("graph.nodes=5", "partition.labelled=250", "evaluation.checkpoint_every=1")
    run += [*(f"--set={each}" for each in few), "--out", str(tmp_path)]
    got = subprocess.run(run, capture_output=True, text=True, check=False, preexec_fn=_small_files_only)
    assert (got.returncode, got.stdout) == (2, "")
    assert got.stderr.startswith(f"error: cannot write {tmp_path}/digits/independent/seed-0-")
    assert "checkpoint.safetensors: " in got.stderr
    assert "File too large" in got.stderr
    assert len(got.stderr.splitlines()) == 1
    left = {path.name for path in tmp_path.glob("digits/independent/**/*") if path.is_file()}
    assert left == {"attempt-1.json", "run.json"}, "nothing half-written"
