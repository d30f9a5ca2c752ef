"""Independent: nothing exchanged, nobody asked, every label used."""

from small_runs import MIXED, shared_end

from lntrust.learners.views import Views


def test_every_node_trains_on_all_it_has_and_deploys_itself(views: Views) -> None:
    one, summary = shared_end(views, MIXED, method="independent")
    deployment = one.method.deploy(one.site, one.state)
    assert deployment.members.tolist() == [[i, i] for i in range(6)]
    assert deployment.weights.tolist() == [1.0] * 6
    for name in ("test", "test_pooled"):
        assert summary["per_node"][name] == summary["per_node"][name.replace("test", "self")]
    assert (summary["harmed"], one.state, one.method.uses_validation) == (0, {}, False)
    p = one.world.partition
    held = [set(a) | set(b) for a, b in zip(p.train, p.validation, strict=True)]
    assert [set(ids) for ids in one.labelled.lists] == held
