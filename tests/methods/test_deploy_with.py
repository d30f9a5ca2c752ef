"""Any method's training under another's deployment."""

from pathlib import Path
from typing import Any

import pytest
import torch
from small_runs import MIXED, TORCH, TRAIN_ONLY, made, parameters, shared, study, told

from lntrust import LNTrustError
from lntrust.experiment import Run
from lntrust.experiment.evaluation import answers
from lntrust.learners.views import Views
from lntrust.methods import Deployment, Method, Site, State, find_method, list_methods
from lntrust.methods.deploy_with import DeployWith
from lntrust.network.neighbourhood import Neighbourhood

DEPLOYMENTS = ("self", "uniform", "trust", "fedpae")
METHODS = [name for name in list_methods() if name != "centralized"]
# Two linear heads that know each other, an MLP and a forest; weights that are learned in no time.
FEW = (
    MIXED, "graph.nodes=4", "graph.kind=complete", "partition.labelled=200", "partition.shard=60",
    "training.stage1_rounds=1", "training.stage2_rounds=2", "methods.lntrust.sample=20",
    "methods.desa.condense_steps=3", "methods.lntrust.weighting=uniform",
)  # fmt: skip


def result(run: Run, summary: dict[str, Any]) -> dict[str, Any]:
    """What two runs with different names can have in common."""
    out = {k: v for k, v in told(summary).items() if k not in ("method", "deploy", "method_report")}
    return out | {"predictions": {r: {k: p.tolist() for k, p in e.items()}
                                  for r, e in run.course.evaluations[0].items()}}  # fmt: skip


def outcome(views: Views, *overrides: str, method: str) -> dict[str, Any]:
    one = Run(study(*overrides), method, 0, views)
    return result(one, one())


def closed(run: Run) -> set[tuple[int, int]]:
    """Who may answer for whom."""
    own = {(i, i) for i in range(run.world.n)}
    return own | {(int(i), int(j)) for i, j in run.world.edges}


def trained_alike(first: Run, second: Run) -> bool:
    assert parameters(first).keys() == parameters(second).keys()
    return all(torch.equal(t, parameters(second)[name]) for name, t in parameters(first).items())


_WITHOUT_LABELS: dict[str, Run] = {}


def leaving_validation_labels_alone(views: Views, method: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A few nodes' run of this method as if it used validation labels; made once."""
    if method not in _WITHOUT_LABELS:
        monkeypatch.setattr(list_methods()[method], "uses_validation", True)
        _WITHOUT_LABELS[method] = made(views, *FEW, method=method)
    return _WITHOUT_LABELS[method]


class TestReductions:
    def test_independent_that_answers_uniformly_is_uniform(self, views: Views) -> None:
        crossed = outcome(views, MIXED, "deploy=uniform", method="independent")
        plain = outcome(views, MIXED, method="uniform")
        assert crossed == plain
        assert crossed["bytes"]["per_deployed_query"] > 0
        assert crossed["per_node"]["test"] != crossed["per_node"]["self"]

    @pytest.mark.parametrize("method", ["independent", "uniform"])
    def test_who_answers_alone_is_independent(self, views: Views, method: str) -> None:
        crossed = outcome(views, MIXED, "deploy=self", method=method)
        assert crossed == outcome(views, MIXED, method="independent")
        assert crossed["bytes"]["per_deployed_query"] == 0

    def test_independent_that_selects_is_fedpae(self, views: Views) -> None:
        crossed, plain = (
            Run(study(MIXED, *more), method, 0, views)
            for more, method in ((("deploy=fedpae",), "independent"), ((), "fedpae"))
        )
        summary, reference = crossed(), plain()
        assert result(crossed, summary) == result(plain, reference)
        assert summary["method_report"] == {"deployment": reference["method_report"]}
        assert summary["bytes"]["total"] > 0

    @pytest.mark.parametrize("deploy", DEPLOYMENTS)
    def test_fedpae_trains_as_independent_does_on_train_only(self, views: Views, deploy: str) -> None:
        crossed, plain = (
            outcome(views, *FEW, f"deploy={deploy}", method=method) for method in ("fedpae", TRAIN_ONLY)
        )
        # Its own selection is paid for even where another is used, and once where it is the same.
        own, other = crossed.pop("bytes")["total"], plain.pop("bytes")["total"]
        assert own == other if deploy == "fedpae" else own > other
        assert crossed == plain

    @pytest.mark.parametrize(
        ("method", "deploy"), [("fedpae", "fedpae"), ("lntrust", "trust"), ("uniform", "uniform")]
    )
    def test_a_method_with_its_own_deployment_is_that_method(
        self, views: Views, method: str, deploy: str
    ) -> None:
        assert outcome(views, *FEW, f"deploy={deploy}", method=method) == outcome(views, *FEW, method=method)

    @pytest.mark.parametrize("deploy", ["trust", "fedpae"])
    def test_without_collaboration_there_is_still_a_deployment(self, views: Views, deploy: str) -> None:
        none = (*FEW, "training.stage2_rounds=0")
        assert outcome(views, *none, f"deploy={deploy}", method="independent")["bytes"]["total"] > 0

    def test_lntrust_that_answers_alone(self, views: Views) -> None:
        one = Run(study(*FEW, "deploy=self"), "lntrust", 0, views)
        summary = one()
        plain = shared(views, *FEW)
        assert summary["per_node"]["test"] == summary["per_node"]["self"]
        assert summary["per_node"]["test_pooled"] == summary["per_node"]["self_pooled"]
        assert trained_alike(one, plain)
        for number, predictions in plain.course.evaluations[0].items():
            assert (one.course.evaluations[0][number]["self"] == predictions["self"]).all()
        assert one.network.ledger.summary() == plain.network.ledger.summary()

    def test_trust_without_memory_is_lntrust_without_distillation(self, views: Views) -> None:
        """Uniform weights forget everything, so that learning them once at the end is enough."""
        alike = (MIXED, "methods.lntrust.weighting=uniform", "methods.lntrust.budget=0")
        own = Run(study(*alike), "lntrust", 0, views)
        crossed = Run(study(*alike, "deploy=trust"), "independent", 0, views)
        summary, reference = crossed(), own()
        assert summary["per_node"] == reference["per_node"]
        for key in ("per_deployed_query", "total"):
            assert (summary["bytes"][key] == reference["bytes"][key]) == (key == "per_deployed_query")
        assert trained_alike(crossed, own)


class TestEveryMethod:
    @pytest.mark.parametrize("deploy", DEPLOYMENTS)
    @pytest.mark.parametrize("method", METHODS)
    def test_under_every_deployment(
        self, views: Views, method: str, deploy: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It trains as it does by itself, or as it would if it had to leave validation labels alone."""
        one = Run(study(*FEW, f"deploy={deploy}"), method, 0, views)
        summary = one()
        assert (summary["method"], summary["deploy"]) == (method, deploy)
        deployment = one.method.deploy(one.site, one.state)
        members = {(i, j) for i, j in deployment.members.tolist()}
        assert members <= closed(one)
        if deploy == "self":
            assert members == {(i, i) for i in range(one.world.n)}
            assert summary["per_node"]["test"] == summary["per_node"]["self"]
        elif deploy == "uniform":
            assert members == closed(one)
        if deploy in ("self", "uniform"):
            plain = shared(views, *FEW, method=method)
        else:
            plain = leaving_validation_labels_alone(views, method, monkeypatch)
        assert trained_alike(one, plain)
        assert (
            one.course.evaluations[0][one.rounds]["self"] == plain.course.evaluations[0][one.rounds]["self"]
        ).all()  # also of the forest

    def test_centralized_is_refused(self, views: Views) -> None:
        for deploy in DEPLOYMENTS:
            with pytest.raises(LNTrustError) as refusal:
                Run(study(f"deploy={deploy}"), "centralized", 0, views)
            assert str(refusal.value) == (
                f"deploy = '{deploy}': method centralized has one model for all nodes, and so no other way "
                "to be deployed; leave deploy out for it"
            )
        assert find_method("centralized", study("deploy=none")).about


class TestValidationLabels:
    @pytest.mark.parametrize("deploy", ["trust", "fedpae"])
    @pytest.mark.parametrize("validation", ["withheld", "fresh"])
    def test_who_is_chosen_by_them_does_not_train_on_them(
        self, views: Views, deploy: str, validation: str
    ) -> None:
        overrides = (*FEW, f"partition.validation={validation}")
        crossed = made(views, *overrides, f"deploy={deploy}", method="independent")
        plain = shared(views, *overrides, method=TRAIN_ONLY)
        both = shared(views, *overrides, method="independent")
        assert trained_alike(crossed, plain)
        assert not trained_alike(crossed, both)
        mine = (r.course.evaluations[0][r.rounds]["self"] for r in (crossed, plain))
        assert (next(mine) == next(mine)).all()
        assert crossed.labelled.lists.values.tolist() == crossed.world.partition.train.values.tolist()
        assert crossed.method.uses_validation

    @pytest.mark.parametrize("deploy", ["self", "uniform"])
    def test_others_have_them_to_train_on(self, views: Views, deploy: str) -> None:
        crossed = made(views, *FEW, f"deploy={deploy}", method="independent")
        assert len(crossed.labelled.lists.values) > len(crossed.world.partition.train.values)
        assert not crossed.method.uses_validation

    @pytest.mark.parametrize("deploy", ["self", "uniform"])
    def test_a_method_that_looks_at_them_never_trains_on_them(self, views: Views, deploy: str) -> None:
        assert find_method("lntrust", study(f"deploy={deploy}")).uses_validation


class TestWhoAnswers:
    @pytest.mark.parametrize("deploy", ["trust", "fedpae"])
    def test_before_the_last_round_everybody_alone(self, views: Views, deploy: str) -> None:
        often = ("evaluation.every=1", "methods.lntrust.deployment_gate=off")
        one = made(views, *FEW, *often, f"deploy={deploy}", method="independent")
        *before, last = sorted(one.course.evaluations[0])
        assert before
        for number in before:
            said = one.course.evaluations[0][number]
            assert (said["deployed"] == said["self"]).all()
        said = one.course.evaluations[0][last]
        assert (said["deployed"] != said["self"]).any()

    @pytest.mark.parametrize("deploy", DEPLOYMENTS)
    def test_teachers_and_not_students(self, views: Views, deploy: str) -> None:
        settings = ("methods.mean_teacher.decay=0.9", "training.lr=0.5")  # far apart
        one = made(views, *FEW, *settings, f"deploy={deploy}", method="mean_teacher")
        stored = one.course.evaluations[0][one.rounds]
        teacher, student = (
            {n.removeprefix(f"{who}/"): t for n, t in one.state.inner.items() if n.startswith(f"{who}/")}
            for who in ("teacher", "student")
        )
        assert set(teacher) == set(student) == {"linear", "mlp"}
        ways = {"teacher": teacher, "student": student}
        got = {}
        for who, theirs in ways.items():
            with one.population.using(theirs):
                deployment = one.method.deploy(one.site, one.state)
                assert deployment.answer is None
                got[who] = answers(one.population, one.network, deployment, one.tested)
        for way in ("self", "deployed"):
            assert (stored[way] == got["teacher"][way].numpy()).all()
            assert (stored[way] != got["student"][way].numpy()).any()

    def test_teachers_before_the_last_round_too(self, views: Views) -> None:
        settings = ("methods.mean_teacher.decay=0.9", "training.lr=0.5", "evaluation.every=1")
        plain, crossed = (
            made(views, *FEW, *settings, *more, method="mean_teacher") for more in ((), ("deploy=uniform",))
        )
        assert len(plain.course.evaluations[0]) == 3
        for number, predictions in plain.course.evaluations[0].items():
            assert (crossed.course.evaluations[0][number]["self"] == predictions["self"]).all()

    def test_further_ways_of_the_inner_method_are_left_out(self, views: Views) -> None:
        assert "variant/average" in made(views, *FEW, method="d_psgd").course.evaluations[0][3]
        crossed = made(views, *FEW, "deploy=uniform", method="d_psgd")
        assert set(crossed.course.evaluations[0][3]) == {"self", "deployed"}


class TestBytes:
    def test_models_that_are_held_cost_nothing_to_ask(self, views: Views) -> None:
        one = Run(study(TORCH, "deploy=fedpae"), "independent", 0, views)
        summary = one()
        members = one.method.deploy(one.site, one.state).members
        assert (members[:, 0] != members[:, 1]).any()
        assert summary["bytes"]["per_deployed_query"] == 0
        sent = one.network.ledger.payload("parameters", "models")
        for stack in one.population.torch_stacks:
            mine = [k for k, i in enumerate(one.world.edges[:, 0]) if i in stack.nodes]
            assert (sent[mine] == 4 * stack.flat().shape[1]).all()

    def test_a_forest_has_to_be_asked(self, views: Views) -> None:
        one = Run(study(MIXED, "graph.kind=complete", "deploy=fedpae"), "independent", 0, views)
        summary = one()
        members = one.method.deploy(one.site, one.state).members.tolist()
        asked = sum(i != j and one.world.kinds[j] == 2 for i, j in members)
        assert asked > 0
        assert summary["bytes"]["per_deployed_query"] == one.network.deployment_bytes(1) * asked / 6

    def test_trust_probes_once(self, views: Views) -> None:
        one = made(views, TORCH, "deploy=trust", method="independent")
        answered = one.network.ledger.payload("reply")
        asked = one.world.partition.validation.lengths + 50  # and the sample of the shard
        assert answered.tolist() == (asked[one.world.edges[:, 1]] * 4 * 10).tolist()
        assert {phase for phase, _, _ in one.network.ledger} == {"probe"}

    @pytest.mark.parametrize("deploy", ["self", "uniform"])
    def test_others_add_nothing_to_training(self, views: Views, deploy: str) -> None:
        plain, crossed = (
            shared(views, *FEW, *more, method="dfedavg") for more in ((), (f"deploy={deploy}",))
        )
        assert plain.network.ledger.summary() == crossed.network.ledger.summary()


class Watchful(Method):
    """Notes what state it is shown, and has an entry by a name that the answerers use as well."""

    shown: list[set[str]]

    def __init__(self, settings: Any = None) -> None:
        super().__init__(settings)
        self.shown = []

    def start(self, site: Site) -> State:
        return {"members": torch.arange(3), "closed": torch.ones(1)}

    def finish(self, site: Site, state: State) -> State:
        self.shown.append(set(state))
        return state | {"finished": torch.ones(1)}

    def deploy(self, site: Site, state: State) -> Deployment:
        self.shown.append(set(state))
        return Deployment.alone(site.population)

    def report(self, site: Site, state: State) -> dict[str, Any]:
        self.shown.append(set(state))
        return {"members": state["members"].tolist()}

    def tables(self, site: Site, state: State) -> dict[str, dict[str, Any]]:
        self.shown.append(set(state))
        return {}


class Stopped(BaseException):
    pass


class TestState:
    @pytest.mark.parametrize("deploy", DEPLOYMENTS)
    def test_the_inner_method_sees_its_own_only(self, views: Views, tmp_path: Path, deploy: str) -> None:
        name = f"{__name__}:Watchful"
        one = Run(study(*FEW, f"deploy={deploy}"), name, 0, views, folder=tmp_path)
        summary = one()
        assert isinstance(one.method, DeployWith)
        assert isinstance(one.method.inner, Watchful)
        own = {"members", "closed"}
        assert set(map(frozenset, one.method.inner.shown)) == {frozenset(own), frozenset(own | {"finished"})}
        assert one.state.inner["members"].tolist() == [0, 1, 2]
        assert summary["method_report"]["members"] == [0, 1, 2]
        added = set(one.method.pack(one.state)) - own - {"finished"}
        assert bool(added) == (deploy in ("trust", "fedpae"))
        assert ("deployment" in summary["method_report"]) == bool(added)

    @pytest.mark.parametrize("deploy", ["trust", "fedpae"])
    def test_a_resumed_run_equals_an_uninterrupted_one(
        self, views: Views, tmp_path: Path, deploy: str
    ) -> None:
        often = study(*FEW, "evaluation.checkpoint_every=1", f"deploy={deploy}")
        whole = Run(often, "gossip_fedavg", 0, views, folder=tmp_path / "whole")
        summary = whole()
        for stop in (2, 3):  # in the middle, and when only the summary is missing

            def progress(done: int, *_: object, stop: int = stop) -> None:
                if done == stop:
                    raise Stopped

            with pytest.raises(Stopped):
                Run(often, "gossip_fedavg", 0, views, folder=tmp_path / "stopped")(
                    resume=True, progress=progress
                )
        resumed = Run(often, "gossip_fedavg", 0, views, folder=tmp_path / "stopped")
        assert told(resumed(resume=True)) == told(summary)
        again = resumed.method.pack(resumed.state)
        for name, tensor in whole.method.pack(whole.state).items():
            assert torch.equal(tensor, again[name]), name

    def test_trust_is_learned_on_what_was_trained(self, views: Views) -> None:
        one = made(views, *FEW, "deploy=trust", method="dfedavg")
        weights = one.state.answerer.closed
        torch.testing.assert_close(weights.sum(-1), torch.ones(4))
        around = Neighbourhood.of(one.network.edges, 4)
        deployment = one.method.deploy(one.site, one.state)
        together = one.state.answerer.together
        for i in range(4):
            rows = deployment.members[:, 0] == i
            used = around.mask[i] & (weights[i] > 0) if together[i] else around.mask[i] & (around.edge[i] < 0)
            assert deployment.members[rows, 1].tolist() == around.member[i][used].tolist()

    def test_a_certificate_survives_a_stop_after_the_last_round(self, views: Views, tmp_path: Path) -> None:
        one = study(*FEW, "deploy=self", "evaluation.checkpoint_every=1")
        whole = Run(one, "lntrust", 0, views, folder=tmp_path / "whole", certify=True)()
        assert "certificate" in whole["method_report"]

        def progress(done: int, total: int, *_: object) -> None:
            if done == total:
                raise Stopped

        with pytest.raises(Stopped):
            Run(one, "lntrust", 0, views, folder=tmp_path / "stopped", certify=True)(progress=progress)
        resumed = Run(one, "lntrust", 0, views, folder=tmp_path / "stopped", certify=True)(resume=True)
        assert told(resumed) == told(whole)


class TestIdentity:
    def fingerprint(self, views: Views, *overrides: str, method: str = "independent") -> str:
        return Run(study(*FEW, *overrides), method, 0, views).fingerprint

    def test_every_deployment_has_a_folder_of_its_own(self, views: Views, tmp_path: Path) -> None:
        runs = [
            Run(study(*FEW, *more), "independent", 0, views, folder=tmp_path)
            for more in ((), *((f"deploy={deploy}",) for deploy in DEPLOYMENTS))
        ]
        assert len({one.fingerprint for one in runs}) == len({one.folder for one in runs}) == 5

    @pytest.mark.parametrize(
        ("deploy", "setting"),
        [("trust", "methods.lntrust.deployment_gate=off"), ("fedpae", "methods.fedpae.examples=32")],
    )
    def test_the_answerers_settings_decide_the_result_and_so_the_folder(
        self, views: Views, deploy: str, setting: str
    ) -> None:
        first, second = (self.fingerprint(views, f"deploy={deploy}", *more) for more in ((), (setting,)))
        assert first != second

    @pytest.mark.parametrize("deploy", ["self", "uniform"])
    def test_settings_of_those_who_take_no_part_do_not(self, views: Views, deploy: str) -> None:
        settings = ("methods.lntrust.deployment_gate=off", "methods.fedpae.examples=32")
        first, second = (self.fingerprint(views, f"deploy={deploy}", *more) for more in ((), settings))
        assert first == second

    def test_settings_of_the_inner_method_are_its_own(self, views: Views) -> None:
        crossed = find_method("dfedavg", study("deploy=trust", "methods.dfedavg.lr=0.5"))
        assert crossed.settings.model_dump() == {"lr": 0.5, "every": 1}
        one = Run(study(*FEW, "deploy=trust", "methods.lntrust.lr=0.5"), "dfedavg", 0, views)
        assert one.training.lr == one.study.training.lr  # who answers does not train


class TestMistakes:
    def test_an_unknown_deployment(self) -> None:
        with pytest.raises(LNTrustError) as refusal:
            study("deploy=everybody")
        assert str(refusal.value).startswith("study digits: deploy = 'everybody': ")
        assert all(f"'{name}'" in str(refusal.value) for name in DEPLOYMENTS)

    def test_wrong_settings_of_the_answerer(self) -> None:
        with pytest.raises(LNTrustError, match=r"methods\.fedpae\.generations = 0: .*settings of fedpae: "):
            find_method("independent", study("deploy=fedpae", "methods.fedpae.generations=0"))

    def test_no_certificate_but_lntrusts(self, views: Views) -> None:
        with pytest.raises(LNTrustError, match="method independent has no certificate"):
            Run(study("deploy=trust"), "independent", 0, views, certify=True)
