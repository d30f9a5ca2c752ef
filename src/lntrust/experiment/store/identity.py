"""What a run is: everything that decides its result, and the name of its folder."""

import hashlib
import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from lntrust.core.onnx_files import weights_of
from lntrust.core.plugins import file_digest, sources_of
from lntrust.experiment.store.schemas import Identity, schema_of, shared_content, under_old_names
from lntrust.methods import find_method
from lntrust.study.settings import Study, identity_fields, recorded
from lntrust.world import Dataset

_PACKAGE = Path(__file__).parents[2]


def identities(
    study: Study, name: str, seeds: Sequence[int], device: str, data: str | None = None,
    backend: str = "batched", certify: bool = False,
) -> list[Identity]:  # fmt: skip
    """Everything that decides the result of one method (called `name`), for each seed.

    `data` is the dataset's digest, if it is known.
    """
    method, table = find_method(name, study), recorded(study)
    if table["reading"] == "honest":
        del table["reading"]  # goes without saying
    of = {
        "study": table, "method": name, "settings": identity_fields(method.settings), "seed": None,
        "device": device, "backend": backend, **method.more_identity(),
        **({"certify": True} if certify else {}),
    }  # fmt: skip
    of["content"] = {"schema": schema_of(of)} | content_of(study, name, data)
    return [of | {"seed": seed} for seed in seeds]


def content_of(study: Study, method: str, data: str | None = None) -> dict[str, Any]:
    """What a run is made of that its settings only name: data, files, and the state of this package.

    Users' own methods and models are known by their source, and so is this package, if it has changes on top
    of its git revision.
    """
    learners = study.population.learners
    named = [study.graph.file] if study.graph.kind == "file" and study.graph.file else []
    models = [Path(str(learner.options.get("file"))) for learner in learners if learner.kind == "onnx"]
    named += [str(file) for model in models for file in (model, *weights_of(model))]
    files: dict[str, str] = {}
    for file in named:
        with suppress(OSError):  # whoever needs it will say so
            files[file] = file_digest(Path(file))
    own = {method: "--method"} | {each.kind: f"learner {each.name}: kind" for each in learners}
    sources: dict[str, str] = {}
    for name, field in own.items():
        sources |= sources_of(name, field) if ":" in name else {}
    parts = {"data": data, "files": files, "sources": sources, "code": changed_code()}
    return {name: part for name, part in parts.items() if part}


def data_digest(study: Study, dataset: Dataset) -> str:
    """The dataset's, as far as the study's learners see it."""
    return dataset.digest(learner.view for learner in study.population.learners)


# -- names ----------------------------------------------------------------------------------------


def fingerprint(of: dict[str, Any]) -> str:
    """Under the names that settings had first, so that a run made before they were renamed is found."""
    return short_digest(json.dumps(under_old_names(of), sort_keys=True))


def short_digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:10]


def slug(of: Identity) -> Path:
    """Where a run's folder lies below the folder of all runs."""
    method: str = of["method"].replace(":", "-")
    return Path(of["study"]["name"], method, f"seed-{of['seed']}-{fingerprint(of)}")


def checkpoint(of: Sequence[Identity]) -> Path:
    """Where a run's checkpoint lies below the same folder; that of a stack of runs lies beside theirs."""
    folder = slug(of[0])
    if len(of) > 1:
        folder = folder.with_name(f"stack-{short_digest(''.join(map(fingerprint, of)))}")
    return folder / "checkpoint.safetensors"


def stage1_file(of: Sequence[Identity], method: dict[str, Any]) -> Path:
    """Where the end of Stage 1 is kept for all runs that share it: it knows nothing of what comes after.

    `method` holds what of a method decides its Stage 1.
    """
    study = of[0]["study"]
    parts = {name: study[name] for name in ("data", "graph", "partition", "population")}
    parts |= {"device": of[0]["device"], "backend": of[0]["backend"], "content": shared_content(of[0])}
    training = {k: v for k, v in study["training"].items() if k not in ("stage2_rounds", "refresh")}
    parts |= {"training": training, "every": study["evaluation"]["every"], "method": method}
    parts |= {"seeds": [each["seed"] for each in of]}
    return Path(study["name"], "stage1", f"{fingerprint(parts)}.safetensors")


# -- which state of this package makes a run, where it lies in a git checkout ------------------------


@cache
def revision() -> dict[str, str]:
    """The git revision; `dirty`: with changes on top. Nothing, if the package is installed otherwise."""
    # An installation inside somebody's repository is not part of it.
    tracked = _git("ls-files", "--error-unmatch", "__init__.py") is not None
    head = _git("rev-parse", "--short=12", "HEAD") if tracked else None
    if head is None:
        return {}
    return {"revision": head + (", dirty" if _git("status", "--porcelain", "--", ".") else "")}


@cache
def changed_code() -> str | None:
    """A digest of the package with changes on top of its revision; none: it has none.

    So whoever works on a method of ours is not given the results of the method as it was.
    """
    if not revision().get("revision", "").endswith("dirty"):
        return None
    digest = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        digest.update(f"{file.relative_to(_PACKAGE)}\n".encode() + file.read_bytes())
    return digest.hexdigest()[:16]


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=_PACKAGE, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
