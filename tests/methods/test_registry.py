"""Methods by name, and users' own."""

import importlib
from pathlib import Path
from typing import Any

import pytest

import lntrust.methods
from lntrust import LNTrustError, load_study
from lntrust.experiment import run
from lntrust.learners.views import Views
from lntrust.methods import Method, find_method, list_methods

OWN = """
from pydantic import Field
from lntrust.methods import Method
from lntrust.study.settings import Settings


class QuietSettings(Settings):
    volume: int = Field(1, ge=0, description="how loud")


class Quiet(Method):
    about = "says nothing"
    settings_class = QuietSettings


class NotAMethod:
    pass


def function(settings):
    return Quiet(settings)
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of the user's in the working directory; its name."""
    name = f"own_method_{abs(hash(tmp_path))}"
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / f"{name}.py").write_text(OWN, "utf-8")
    monkeypatch.syspath_prepend(tmp_path)  # undone afterwards, with what is added to it
    monkeypatch.chdir(folder)
    return name


class TestShipped:
    def test_every_module_that_defines_one_is_listed(self) -> None:
        folder = Path(lntrust.methods.__file__).parent
        defining = {p.stem for p in folder.glob("*.py") if "\n    about = " in p.read_text("utf-8")}
        assert list(list_methods()) == sorted(defining | {"lntrust"})  # that is a folder
        assert defining == {
            "independent", "uniform", "centralized", "mean_teacher", "dml", "dml_public", "desa", "fedpae",
            "d_psgd", "gossip_fedavg", "dfedavg", "decdiff_vt", "fedmd", "stacking", "fens", "feddf",
            "knn_per", "fedfomo", "ditto", "idkd",
        }  # fmt: skip

    @pytest.mark.parametrize(("name", "cls"), list_methods().items())
    def test_each_says_what_it_is(self, name: str, cls: type[Method], tiny: Any) -> None:
        assert 10 < len(cls.about) < 120
        assert importlib.import_module(cls.__module__).__doc__
        assert type(find_method(name, tiny())) is cls

    @pytest.mark.parametrize(
        ("name", "sets", "wrong"),
        [
            ("unifrom", [], r"--method unifrom: did you mean uniform\? Must be one of"),
            ("uniform", ["methods.centralised.epochs=3"], r"centralised: .* did you mean centralized\?"),
            ("centralized", ["methods.centralized.epochs=0"], r"s\.centralized: epochs = 0: input should"),
            ("centralized", ["methods.centralized.epoch=3"], r"unknown field epoch; did you mean epochs\?"),
        ],
    )
    def test_misspelt_names_and_wrong_settings(
        self, tiny: Any, name: str, sets: list[str], wrong: str
    ) -> None:
        with pytest.raises(LNTrustError, match=wrong):
            find_method(name, tiny(*sets))


class TestOwn:
    def test_a_file_in_the_working_directory_with_settings(
        self, own: str, tiny_file: Path, views: Views
    ) -> None:
        tiny_file.write_text(f'{tiny_file.read_text()}\n[methods."{own}:Quiet"]\nvolume = 7\n')
        study = load_study(tiny_file)
        assert find_method(f"{own}:Quiet", study).settings.model_dump() == {"volume": 7}
        summary, reference = (run(study, name, 0, views) for name in (f"{own}:Quiet", "independent"))
        assert summary["method"] == f"{own}:Quiet"
        assert summary["per_node"] == reference["per_node"]

    @pytest.mark.parametrize("name", ["NotAMethod", "function"])
    def test_something_else_is_refused(self, own: str, tiny: Any, name: str) -> None:
        with pytest.raises(LNTrustError) as refusal:
            find_method(f"{own}:{name}", tiny())
        assert str(refusal.value) == f"--method {own}:{name}: must be a subclass of lntrust.methods.Method"
