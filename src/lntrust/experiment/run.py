"""One run: one method on one study with one seed."""

from pathlib import Path
from typing import Any

from lntrust.experiment.driver import Progress, Runs
from lntrust.experiment.store.identity import fingerprint, slug
from lntrust.learners.views import Views
from lntrust.study.settings import Study


class Run(Runs):
    """One method on one study with one seed."""

    def __init__(self, study: Study, method: str, seed: int, views: Views, **options: Any) -> None:
        super().__init__(study, method, [seed], views, **options)
        self.seed = seed

    def __call__(self, *, resume: bool = False, progress: Progress = lambda *_: None) -> dict[str, Any]:  # type: ignore[override]
        return super().__call__(resume=resume, progress=progress)[0]

    @property
    def identity(self) -> dict[str, Any]:
        return self.identity_of(self.seed)

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.identity)

    @property
    def slug(self) -> Path:
        return slug(self.identity)

    @property
    def folder(self) -> Path | None:
        return self.folders[0] if self.folders else None


def run(study: Study, method: str, seed: int, views: Views, **options: Any) -> dict[str, Any]:
    """Make a run and carry it out without a folder: for notebooks and tests."""
    return Run(study, method, seed, views, **options)()
