import os
import subprocess
import sys

import pytest
from hydra.errors import MissingConfigException

from rawls.runners.config.compose import compose
from rawls.runners.config.errors import ConfigError, RunsFailed, explain, guarded, nearest, unknown_key
from tests.tree import ROOT

KEYS = [
    "seed",
    "optimizer",
    "optimizer.lr",
    "optimizer.momentum",
    "algorithm",
    "algorithm._target_",
    "algorithm.clip_norm",
]


def fails(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ConfigError("seed=x must be\n an integer"), 2, "rawls: error: seed=x must be an integer\n"),
        (
            PermissionError(13, "Permission denied", "results"),
            2,
            "rawls: error: [Errno 13] Permission denied: 'results'\n",
        ),
        (RunsFailed(1), 1, ""),
        (RunsFailed(130), 130, ""),
        (KeyboardInterrupt(), 130, "interrupted; run the same command again to go on\n"),
    ],
)
def test_a_user_sees_one_line(error: BaseException, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert guarded(lambda: fails(error)) == code
    assert capsys.readouterr() == ("", line)


def test_a_mistake_of_ours_keeps_its_trace() -> None:
    with pytest.raises(ZeroDivisionError):
        guarded(lambda: 1 // 0)


def test_debug_keeps_the_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        guarded(lambda: fails(ConfigError("wrong")), debug=True)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(ConfigError):
        guarded(lambda: fails(ConfigError("wrong")))


def test_success_passes_the_exit_code_on() -> None:
    assert guarded(lambda: 0) == 0


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    """As in `rawls targets | head -1`; stdout goes through a buffer, so that the pipe may break at the end only."""
    for lines in (1, 100_000):
        script = (
            f"from rawls.runners.config.errors import guarded; raise SystemExit(guarded(lambda: "
            f"print('x\\n' * {lines}) or 0))"
        )
        reading, writing = os.pipe()
        os.close(reading)
        command = [sys.executable, "-c", script]
        found = subprocess.run(command, cwd=ROOT, stdout=writing, stderr=subprocess.PIPE, check=False)
        os.close(writing)
        assert (found.returncode, found.stderr) == (0, b"")


def test_the_nearest_is_named_only_if_something_is_near() -> None:
    assert nearest("asd", ["dpsgd", "asc"]) == "did you mean asc? (choose from asc, dpsgd)"
    assert nearest("xyz", ["dpsgd", "asc"]) == "choose from asc, dpsgd"
    assert nearest("x", []) == "there is nothing to choose from"
    assert nearest("x", map(str, range(100, 150))).endswith("115, …")


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (
            "algorithm.clip",
            "unknown key 'algorithm.clip': did you mean algorithm.clip_norm? (choose from clip_norm)",
        ),
        ("algorithm.lr", "unknown key 'algorithm.lr': did you mean optimizer.lr?"),
        ("momentun", "unknown key 'momentun': did you mean optimizer.momentum?"),
        ("zzz", "unknown key 'zzz': choose from algorithm, optimizer, seed"),
    ],
)
def test_an_unknown_key_is_looked_for_beside_and_then_anywhere(key: str, sentence: str) -> None:
    assert unknown_key(key, KEYS) == sentence


def test_a_dataset_without_a_recipe_is_told_what_is_missing() -> None:
    error = MissingConfigException("In 'config': Could not find 'recipe/mine'\n\nConfig search path:")
    sentence = explain(error, keys=list, choices=lambda group: {"dataset": ["mine"]}[group])
    assert sentence == "dataset=mine has no recipe: choose one with recipe=NAME, or write conf/recipe/mine.yaml"


def test_a_recipe_by_name_and_a_method_with_a_model_of_its_own_need_the_model_named() -> None:
    named = ["recipe=digits", "algorithm=dp_oco_worst_group", "dataset=digits"]
    with pytest.raises(ConfigError, match="dp_oco_worst_group brings its own model: leave recipe=NAME out, or name mo"):
        compose(named)
    assert compose([*named, "model=logistic"]) == compose(named[1:])


def test_an_error_nobody_foresaw_is_still_one_line() -> None:
    assert explain(ValueError("a\n  b"), keys=list, choices=lambda group: []) == "a b"
    assert explain(ValueError(), keys=list, choices=lambda group: []) == "ValueError"


def test_the_module_loads_without_hydra() -> None:
    script = "import rawls.runners.config.errors, sys; print('hydra' in sys.modules)"
    printed = subprocess.check_output([sys.executable, "-c", script], text=True, env=dict(os.environ, PYTHONPATH="."))
    assert printed == "False\n"
