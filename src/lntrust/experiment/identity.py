"""What a run is: everything that decides its result, and the name of its folder."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lntrust.methods import Method
from lntrust.settings import Study, told


def identity(
    study: Study, name: str, method: Method, seed: int, device: str, backend: str = "batched"
) -> dict[str, Any]:
    """Everything that decides the result of one method (called `name`) with one seed."""
    table = study.model_dump(mode="json", exclude={"about", "compare", "seeds", "methods"})
    if table["reading"] == "honest":
        del table["reading"]  # goes without saying
    settings = told(method.settings)
    return {
        "study": table, "method": name, "settings": settings, "seed": seed,
        "device": device, "backend": backend, **method.more_identity(),
        **({"certify": True} if method.certify else {}),
    }  # fmt: skip


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
    parts |= {"seeds": [each["seed"] for each in of], **{k: of[0][k] for k in ("device", "backend")}}
    return Path(study["name"], "stage1", f"{fingerprint(parts)}.safetensors")
