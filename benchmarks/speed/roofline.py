"""The roofline: the products that the method's mathematics ask for, and nothing else.

Per supervised step, for each stack of k linear heads: logits and gradient, two products of [k, C, D] with
[k, batch, D]. Per distilling round: one product for the (model, example) pairs that are asked for, each
different pair once, and two of [k, C, D] with [k, B, D]. All in the study's precision, resident and in
place: no gather, no dropout, no loss, no update, no message. Every product is tried in several forms and
layouts, with the threads that the run has, and the fastest counts, at its shortest. So a run cannot come
below its roofline by a trick of the yardstick; what it needs beyond is its own overhead.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.speed.clock import fastest, now
from benchmarks.speed.rounds import timed_kinds
from lntrust.core.errors import LNTrustError
from lntrust.experiment.driver import Run
from lntrust.learners.training import Stack
from lntrust.learners.views import Views
from lntrust.study.settings import Study

Forms = dict[str, Callable[[], object]]
KNOWN = ("lntrust", "independent", "uniform")


@dataclass(frozen=True)
class Work:
    """What one stack has to multiply."""

    stack: str
    nodes: int  # k
    classes: int  # C
    features: int  # D
    batch: int
    budget: int  # B; 0: nobody distils
    asked: tuple[int, ...]  # different examples that each node of the stack is asked about in a round
    examples: int  # different examples that the stack as a whole is asked about

    @property
    def step_flops(self) -> int:
        """Of one supervised step: two products, a multiplication and an addition each."""
        return 2 * 2 * self.nodes * self.batch * self.classes * self.features

    @property
    def distil_flops(self) -> int:
        """Of one distilling round beside its supervised steps: the pairs asked for, and two products."""
        own = 2 * 2 * self.nodes * self.budget * self.classes * self.features
        return own + 2 * sum(self.asked) * self.classes * self.features


@dataclass(frozen=True)
class Roofline:
    """Seconds of the products of one stack, each in its fastest form."""

    work: Work
    seconds: dict[str, float]  # by product
    forms: dict[str, str]  # which form was the fastest

    @property
    def step(self) -> float:
        return self.seconds["logits"] + self.seconds["gradient"]

    @property
    def distil(self) -> float:
        return sum(self.seconds.get(name, 0.0) for name in ("asked", "distil logits", "distil gradient"))

    def better(self, other: "Roofline") -> "Roofline":
        """Product by product, the faster of two measurements."""
        wins = {name: t <= other.seconds[name] for name, t in self.seconds.items()}
        return Roofline(
            self.work,
            {name: (self if won else other).seconds[name] for name, won in wins.items()},
            {name: (self if won else other).forms[name] for name, won in wins.items()},
        )


@dataclass(frozen=True)
class Schedule:
    """How many rounds of which kind a run has."""

    rounds: int
    distilling: int
    steps: int  # supervised, per round


def schedule(study: Study, method: str, settings: Any) -> Schedule:
    """The rounds of a study; those of Stage 2 after the warm-up distil, where the method does."""
    training = study.training
    distilling = 0
    if method == "lntrust" and settings.unlabelled and settings.budget and study.partition.shard:
        distilling = max(0, training.stage2_rounds - settings.warmup)
    return Schedule(training.stage1_rounds + training.stage2_rounds, distilling, training.steps)


def shortened(study: Study, rounds: int | None) -> Study:
    """The study with fewer rounds: both stages and the warm-up of lntrust in proportion."""
    training = study.training
    total = training.stage1_rounds + training.stage2_rounds
    if rounds is None or rounds >= total:
        return study
    first = round(training.stage1_rounds * rounds / total)
    own = dict(study.methods.get("lntrust", {}))
    own["warmup"] = round(own.get("warmup", 5) * rounds / total)
    return study.model_copy(
        update={
            "training": training.model_copy(update={"stage1_rounds": first, "stage2_rounds": rounds - first}),
            "methods": {**study.methods, "lntrust": own},
        }
    )


def check_method(name: str) -> None:
    if name not in KNOWN:
        raise LNTrustError(f"--method {name}: the roofline is known for {', '.join(KNOWN)}")


def work(run: Run) -> list[Work]:
    """What a run has to multiply, stack by stack, counted on its own world and its own draws."""
    name, settings = run.method_name, run.method.settings
    check_method(name)
    if name == "lntrust" and getattr(settings, "top_k", None) is not None:
        raise LNTrustError("methods.lntrust.top_k: whom a node asks is then learned, and has no roofline")
    for stack in run.population.stacks:
        if not isinstance(stack, Stack) or not stack.is_head:
            raise LNTrustError(
                f"learner {stack.learner.name}: kind = {stack.learner.kind!r} is no linear head, and only "
                "these have a roofline; take a study of linear learners, as sparse-cifar10"
            )
    distils = schedule(run.study, name, settings).distilling > 0 and len(run.network.edges) > 0
    budget = int(min(getattr(settings, "budget", 0), run.study.partition.shard)) if distils else 0
    pairs = _asked(run, budget)
    out = []
    for stack in run.population.torch_stacks:
        mine = torch.isin(pairs[:, 0], stack.nodes)
        counts = torch.bincount(pairs[mine, 0], minlength=run.world.n)[stack.nodes]
        out.append(
            Work(
                stack=stack.learner.name,
                nodes=len(stack.nodes),
                classes=stack.classes,
                features=stack.view[0].numel(),
                batch=run.study.training.batch,
                budget=budget,
                asked=tuple(counts.tolist()),
                examples=len(torch.unique(pairs[mine, 1])),
            )
        )
    return out


def _asked(run: Run, budget: int) -> Tensor:
    """The different (answerer, example) pairs of the first distilling round."""
    if not budget:
        return torch.zeros(0, 2, dtype=torch.int64, device=run.device)
    first = getattr(run.method.settings, "warmup", 0) + 1
    ids = run.site.unlabelled("distil", budget, first)
    asker, answerer = run.network.edges.unbind(1)
    total = len(run.world.labels)
    distinct = torch.unique(answerer[:, None] * total + ids[asker])
    return torch.stack([distinct // total, distinct % total], 1)


# -- the products -----------------------------------------------------------------------------------


def measure(work: Work, device: torch.device, dtype: torch.dtype, seconds: float = 0.5) -> Roofline:
    """Time every product of a stack in every form."""
    weight = torch.randn(work.nodes, work.classes, work.features, device=device, dtype=dtype)
    times: dict[str, float] = {}
    winners: dict[str, str] = {}

    def best(product: str, forms: Forms) -> None:
        tried = {form: fastest(call, device, seconds / len(forms)) for form, call in forms.items()}
        winners[product] = min(tried, key=lambda form: tried[form])
        times[product] = tried[winners[product]]

    for prefix, rows in (("", work.batch), ("distil ", work.budget)):
        if rows:
            x = torch.randn(work.nodes, rows, work.features, device=device, dtype=dtype)
            best(f"{prefix}logits", logits_forms(weight, x))
            best(f"{prefix}gradient", gradient_forms(weight, x))
            del x
    if sum(work.asked):
        pool = torch.randn(work.examples, work.features, device=device, dtype=dtype)
        best("asked", asked_forms(weight, pool, work.asked))
    return Roofline(work, times, winners)


def logits_forms(weight: Float[Tensor, "k C D"], x: Float[Tensor, "k R D"]) -> Forms:
    """Every head on its own inputs, by rows of inputs or by rows of classes."""
    k, rows, classes = len(x), x.shape[1], weight.shape[1]
    by_row, by_class = x.new_empty(k, rows, classes), x.new_empty(k, classes, rows)
    across = x.transpose(1, 2).contiguous()
    return {
        "bmm [k,C,D]·[k,R,D]ᵀ": lambda: torch.bmm(weight, x.transpose(1, 2), out=by_class),
        "bmm [k,C,D]·[k,D,R]": lambda: torch.bmm(weight, across, out=by_class),
        "bmm [k,R,D]·[k,C,D]ᵀ": lambda: torch.bmm(x, weight.transpose(1, 2), out=by_row),
        "mm node by node": lambda: [
            torch.mm(w, a.T, out=o) for w, a, o in zip(weight, x, by_class, strict=True)
        ],
    }


def gradient_forms(weight: Float[Tensor, "k C D"], x: Float[Tensor, "k R D"]) -> Forms:
    """∂loss/∂W = gᵀx, with g by rows of inputs or by rows of classes."""
    k, rows, classes = len(x), x.shape[1], weight.shape[1]
    by_row, by_class = x.new_ones(k, rows, classes), x.new_ones(k, classes, rows)
    out, across = torch.empty_like(weight), x.transpose(1, 2).contiguous()
    return {
        "bmm [k,C,R]·[k,R,D]": lambda: torch.bmm(by_class, x, out=out),
        "bmm [k,R,C]ᵀ·[k,R,D]": lambda: torch.bmm(by_row.transpose(1, 2), x, out=out),
        "bmm [k,C,R]·[k,D,R]ᵀ": lambda: torch.bmm(by_class, across.transpose(1, 2), out=out),
        "mm node by node": lambda: [torch.mm(g, a, out=o) for g, a, o in zip(by_class, x, out, strict=True)],
    }


def asked_forms(weight: Float[Tensor, "k C D"], pool: Float[Tensor, "U D"], asked: tuple[int, ...]) -> Forms:
    """All heads on all examples in one wide product, or each on as many as it is asked about.

    Nothing is gathered: a head's examples are the first rows of the pool, which is no slower than its own.
    """
    k, classes, features = weight.shape
    wide = weight.view(k * classes, features)
    mean = -(-sum(asked) // k)  # all heads alike, for bmm: the same work
    same = pool[:mean]
    answers = pool.new_empty(k * classes, len(pool))
    flipped = answers.view(len(pool), k * classes)
    alike = answers.flatten()[: k * classes * mean].view(k, classes, mean)
    own = [answers.flatten()[: classes * m].view(classes, m) for m in asked]
    return {
        "wide [k·C,D]·[U,D]ᵀ": lambda: torch.mm(wide, pool.T, out=answers),
        "wide [U,D]·[k·C,D]ᵀ": lambda: torch.mm(pool, wide.T, out=flipped),
        "bmm of the asked pairs": lambda: torch.bmm(weight, same.T.expand(k, features, len(same)), out=alike),
        "mm of the asked pairs": lambda: [
            torch.mm(w, pool[:m].T, out=o) for w, m, o in zip(weight, asked, own, strict=True) if m
        ],
    }


# -- put together -----------------------------------------------------------------------------------


def total(parts: list[Roofline], plan: Schedule) -> dict[str, float]:
    """Seconds of the roofline: one step, one round of each kind, the whole run."""
    step = sum(part.step for part in parts)
    distil = sum(part.distil for part in parts)
    return {
        "step": step,
        "supervised_round": plan.steps * step,
        "distilling_round": plan.steps * step + distil,
        "run": plan.rounds * plan.steps * step + plan.distilling * distil,
    }


def flops(works: list[Work], plan: Schedule) -> dict[str, int]:
    """Floating-point operations that the roofline counts."""
    step, distil = sum(w.step_flops for w in works), sum(w.distil_flops for w in works)
    return {
        "step": step,
        "supervised_round": plan.steps * step,
        "distilling_round": plan.steps * step + distil,
        "run": plan.rounds * plan.steps * step + plan.distilling * distil,
    }


def compare(study: Study, methods: Sequence[str], seed: int, views: Views) -> list[dict[str, Any]]:
    """Roofline, runs, and their ratios, in one process.

    The roofline is taken before the first run and after each. All methods are held against the fastest, since
    a slow moment of the machine would make a long yardstick, and they multiply by the same products.
    """
    runs = {name: Run(study, name, seed, views) for name in methods}
    works = {name: work(run) for name, run in runs.items()}
    most = max(works.values(), key=lambda each: sum(w.distil_flops for w in each))

    def measured() -> list[Roofline]:
        return [measure(each, views.device, views.dtype) for each in most]

    parts, ran = measured(), {}
    for name, run in runs.items():
        kinds = timed_kinds(study, name, seed, views).seconds  # warms up, too
        start = now(views.device)
        run()
        ran[name] = kinds | {"run": now(views.device) - start}
        parts = [one.better(other) for one, other in zip(parts, measured(), strict=True)]
    return [
        _held_against(parts, works[name], schedule(study, name, run.method.settings), ran[name])
        | {"method": name, "seed": seed}
        for name, run in runs.items()
    ]


def _held_against(
    parts: list[Roofline], works: list[Work], plan: Schedule, kinds: dict[str, float]
) -> dict[str, Any]:
    """One method's numbers."""
    roof, count = total(parts, plan), flops(works, plan)
    supervised = kinds["supervised"]
    ran = {"step": supervised / plan.steps, "supervised_round": supervised, "run": kinds["run"]}
    if plan.distilling:
        ran["distilling_round"] = kinds["distilling"]
    rows = [name for name in roof if name in ran]
    products = list(parts[0].seconds) if plan.distilling else ["logits", "gradient"]
    return {
        "schedule": asdict(plan),
        "stacks": [
            {
                **asdict(each),
                "asked": sum(each.asked),
                "seconds": {name: part.seconds.get(name) for name in products},
                "forms": {name: part.forms.get(name) for name in products},
            }
            for each, part in zip(works, parts, strict=True)
        ],
        "flops": {name: count[name] for name in rows},
        "roofline_seconds": {name: roof[name] for name in rows},
        "run_seconds": {name: ran[name] for name in rows},
        "ratio": {name: ran[name] / roof[name] for name in rows},
    }
