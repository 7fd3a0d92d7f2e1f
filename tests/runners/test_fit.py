"""One's own module and arrays through the suite, from Python."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import rawls
from rawls.models.architectures.parts import given as given_model
from rawls.runners.config.errors import ConfigError

ROWS = 400
GENERATOR = np.random.default_rng(0)
INPUTS = GENERATOR.standard_normal((ROWS, 5)).astype(np.float32)
LABELS = np.where(INPUTS[:, 0] + 0.3 * INPUTS[:, 1] > 0, "yes", "no")
GROUPS = np.where(GENERATOR.random(ROWS) < 0.2, "few", "many")
PARTS = np.array(["train", "train", "train", "valid", "test"] * (ROWS // 5))
SHORT: dict[str, Any] = {"groups": GROUPS, "parts": PARTS, "epochs": 4, "batch_size": 60, "lr": 0.5}


def module(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))


def predictions(model: nn.Module, part: str) -> np.ndarray:
    """By hand: classes are numbered in sorted order."""
    with torch.no_grad():
        number = model(torch.from_numpy(INPUTS[part == PARTS])).argmax(1).numpy()
    return np.array(["no", "yes"])[number]


def test_a_private_method_gives_the_model_its_cost_and_its_accuracy() -> None:
    own, threads = module(), torch.get_num_threads()
    before = [parameter.clone() for parameter in own.parameters()]
    fitted = rawls.fit(own, (INPUTS, LABELS), method="asc", epsilon=5, **SHORT)
    assert fitted.epsilon is not None and 4.9 < fitted.epsilon <= 5
    assert fitted.delta == pytest.approx(1 / (2 * (PARTS == "train").sum()))
    assert fitted.epsilon_by_group.keys() == {"few", "many"} and max(fitted.epsilon_by_group.values()) == fitted.epsilon
    assert fitted.ledger["releases"] and "ε = 5" in fitted.privacy and fitted.folder is None
    assert set(fitted.history["split"]) == {"train", "valid", "test"}
    # What is told of the test part is what the model does there.
    right = predictions(fitted.model, "test") == LABELS[PARTS == "test"]
    groups = GROUPS[PARTS == "test"]
    told = fitted.accuracy["test"]
    for name in ("few", "many"):
        assert told[name] == pytest.approx(right[groups == name].mean())
    assert told["wga"] == min(told["few"], told["many"]) and told["avg"] == pytest.approx(
        (told["few"] + told["many"]) / 2
    )
    # The caller's module, and how many threads torch takes, are as they were.
    assert all(torch.equal(*pair) for pair in zip(own.parameters(), before, strict=True))
    assert torch.get_num_threads() == threads


@pytest.mark.parametrize("method", ["asc", "dpsgd"])
def test_the_accounting_is_the_tightest_for_the_relation_of_the_papers(method: str) -> None:
    """Rows drawn independently, by PLD: half the noise of a draw without replacement, by RDP, for the same promise."""
    told = SHORT | {"method": method, "epsilon": 5}
    asked = ["algorithm.sampling=without_replacement", "privacy.accountant=rdp"]
    ours, papers = (rawls.fit(module(), (INPUTS, LABELS), **told, overrides=extra) for extra in ([], asked))
    noise = [
        max(line["noise_std"] for line in found.ledger["releases"] if line["name"] == "gradient")
        for found in (ours, papers)
    ]
    assert noise[0] < 0.75 * noise[1]
    for found in (ours, papers):
        assert found.epsilon is not None and 4.9 < found.epsilon <= 5 and "xchange" in found.privacy


def test_without_privacy_nothing_is_spent_and_a_separable_task_is_learnt() -> None:
    fitted = rawls.fit(module(), (INPUTS, LABELS), method="sgd", **SHORT | {"epochs": 60})
    assert fitted.epsilon is None and fitted.claim is None and fitted.epsilon_by_group == {}
    assert fitted.accuracy["test"]["wga"] > 0.85


def test_training_begins_at_the_modules_weights_or_by_the_seed_at_what_a_factory_makes() -> None:
    still = SHORT | {"epochs": 1, "lr": 1e-9}
    own = module(seed=7)
    ended = rawls.fit(own, (INPUTS, LABELS), method="sgd", **still).model
    for there, here in zip(own.state_dict().values(), ended.state_dict().values(), strict=True):
        assert torch.allclose(there, here, atol=1e-6)

    def factory() -> nn.Module:
        return nn.Linear(5, 2)

    first, again, other = (
        rawls.fit(factory, (INPUTS, LABELS), method="sgd", seed=seed, **still).model.state_dict()["weight"]
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again) and not torch.allclose(first, other, atol=1e-2)


def test_a_run_that_is_kept_lies_among_the_others_and_is_told_from_those_of_other_data(tmp_path: Path) -> None:
    fitted = rawls.fit(module(), (INPUTS, LABELS), method="dpsgd", epsilon=5, results=tmp_path, **SHORT)
    assert fitted.folder is not None and (fitted.folder / "ledger.json").exists()
    again = rawls.fit(module(), (INPUTS, LABELS), method="dpsgd", epsilon=5, results=tmp_path, **SHORT)
    assert again.folder == fitted.folder and again.accuracy == fitted.accuracy
    moved = INPUTS.copy()
    moved[0, 0] += 1
    others = [
        rawls.fit(module(), (moved, LABELS), method="dpsgd", epsilon=5, results=tmp_path, **SHORT),
        rawls.fit(module(seed=1), (INPUTS, LABELS), method="dpsgd", epsilon=5, results=tmp_path, **SHORT),
        rawls.fit(module(), (INPUTS, LABELS), method="dpsgd", epsilon=4, results=tmp_path, **SHORT),
    ]
    folders = {fitted.folder, *(other.folder for other in others)}
    runs = rawls.load(tmp_path).runs
    assert len(folders) == 4 == len(runs) and set(runs["dataset"]) == {"given"}


def test_the_split_follows_the_seed_where_no_parts_are_told() -> None:
    told = {key: value for key, value in SHORT.items() if key != "parts"}
    fitted = rawls.fit(module(), (torch.from_numpy(INPUTS), LABELS), method="sgd", test=0.25, validation=0.2, **told)
    rows = fitted.history.drop_duplicates("split").set_index("split")["rows"]
    assert rows.to_dict() == {"test": 100, "valid": 60, "train": 240}


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"epsilon": None}, "is private: set privacy.epsilon"),
        ({"method": "ascc"}, "unknown algorithm 'ascc'"),
        ({"groups": GROUPS[1:]}, r"groups are of shape \[399\]"),
        ({"labels": np.zeros(ROWS, dtype=int)}, "every label is"),
        ({"labels": LABELS[:, None]}, r"labels are of shape \[400, 1\]"),
        ({"inputs": np.where(INPUTS > 2, np.nan, INPUTS)}, "rows have inputs that are not finite"),
        ({"parts": ["train"] * ROWS + ["test"]}, "for each of 400 rows"),
        ({"parts": ["training"] * ROWS}, "one of train, valid, test"),
        ({"model": nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))}, "BatchNorm1d"),
    ],
)
def test_what_is_wrong_is_one_sentence_before_anything_trains(changed: dict[str, Any], sentence: str) -> None:
    asked = {"method": "dpsgd", "epsilon": 5, **SHORT} | changed
    model, inputs = asked.pop("model", module()), asked.pop("inputs", INPUTS)
    with pytest.raises(ConfigError, match=sentence):
        rawls.fit(model, (inputs, asked.pop("labels", LABELS)), **asked)


def test_what_another_process_holds_is_refused() -> None:
    with pytest.raises(ValueError, match="module of another process"):
        given_model.Given(content="0" * 64).build((5,), 2)


def test_what_was_fitted_leaves_and_answers_as_it_did_here(tmp_path: Path) -> None:
    fitted = rawls.fit(module(), (INPUTS, LABELS), method="dpsgd", epsilon=5, **SHORT)
    left = fitted.export(tmp_path / "mine")
    assert any("secure=True" in text for text in left.warnings)  # its noise can be drawn again
    model = rawls.load_model(tmp_path / "mine")
    assert model.classes == ("no", "yes") and model.groups == ("few", "many")
    assert model.predict(INPUTS[PARTS == "test"]).tolist() == predictions(fitted.model, "test").tolist()
    assert "`rawls.fit(…)` of a Python program" in (tmp_path / "mine" / "MODEL_CARD.md").read_text("utf-8")
    with pytest.raises(ConfigError, match="is there already"):
        fitted.export(tmp_path / "mine")


def test_a_kept_run_leaves_from_the_program_that_has_its_module(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = rawls.fit(module(), (INPUTS, LABELS), method="sgd", results=tmp_path / "results", **SHORT)
    assert fitted.folder is not None
    assert rawls.export(fitted.folder, tmp_path / "mine").folder == tmp_path / "mine"
    monkeypatch.setattr(given_model, "_HELD", {})
    with pytest.raises(ConfigError, match="is of a Python program: export it there"):
        rawls.export(fitted.folder, tmp_path / "other")
