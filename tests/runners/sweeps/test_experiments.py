import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rawls.runners.config.compose import choices, compose, look_also_in, resolve, run_id
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import name_of
from rawls.runners.store.checksums import unsealed
from rawls.runners.sweeps import experiments
from rawls.runners.sweeps.experiments import SweepPlan, manifest_of, plan, write_manifest
from tests.datasets.own.made import persons, write

METHODS = ["ASC", "DPSGD", "aZB", "aZB-prop", "aZB-weak"]


def ids(plan: SweepPlan) -> list[str]:
    return [run.run_id for run in plan.runs]


def cells(plan: SweepPlan) -> Counter[tuple[str, str]]:
    """How many runs there are of each label and dataset."""
    return Counter((run.label, name_of(run.config["dataset"])) for run in plan.runs)


def test_table1_is_five_methods_on_three_datasets_with_five_seeds() -> None:
    asked = plan(["experiment=asc/table1", "scale=paper"])
    datasets = ["unbalanced_mnist", "celeba", "bank_fraud"]
    assert cells(asked) == {(method, dataset): 5 for method in METHODS for dataset in datasets}
    assert (asked.target, asked.variant) == ("asc/table1", "paper")
    assert asked.command == "rawls reproduce asc/table1 scale=paper"
    assert {run.config["privacy"]["epsilon"] for run in asked.runs} == {1.0}


@pytest.mark.parametrize(("scale", "seeds"), [("smoke", 2), ("laptop", 3), ("paper", 10)])
def test_a_scale_caps_the_seeds(scale: str, seeds: int) -> None:
    asked = plan(["experiment=asc/fig2", f"scale={scale}"])
    assert cells(asked) == {(method, "unbalanced_mnist"): seeds for method in METHODS if method != "aZB"}
    assert [run.config["seed"] for run in asked.runs[:seeds]] == list(range(seeds))


def test_a_scale_never_asks_for_more_seeds_than_the_experiment() -> None:
    assert {run.config["seed"] for run in plan(["experiment=asc/fig2", "experiment.seeds=1"]).runs} == {0}


def test_seeds_on_the_command_line_are_those_and_no_others() -> None:
    assert {run.config["seed"] for run in plan(["experiment=asc/fig2", "seed=4,7"]).runs} == {4, 7}


def test_a_multiple_is_of_what_the_others_come_to() -> None:
    few = ["experiment=choose", "seed=0", "algorithm=asc"]
    for dataset, others in (("digits", []), ("adult", []), ("digits", ["optimizer=adam"])):
        configured = compose([f"dataset={dataset}", "algorithm=asc", *others])
        rates = {run.config["optimizer"]["lr"] for run in plan([*few, f"dataset={dataset}", *others]).runs}
        steps = {run.config["algorithm"]["group_lr"] for run in plan([*few, f"dataset={dataset}", *others]).runs}
        assert sorted(rates) == pytest.approx([configured["optimizer"]["lr"] * factor for factor in (0.3, 1, 3)])
        assert sorted(steps) == pytest.approx([configured["algorithm"]["group_lr"] * factor for factor in (0.3, 1)])
    chosen = plan([*few, "dataset=digits", "optimizer.lr=0.7"]).runs
    assert {run.config["optimizer"]["lr"] for run in chosen} == {0.7}, "the command line wins"
    with pytest.raises(ConfigError, match="algorithm.group_lr=x2 is a multiple of algorithm.group_lr, which is no key"):
        plan(["experiment=choose", "dataset=digits", "seed=0", "algorithm=dpsgd", "algorithm.group_lr=x2"])
    assert all("x" not in text.partition("=")[2] for run in chosen for text in run.overrides if "_lr" in text)


def test_whoever_chooses_has_rows_to_choose_by() -> None:
    few = ["experiment=choose", "seed=0", "algorithm=dpsgd", "optimizer.lr=0.1"]
    assert plan([*few, "dataset=adult"]).runs[0].config["dataset"]["validation"] == 0.1
    assert plan([*few, "dataset=adult", "dataset.validation=0.2"]).runs[0].config["dataset"]["validation"] == 0.2
    assert "validation" not in plan([*few, "dataset=digits"]).runs[0].config["dataset"]
    assert plan(["experiment=fdpg/table1", "dataset=adult"]).runs[0].config["dataset"]["validation"] == 0


def test_targets_that_show_the_same_runs_share_them() -> None:
    demo = ["dataset=digits", "privacy=eps8"]
    table, figure = plan(["experiment=asc/table1", *demo]), plan(["experiment=asc/fig2", *demo])
    assert set(ids(figure)) < set(ids(table))
    paper = plan(["experiment=asc/table1", "scale=paper"])
    for number in (4, 5):
        assert set(ids(plan([f"experiment=asc/fig{number}", "scale=paper"]))) < set(ids(paper))


def test_the_calibration_trains_nothing() -> None:
    asked = plan(["experiment=asc/calibration"])
    assert all(run.config["schedule"]["plan_only"] for run in asked.runs)
    assert {run.config["scale"]["name"] for run in asked.runs} == {"paper"}
    assert {run.config["schedule"]["max_steps"] for run in asked.runs} == {None}
    reached = {
        (name_of(run.config["dataset"]), run.label, run.coordinates["batch_size"], run.coordinates["search"])
        for run in asked.runs
    }
    small = {("unbalanced_mnist", 25), ("celeba", 36)}
    large = {("unbalanced_mnist", 256), ("celeba", 256), ("bank_fraud", 1000)}
    assert reached == {
        (dataset, method, batch_size, search)
        for search in ("opacus", "tight")
        for method in METHODS
        for dataset, batch_size in large | (small if method in ("aZB", "aZB-weak") else set())
    }


def test_the_sampling_variance_is_probed_at_three_batch_sizes_on_all_rows() -> None:
    asked = plan(["experiment=asc/fig3", "scale=smoke"])
    assert {run.coordinates["batch_size"] for run in asked.runs} == {128, 256, 474}
    assert {run.config["probe"]["sampling_variance_every"] for run in asked.runs} == {10}
    assert {run.config["dataset"]["max_examples"] for run in asked.runs} == {None}


def test_the_tuning_names_what_it_varies_and_holds_the_runs_of_table1() -> None:
    asked = plan(["experiment=asc/tuning", "scale=paper"])
    varied = {
        "DPSGD": {"lr", "momentum"},
        **dict.fromkeys(["ASC", "ASC (printed)"], {"lr", "momentum", "group_lr", "weights"}),
        **dict.fromkeys(["aZB", "aZB-prop"], {"lr", "group_lr"}),
        "aZB-weak": {"lr", "momentum", "group_lr"},
    }
    standard = {"epsilon", "search", "accountant", "batch_size"}
    assert {(run.label, *sorted(run.coordinates.keys() - standard)) for run in asked.runs} == {
        (label, *sorted(names)) for label, names in varied.items()
    }
    points = [(run.label, *run.coordinates.values()) for run in asked.runs]
    assert len(set(points)) == len(points) == 28
    table = plan(["experiment=asc/table1", "scale=paper", "dataset=unbalanced_mnist", "seed=0"])
    assert {(run.label, run.run_id) for run in table.runs} < {(run.label, run.run_id) for run in asked.runs}


def test_what_is_not_the_experiments_own_is_named_and_what_selects_from_it_is_not() -> None:
    own = ["dataset=unbalanced_mnist", "algorithm=asc,dpsgd", "seed=0,1", "privacy=eps1", "device=cpu", "scale=paper"]
    assert plan(["experiment=asc/table1", *own]).changed == ()
    assert plan(["experiment=asc/fig3", "schedule.batch_size=256"]).changed == ()
    others = ["schedule.max_steps=5", "privacy=eps1,eps8", "optimizer.lr=0.5"]
    changed = plan(["experiment=asc/table1", "dataset=digits", *others])
    assert changed.changed == ("optimizer.lr=0.5", "privacy=eps8", "schedule.max_steps=5")
    assert manifest_of(changed)["changed"] == list(changed.changed)
    assert plan(["optimizer.lr=0.5"]).changed == ()


def test_labels_of_one_configuration_are_all_kept(tmp_path: Path) -> None:
    """An ablation that holds its own baseline."""
    blocks = "[{label: base, overrides: {algorithm: dpsgd}}, {label: again, overrides: {algorithm: dpsgd}}]"
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "ablation.yaml").write_text(
        f"title: t\nseeds: 2\ncommon: {{dataset: digits}}\nblocks: {blocks}\ndraw: {{kind: accuracy_table}}\n"
    )
    try:
        look_also_in(["--config-dir", str(tmp_path)])
        runs = plan(["experiment=ablation"]).runs
    finally:
        look_also_in([])
    assert [(run.label, run.config["seed"]) for run in runs] == [
        (label, s) for label in ("base", "again") for s in (0, 1)
    ]
    assert len({run.run_id for run in runs}) == 2


def test_a_label_may_stand_for_several_methods() -> None:
    asked = plan(["experiment=fdpg/calibration", "dataset=adult"])
    assert [run.label for run in asked.runs] == ["DP-SGD", "dpsgd_f", "dpsgd_global_adapt", "fdpg"]


@pytest.mark.parametrize("empty", ["seed=range(0,0)"])
def test_a_sweep_without_runs_is_refused(empty: str) -> None:
    with pytest.raises(ConfigError, match="there are no runs: every axis needs a value"):
        plan(["experiment=asc/table1", empty])


@pytest.mark.parametrize("others", [[], ["scale=paper"], ["algorithm=asc,dpsgd"]])
def test_a_target_without_blocks_is_computed_and_needs_no_run(others: list[str], tmp_path: Path) -> None:
    asked = plan(["experiment=fdpg/fig5", f"results.root={tmp_path}", *others])
    assert (asked.runs, asked.root, asked.changed) == ((), tmp_path, ())
    path = write_manifest(asked, asked.root)
    assert path.parent.parent == tmp_path / "targets" / "fdpg" / "fig5"
    assert path.parent.name.startswith("computed")
    assert manifest_of(asked)["runs"] == []


def test_figures_share_their_runs() -> None:
    """What two targets ask for alike is trained once, whether it is to be timed or not."""
    names = ("fig1", "fig2", "fig4", "fig6", "fig7", "fig8", "table2_celeba")
    ids = {name: set(ids_of(f"fdpg/{name}")) for name in names}
    assert len(ids["fig2"] & ids["fig4"]) == 1  # DP-SGD on MNIST
    assert len(ids["fig2"] & ids["fig8"]) == 1  # and on CelebA
    assert len(ids["fig1"] & ids["fig6"]) == 2  # DP-SGD and AUTO-S
    assert len(ids["fig1"] & ids["fig7"]) == 1  # without privacy
    assert len(ids["fig1"] & ids["table2_celeba"]) == 4  # all but the other thresholds
    assert len(ids["fig6"]) == 10 and ids["fig6"] < ids["table2_celeba"]


def ids_of(target: str) -> list[str]:
    return ids(plan([f"experiment={target}", "seed=0"]))


def test_the_order_of_the_command_line_is_no_matter() -> None:
    texts = ["algorithm=asc", "algorithm.weights=integer", "algorithm.group_lr=0.2"]
    one, other = (plan(["experiment=asc/tuning", *order]) for order in (texts, texts[::-1]))
    assert [(run.label, run.run_id) for run in one.runs] == [(run.label, run.run_id) for run in other.runs]


def test_a_dataset_on_the_command_line_is_the_only_column() -> None:
    one = plan(["experiment=asc/table1", "scale=paper", "dataset=unbalanced_mnist"])
    assert cells(one) == {(method, "unbalanced_mnist"): 5 for method in METHODS}
    assert one.variant == "unbalanced_mnist-paper"
    assert set(ids(one)) < set(ids(plan(["experiment=asc/table1", "scale=paper"])))
    assert {dataset for _, dataset in cells(plan(["experiment=asc/table1", "dataset=digits"]))} == {"digits"}


def test_an_algorithm_on_the_command_line_selects_its_blocks_and_keeps_their_labels() -> None:
    asked = plan(["experiment=asc/table1", "dataset=digits", "algorithm=azb_prop,asc"])
    assert cells(asked) == {("ASC", "digits"): 3, ("aZB-prop", "digits"): 3}
    assert [run.label for run in asked.runs[::3]] == ["ASC", "aZB-prop"]


def test_a_value_on_the_command_line_wins_over_every_block() -> None:
    asked = plan(["experiment=asc/fig3", "privacy.epsilon=5", "schedule.batch_size=64"])
    assert {(run.config["privacy"]["epsilon"], run.coordinates["batch_size"]) for run in asked.runs} == {(5.0, 64)}
    assert len(asked.runs) == 4 * 3


def test_where_blocks_differ_in_a_value_naming_one_selects() -> None:
    asked = plan(["experiment=asc/calibration", "privacy.search=opacus", "algorithm=azb", "schedule.batch_size=25"])
    assert cells(asked) == {("aZB", "unbalanced_mnist"): 1}


def small(own: list[dict[str, Any]], common: dict[str, Any] | None = None) -> dict[str, Any]:
    blocks = [{"label": f"block {index}", "overrides": overrides} for index, overrides in enumerate(own)]
    return {"common": common or {}, "blocks": blocks}


def grids(experiment: dict[str, Any], *arguments: str) -> list[tuple[str | None, list[str]]]:
    axes = {
        key: [f"{key}={value}" for value in text.split(",")] for key, _, text in (a.partition("=") for a in arguments)
    }
    return [(label, sorted(sum(grid.values(), []))) for label, grid in experiments._grids(experiment, axes)]


def test_an_algorithm_no_block_has_joins_under_its_own_name_with_what_is_common() -> None:
    experiment = small([{"algorithm": "asc", "optimizer.lr": 2}, {"algorithm": "dpsgd"}], {"privacy": "eps1"})
    assert grids(experiment, "seed=3", "algorithm=mine,asc") == [
        ("block 0", ["algorithm=asc", "optimizer.lr=2", "privacy=eps1", "seed=3"]),
        ("mine", ["algorithm=mine", "privacy=eps1", "seed=3"]),
    ]


def test_another_value_that_no_block_has_takes_the_place_of_all() -> None:
    experiment = small([{"a": [1, 2], "b": 1}, {"a": 2}, {"b": 3}])
    assert grids(experiment, "a=9") == [
        ("block 0", ["a=9", "b=1"]),
        ("block 1", ["a=9"]),
        ("block 2", ["a=9", "b=3"]),
    ]
    assert grids(experiment, "a=1") == [("block 0", ["a=1", "b=1"]), ("block 2", ["a=1", "b=3"])]
    assert grids(experiment, "a=2,9") == [
        ("block 0", ["a=2", "a=9", "b=1"]),
        ("block 1", ["a=2", "a=9"]),
        ("block 2", ["a=2", "a=9", "b=3"]),
    ]


def test_a_plain_grid_is_a_product() -> None:
    asked = plan(["algorithm=asc,dpsgd", "seed=range(0,3)", "optimizer.lr=0.1"])
    assert asked.target is None and asked.experiment is None
    points = [(name_of(run.config["algorithm"]), run.config["seed"]) for run in asked.runs]
    assert points == [(algorithm, seed) for algorithm in ("asc", "dpsgd") for seed in range(3)]
    assert {run.label for run in asked.runs} == {"asc", "dpsgd"}
    assert asked.command == "rawls train -m algorithm=asc,dpsgd 'seed=range(0,3)' optimizer.lr=0.1"


def test_a_group_can_be_globbed() -> None:
    assert [run.label for run in plan(["algorithm=glob(azb*)"]).runs] == ["azb", "azb_prop", "azb_weak"]


def test_runs_that_are_the_same_are_planned_once() -> None:
    assert len(plan(["optimizer.lr=1,1.0", "results.root=results"]).runs) == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["experiment=asc/tabel1"], "unknown experiment 'asc/tabel1': did you mean asc/table1?"),
        (["experiment=asc/table1", "algorithm=azbb"], "unknown algorithm 'azbb': did you mean azb?"),
        (["optimizer.lr=interval(0,1)"], "'optimizer.lr=interval(0,1)' is no grid: list the values"),
        (["algorithm=asc,dpsgd", "algorithm.group_lr=1"], "unknown key 'algorithm.group_lr'"),
        (["experiment=asc/fig1,asc/fig2"], "experiment=asc/fig1, experiment=asc/fig2: one at a time"),
        (["seed=,"], "cannot read 'seed=,': write KEY=VALUE"),
        (["experiment=asc/table1", "experiment.seeds=0"], "experiment.seeds=0 must be at least 1"),
    ],
)
def test_what_cannot_be_planned_is_said_in_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        plan(arguments)
    assert str(caught.value).startswith(sentence)


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-9, 9)
        | st.floats(-1, 1)
        | st.text("ab 0,'\\${}[]()=:", max_size=6)
        | st.sampled_from(["null", "NaN", "1e3", "a/b"]),
        lambda inner: st.lists(inner, min_size=1, max_size=3),
        max_leaves=4,
    ).filter(lambda value: value != "")
)
def test_a_value_of_a_block_is_typed_as_hydra_reads_it(value: Any) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    read = OverridesParser.create().parse_override(f"key={experiments.text_of(value)}").value()
    assert OmegaConf.to_container(OmegaConf.create([read]), resolve=False) == [value]


def test_planning_gives_what_a_plain_composition_gives() -> None:
    for target in choices("experiment"):
        for run in plan([f"experiment={target}", "scale=paper"]).runs[::29]:
            plain = resolve(compose(run.overrides))
            assert run.config == plain
            assert run.run_id == run_id(plain)


def test_the_variant_names_what_was_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table = write(Path("persons.csv"), persons())

    def variant(*arguments: str) -> str:
        return plan(["experiment=asc/fig2", *arguments]).variant

    assert variant() == "laptop"
    assert variant("results.root=x", "device=cpu", "tracking=off") == "laptop"
    assert variant("scale=smoke", "dataset=digits", "privacy=eps8") == "digits-smoke-privacy=eps8"
    assert variant("optimizer.lr=1,2", "experiment.seeds=1") == "laptop-seeds=1-lr=1+2"
    assert variant("dataset=table", f"dataset.path={table}", "dataset.label=paid", "dataset.group=sex") == (
        f"table-laptop-group=sex-label=paid-path={str(table).replace('/', '_')}"
    ), "two files of one's own are two drawings"
    assert variant("+experiment.draw.epoch=best_valid_wga") == "laptop-epoch=best_valid_wga"
    long = [f"data.root={'x' * 200}", "privacy.epsilon=" + ",".join(f"{i / 7:.9f}" for i in range(1, 14))]
    assert len(variant(*long, "algorithm=asc", "seed=0")) == experiments.MAX_NAME
    assert re.fullmatch(r"[\w.+=-]+", variant("data.root=/a b"))


def test_a_drawing_that_is_asked_for_otherwise_is_said_to_be_changed() -> None:
    asked = plan(["experiment=asc/fig2", "+experiment.draw.epoch=best_valid_wga"])
    assert asked.changed == ("+experiment.draw.epoch=best_valid_wga",)
    assert manifest_of(asked)["draw"]["epoch"] == "best_valid_wga"
    plain = plan(["experiment=asc/fig2"])
    assert plain.changed == () and [run.run_id for run in plain.runs] == [run.run_id for run in asked.runs]


def test_a_manifest_is_what_analysis_reads(tmp_path: Path) -> None:
    from rawls.analysis.read.manifest import Manifest

    asked = plan(["experiment=asc/fig1", "dataset=digits", "seed=0", "scale=smoke"])
    path = write_manifest(asked, tmp_path)
    assert path == tmp_path / "targets/asc/fig1/digits-smoke-seed=0/manifest.json"
    assert list(path.parent.iterdir()) == [path]
    written = unsealed(json.loads(path.read_text()))
    assert written == manifest_of(asked)
    assert written["runs"][0] == {
        "run_id": asked.runs[0].run_id,
        "label": "ASC",
        "dataset": "digits",
        "algorithm": "asc",
        "seed": 0,
        "scale": "smoke",
        "coordinates": {"epsilon": 1.0, "search": "tight", "accountant": "rdp", "batch_size": 16},
    }
    assert [run["coordinates"]["epsilon"] for run in written["runs"][:4]] == [1.0, 1.33, 1.72, 2.12]
    manifest = Manifest.read(path)
    assert manifest.methods == METHODS
    assert manifest.command == "rawls reproduce asc/fig1 dataset=digits seed=0 scale=smoke"


def test_coordinates_leave_out_where_a_run_is_made() -> None:
    (run,) = plan(["schedule.epochs=3", "results.root=x", "device=cpu", "probe.sampling_variance_every=null"]).runs
    assert run.coordinates.keys() == {"epsilon", "search", "accountant", "batch_size", "epochs"}


def test_a_manifest_that_cannot_be_written_is_said_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    asked = plan(["experiment=asc/fig4", "algorithm=asc", "seed=0"])
    monkeypatch.setattr(Path, "write_text", refuse)
    with pytest.raises(ValueError, match=r"results\.root=.* can no longer be written"):
        write_manifest(asked, tmp_path)
