"""Independent: nothing exchanged, nobody asked, every label used."""

from small_runs import MIXED, shared_end

from lntrust.learners.views import Views


def test_every_node_trains_on_all_it_has_and_deploys_itself(views: Views) -> None:
    one, summary = shared_end(views, MIXED, method="independent")
    assert (summary["harmed"], one.state, one.method.uses_validation) == (0, {}, False)
    p = one.world.partition
    held = [set(a) | set(b) for a, b in zip(p.train, p.validation, strict=True)]
    assert [set(ids) for ids in one.labelled.lists] == held
