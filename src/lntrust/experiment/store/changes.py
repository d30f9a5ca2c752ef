"""Why a run is made anew that was made before: what it is made of has changed since."""

import itertools
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_json
from lntrust.experiment.store.identity import fingerprint, revision, slug
from lntrust.experiment.store.schemas import Identity

_NOT_ASKED_FOR = ("content", "versions", "hardware")


def kept_and_anew(base: Path, kept: Sequence[Identity], waiting: Sequence[Identity]) -> str | None:
    """One line: how many finished runs are kept, how many are made anew, and why. None: nothing to say.

    A commit alone makes nothing anew, but the revision that made a kept run is named if it is another.
    """
    finished = cache(_finished)  # what lies there is read once, however many wait
    changes = []
    for of in waiting:
        place = base / slug(of)
        alike = finished(place.parent, of["seed"])[_asked_for(of)]
        before = next((content for folder, content in alike if folder != place), None)
        changes += [found] if before is not None and (found := _differences(before, of)) else []
    made_by = {_read(base / slug(of)).get("versions", {}).get("revision") for of in kept}
    others = sorted(made_by - {None, revision().get("revision")})
    by = f" (made by revision {', '.join(others)} of lntrust)" if others else ""
    if changes:
        reasons = ", ".join(dict.fromkeys(itertools.chain(*changes)))
        return f"{f'kept {len(kept)}{by}, ' if kept else ''}making {len(changes)} anew: {reasons}"
    return f"kept {len(kept)}{by}; --fresh makes them anew" if kept else None


def _finished(folder: Path, seed: int) -> dict[str, list[tuple[Path, dict[str, Any]]]]:
    """Folder and content of a method's finished runs by what was asked for, the latest first."""
    found: dict[str, list[tuple[Path, dict[str, Any]]]] = defaultdict(list)
    summaries = folder.glob(f"seed-{seed}-*/summary.json")
    for summary in sorted(summaries, key=lambda path: path.stat().st_mtime, reverse=True):
        run = _read(summary.parent)
        found[_asked_for(run)].append((summary.parent, run.get("content", {})))
    return found


def _read(folder: Path) -> Identity:
    """What a run's folder says it is; nothing, if that cannot be read."""
    try:
        return dict(read_json(folder / "run.json"))
    except LNTrustError:
        return {}


def _asked_for(identity: Identity) -> str:
    return fingerprint({name: value for name, value in identity.items() if name not in _NOT_ASKED_FOR})


def _differences(was: dict[str, Any], of: Identity) -> list[str]:
    """How the content of an earlier run differs from this one's."""
    if "schema" not in was:
        return ["an earlier version made them, and did not record their content"]
    now, data = of["content"], of["study"]["data"]["dataset"]
    said = {
        "schema": "another version of lntrust made them", "data": f"the data of {data} have changed",
        "code": "the code of lntrust has changed",
    }  # fmt: skip
    files, before = ({**each.get("files", {}), **each.get("sources", {})} for each in (now, was))
    changed = [file for file in sorted({*before, *files}) if before.get(file) != files.get(file)]
    named = [f"{file} has changed" for file in changed]
    return [why for part, why in said.items() if was.get(part) != now.get(part)] + named
