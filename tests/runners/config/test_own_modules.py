"""Code beside the command is found as a `_target_`, and nothing else of that folder."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import rawls
from rawls.runners.cli.commands import main
from rawls.runners.config import specifications
from rawls.runners.config.compose import run_id
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.own_modules import imported
from rawls.runners.config.specifications import build, dump, name_of

MYNET = """
import math
from torch import nn

def make(input_shape: tuple[int, ...], num_classes: int, width: int = 8) -> nn.Module:
    size = math.prod(input_shape)
    return nn.Sequential(nn.Flatten(), nn.Linear(size, width), nn.Tanh(), nn.Linear(width, num_classes))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RAWLS_MODULES", "mynet_of_test,mynett_of_test,nets_of_test")
    (tmp_path / "mynet_of_test.py").write_text(MYNET)
    (tmp_path / "conf" / "model").mkdir(parents=True)
    (tmp_path / "conf" / "model" / "mine.yaml").write_text("_target_: mynet_of_test.make\nwidth: 5\n")
    yield tmp_path
    for name in [name for name in sys.modules if "_of_test" in name]:
        del sys.modules[name]
    specifications._built.cache_clear()
    specifications._fields.cache_clear()


def test_a_file_and_a_package_are_found_and_the_folder_is_not(here: Path) -> None:
    (here / "nets_of_test" / "deep").mkdir(parents=True)
    for name in ("__init__.py", "deep/__init__.py"):
        (here / "nets_of_test" / name).write_text("")
    (here / "nets_of_test" / "deep" / "one.py").write_text("DEPTH = 3")
    (here / "beside_of_test.py").write_text("")
    path = list(sys.path)
    assert imported("mynet_of_test").make is not None
    assert imported("nets_of_test.deep.one").DEPTH == 3
    assert sys.path == path
    (here / "json.py").write_text("broken = True")
    assert not hasattr(imported("json"), "broken")
    (here / "failing_of_test.py").write_text("import beside_of_test")  # nobody named that
    for name in ("failing_of_test", "gone_of_test", "mynet_of_test.more"):
        with pytest.raises(ImportError):
            imported(name)
    assert "failing_of_test" not in sys.modules


def test_a_factory_is_a_model_with_checked_fields(here: Path) -> None:
    node: dict[str, Any] = {"_target_": "mynet_of_test.make", "width": 6}
    spec = build(node, "model")
    assert dump(spec) == node and name_of(node) == "mynet_of_test"
    assert sum(values.numel() for values in spec.build((1, 8, 8), 10).parameters()) == 65 * 6 + 7 * 10
    for changed, sentence in (
        ({"width": "wide"}, "model.width=wide must be an integer"),
        ({"with": 3}, r"unknown key 'model\.with': did you mean model\.width"),
        ({"_target_": "mynet_of_test.made"}, "has no attribute 'made'"),
        ({"_target_": "mynett_of_test.make"}, "put mynett_of_test.py into the folder you are in"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            build(node | changed, "model")
    with pytest.raises(ConfigError, match="is not a dataclass"):
        build(node, "algorithm")


def test_it_is_trained_exported_and_answers(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["dataset=digits", "model=mine", "--config-dir", "conf", "algorithm=dpsgd", "privacy=eps8", "scale=smoke"]
    assert main(["train", *given, "tracking=off", "alone=true"]) == 0
    (run,) = (here / "results" / "runs").iterdir()
    assert "dpsgd on digits" in capsys.readouterr().out
    assert main(["export", run.name, "to=mine"]) == 0
    model = rawls.load_model("mine")
    assert model.predict_proba(np.zeros((2, 1, 8, 8), dtype="float32")).shape == (2, 10)
    assert run_id(yaml.safe_load((run / "config.yaml").read_text())) == run.name


@pytest.mark.system  # processes that train
def test_workers_find_it_too(here: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    script = "import sys; from rawls.runners.cli.commands import main; sys.exit(main())"
    given = [
        "train",
        "-m",
        "dataset=digits",
        "model=mine",
        "--config-dir",
        "conf",
        "algorithm=dpsgd,sgd",
        "privacy=eps8",
    ]
    command = [sys.executable, "-P", "-c", script, *given, "scale=smoke", "tracking=off", "seed=0,1"]
    ran = subprocess.run(command, cwd=here, env=environment, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    assert len(list((here / "results" / "runs").iterdir())) == 4
