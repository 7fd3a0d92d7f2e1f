import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest
from omegaconf import OmegaConf

from rawls.runners.config.compose import Composer, choices, compose, hashed, look_also_in, resolve, run_id
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.schema import SPECS, Config
from rawls.runners.config.specifications import name_of
from rawls.runners.store.stored import NOT_HASHED
from rawls.runners.sweeps.labels import label_of


def composed(*overrides: str) -> dict[str, Any]:
    return resolve(compose(overrides))


def test_by_default_asc_is_trained_on_the_digits_at_laptop_scale() -> None:
    config = composed()
    assert [name_of(config[group]) for group in SPECS] == ["digits", "digits_cnn", "asc"]
    assert (config["privacy"]["epsilon"], config["scale"]["name"], config["seed"]) == (8.0, "laptop", 0)
    assert (config["device"], config["results"]["root"], config["tracking"]["mode"]) == (
        "auto",
        "results",
        "offline",
    )
    assert config.keys() == {field.name for field in dataclasses.fields(Config)}


def test_a_dataset_brings_its_model_and_schedule() -> None:
    digits, mnist = composed(), composed("dataset=unbalanced_mnist", "scale=paper")
    assert name_of(mnist["model"]) == "mnist_cnn"
    assert mnist["schedule"] == {
        "batch_size": 256,
        "rate": None,
        "epochs": 60,
        "max_steps": None,
        "evaluations": 60,
        "plan_only": False,
    }
    assert mnist["schedule"] != digits["schedule"]
    assert composed("dataset=bank_fraud")["optimizer"]["weight_decay"] == 1e-4


@pytest.mark.parametrize(("scale", "model"), [("smoke", "mnist_cnn"), ("laptop", "mnist_cnn"), ("paper", "resnet50")])
def test_a_model_can_depend_on_the_scale(scale: str, model: str) -> None:
    assert name_of(composed("dataset=celeba", f"scale={scale}")["model"]) == model
    assert name_of(composed("dataset=celeba", f"scale={scale}", "model=logistic")["model"]) == "logistic"


def test_the_command_line_wins_over_what_the_dataset_brings() -> None:
    config = composed("dataset=unbalanced_mnist", "model=logistic", "schedule.batch_size=7")
    assert name_of(config["model"]) == "logistic"
    assert config["schedule"]["batch_size"] == 7
    assert name_of(composed("model=logistic", "dataset=unbalanced_mnist")["model"]) == "logistic"


def test_a_pair_is_tuned_and_the_command_line_wins() -> None:
    assert composed("dataset=celeba", "algorithm=dpsgd")["algorithm"]["clip_norm"] == 0.5
    assert composed("dataset=bank_fraud", "algorithm=dpsgd")["algorithm"]["clip_norm"] == 1.0
    chosen = composed("dataset=celeba", "algorithm=dpsgd", "algorithm.clip_norm=3")
    assert chosen["algorithm"]["clip_norm"] == 3.0


@pytest.mark.parametrize("overrides", [(), ("algorithm=idp_sgd", "owners=digits")])
def test_a_composed_configuration_is_the_resolved_one(overrides: tuple[str, ...]) -> None:
    """Also where the budgets are the owners' and the run's own says nothing."""
    cfg = compose(["scale=paper", *overrides])
    assert resolve(cfg) == resolve(OmegaConf.create(OmegaConf.to_container(cfg, resolve=True)))  # type: ignore[arg-type]
    assert cfg.schedule.evaluations == cfg.schedule.epochs


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["foo=1"], "unknown key 'foo': choose from algorithm, alone, data, data_digest, dataset,"),
        (["+foo=1"], "unknown key 'foo': choose from algorithm, alone, data, data_digest, dataset,"),
        (["sed=1"], "unknown key 'sed': did you mean seed?"),
        (["lr=1"], "unknown key 'lr': did you mean optimizer.lr?"),
        (["schedule.batchsize=3"], "unknown key 'schedule.batchsize': did you mean schedule.batch_size?"),
        (["+schedule.batchsize=3"], "unknown key 'schedule.batchsize': did you mean schedule.batch_size?"),
        (["algorithm.clip_nrom=3"], "unknown key 'algorithm.clip_nrom': did you mean algorithm.clip_norm?"),
        (["+algorithm.clip_nrom=3"], "unknown key 'algorithm.clip_nrom': did you mean algorithm.clip_norm?"),
        (["algorithm=dpsgd", "algorithm.group_lr=3"], "unknown key 'algorithm.group_lr'"),
        (["schedule=3"], "schedule=3 replaces several keys: set schedule.KEY=VALUE"),
        (["dataset=digit"], "unknown dataset 'digit': did you mean digits?"),
        (["privacy=eps3"], "unknown privacy 'eps3': set privacy.epsilon=3 (choose from eps1,"),
        (["privacy=eps0_5"], "unknown privacy 'eps0_5': set privacy.epsilon=0.5 (choose"),
        (["privacy=2.5"], "unknown privacy '2.5': set privacy.epsilon=2.5 (choose"),
        (["privacy=epsilon8"], "unknown privacy 'epsilon8': did you mean eps8?"),
        (["model=3"], "unknown model '3': choose from "),
        (["algorithm=dpsdg"], "unknown algorithm 'dpsdg': did you mean dpsgd?"),
        (["experiment=asc/tabel1"], "unknown experiment 'asc/tabel1': did you mean asc/table1?"),
        (["hydra/launcher=slurmm"], "unknown hydra/launcher 'slurmm': did you mean slurm?"),
        (["dataset=[digits,celeba]"], "dataset=[digits,celeba] chooses nothing: choose one of adult,"),
        (["model=null"], "model=null chooses nothing: choose one of bert_base, char_lstm,"),
        (["~model"], "'~model' takes model away, and a run needs every key: set model=NAME, or model=null"),
        (["~seed"], "'~seed' takes seed away, and a run needs every key: set seed=VALUE, or seed=null"),
        (["~optimizer.lr"], "'~optimizer.lr' takes optimizer.lr away"),
        (["+experiment.seeds=2"], "'+experiment.seeds=2' sets a key of experiment, and none is chosen: choose exp"),
        (["seed=${oc.env:SEED}"], "seed takes its value from the environment, which would be stored with every run"),
        (["data.root='${oc.env:HOME}/data'"], "data.root takes its value from the environment"),
        (["model._target_=rawls.algorithms.asc.Asc"], "model._target_=rawls.algorithms.asc.Asc is no model, which"),
        (["model._target_=antigravity.Asc"], "model._target_=antigravity.Asc names a module that is not ours: if you "),
        (["recipe=digit"], "unknown recipe 'digit': did you mean digits?"),
        (["dataset=digits,celeba"], "'dataset=digits,celeba' is a sweep: add -m"),
        (["seed=range(0,3)"], "'seed=range(0,3)' is a sweep: add -m"),
        (["seed"], "cannot read 'seed': write KEY=VALUE"),
        (["a=["], "cannot read 'a=[': write KEY=VALUE"),
        (["seed=1.5"], "seed=1.5 must be an integer"),
        (["seed=-1"], "seed=-1 must be at least 0"),
        (["schedule.epochs=many"], "schedule.epochs=many must be an integer"),
        (["schedule.batch_size=0"], "schedule.batch_size=0 must be at least 1"),
        (["physical_batch=0"], "physical_batch=0 must be at least 1"),
        (["schedule.max_steps=0"], "schedule.max_steps=0 must be at least 1"),
        (["schedule.plan_only=perhaps"], "schedule.plan_only=perhaps must be true or false"),
        (["schedule.epochs=???"], "schedule.epochs has no value: set schedule.epochs=VALUE"),
        (["schedule.epochs=${foo}"], "schedule.epochs: Interpolation key 'foo' not found"),
        (["privacy.epsilon=0"], "privacy.epsilon=0.0 must be at least 1e-09 and at most 1e+06"),
        (["privacy.epsilon=-2"], "privacy.epsilon=-2.0 must be at least 1e-09 and at most 1e+06"),
        (["privacy.epsilon=nan"], "privacy.epsilon=nan must be a finite number at least 1e-09 and at most 1e+06"),
        (["privacy.epsilon=null"], "asc is private: set privacy.epsilon, or privacy.noise_multiplier, to a number"),
        (["privacy=none", "algorithm=dpsgd"], "dpsgd is private: set privacy.epsilon, or privacy.noise_multiplier,"),
        (
            ["privacy.noise_multiplier=2"],
            "privacy.epsilon=8.0 and privacy.noise_multiplier=2.0 are two budgets",
        ),
        (["privacy=none", "privacy.noise_multiplier=0"], "privacy.noise_multiplier=0.0 must be at least 1e-09"),
        (["privacy.delta=1"], "privacy.delta=1.0 must be above 0 and below 1 or null"),
        (["privacy.accountant=gdp"], "privacy.accountant=gdp must be one of rdp, pld, prv"),
        (["privacy.search=opcus"], "privacy.search=opcus must be one of tight, opacus"),
        (["optimizer.lr=0"], "optimizer.lr=0.0 must be at least 1e-09 and at most 1e+06"),
        (["optimizer.momentum=1"], "optimizer.momentum=1.0 must be at least 0 and below 1"),
        (["optimizer.weight_decay=-1"], "optimizer.weight_decay=-1.0 must be at least 0"),
        (["algorithm.clip_norm=x"], "algorithm.clip_norm=x must be a number"),
        (["dataset.max_examples=0"], "dataset.max_examples=0 must be at least 1"),
        (["tracking.mode=maybe"], "tracking.mode=maybe must be one of offline, online, off"),
        (["device=gpu"], "device=gpu must be auto, cpu, cuda or cuda:N"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(overrides: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compose(overrides)
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Open:
    """A method without a budget."""

    private: ClassVar[bool] = False
    clip_norm: float = 1.0
    sampling: str = "epochs"


def test_an_open_method_is_one_run_whatever_budget_its_sweep_has() -> None:
    chosen = ["algorithm=dpsgd", f"algorithm._target_={__name__}.Open"]
    budgets = [
        *("privacy=none", "privacy=eps1", "privacy=eps8", "privacy.delta=1e-6", "privacy.accountant=pld"),
        *("privacy.search=opacus", "privacy.neighbouring=add_remove", "privacy.noise_multiplier=2"),
    ]
    runs = [resolve(compose([*chosen, budget])) for budget in budgets]
    assert {run_id(config) for config in runs} == {run_id(runs[0])}
    assert all(config == Composer()((*chosen, budget)) for config, budget in zip(runs, budgets, strict=True))
    assert {runs[1]["privacy"][key] for key in ("epsilon", "delta", "noise_multiplier")} == {None}
    assert label_of(runs[0]) == "test_compose on digits, open, seed 0"
    assert run_id(resolve(compose([*chosen, "privacy.secure=true"]))) != run_id(runs[0])


def test_a_noise_may_be_given_instead_of_an_epsilon() -> None:
    config = resolve(compose(["privacy=none", "privacy.noise_multiplier=2"]))
    assert (config["privacy"]["epsilon"], config["privacy"]["noise_multiplier"]) == (None, 2.0)
    assert "epsilon" not in hashed(config)["privacy"] and "noise_multiplier" not in hashed(composed())["privacy"]
    assert label_of(config) == "asc on digits, noise 2, seed 0"
    assert resolve(compose(["privacy.epsilon=null", "privacy.noise_multiplier=2"])) == config


def test_an_id_is_16_hexadecimal_digits_of_the_hashed_part() -> None:
    config = composed()
    assert len(run_id(config)) == 16 and int(run_id(config), 16) >= 0
    assert run_id(compose()) == run_id(config)
    backwards = {key: config[key] for key in reversed(config)}
    assert run_id(backwards) == run_id(config)


@pytest.mark.parametrize(
    "override",
    [
        "device=cpu",
        "engine=opacus_hooks",
        "physical_batch=4",
        "alone=true",
        "tracking=online",
        "tracking.project=other",
        "results.root=elsewhere",
        "data.root=elsewhere",
        "experiment=asc/table1",
        "scale.name=other",
        "scale.seeds=7",
    ],
)
def test_an_id_does_not_depend_on_where_and_why_a_run_is_made(override: str) -> None:
    assert override.partition("=")[0].partition(".")[0] in NOT_HASHED
    assert run_id(compose([override])) == run_id(compose())


@pytest.mark.parametrize(
    "override",
    [
        "seed=1",
        "dataset=unbalanced_mnist",
        "dataset.max_examples=100",
        "model=logistic",
        "algorithm=dpsgd",
        "algorithm.clip_norm=2",
        "privacy=eps1",
        "privacy.delta=1e-6",
        "privacy.secure=true",
        "optimizer.lr=0.123",
        "schedule.batch_size=3",
        "schedule.max_steps=null",
        "schedule.plan_only=true",
        "probe.sampling_variance_every=10",
        "probe.group_gradients_every=10",
        "probe.group_gradients_rows=10",
    ],
)
def test_an_id_depends_on_everything_else(override: str) -> None:
    assert run_id(compose([override])) != run_id(compose())


def test_numbers_are_the_same_however_they_are_typed() -> None:
    assert run_id(compose(["optimizer.lr=1", "algorithm.clip_norm=2"])) == run_id(
        compose(["optimizer.lr=1.0", "algorithm.clip_norm=2.0"])
    )


def test_an_option_that_is_off_by_default_can_be_added_without_changing_ids() -> None:
    config = composed()
    later = {**config, "owners": None, "privacy": {**config["privacy"], "per_owner": None}}
    assert run_id(later) == run_id(config)
    assert run_id({**later, "owners": 3}) != run_id(config)
    assert "delta" not in hashed(config)["privacy"]


def test_the_groups_and_their_choices_are_known() -> None:
    assert {"dataset", "algorithm", "experiment", "hydra/launcher"} <= set(choices())
    assert {"digits", "unbalanced_mnist"} <= set(choices("dataset"))
    assert "asc/table1" in choices("experiment")


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("seed=3",),
        ("dataset=unbalanced_mnist", "algorithm=azb", "seed=3", "optimizer.lr=1e-3"),
        ("scale=paper", "schedule.epochs=9"),
        ("scale=paper", "schedule.evaluations=9"),
        ("schedule.max_steps=null", "privacy.delta=null", "dataset.max_examples=40"),
        ("privacy.epsilon=3", "privacy=eps8"),
        ("+optimizer.momentum=0.5",),
        ("++optimizer.momentum=0.5", "optimizer.lr=2"),
        ("tracking={mode:off}",),
        ("model=logistic", "results.root=a/b c"),
        ("schedule.evaluations=${schedule.batch_size}",),
        ("experiment=asc/table1", "experiment.seeds=2"),
        ("algorithm._target_=rawls.algorithms.dpsgd.DpSgd", "~algorithm.group_lr"),
        ("optimizer.lr=1", "optimizer.lr=2"),
        ("scale=paper", "schedule.evaluations=4", "schedule.epochs=9"),
        ("schedule.evaluations=${schedule.epochs}", "schedule.epochs=9", "seed=2"),
        ("dataset=unbalanced_mnist", "schedule.plan_only=true", "tracking.entity='12'", "seed=1_000"),
        ("optimizer.lr='0.5'", "privacy.secure=yes", "tracking.project=null"),
        ("algorithm=azb", "algorithm.clip_norm=3", "algorithm.group_lr=1e-1"),
    ],
)
def test_the_fast_composer_equals_a_plain_composition(overrides: tuple[str, ...]) -> None:
    composer = Composer()
    composer(("dataset=unbalanced_mnist", "algorithm=azb", "seed=1"))
    for _ in range(2):
        assert outcome(lambda: composer(overrides)) == outcome(lambda: composed(*overrides))


@pytest.mark.parametrize(
    "others",
    [
        ("dataset=unbalanced_mnist", "algorithm=azb"),
        ("schedule.epochs=${seed}",),
        ("+optimizer.momentum=0.5", "optimizer.lr=2"),
        ("++seed=4",),
        ("seed=4",),
        ("owners=mixed", "algorithm=ino_sgd", "dataset=mnist"),
    ],
)
def test_a_seed_after_another_is_composed_as_if_it_were_the_first(others: tuple[str, ...]) -> None:
    composer = Composer()
    for seed in (3, 0, 12):
        for overrides in ((f"seed={seed}", *others), (*others, f"seed={seed}")):
            assert outcome(partial(composer, overrides)) == outcome(partial(composed, *overrides))


def test_what_follows_from_the_seed_in_a_file_of_ones_own_follows_from_each(tmp_path: Path) -> None:
    (tmp_path / "optimizer").mkdir()
    (tmp_path / "optimizer" / "own.yaml").write_text("defaults: [sgd]\nmomentum: 0.${seed}\n")
    look_also_in([f"--config-dir={tmp_path}"])
    try:
        composer = Composer()
        found = [composer(("optimizer=own", f"seed={seed}"))["optimizer"]["momentum"] for seed in (1, 2, 3)]
    finally:
        look_also_in([])
    assert found == [0.1, 0.2, 0.3]


@pytest.mark.parametrize(
    "overrides", [("optimizer.lrr=1",), ("seed=x", "dataset=celeba"), ("model=foo",), ("seed=1,2",)]
)
def test_the_fast_composer_fails_as_a_plain_composition_does(overrides: tuple[str, ...]) -> None:
    plain = outcome(lambda: composed(*overrides))
    assert isinstance(plain, str)
    assert outcome(lambda: Composer()(overrides)) == plain


def outcome(call: Callable[[], Any]) -> Any:
    """What it returns, or the sentence it raises."""
    try:
        return call()
    except ConfigError as error:
        return str(error)


def test_what_a_composer_starts_from_is_part_of_every_configuration() -> None:
    def epsilons(base: Sequence[str]) -> list[float]:
        return [Composer(base)((f"seed={seed}",))["privacy"]["epsilon"] for seed in range(2)]

    assert epsilons(["privacy=eps1"]) == [1.0, 1.0]
    assert epsilons([]) == [8.0, 8.0]


@pytest.mark.parametrize(
    "words",
    [
        ["seed=1", "++seed=2"],
        ["++seed=2", "seed=1"],
        ["probe.sampling_variance_every=16", "++probe.sampling_variance_every=2"],
        ["algorithm.clip_norm=3", "++algorithm.clip_norm=2", "algorithm=dpsgd"],
    ],
)
def test_a_key_given_twice_takes_the_last_in_a_sweep_too(words: list[str]) -> None:
    assert Composer()(words) == resolve(compose(words))
