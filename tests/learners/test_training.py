"""A stack of torch modules: initial values, plain SGD, users' own modules and clear refusals."""

from typing import Any

import pytest
import torch
import toy
from torch.nn.functional import cross_entropy

from lntrust.core.errors import LNTrustError
from lntrust.core.randomness import Seeds
from lntrust.learners.inference import Backend
from lntrust.learners.training import Stack
from lntrust.learners.views import Views

# -- initial weights ----------------------------------------------------------------------------------


def test_initial_weights_are_pytorchs_default() -> None:
    """U(−1/√D, 1/√D) for the weight and the bias of a linear layer with D inputs."""
    stack = toy.only_stack(toy.population("mlp", n=200))
    bounds = {"2": 6**-0.5, "4": 7**-0.5}
    for name, p in stack.params.items():
        bound = bounds[name.split(".")[0]]
        assert 0.98 * bound < p.abs().max() <= bound
        assert abs(float(p.mean())) < 0.1 * bound
        assert float(p.std()) == pytest.approx(bound / 3**0.5, rel=0.1)
    weight = stack.params["2.weight"].flatten(1)
    assert len(torch.unique(weight, dim=0)) == 200


def test_initial_weights_depend_on_seed_and_node_alone() -> None:
    torch.manual_seed(1)
    few = toy.population("mlp", n=2)
    torch.manual_seed(2)  # torch's own generator has no say
    many, mixed = toy.population("mlp", n=6), toy.population("linear", "mlp", n=6)
    for name, p in toy.only_stack(few).params.items():
        assert torch.equal(p, toy.only_stack(many).params[name][:2])
    for name, p in mixed.torch_stacks[1].params.items():  # node 1 is the first of its stack
        assert torch.equal(p[0], toy.only_stack(many).params[name][1])
        assert not torch.equal(p[0], toy.only_stack(toy.population("mlp", n=2, seed=1)).params[name][1])


# -- linear heads -------------------------------------------------------------------------------------


@pytest.mark.parametrize("view", ["flat", "image"])
@pytest.mark.parametrize("dropout", [0.0, 0.5, 0.2])
def test_the_fast_path_for_heads_equals_the_generic_one(view: str, dropout: float) -> None:
    fast, generic = (toy.population(toy.learner("linear", view=view, dropout=dropout)) for _ in range(2))
    assert toy.only_stack(fast).is_head
    toy.only_stack(generic).is_head = False
    for nodes in (fast, generic):
        toy.train(nodes)
    for name, value in fast.state().items():
        toy.close(value, generic.state()[name], 1e-10, msg=name)
    ids = toy.everything()
    toy.close(fast.predict_all(ids), generic.predict_all(ids), 1e-10)
    pairs = torch.tensor([4, 0, 0, 2]), torch.tensor([9, 9, 1, 0])
    toy.close(fast.asked(*pairs)(), generic.asked(*pairs)(), 1e-10)


@toy.BACKENDS
@pytest.mark.parametrize("kind", ["linear", "mlp", "cnn2d"])
def test_steps_are_plain_sgd_with_momentum_and_weight_decay(kind: str, backend: Backend) -> None:
    """One node, torch.optim.SGD beside it, the same batches."""
    settings = {"lr": 0.03, "momentum": 0.8, "l2": 0.01}
    nodes = toy.population(toy.learner(kind, dropout=0.0), n=1, backend=backend, **settings)
    stack, batches = toy.only_stack(nodes), toy.labelled(nodes)
    module = toy.module_of(stack, 0).train()
    optimiser = torch.optim.SGD(module.parameters(), lr=0.03, momentum=0.8, weight_decay=0.01)
    for t in range(4):
        for batch in batches.round(t):
            loss = cross_entropy(module(stack.view[batch.examples[0]]), batch.labels[0])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            ours = nodes.step(batch)
            toy.close(ours[0], loss.detach())
    for name, p in module.named_parameters():
        toy.close(stack.params[name][0], p.detach())
    answers = module(stack.view).softmax(-1).detach()
    toy.close(nodes.predict_all(toy.everything())[0], answers)


@pytest.mark.parametrize("kind", ["own_models:Scaled", "own_models:squashed"])
def test_what_only_looks_like_a_head_is_run_as_it_is(kind: str) -> None:
    stacked, looped = toy.train(toy.population(kind)), toy.train(toy.population(kind, backend="loop"))
    toy.close(stacked.predict_all(toy.everything()), looped.predict_all(toy.everything()), 1e-10)


# -- dropout ------------------------------------------------------------------------------------------


def test_a_layer_in_two_places_drops_independently() -> None:
    nodes = toy.population("own_models:shared_dropout")
    first, second = (toy.only_stack(nodes).skeleton.get_submodule(name) for name in ("1", "4"))
    assert first is not second  # each place has its own layer, and so its own masks
    assert (first.unit_shape, second.unit_shape) == ((6,), (8,))
    looped = toy.train(toy.population("own_models:shared_dropout", backend="loop"))
    toy.close(toy.train(nodes).predict_all(toy.everything()), looped.predict_all(toy.everything()), 1e-10)


# -- users' own modules -------------------------------------------------------------------------------


def test_batch_normalisation_is_looped_and_trains_each_node_on_its_own() -> None:
    nodes = toy.population("own_models:normalised", n=3)
    stack = toy.only_stack(nodes)
    assert stack.looped
    assert "batch normalisation" in str(stack.looped_because)
    assert not stack.buffers["1.running_mean"].any()  # the trial left no trace
    toy.train(nodes, rounds=40)
    mean = stack.buffers["1.running_mean"]
    assert stack.buffers["1.num_batches_tracked"].tolist() == [200] * 3
    own = torch.stack([stack.view[torch.from_numpy(ids)].mean(0) for ids in toy.lists(3)])
    toy.close(mean, own, 0.3)  # node by node its own data's mean
    answers = nodes.predict_all(toy.everything()).argmax(-1)
    for i, ids in enumerate(toy.lists(3)):
        assert (answers[i, ids] == toy.LABELS[ids]).double().mean() > 0.7


def test_batch_statistics_of_resting_nodes_stand_still() -> None:
    nodes = toy.population("own_models:normalised", n=3)
    nodes.step(toy.batch_of(nodes, torch.tensor([False, True, False])))
    assert toy.only_stack(nodes).buffers["1.num_batches_tracked"].tolist() == [0, 1, 0]


def test_what_vmap_cannot_run_is_looped_with_the_reason() -> None:
    nodes = toy.population("own_models:Branching")
    assert toy.only_stack(nodes).looped
    assert "torch.vmap cannot run it" in str(toy.only_stack(nodes).looped_because)
    before = nodes.predict_all(toy.everything())
    assert not torch.allclose(toy.train(nodes).predict_all(toy.everything()), before)


@toy.BACKENDS
def test_a_module_that_works_in_place_cannot_touch_the_data(backend: Backend) -> None:
    nodes = toy.population("own_models:InPlace", backend=backend)
    stack = toy.only_stack(nodes)
    toy.train(nodes, rounds=1)
    answers = nodes.predict_all(toy.everything())
    pairs = nodes.asked(torch.tensor([0, 4]), torch.tensor([0, 1]))()
    original = torch.from_numpy(toy.DATASET.view("flat")).double()  # type: ignore[arg-type]
    assert torch.equal(stack.view, original)
    x = (original - 3) / 2
    for i in range(5):
        logits = x @ stack.params["linear.weight"][i].T + stack.params["linear.bias"][i]
        torch.testing.assert_close(answers[i], logits.softmax(-1))
    torch.testing.assert_close(pairs, torch.stack([answers[0, 0], answers[4, 1]]))


@toy.BACKENDS
def test_frozen_parameters_stay_as_they_are(backend: Backend) -> None:
    nodes = toy.population("own_models:frozen", backend=backend)
    before = {name: t.clone() for name, t in toy.only_stack(nodes).state().items()}
    after = toy.only_stack(toy.train(nodes)).state()
    moved = {name.split("/")[1] for name, t in after.items() if not torch.equal(t, before[name])}
    assert moved == {"4.weight", "4.bias"}


@toy.BACKENDS
def test_what_has_nothing_to_train_only_answers_and_an_unused_layer_does_no_harm(backend: Backend) -> None:
    nodes = toy.population("own_models:finished", "own_models:Idle", n=4, backend=backend)
    before, idle = nodes.predict_all(toy.everything()), nodes.torch_stacks[1].params["idle.weight"].clone()
    after = toy.train(nodes).predict_all(toy.everything())
    assert torch.equal(after[::2], before[::2])
    assert not torch.allclose(after[1::2], before[1::2])
    assert not nodes.last_loss["supervised"].isnan().any()
    assert torch.equal(nodes.torch_stacks[1].params["idle.weight"], idle)  # as torch.optim.SGD leaves it


FORESTS = "sklearn.ensemble:RandomForest"


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        ("own_models:Gambler", {}, "draws random numbers of its own.*only nn.Dropout"),
        ("own_models:TwiceDropped", {}, "one dropout layer is used twice in a pass"),
        ("own_models:too_narrow", {}, r"returns \[2, 3\]: must be logits of shape \[B, 4\]"),
        ("own_models:Pair", {}, r"returns tuple: must be logits"),
        ("own_models:wrong_input", {}, r"fails on inputs of shape \[2, 6\]"),
        ("own_models:nonsense", {}, "made a dict: must be a torch nn.Module or an estimator"),
        (f"{FORESTS}Classifier", {"trees": 3}, "trees: unknown options; known are n_est"),
        ("sklearn.naive_bayes:GaussianNB", {"a": 1, "b": 2}, "a, b: unknown options; known are priors, var"),
        ("sklearn.svm:LinearSVC", {}, "made a LinearSVC: must be .* an estimator with predict_proba"),
        ("sklearn.linear_model:SGDClassifier", {"loss": "hinge"}, "made a SGDClassifier.* loss = log_loss"),
        (f"{FORESTS}Regressor", {}, "made a RandomForestRegressor: must be"),
        ("sklearn.pipeline:Pipeline", {}, "missing 1 required positional argument: 'steps'"),
        ("sklearn.ensemble:NoSuchClassifier", {}, "has nothing named NoSuchClassifier"),
        ("own_models:absent", {}, "own_models has nothing named absent"),
        ("own_models:not_a_factory", {}, "not callable"),
        ("no_such_package.models:factory", {}, "cannot import no_such_package"),
        ("perceptron", {}, "must be one of linear, mlp, .* or package.module:factory"),
        ("linear", {"hidden": 3}, r"with options \{'hidden': 3\}.*hidden"),
        ("linear", {"dropout": 1.5}, "dropout"),
        ("mlp", {"hidden": -1}, r"with options \{'hidden': -1\}.*negative"),
        ("forest", {"leaves": 3}, "leaves"),
        ("cnn2d", {}, r"fails on inputs of shape \[2, 6\]"),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(kind: str, options: dict[str, Any], message: str) -> None:
    chosen = toy.learner(kind, name="mine", view="flat").model_copy(update={"options": options})
    with pytest.raises(LNTrustError, match=rf"(?s)learner mine: kind.*{message}"):
        toy.population(chosen)


def test_a_refused_module_leaves_torchs_generator_alone() -> None:
    view, before = Views(toy.DATASET, toy.CPU, torch.float64)["flat"], torch.random.get_rng_state()
    with pytest.raises(LNTrustError):
        Stack(toy.learner("own_models:Gambler"), torch.tensor([0]), view, toy.CLASSES, Seeds((0,), 1))
    assert torch.equal(before, torch.random.get_rng_state())
