"""Rounds by kind: what a supervised round costs, a distilling one, and a refresh of trust."""

from dataclasses import dataclass
from itertools import pairwise
from statistics import median

from benchmarks.speed.clock import timed_rounds
from lntrust.experiment.driver import Run
from lntrust.learners.views import Views
from lntrust.study.settings import Study

# Of a run made for timing: round 1 carries the start, 2–3 are supervised only, 4–7 distil, 8 refreshes trust
# and distils, 9 distils. It is stopped before round 10, the last, which would evaluate.
_WARMUP, _REFRESH, _TIMED = 3, 8, 9


@dataclass(frozen=True)
class Rounds:
    """Seconds and bytes of single rounds, the middle one of their kind."""

    seconds: dict[str, float]  # start, supervised, distilling, refresh; the last two for lntrust only
    bytes: dict[str, int]


def for_timing(study: Study, method: str) -> Study:
    """The study with few rounds of every kind, no Stage 1, and nothing evaluated."""
    training = study.training.model_copy(
        update={"stage1_rounds": 0, "stage2_rounds": _TIMED + 1, "refresh": _REFRESH}
    )
    own = {**study.methods.get("lntrust", {}), "warmup": _WARMUP}
    methods = {**study.methods, "lntrust": own} if method == "lntrust" else study.methods
    evaluation = study.evaluation.model_copy(update={"every": 1_000_000})
    return study.model_copy(update={"training": training, "methods": methods, "evaluation": evaluation})


def rounds_by_kind(run: Run) -> Rounds:
    """Time the rounds of a run of `for_timing`. A refresh is what its round takes beyond the others."""
    sent: list[int] = []
    took = timed_rounds(run, _TIMED, after=lambda _: sent.append(int(run.network.ledger.summary()["total"])))
    bytes_ = [later - earlier for earlier, later in pairwise(sent)]
    if run.method_name != "lntrust":
        return Rounds({"supervised": median(took[1:])}, {"supervised": int(median(bytes_[1:]))})
    supervised, distilling = median(took[1:_WARMUP]), median(took[_WARMUP : _REFRESH - 1])
    carried = int(median(bytes_[_WARMUP : _REFRESH - 1]))
    return Rounds(
        {
            "start": took[0] - supervised,
            "supervised": supervised,
            "distilling": distilling,
            "refresh": took[_REFRESH - 1] - distilling,
        },
        {
            "start": bytes_[0],
            "supervised": int(median(bytes_[1:_WARMUP])),
            "distilling": carried,
            "refresh": bytes_[_REFRESH - 1] - carried,
        },
    )


def timed_kinds(study: Study, method: str, seed: int, views: Views) -> Rounds:
    """Build such a run and time it; also a good warm-up."""
    return rounds_by_kind(Run(for_timing(study, method), method, seed, views))
