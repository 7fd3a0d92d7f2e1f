from pathlib import Path

import pytest
import yaml

from rawls.analysis.read import cache, settings
from rawls.runners.config.compose import compose, resolve
from rawls.runners.config.specifications import name_of
from rawls.runners.store.stored import NOT_HASHED


def write_config(root: Path, run: str, text: str) -> None:
    (root / "runs" / run).mkdir(parents=True, exist_ok=True)
    (root / "runs" / run / "config.yaml").write_text(text, encoding="utf-8")


def test_a_configuration_is_flat_and_only_what_makes_the_run(results_root: Path) -> None:
    config = resolve(compose(["dataset=digits", "algorithm=dpsgd", "seed=3", "dataset.provenance=simulated"]))
    write_config(results_root, "a", yaml.safe_dump(config))
    found = settings.load(results_root, ["a"])["a"]
    assert (found["dataset"], found["algorithm"], found["seed"]) == ("digits", name_of(config["algorithm"]), 3)
    assert found["optimizer.lr"] == config["optimizer"]["lr"]
    assert found["dataset.provenance"] == "simulated"
    assert not {key.partition(".")[0] for key in found} & NOT_HASHED
    assert {key.partition(".")[0] for key in found} == set(config) - NOT_HASHED


def test_what_cannot_be_read_is_empty(results_root: Path) -> None:
    write_config(results_root, "torn", "dataset: {_target_")
    write_config(results_root, "text", "word")
    assert settings.load(results_root, ["torn", "text", "none"]) == {"torn": {}, "text": {}, "none": {}}
    assert settings.load(results_root, []) == {}


@pytest.mark.parametrize(
    "text",
    [
        "a:\n  b: 1\n  c: [x, y]\nd: 'off'\nseed: 2\n",
        "a: &same\n  b: 1\nc: *same\nseed: 2\n",
        "a: {b: 1,\nc: 2}\nseed: 2\n",
        "a: 'over\nlines: no key'\nseed: 2\n",
        'a: "over\nlines: no key"\nseed: 2\n',
        "a:\n- 1\n- b: 2\nseed: 2\n",
        "a: |\n  one: no key\n  two\nb: >\n  c\nseed: 2\n",
        "# said\nseed: 1\nseed: 2\n",
        "seed: 2\n...\n",
        "%YAML 1.1\n---\nseed: 2\n",
    ],
)
def test_a_file_read_key_by_key_says_what_it_says_as_a_whole(results_root: Path, text: str) -> None:
    write_config(results_root, "a", text)
    assert settings.load(results_root, ["a"])["a"] == settings.flat(yaml.safe_load(text))
    assert settings.load(results_root, ["a"])["a"]["seed"] == 2


def test_what_is_kept_is_what_the_files_say(results_root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "FEW", 0)
    monkeypatch.setattr(cache, "SETTLED_NANOSECONDS", -(10**15))
    for seed, run in enumerate("abc"):
        write_config(results_root, run, f"seed: {seed}\ndevice: cpu")
    expected = {run: {"seed": seed} for seed, run in enumerate("abc")}
    assert settings.load(results_root, "abc") == expected
    assert (results_root / "cache" / "settings.arrow").is_file()
    assert settings.load(results_root, "ca") == {"c": {"seed": 2}, "a": {"seed": 0}}
    write_config(results_root, "b", "seed: 10")
    assert settings.load(results_root, "abc") == {**expected, "b": {"seed": 10}}
