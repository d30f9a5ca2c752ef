"""What a run is: everything that decides its result, and the name of its folder."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lntrust.methods import Method
from lntrust.settings import Study


def identity(
    study: Study, name: str, method: Method, seed: int, device: str, backend: str = "batched"
) -> dict[str, Any]:
    """Everything that decides the result of one method (called `name`) with one seed."""
    table = study.model_dump(mode="json", exclude={"about", "compare", "seeds", "methods"})
    settings = method.settings.model_dump(mode="json")
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
