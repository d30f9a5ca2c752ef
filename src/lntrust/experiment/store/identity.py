"""What a run is: everything that decides its result, and the name of its folder."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lntrust.core.onnx_files import weights_of
from lntrust.core.plugins import file_digest, sources_of
from lntrust.experiment.store.revision import changed_code
from lntrust.experiment.store.schemas import SCHEMA
from lntrust.methods import Method
from lntrust.study.settings import Study, identity_fields
from lntrust.world import Dataset


def identity(
    study: Study,
    name: str,
    method: Method,
    seed: int,
    device: str,
    backend: str = "batched",
    content: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Everything that decides the result of one method (called `name`) with one seed.

    `content` is what `content_of` gives; by default, as far as it can be told without the data.
    """
    table = study.model_dump(mode="json", exclude={"about", "compare", "seeds", "methods"})
    if table["reading"] == "honest":
        del table["reading"]  # goes without saying
    settings = identity_fields(method.settings)
    return {
        "study": table, "method": name, "settings": settings, "seed": seed,
        "device": device, "backend": backend, **method.more_identity(),
        **({"certify": True} if method.certify else {}),
        "content": content_of(study, name) if content is None else content,
    }  # fmt: skip


def content_of(study: Study, method: str, data: str | None = None) -> dict[str, Any]:
    """What a run is made of that its settings only name: files, and this package.

    `data` is the dataset's digest. Users' own methods and models are told by their source, and so is this
    package, if it has changes on top of its git revision.
    """
    content: dict[str, Any] = {"schema": SCHEMA}
    if data is not None:
        content["data"] = data
    learners = study.population.learners
    named = [study.graph.file] if study.graph.kind == "file" and study.graph.file else []
    models = [Path(str(learner.options.get("file"))) for learner in learners if learner.kind == "onnx"]
    named += [str(file) for model in models for file in (model, *weights_of(model))]
    files = {file: digest for file in named if (digest := _digest_of(Path(file)))}
    own = {method: "--method"} | {each.kind: f"learner {each.name}: kind" for each in learners}
    found = [sources_of(name, field) for name, field in own.items() if ":" in name]
    sources = {file: made for each in found for file, made in each.items()}
    parts = {"files": files, "sources": sources, "code": changed_code()}
    return content | {name: part for name, part in parts.items() if part}


def _digest_of(file: Path) -> str | None:
    """None for what cannot be read: whoever needs it will say so."""
    try:
        return file_digest(file) if file.is_file() else None
    except OSError:
        return None


def data_digest(study: Study, dataset: Dataset) -> str:
    """The dataset's, as far as the study's learners see it."""
    return dataset.digest(learner.view for learner in study.population.learners)


def fingerprint(of: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(of, sort_keys=True).encode()).hexdigest()[:10]


def slug(of: dict[str, Any]) -> Path:
    """Where a run's folder lies below the folder of all runs."""
    method: str = of["method"].replace(":", "-")
    return Path(of["study"]["name"], method, f"seed-{of['seed']}-{fingerprint(of)}")


def checkpoint(of: Sequence[dict[str, Any]]) -> Path:
    """Where a run's checkpoint lies below the same folder; that of a stack of runs lies beside theirs."""
    first = slug(of[0])
    if len(of) == 1:
        return first / "checkpoint.safetensors"
    together = hashlib.sha256("".join(map(fingerprint, of)).encode()).hexdigest()[:10]
    return first.parent / f"stack-{together}" / "checkpoint.safetensors"


def stage1_file(of: Sequence[dict[str, Any]], method: dict[str, Any]) -> Path:
    """Where the end of Stage 1 is kept for all runs that share it: it knows nothing of what comes after.

    `method` holds what of a method decides its Stage 1.
    """
    study = of[0]["study"]
    parts = {name: study[name] for name in ("data", "graph", "partition", "population")}
    training = {k: v for k, v in study["training"].items() if k not in ("stage2_rounds", "refresh")}
    parts |= {"training": training, "every": study["evaluation"]["every"], "method": method}
    parts |= {
        "seeds": [each["seed"] for each in of],
        **{k: of[0][k] for k in ("device", "backend", "content")},
    }
    return Path(study["name"], "stage1", f"{fingerprint(parts)}.safetensors")
