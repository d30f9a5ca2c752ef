"""What a run is called: the same for the same thing, another for another, and as it always was."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import lntrust
from lntrust import Study, load_study
from lntrust.experiment.store.collection import key_of
from lntrust.experiment.store.identity import checkpoint, fingerprint, identities, slug, stage1_file
from lntrust.experiment.store.schemas import upgrade
from lntrust.experiment.store.worlds import world_file
from lntrust.methods import find_method
from lntrust.study.settings import recorded

PRINT = (
    "import json; from lntrust.experiment.store.identity import revision, changed_code;"
    "print(json.dumps([revision(), changed_code()]))"
)


def of(*overrides: str, method: str = "lntrust", seed: int = 0, device: str = "cpu") -> dict[str, Any]:
    study = load_study("digits", overrides)
    (one,) = identities(study, method, [seed], device)
    return one


def test_the_honest_reading_goes_without_saying_and_the_papers_is_another_run() -> None:
    """Folders of runs made before there were readings are found again. Tables read the paper's otherwise than
    one whose draws overlap."""
    assert of("reading=honest") == of()
    assert "reading" not in of()["study"]
    changes = (["reading=paper"], [], ["partition.draws=overlapping"])
    assert len({fingerprint(of(*change)) for change in changes}) == 3


# What the paper's reading is made of, beside the best round; and what stands there otherwise.
PIECES = {
    "partition.examples=official_training": "all", "partition.draws=overlapping": "disjoint",
    "partition.pool_draws=overlapping": "set_aside", "partition.split=per_class_nearest": "random",
    "partition.size_seed=0": "none", "training.stage2_rounds=150": "200",
    "methods.lntrust.kl_scale=per_class": "sum",
}  # fmt: skip


def of_cifar(*overrides: str) -> dict[str, Any]:
    (one,) = identities(load_study("sparse-cifar10", overrides), "lntrust", [0], "cpu")
    return one


class TestReading:
    """What the paper's does to a study."""

    @pytest.mark.parametrize("name", ["digits", "sparse-cifar10", "sparse-cifar100", "geo-eurosat"])
    def test_it_is_a_choice_of_other_fields_and_survives_a_trip_through_json(self, name: str) -> None:
        study, pieces = load_study(name, ["reading=paper"]), list(PIECES)
        if name in ("digits", "geo-eurosat"):
            pieces.remove("partition.examples=official_training")  # there is none
        if name == "geo-eurosat":  # regions are what they are
            pieces = [piece for piece in pieces if not piece.startswith("partition")]
        assert load_study(name, pieces).model_copy(update={"reading": "paper"}) == study, "and nothing else"
        assert Study.model_validate_json(study.model_dump_json()) == study, "as tasks make it to their worker"

    @pytest.mark.parametrize("piece", PIECES)
    def test_a_piece_is_another_run_by_itself_and_the_study_may_say_otherwise(self, piece: str) -> None:
        otherwise = f"{piece.partition('=')[0]}={PIECES[piece]}"
        assert of_cifar(otherwise) == of_cifar() != of_cifar(piece), "as it is without the reading"
        whole = of_cifar("reading=paper")
        assert of_cifar("reading=paper", piece) == whole != of_cifar("reading=paper", otherwise)


def test_another_run_has_another_name_and_what_makes_no_difference_is_not_in_it() -> None:
    settings = ("training.lr=0.02", "methods.lntrust.top_k=1", "deploy=self", "evaluation.every=3")
    others = [of(seed=1), of(method="uniform"), of(device="cuda"), *map(of, settings)]
    assert len({fingerprint(each) for each in (of(), *others)}) == 8
    for idle in ("seeds=[0,1,2]", 'about="something"', 'compare=["lntrust"]', "methods.uniform.lr=0.5"):
        assert fingerprint(of(idle)) == fingerprint(of())


def test_names_of_folders() -> None:
    assert json.loads(json.dumps(of())) == of()
    assert slug(of()).parts[:2] == ("digits", "lntrust")
    assert slug(of(seed=3)).name == f"seed-3-{fingerprint(of(seed=3))}"
    one, stack = checkpoint([of()]), checkpoint([of(), of(seed=1)])
    assert one == slug(of()) / "checkpoint.safetensors"
    assert stack.parent.name.startswith("stack-")
    assert stack.parent.parent == slug(of()).parent
    assert stack != checkpoint([of(), of(seed=2)])


def test_a_stage_1_is_named_by_what_decides_it() -> None:
    def name(*overrides: str, **more: Any) -> str:
        return stage1_file([of(*overrides, **more)], {"lr": 0.01}).name

    assert stage1_file([of()], {}).parts[:2] == ("digits", "stage1")
    for after in ("training.refresh=3", "training.stage2_rounds=9", "methods.lntrust.top_k=1", "deploy=self"):
        assert name(after) == name()
    for before in ("training.stage1_rounds=9", "partition.skew=2", "graph.attach=1", "evaluation.every=3"):
        assert name(before) != name()
    rates = stage1_file([of()], {"lr": 0.1}), stage1_file([of(), of(seed=1)], {"lr": 0.01})
    assert len({name(), name(seed=1), name(device="cuda"), *(path.name for path in rates)}) == 5


class TestContent:
    """What settings only name decides the result, too."""

    def test_a_graph_file_is_known_by_what_is_in_it(self, tmp_path: Path) -> None:
        roads, copy = tmp_path / "roads.txt", tmp_path / "copy.txt"
        roads.write_text("0 1\n1 2\n")
        drawn = (f"graph.file={roads}", "graph.kind=file", "graph.nodes=3")
        before = of(*drawn)
        assert of(*drawn) == before
        roads.write_text("0 1\n0 2\n")
        after = of(*drawn)
        assert fingerprint(after) != fingerprint(before)
        assert slug(after) != slug(before)
        assert world_file(after) != world_file(before)
        assert stage1_file([after], {}) != stage1_file([before], {})
        copy.write_text("0 1\n0 2\n")
        found = of(f"graph.file={copy}", *drawn[1:])["content"]["files"]
        assert found == {str(copy): after["content"]["files"][str(roads)]}

    def test_an_onnx_file_and_the_weights_beside_it_too(self, tmp_path: Path) -> None:
        model, weights = tmp_path / "model.onnx", tmp_path / "model.onnx.data"
        learner = f'{{name="m",kind="onnx",view="pixels",options={{file="{model}"}}}}'
        prints = set()
        for contents in (b"graph", b"weights"), (b"other graph", b"weights"), (b"graph", b"other weights"):
            model.write_bytes(contents[0])
            weights.write_bytes(contents[1])
            prints.add(fingerprint(of(f"population.learners=[{learner}]")))
        assert len(prints) == 3


# Settings of the method as it was when the first runs were made.
PUBLISHED = {
    "lr", "weighting", "strength", "budget", "warmup", "targets", "soft_scale", "kl_scale", "importance",
    "confidence_floor", "confidence_margin", "training_gate", "deployment_gate", "top_k", "unlabelled",
    "epsilon_dep", "delta", "sample",
}  # fmt: skip


class TestYoungerSettings:
    """Settings that came after runs were made: those runs must be found again."""

    def test_a_learner_without_noise_is_what_it_was(self) -> None:
        assert all("noise" not in learner for learner in of()["study"]["population"]["learners"])
        assert of("population.learners.1.noise=0") == of()
        noisy = of("population.learners.1.noise=0.5")
        assert noisy["study"]["population"]["learners"][1]["noise"] == 0.5
        assert fingerprint(noisy) != fingerprint(of())
        assert world_file(noisy) != world_file(of())
        assert stage1_file([noisy], {}) != stage1_file([of()], {})

    def test_a_published_run_knows_nothing_of_them(self) -> None:
        study = load_study("digits")
        method = find_method("lntrust", study)
        table = {name: part for name, part in recorded(study).items() if name != "reading"}
        every = method.settings.model_dump(mode="json")
        by_hand = {
            "study": table, "method": "lntrust", "settings": {name: every[name] for name in PUBLISHED},
            "seed": 0, "device": "cpu", "backend": "batched",
        }  # fmt: skip
        assert len(every) > len(PUBLISHED)
        found = of()
        assert found.pop("content")["schema"] == 2, "the first that had content: no correction speaks of it"
        assert found == by_hand
        assert key_of(of()) == key_of(upgrade(by_hand)), "as the first runs were recorded"

    @pytest.mark.parametrize(
        "change",
        [
            "query=handle", "reply=uint8", "recall=5", "refresh=7", "certainty=0.7", "evidence=0.9",
            "final_rounds=3", "prior=self", "prior_examples=3", "typical_margin=true", "self_share=0.2",
            "prior_wins=0.5", "split_validation=true",
        ],
    )  # fmt: skip
    def test_changed_they_are(self, change: str) -> None:
        other, name = of(f"methods.lntrust.{change}"), change.partition("=")[0]
        assert fingerprint(other) != fingerprint(of())
        assert set(other["settings"]) == PUBLISHED | {name}
        default = find_method("lntrust", load_study("digits")).settings.model_dump(mode="json")[name]
        said = of(f"methods.lntrust.{name}={'none' if default is None else json.dumps(default)}")
        assert said == of(), "said, but not changed"

    def test_of_who_answers_for_another_method_too(self) -> None:
        crossed = of("deploy=trust", method="uniform")
        assert set(crossed["answerer"]) == PUBLISHED
        other = of("deploy=trust", "methods.lntrust.self_share=0.2", method="uniform")
        assert fingerprint(other) != fingerprint(crossed)


# -- which state of the package made a run: seen from copies of it, in checkouts of their own ---------


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package in a folder that is no checkout."""
    folder = tmp_path / "project"
    skipped = shutil.ignore_patterns("__pycache__", "assets", "studies")
    shutil.copytree(Path(lntrust.__file__).parent, folder / "src" / "lntrust", ignore=skipped)
    return folder


def seen_from(folder: Path) -> tuple[dict[str, str], str | None]:
    env = {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-c", PRINT], env=env, capture_output=True, text=True, check=True)
    revision, code = json.loads(done.stdout)
    return revision, code


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(["git", *who, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_which_state_of_the_package_made_a_run(copy: Path) -> None:
    """Results of a method of ours that is being worked on are those of its code, and of no other."""
    assert seen_from(copy) == ({}, None), "it lies in no checkout"
    git(copy, "init")
    (copy / "mine.txt").write_text("mine")
    git(copy, "add", "mine.txt")
    git(copy, "commit", "-m", "mine")
    assert seen_from(copy) == ({}, None), "it is not part of somebody else's"
    git(copy, "add", "-A")
    git(copy, "commit", "-m", "all")
    head: Any = git(copy, "rev-parse", "--short=12", "HEAD")
    assert seen_from(copy) == ({"revision": head}, None)
    method = copy / "src" / "lntrust" / "methods" / "independent.py"
    codes = set()
    for line in ("# a", "# b"):
        method.write_text(method.read_text() + line + "\n")
        revision, code = seen_from(copy)
        assert revision == {"revision": f"{head}, dirty"}
        codes.add(code)
    assert None not in codes
    assert len(codes) == 2
