"""Why a run is made anew that was made before: what it is made of has changed since."""

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lntrust.core.errors import LNTrustError
from lntrust.core.files import read_json
from lntrust.experiment.store.identity import fingerprint, revision, slug

Finished = tuple[str, dict[str, Any]]  # the name of a run's folder, and its content
_NOT_ASKED_FOR = ("content", "versions", "hardware")


def kept_and_anew(
    base: Path, kept: Sequence[dict[str, Any]], waiting: Sequence[dict[str, Any]]
) -> str | None:
    """One line: how many finished runs are kept, how many are made anew, and why. None: nothing to say.

    A commit alone makes nothing anew, but the revision that made a kept run is named if it is another.
    """
    anew = [reasons for reasons in _reasons(base, waiting) if reasons]
    made_by = {_read(base / slug(of)).get("versions", {}).get("revision") for of in kept}
    others = sorted(made_by - {None, revision().get("revision")})
    by = f" (made by revision {', '.join(others)} of lntrust)" if others else ""
    if anew:
        why = dict.fromkeys(reason for reasons in anew for reason in reasons)
        return f"{f'kept {len(kept)}{by}, ' if kept else ''}making {len(anew)} anew: {', '.join(why)}"
    return f"kept {len(kept)}{by}; --fresh makes them anew" if kept else None


def _reasons(base: Path, identities: Sequence[dict[str, Any]]) -> list[list[str]]:
    """How each run differs from the latest finished one of the same settings; nothing: there is none.

    What lies there is read once, however many they are.
    """
    finished: dict[tuple[Path, int], dict[str, list[Finished]]] = {}
    out = []
    for identity in identities:
        place = base / slug(identity)
        where = place.parent, identity["seed"]
        if where not in finished:
            finished[where] = _finished(*where)
        alike = finished[where].get(_asked_for(identity), [])
        others = [content for folder, content in alike if folder != place.name]
        out.append(_differences(others[0], identity["content"], identity["study"]) if others else [])
    return out


def _finished(folder: Path, seed: int) -> dict[str, list[Finished]]:
    """A method's finished runs with this seed by what was asked for, the latest first."""
    found: dict[str, list[Finished]] = defaultdict(list)
    summaries = folder.glob(f"seed-{seed}-*/summary.json")
    for summary in sorted(summaries, key=lambda path: path.stat().st_mtime, reverse=True):
        run = _read(summary.parent)
        found[_asked_for(run)].append((summary.parent.name, run.get("content", {})))
    return found


def _read(folder: Path) -> dict[str, Any]:
    """What a run's folder says it is; nothing, if that cannot be read."""
    try:
        return dict(read_json(folder / "run.json"))
    except LNTrustError:
        return {}


def _asked_for(identity: dict[str, Any]) -> str:
    return fingerprint({name: value for name, value in identity.items() if name not in _NOT_ASKED_FOR})


def _differences(was: dict[str, Any], is_: dict[str, Any], study: dict[str, Any]) -> list[str]:
    if "schema" not in was:
        return ["an earlier version made them, and did not record their content"]
    out = ["another version of lntrust made them"] if was["schema"] != is_["schema"] else []
    if was.get("data") != is_.get("data"):
        out.append(f"the data of {study['data']['dataset']} have changed")
    if was.get("code") != is_.get("code"):
        out.append("the code of lntrust has changed")
    before, now = ({**of.get("files", {}), **of.get("sources", {})} for of in (was, is_))
    files = [file for file in sorted({*before, *now}) if before.get(file) != now.get(file)]
    return out + [f"{file} has changed" for file in files]
