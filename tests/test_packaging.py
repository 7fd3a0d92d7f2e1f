"""One installed name: what is installed is what the folders hold, under `rawls` and under no other name."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from tests.tree import PACKAGES, ROOT, files

SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
# Nothing of the clone is on the path but by its installation: neither the folder of the process nor PYTHONPATH.
ELSEWHERE = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}


def said_elsewhere(script: str, folder: Path, **environment: str) -> str:
    """What a script prints in a process that knows this clone only as it is installed."""
    command = [sys.executable, "-P", "-c", script]
    ran = subprocess.run(command, cwd=folder, env=ELSEWHERE | environment, text=True, capture_output=True)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def folders_with_code() -> set[str]:
    code = [path.relative_to(ROOT) for path in files() if path.suffix == ".py" and not path.is_symlink()]
    return {".".join(path.parent.parts) for path in code if path.parts[0] in PACKAGES}


def test_every_folder_with_code_is_installed() -> None:
    assert set(SETUPTOOLS["packages"]) == {"rawls", *(f"rawls.{folder}" for folder in folders_with_code())}
    assert [name for name in folders_with_code() if not ROOT.joinpath(*name.split("."), "__init__.py").is_file()] == []


def test_every_room_has_its_mapping_and_its_link_for_checkers() -> None:
    assert SETUPTOOLS["package-dir"] == {"rawls": "src/rawls", **{f"rawls.{name}": name for name in PACKAGES}}
    links = {path.name: path for path in (ROOT / "typings" / "rawls").iterdir()}
    assert set(links) == {*PACKAGES, "__init__.py", "py.typed"}
    for name, link in links.items():
        assert link.resolve() == ROOT / ("" if name in PACKAGES else "src/rawls") / name
        assert not os.readlink(link).startswith("/")


def test_bare_names_find_nothing_of_ours(tmp_path: Path) -> None:
    asked = (
        f"from importlib.util import find_spec\nfor name in {PACKAGES}:\n"
        "    found = find_spec(name)\n    print(*(found.submodule_search_locations if found else ()))"
    )
    found = set(said_elsewhere(asked, tmp_path).split())
    assert not found & {str(ROOT / name) for name in PACKAGES}
    assert said_elsewhere("from importlib.util import find_spec; print(find_spec('rawls.tests'))", tmp_path) == "None\n"


def test_what_users_import_is_there(tmp_path: Path) -> None:
    asked = (
        "import sys, rawls\nprint('torch' in sys.modules)\nprint([getattr(rawls, name) is None for name "
        "in rawls.__all__])"
    )
    lazy, found = said_elsewhere(asked, tmp_path).splitlines()
    assert lazy == "False" and "True" not in found


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the committed files, built beside the clone: setuptools leaves its traces where it builds."""
    folder = tmp_path_factory.mktemp("wheel")
    for path in files():
        copy = folder / "clone" / path.relative_to(ROOT)
        if path.relative_to(ROOT).parts[0] not in ("tests", "typings"):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", str(folder)]
    subprocess.run([sys.executable, "-m", "pip", "wheel", *options, str(folder / "clone")], check=True)
    (built,) = folder.glob("rawls-*.whl")
    return built


def test_a_wheel_holds_every_file_that_is_read_and_no_other_name(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    read = {".py", ".yaml", ".c", ".css", ".csv", ".html", ".js", ".json"}
    ours = [path.relative_to(ROOT).as_posix() for path in files() if path.suffix in read]
    wanted = {f"rawls/{name}" for name in ours if name.partition("/")[0] in PACKAGES} | {"rawls/py.typed"}
    assert wanted - names == set()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"rawls"}


def test_a_wheel_works_without_the_clone(wheel: Path, tmp_path: Path) -> None:
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    asked = (
        "import rawls, sys; from rawls.runners.cli.commands import main; print(rawls.__file__, file=sys.stderr)\n"
        "raise SystemExit(main(['train', '--cfg', 'job', 'dataset=digits']))"
    )
    shown = said_elsewhere(asked, tmp_path, PYTHONPATH=str(tmp_path / "site"))
    assert "_target_: rawls.datasets.digits.Digits" in shown


TEN_LINES = """
import numpy as np, rawls
from torch import nn
generator = np.random.default_rng(0)
inputs = generator.standard_normal((400, 5)).astype("float32")
labels = np.where(inputs[:, 0] > 0, "yes", "no")
groups = np.where(generator.random(400) < 0.3, "few", "many")
fitted = rawls.fit(nn.Linear(5, 2), (inputs, labels), groups=groups, method="asc", epsilon=8, epochs=5)
fitted.export("fitted")
assert set(rawls.load_model("fitted").predict(inputs)) <= {"yes", "no"} and fitted.epsilon <= 8, fitted.epsilon
print(rawls.__file__, fitted.accuracy["test"]["wga"])
"""


@pytest.mark.system  # half a minute of processes
def test_a_wheel_that_is_installed_elsewhere_trains_exports_and_answers(wheel: Path, tmp_path: Path) -> None:
    """In an environment that has the packages of this one, but not its rawls: a .pth of a .pth is not followed."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / "venv")], check=True)
    python, rawls = tmp_path / "venv" / "bin" / "python", tmp_path / "venv" / "bin" / "rawls"
    (site,) = (tmp_path / "venv" / "lib").glob("*/site-packages")
    (site / "others.pth").write_text("\n".join(dict.fromkeys(site_packages())))
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python)]
    subprocess.run([*pip, "install", "--no-deps", "--no-index", str(wheel)], check=True)

    def said(*command: object) -> str:
        ran = subprocess.run(list(map(str, command)), cwd=tmp_path, env=ELSEWHERE, text=True, capture_output=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    assert said(rawls, "--version").startswith("rawls ")
    assert str(site) in said(python, "-c", TEN_LINES)
    assert "test WGA" in said(rawls, "train", "dataset=digits", "scale=smoke", "tracking=off")
    assert "out/MODEL_CARD.md" in said(rawls, "export", "asc", "to=out")
    np.save(tmp_path / "inputs.npy", np.zeros((3, 1, 8, 8), dtype=np.float32))
    assert "the class of 3 rows" in said(rawls, "predict", "out", "inputs.npy")
    assert len((tmp_path / "inputs.predictions.csv").read_text("utf-8").splitlines()) == 4


def site_packages() -> list[str]:
    """Where the packages of this environment lie."""
    return [str(Path(name).resolve()) for name in sys.path if Path(name).name == "site-packages"]


THEIRS = {
    "datasets": "assert datasets.Features({'a': datasets.Value('int64')}).arrow_schema.names == ['a']",
    "transformers": "small = dict(hidden_size=8, num_attention_heads=2, num_hidden_layers=1, intermediate_size=8, "
    "vocab_size=9)\nassert transformers.BertModel(transformers.BertConfig(**small)).num_parameters() > 0",
}


@pytest.mark.system  # ten seconds of processes
@pytest.mark.parametrize("name", THEIRS)
def test_beside_packages_of_hugging_face_both_work(name: str, tmp_path: Path) -> None:
    if find_spec("huggingface_hub") is None or find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    asked = (
        f"import {name}; from rawls.runners.cli.commands import main\n{THEIRS[name]}\n"
        "raise SystemExit(main(['train', 'dataset=digits', 'algorithm=asc', 'scale=smoke', 'tracking=off']))"
    )
    assert "WGA" in said_elsewhere(asked, tmp_path, HF_HUB_OFFLINE="1", HF_HOME=str(tmp_path / "hub"))
