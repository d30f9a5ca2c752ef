"""Any method's training under another's deployment."""

from pathlib import Path
from typing import Any

import pytest
import small_runs as small
import torch
from stopped_runs import timeless

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.experiment.evaluation import answers
from lntrust.experiment.store import fingerprint
from lntrust.learners.views import Views
from lntrust.methods import Method, Site, State, find_method, list_methods
from lntrust.methods.base import below

CHOSEN = ("trust", "fedpae", "stacking", "fens", "knn")  # by validation labels, once
DEPLOYMENTS = ("self", "uniform", *CHOSEN)
METHODS = [name for name in list_methods() if name != "centralized"]
# Two linear heads that know each other, an MLP and a forest; weights that are learned in no time.
FEW = (
    small.MIXED, "graph.nodes=4", "graph.kind=complete", "partition.labelled=200", "partition.shard=60",
    "training.stage1_rounds=1", "training.stage2_rounds=2", "methods.lntrust.sample=20",
    "methods.desa.condense_steps=3", "methods.lntrust.weighting=uniform",
)  # fmt: skip


def result(run: Run, summary: dict[str, Any]) -> dict[str, Any]:
    """What two runs with different names can have in common."""
    out = {k: v for k, v in timeless(summary).items() if k not in ("method", "deploy", "method_report")}
    return out | {"predictions": {r: {k: p.tolist() for k, p in e.items()}
                                  for r, e in run.course.evaluations[0].items()}}  # fmt: skip


def outcome(views: Views, *overrides: str, method: str) -> dict[str, Any]:
    return result(*small.ended(views, *overrides, method=method))


def closed(run: Run) -> set[tuple[int, int]]:
    """Who may answer for whom."""
    own = {(i, i) for i in range(run.world.n)}
    return own | {(int(i), int(j)) for i, j in run.world.edges}


def trained_alike(first: Run, second: Run) -> bool:
    """Both have learned the same, and their models, forests too, say the same in the end."""
    assert small.parameters(first).keys() == small.parameters(second).keys()
    said = [run.course.evaluations[0][run.rounds]["self"] for run in (first, second)]
    alike = all(torch.equal(t, small.parameters(second)[name]) for name, t in small.parameters(first).items())
    return alike and bool((said[0] == said[1]).all())


class TestReductions:
    def test_independent_that_answers_uniformly_is_uniform(self, views: Views) -> None:
        crossed = outcome(views, small.MIXED, "deploy=uniform", method="independent")
        assert crossed == result(*small.shared_end(views, small.MIXED, method="uniform"))
        assert crossed["bytes"]["per_deployed_query"] > 0
        assert crossed["per_node"]["test"] != crossed["per_node"]["self"]

    @pytest.mark.parametrize("method", ["independent", "uniform"])
    def test_who_answers_alone_is_independent(self, views: Views, method: str) -> None:
        crossed = outcome(views, small.MIXED, "deploy=self", method=method)
        assert crossed == result(*small.shared_end(views, small.MIXED, method="independent"))

    @pytest.mark.parametrize(
        ("deploy", "method"),
        [("fedpae", "fedpae"), ("stacking", "stacking"), ("fens", "fens"), ("knn", "knn_per")],
    )
    def test_independent_that_chooses_is_who_does(self, views: Views, deploy: str, method: str) -> None:
        crossed, summary = small.ended(views, small.MIXED, f"deploy={deploy}", method="independent")
        plain, reference = small.shared_end(views, small.MIXED, method=method)
        assert result(crossed, summary) == result(plain, reference)
        assert summary["method_report"] == {"deployment": reference["method_report"]}
        assert (summary["bytes"]["total"] > 0) == (deploy != "knn")

    @pytest.mark.parametrize(
        ("method", "deploy"),
        [
            ("fedpae", "fedpae"),
            ("lntrust", "trust"),
            ("uniform", "uniform"),
            ("fens", "fens"),
            ("knn_per", "knn"),
        ],
    )
    def test_a_method_with_its_own_deployment_is_that_method(self, method: str, deploy: str) -> None:
        assert type(find_method(method, small.study(f"deploy={deploy}"))) is list_methods()[method]

    @pytest.mark.parametrize("deploy", CHOSEN)
    def test_without_collaboration_there_is_still_a_deployment(self, views: Views, deploy: str) -> None:
        none = (*FEW, "training.stage2_rounds=0")
        got = outcome(views, *none, f"deploy={deploy}", method="independent")
        assert (got["bytes"]["total"] > 0) == (deploy != "knn")

    def test_trust_without_memory_is_lntrust_without_distillation(self, views: Views) -> None:
        """Uniform weights forget everything, so that learning them once at the end is enough."""
        alike = (*FEW, "methods.lntrust.budget=0")
        own, reference = small.ended(views, *alike, method="lntrust")
        crossed, summary = small.ended(views, *alike, "deploy=trust", method="independent")
        assert summary["per_node"] == reference["per_node"]
        for key in ("per_deployed_query", "total"):
            assert (summary["bytes"][key] == reference["bytes"][key]) == (key == "per_deployed_query")
        assert trained_alike(crossed, own)


@pytest.mark.parametrize(
    ("method", "deploy"),
    [
        *((method, deploy) for method in METHODS for deploy in ("uniform", "trust")),
        *(("lntrust", deploy) for deploy in ("self", "fedpae")),
        *(("gossip_fedavg", deploy) for deploy in ("self", "fedpae", "stacking", "fens", "knn")),
    ],
)
def test_every_method_trains_as_it_does_by_itself(
    views: Views, method: str, deploy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or as it would if it had to leave validation labels alone."""
    one, summary = small.ended(views, *FEW, f"deploy={deploy}", method=method)
    assert (summary["method"], summary["deploy"]) == (method, deploy)
    members = {(i, j) for i, j in one.method.deploy(one.site, one.state).members.tolist()}
    assert members <= closed(one)
    if deploy == "self":
        assert members == {(i, i) for i in range(one.world.n)}
        assert summary["per_node"]["test"] == summary["per_node"]["self"]
        assert summary["per_node"]["test_pooled"] == summary["per_node"]["self_pooled"]
    elif deploy == "uniform":
        assert members == closed(one)
    if deploy in ("self", "uniform"):
        plain = small.shared(views, *FEW, method=method)
        assert one.network.ledger.summary() == plain.network.ledger.summary()  # nothing is added to training
    else:
        monkeypatch.setattr(list_methods()[method], "uses_validation", True)
        plain = small.made(views, *FEW, method=method)
    assert trained_alike(one, plain)


def test_centralized_is_refused(views: Views) -> None:
    for deploy in DEPLOYMENTS:
        with pytest.raises(
            LNTrustError, match=f"deploy = '{deploy}': method centralized .* leave deploy out"
        ):
            Run(small.study(f"deploy={deploy}"), "centralized", 0, views)
    assert find_method("centralized", small.study("deploy=none")).about


def test_who_uses_validation_labels() -> None:
    """Others have them to train on; a method that looks at them never has."""
    for deploy in DEPLOYMENTS:
        uses = find_method("independent", small.study(f"deploy={deploy}")).uses_validation
        assert uses == (deploy in CHOSEN)
        assert find_method("lntrust", small.study(f"deploy={deploy}")).uses_validation


class TestWhoAnswers:
    @pytest.mark.parametrize("deploy", CHOSEN)
    def test_before_the_last_round_everybody_alone(self, views: Views, deploy: str) -> None:
        often = ("evaluation.every=1", "methods.lntrust.deployment_gate=off")
        one = small.made(views, *FEW, *often, f"deploy={deploy}", method="independent")
        *before, last = sorted(one.course.evaluations[0])
        assert before
        for number in (*before, last):
            said = one.course.evaluations[0][number]
            assert (said["deployed"] == said["self"]).all() == (number != last)

    @pytest.mark.parametrize("deploy", ["self", "trust"])
    def test_teachers_and_not_students(self, views: Views, deploy: str) -> None:
        """Also before the last round."""
        settings = ("methods.mean_teacher.decay=0.9", "training.lr=0.5", "evaluation.every=1")  # far apart
        one = small.made(views, *FEW, *settings, f"deploy={deploy}", method="mean_teacher")
        got = {}
        for who in ("teacher", "student"):
            with one.population.using(below(f"{who}/", one.state.inner)):
                deployment = one.method.deploy(one.site, one.state)
                assert deployment.answer is None
                got[who] = answers(one.population, one.network, deployment, one.tested)
        for way in ("self", "deployed"):
            stored = one.course.evaluations[0][one.rounds][way]
            assert (stored == got["teacher"][way].numpy()).all()
            assert (stored != got["student"][way].numpy()).any()

    def test_further_ways_of_the_inner_method_are_left_out(self, views: Views) -> None:
        for more, ways in (((), {"variant/average"}), (("deploy=uniform",), set())):
            one = small.shared(views, *FEW, *more, method="d_psgd")
            assert set(one.course.evaluations[0][3]) == {"self", "deployed"} | ways

    def test_trust_probes_once(self, views: Views) -> None:
        one = small.made(views, small.TORCH, "deploy=trust", method="independent")
        answered = one.network.ledger.payload("reply")
        asked = one.world.partition.validation.lengths + 50  # and the sample of the shard
        assert answered.tolist() == (asked[one.world.edges[:, 1]] * 4 * 10).tolist()
        assert {phase for phase, _, _ in one.network.ledger} == {"probe"}


class Namesake(Method):
    """Its state has entries by names that the answerers use as well."""

    def start(self, site: Site) -> State:
        return {"members": torch.arange(3), "closed": torch.ones(1)}

    def report(self, site: Site, state: State) -> dict[str, Any]:
        return {"members": state["members"].tolist()}


class TestState:
    @pytest.mark.parametrize("deploy", DEPLOYMENTS)
    def test_the_inner_method_sees_its_own_only(self, views: Views, tmp_path: Path, deploy: str) -> None:
        one, summary = small.ended(
            views, *FEW, f"deploy={deploy}", method=f"{__name__}:Namesake", folder=tmp_path
        )
        packed = one.method.pack(one.state)
        for state in (one.state, one.method.unpack(packed)):
            assert set(state.inner) == {"members", "closed"}
            assert state.inner["members"].tolist() == summary["method_report"]["members"] == [0, 1, 2]
        assert (len(packed) > 2) == ("deployment" in summary["method_report"]) == (deploy in CHOSEN)

    @pytest.mark.parametrize("deploy", CHOSEN)
    def test_a_resumed_run_equals_an_uninterrupted_one(
        self, views: Views, tmp_path: Path, deploy: str
    ) -> None:
        small.assert_resumes(views, tmp_path, *FEW, f"deploy={deploy}", method="gossip_fedavg")


class TestIdentity:
    def fingerprint(self, views: Views, *overrides: str, method: str = "independent") -> str:
        return fingerprint(small.begun(views, *FEW, *overrides, method=method).identity)

    def test_the_deployment_and_its_settings_decide_the_result_and_so_the_folder(self, views: Views) -> None:
        """Not the settings of those who do not answer."""
        settings = {
            "trust": "methods.lntrust.deployment_gate=off", "fedpae": "methods.fedpae.examples=32",
            "stacking": "methods.stacking.folds=3", "fens": "methods.fens.steps=3",
            "knn": "methods.knn_per.k=3",
        }  # fmt: skip
        plain = {deploy: self.fingerprint(views, f"deploy={deploy}") for deploy in DEPLOYMENTS}
        assert len({self.fingerprint(views), *plain.values()}) == 1 + len(DEPLOYMENTS)
        for deploy in DEPLOYMENTS:
            for answerer, setting in settings.items():
                same = self.fingerprint(views, f"deploy={deploy}", setting) == plain[deploy]
                assert same == (answerer != deploy)

    def test_settings_of_the_inner_method_are_its_own(self, views: Views) -> None:
        crossed = find_method("dfedavg", small.study("deploy=trust", "methods.dfedavg.lr=0.5"))
        assert crossed.settings.model_dump() == {"lr": 0.5, "every": 1}
        one = small.begun(views, *FEW, "deploy=trust", "methods.lntrust.lr=0.5", method="dfedavg")
        assert one.population.training.lr == one.study.training.lr  # who answers does not train


@pytest.mark.parametrize(
    ("method", "sets", "wrong"),
    [
        ("dml", ["deploy=everybody"], r"deploy = 'everybody': .*'self'.*'uniform'.*'trust'.*'fedpae'"),
        ("dml", ["deploy=fedpae", "methods.fedpae.generations=0"], "methods.fedpae: generations = 0: "),
        ("dml", ["deploy=trust", "methods.lntrust.reply=uint8"], "who answers would speak otherwise than"),
        ("lntrust", ["deploy=fedpae", "methods.lntrust.final_rounds=2"], "nobody can choose by them afterw"),
    ],
)
def test_mistakes(views: Views, method: str, sets: list[str], wrong: str) -> None:
    with pytest.raises(LNTrustError, match=wrong):
        small.begun(views, *sets, method=method)
