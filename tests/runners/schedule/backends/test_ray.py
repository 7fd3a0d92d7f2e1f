"""The launcher `ray`, with a real Ray of two workers on this machine."""

import socket
from pathlib import Path

import pytest

from rawls.runners import train
from rawls.runners.config.errors import ConfigError
from rawls.runners.store.results_store import Store
from tests.runners.schedule.backends.elsewhere import NUM_RUNS, finish, interrupt, kill_one, numbers, sweep

RAY = "hydra/launcher=ray"
SMALL = ["dataset=digits", "scale=smoke", "tracking=off"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("address=nonsense", "hydra.launcher.address=nonsense must be HOST:PORT, auto or null"),
        ("address=127.0.0.1:PORT", "hydra.launcher.address=127.0.0.1:PORT: no Ray cluster answers there ("),
        ("address=ray://127.0.0.1:PORT", "hydra.launcher.address=ray://127.0.0.1:PORT: no Ray cluster answers there ("),
        ("num_cpus=0", "hydra.launcher.num_cpus=0 must be positive"),
        ("num_gpus=-1", "hydra.launcher.num_gpus=-1 must not be negative"),
        ("num_cpus=many", "hydra.launcher.num_cpus=many must be a number"),
        ("workers=0", "hydra.launcher.workers=0 must be 1 or more"),
        ("workers=x", "hydra.launcher.workers=x must be an integer or null"),
    ],
)
def test_what_is_wrong_is_one_sentence_before_anything_is_started(
    option: str, sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ray.init", lambda **_: pytest.fail("Ray was started"))
    port = str(free_port())
    with pytest.raises(ConfigError) as caught:
        train.main(["-m", RAY, f"hydra.launcher.{option.replace('PORT', port)}", "seed=0,1", *SMALL])
    assert str(caught.value).startswith(sentence.replace("127.0.0.1:PORT", f"127.0.0.1:{port}"))
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "results/runs").exists()


def test_a_missing_package_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"hydra/launcher=ray needs the package ray: pip install 'rawls\[ray\]'"):
        train.main(["-m", RAY, "seed=0,1", *SMALL])


@pytest.mark.system  # a minute; test_local.py and test_cluster.py lose workers too
def test_a_worker_killed_in_the_middle_costs_only_its_time(tmp_path: Path) -> None:
    """Two workers of a Ray of its own come to the numbers of two processes of this machine, though one is killed."""
    with sweep(tmp_path / "here") as command:
        assert finish(command)[0] == 0
    with sweep(tmp_path / "there", RAY) as command:
        kill_one(tmp_path / "there", command)
        code, said = finish(command)
    assert code == 0, said
    assert sum(line.startswith("done: ") for line in said) == NUM_RUNS
    assert len(numbers(tmp_path / "here")) == 3 * NUM_RUNS
    assert numbers(tmp_path / "there") == numbers(tmp_path / "here")


@pytest.mark.system  # half a minute, as above
def test_an_interrupted_sweep_is_saved_and_goes_on(tmp_path: Path) -> None:
    with sweep(tmp_path, RAY) as command:
        worker = interrupt(tmp_path, command)
    store = Store(tmp_path)
    assert {store.state(run["run_id"]) for run in worker.runs} == {"interrupted"}
