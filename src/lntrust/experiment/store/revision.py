"""Which state of this package makes a run, where it lies in a git checkout."""

import hashlib
import subprocess
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parents[2]


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
    made = hashlib.sha256()
    for file in sorted(_PACKAGE.rglob("*.py")):
        made.update(f"{file.relative_to(_PACKAGE)}\n".encode() + file.read_bytes())
    return made.hexdigest()[:16]


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", *words], cwd=_PACKAGE, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
