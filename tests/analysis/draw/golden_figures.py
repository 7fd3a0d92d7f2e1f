"""One figure of every kind, from small made-up runs: what tests/analysis/draw/test_golden_figures.py compares pictures
of.

tests/analysis/stores.py says how to draw the reference pictures anew; look at them before committing them.
"""

from pathlib import Path
from typing import Any

import numpy as np

from tests.analysis.draw.owner_runs import owner_figures
from tests.analysis.draw.robust_runs import robust_figure
from tests.analysis.stores import WEAK_EPSILON, entry, manifest, run_id, write_json, write_manifest, write_run

SEEDS = 3
GROUPS = ["digit 0", "digit 1", "digit 8"]
BUDGETS = (1.0, 1.33, 2.12)
BATCH_SIZES = (128, 256)
# label -> where the learning curve ends, in percent, and how fast it gets there
CURVES = {"asc": (60.0, 8.0), "dpsgd": (35.0, 12.0), "azb_prop": (12.0, 20.0), "azb_weak": (5.0, 30.0)}
# FDPG's: what its manifests call the methods, and on which data
FDPG = {
    name: name for name in ("SGD", "DP-SGD", "AUTO-S", "FDPG", "SGD (AUTO-S)", "FDPG (AUTO-S)", "DPSGD-Global-Adapt")
}
PARTS = {"": "Clipped", "AUTO-S": "Normalised"}
SEXES = ["male", "female"]


def figures(root: Path, *, shift: float = 0.0) -> dict[str, Path]:
    """Name -> manifest of each figure, with its runs.

    Args:
        shift: percentage points by which ASC does better.
    """
    return {
        "training_curve": _training_curve(root, shift, subplots=False),
        "training_curve_subplots": _training_curve(root, shift, subplots=True),
        "sampling_variance": _sampling_variance(root, shift),
        "budget_figure": _budget_figure(root, shift),
        "budget_figure_gaps": _gaps_by_budget(root, shift),
        "budget_figure_claimed": _by_claim(root, shift),
        "train_test_figure": _train_test(root, shift, by_epsilon=False),
        "train_test_figure_by_epsilon": _train_test(root, shift, by_epsilon=True),
        "group_figure": _group_figure(root, shift),
        "group_figure_probed": _probed(root, shift),
        "group_curve": _group_curve(root, shift),
        "time_figure": _time_figure(root, shift),
        "normalisation_error": _normalisation_error(root, shift),
        "stability_bounds": write_manifest(root, manifest("wysiwyg/fig2", [], kind="stability_bounds", delta=shift)),
        "robust_figure": robust_figure(root, 3 * shift),
        **owner_figures(root, shift),
    }


def _end(label: str, shift: float) -> float:
    return CURVES[label][0] + (shift if label == "asc" else 0.0)


def _training_curve(root: Path, shift: float, *, subplots: bool) -> Path:
    chance = np.random.default_rng(2)
    target = "asc/fig4" if subplots else "asc/fig2"
    runs = []
    for label, (_, epochs) in CURVES.items():
        for seed in range(SEEDS):
            run = run_id(target, label, seed)
            end = _end(label, shift) + chance.normal(0, 4)
            rows: list[dict[str, Any]] = [
                {"step": 10 * epoch, "epoch": float(epoch), "split": "valid",
                 "wga": max(0.0, end * (1 - np.exp(-epoch / epochs)) + chance.normal(0, 1)) / 100}
                for epoch in range(0, 61, 3)
            ]  # fmt: skip
            write_run(root, run, algorithm=label, seed=seed, history=rows)
            runs.append(entry(run, label=label, seed=seed))
    options = {"subplots": True} if subplots else {}
    return write_manifest(root, manifest(target, runs, kind="training_curve", **options))


def _sampling_variance(root: Path, shift: float) -> Path:
    chance = np.random.default_rng(3)
    runs = []
    for label in CURVES:
        for size in BATCH_SIZES:
            for seed in range(SEEDS):
                run = run_id("asc/fig3", label, size, seed)
                level = 10.0 ** (2 - _end(label, shift) / 20) / size
                rows = [
                    {
                        "step": step,
                        "kind": "sampling_variance",
                        "variance": level * float(np.exp(chance.normal(0, 0.3))),
                    }
                    for step in range(0, 600, 25)
                ]
                # Not the paper's scale, so that a stamp is in one of the pictures.
                write_run(root, run, algorithm=label, seed=seed, scale="laptop", history=rows)
                runs.append(entry(run, label=label, seed=seed, batch_size=size))
    return write_manifest(root, manifest("asc/fig3", runs, kind="sampling_variance"))


def _budget_figure(root: Path, shift: float) -> Path:
    chance = np.random.default_rng(4)
    runs = []
    for label in CURVES:
        for place, budget in enumerate(BUDGETS):
            for seed in range(SEEDS):
                run = run_id("asc/fig1", label, budget, seed)
                last = WEAK_EPSILON if label == "azb_weak" else budget
                plan = {"target_epsilon": budget, "epsilon_per_group": [budget, budget, last]}
                wga = max(0.0, _end(label, shift) + 4 * place + chance.normal(0, 2)) / 100
                write_run(root, run, algorithm=label, seed=seed, group_names=GROUPS, plan=plan, wga=wga, avg=wga + 0.2)
                runs.append(entry(run, label=label, seed=seed, epsilon=budget))
    content = manifest("asc/fig1", runs, kind="budget_figure", group="digit 8")
    return write_manifest(root, content)


def _fdpg(root: Path, figure: str, runs: list[dict[str, Any]], **draw: Any) -> Path:
    return write_manifest(root, manifest(f"fdpg/{figure}", runs, **{"methods": FDPG} | draw))


def _of_sexes(
    root: Path, figure: str, method: str, seed: int, accuracies: tuple[float, float], *, dataset: str = "adult",
    budget: float | None = None, **changes: Any,
) -> dict[str, Any]:  # fmt: skip
    """A run of two groups, with these accuracies in percent."""
    run = run_id(figure, dataset, method, budget, seed)
    plan = None if method.startswith("SGD") else {"target_epsilon": budget, "epsilon_per_group": [budget or 8.0] * 2}
    scores = {"accuracy": [value / 100 for value in accuracies], "loss": [1.0, 1.0], "count": [300, 100]}
    scores |= {"wga": min(accuracies) / 100, "avg": sum(accuracies) / 200}
    write_run(
        root, run, dataset=dataset, algorithm=method, seed=seed, group_names=SEXES, plan=plan, test=scores, valid=None,
        **changes,
    )  # fmt: skip
    return entry(run, label=method, seed=seed, dataset=dataset)


def _gaps_by_budget(root: Path, shift: float) -> Path:
    chance = np.random.default_rng(5)
    ends = {"DP-SGD": (88.0, 97.5), "FDPG": (94.0 + shift, 98.8), "DPSGD-Global-Adapt": (92.5, 98.5)}
    runs = []
    for seed in range(SEEDS):
        runs.append(_of_sexes(root, "fig7", "SGD", seed, (96.0, 99.1)))
        for method, (men, women) in ends.items():
            for budget in (1.0, 3.0, 5.0, 7.0, 9.0, 10.0):
                worse = 4 / budget + chance.normal(0, 0.2)
                runs.append(_of_sexes(root, "fig7", method, seed, (men - worse, women - worse / 4), budget=budget))
                runs[-1]["coordinates"]["epsilon"] = budget
    return _fdpg(root, "fig7", runs, kind="budget_figure", metrics=["total", "groups", "pi"])


def _by_claim(root: Path, shift: float) -> Path:
    """Each noise as Gaussian DP by the central limit theorem has it, and as it is proven; CelebA's as in WYSIWYG."""
    chance = np.random.default_rng(14)
    noises = {
        "DP-SGD": [(0.35, 19.31, 20.75), (0.4, 5.99, 10.78), (0.5, 1.67, 4.13), (1.0, 0.26, 0.6), (5.0, 0.034, 0.04)],
        "DP-IS-SGD": [(1.0, 11.21, 12.03), (2.0, 3.89, 4.19), (3.0, 2.37, 2.56), (5.0, 1.33, 1.44), (10.0, 0.62, 0.67)],
    }
    same: dict[str, Any] = {"dataset": "celeba_hair", "group_names": SEXES, "valid": None}
    runs = []
    for seed in range(SEEDS):
        for method, points in noises.items():
            for noise, claimed, proven in points:
                worst = (30 if method == "DP-SGD" else 75 + 4 * shift) - noise * 5 + chance.normal(0, 2)
                scores = {"accuracy": [worst / 100, 0.93], "loss": [0, 0], "count": [10, 30], "wga": worst / 100}
                claim = {"rule": "gdp_clt", "epsilon": claimed, "delta": 3e-6, "meaning": "an approximation"}
                plan = {"target_epsilon": None, "epsilon_per_group": [proven] * 2, "claim": claim}
                run = run_id("wysiwyg/fig4_celeba", method, noise, seed)
                write_run(root, run, algorithm=method, seed=seed, test=scores | {"avg": 0.8}, plan=plan, **same)
                runs.append(entry(run, label=method, seed=seed, dataset="celeba_hair", noise_multiplier=noise))
        scores = {"accuracy": [0.42, 0.97], "loss": [0, 0], "count": [10, 30], "wga": 0.42, "avg": 0.7}
        write_run(
            root, run_id("wysiwyg/fig4_celeba", "SGD", seed), algorithm="SGD", seed=seed, test=scores, plan=None, **same
        )
        runs.append(entry(run_id("wysiwyg/fig4_celeba", "SGD", seed), label="SGD", seed=seed, dataset="celeba_hair"))
    options = {"metrics": ["disparity", "total", "wga"], "axes": ["claimed", "proven"]}
    methods = {name: name for name in ("SGD", "DP-SGD", "DP-IS-SGD")}
    return write_manifest(root, manifest("wysiwyg/fig4_celeba", runs, kind="budget_figure", methods=methods, **options))


def _train_test(root: Path, shift: float, *, by_epsilon: bool) -> Path:
    """WYSIWYG's Fig. 1 and Fig. 3, with gaps and bounds: open runs overfit the smallest group, private ones do not."""
    chance = np.random.default_rng(15)
    target = "wysiwyg/fig3" if by_epsilon else "wysiwyg/fig1"
    ends: dict[tuple[str, float | None], tuple[float, float]] = {("SGD", None): (99.4, 41.7)}
    if by_epsilon:
        ends |= {("DP-SGD", eps): (5 + 9 * eps**0.5, 4 + (7 + shift) * eps**0.5) for eps in (0.6, 4.1, 10.8, 20.7)}
    else:
        ends |= {("IW-SGD", None): (99.4, 48.9), ("DP-SGD", 4.1): (40.6, 29.4), ("DP-IS-SGD", 4.2): (95.5, 85 + shift)}
    runs = []
    for seed in range(SEEDS):
        for (method, epsilon), (train, test) in ends.items():
            run = run_id(target, method, epsilon, seed)
            rows: list[dict[str, Any]] = []
            for place in (0, 1):
                wga = [(value + chance.normal(0, 1)) / 100 - (1 - place) * 0.2 for value in (train, test)]
                line: dict[str, Any] = {"step": 10 * place + 10, "kind": "gaps"}
                for part, own in zip(("train", "test"), wga, strict=True):
                    line |= {
                        f"{part}_wga": own, f"{part}_accuracy": [own, 0.95, 0.97], f"{part}_corrupted_wga": own - 0.1,
                        f"{part}_calibration_error": 0.01 if part == "train" else 0.05,
                    }  # fmt: skip
                running = {"step": 10 * place + 10, "kind": "running", "running_wga": wga[0] - 0.03}
                rows += [line, running, {"step": 10 * place + 10, "split": "valid", "wga": 0.6 - place / 10}]
            claim = {"rule": "gdp_clt", "epsilon": 0.4 * (epsilon or 0), "delta": 3e-6, "meaning": "an approximation"}
            plan = None
            if epsilon is not None:
                plan = {"target_epsilon": None, "epsilon_per_group": [epsilon], "claim": claim, "delta": 3e-6}
            write_run(root, run, algorithm=method, seed=seed, group_names=GROUPS, history=rows, plan=plan)
            runs.append(entry(run, label=method, seed=seed))
    options: dict[str, Any] = {"gaps": ["wga", "group", "calibration", "corruption"], "early": not by_epsilon}
    options["against"] = "epsilon" if by_epsilon else "methods"
    methods = {name: name for name in ("SGD", "IW-SGD", "DP-SGD", "DP-IS-SGD")}
    return write_manifest(root, manifest(target, runs, kind="train_test_figure", methods=methods, **options))


def _group_figure(root: Path, shift: float) -> Path:
    chance = np.random.default_rng(6)
    ends = {"SGD": (95.9, 99.1), "DP-SGD": (87.6, 97.5), "DPSGD-Global-Adapt": (93.8, 98.8)}
    ends |= {"SGD (AUTO-S)": (96.3, 99.3), "AUTO-S": (93.7 + shift, 98.8)}
    runs = [
        _of_sexes(root, "fig1", method, seed, (men + chance.normal(0, 0.2), women + chance.normal(0, 0.1)))
        for method, (men, women) in ends.items()
        for seed in range(SEEDS)
    ]
    return _fdpg(root, "fig1", runs, kind="group_figure", sections=PARTS)


def _probes(chance: np.random.Generator, variances: tuple[float, float], points: int) -> list[dict[str, Any]]:
    """A history of two groups whose variances end here."""
    return [
        {
            "step": 100 * point, "epoch": point / 2, "kind": "group_gradients", "gradient_norm": [1.0, 1.0],
            "loss": [0.4 + 0.1 * place + float(chance.uniform(0, 0.05)) for place in range(2)],
            "gradient_variance": [
                float(end * np.exp(2 - 2 * (point + 1) / points + chance.normal(0, 0.1))) for end in variances
            ],
        }
        for point in range(points)
    ]  # fmt: skip


def _probed(root: Path, shift: float) -> Path:
    chance = np.random.default_rng(7)
    runs = []
    for place, dataset in enumerate(("adult", "dutch", "unbalanced_mnist", "celeba_eyeglasses")):
        for method, level in {"SGD": 0.1, "DP-SGD": 2.0 + shift}.items():
            for seed in range(SEEDS):
                history = _probes(chance, (level * 10**place, level * 3 * 10**place), 2)
                runs.append(
                    _of_sexes(root, "fig2", method, seed, (90.0, 90.0), dataset=dataset, scale="smoke", history=history)
                )
    metrics = ["loss", "gradient_variance"]
    digits = {"unbalanced_mnist": {"class 2": "male", "class 8": "female"}}
    return _fdpg(root, "fig2", runs, kind="group_figure", metrics=metrics, groups=digits)


def _group_curve(root: Path, shift: float) -> Path:
    chance = np.random.default_rng(8)
    ends = {"DP-SGD": (20.0, 2.0), "FDPG": (6.0 + shift, 2.5), "AUTO-S": (4.0, 0.4), "FDPG (AUTO-S)": (1.5, 0.5)}
    runs = [
        _of_sexes(root, "fig8", method, seed, (90.0, 90.0), history=_probes(chance, variances, 20))
        for method, variances in ends.items()
        for seed in range(SEEDS)
    ]
    return _fdpg(root, "fig8", runs, kind="group_curve", sections=PARTS)


def _time_figure(root: Path, shift: float) -> Path:
    hours = {"DP-SGD": 1.0, "FDPG": 1.1 + shift, "DPSGD-Global-Adapt": 1.2, "AUTO-S": 3.0, "FDPG (AUTO-S)": 3.2}
    runs = [_of_sexes(root, "fig6", method, 0, (90.0, 90.0), seconds=3600 * time) for method, time in hours.items()]
    for run in runs:
        write_json(root / "runs" / run["run_id"] / "environment.json", {"fleet": 1, "device": "cpu"})
    return _fdpg(root, "fig6", runs, kind="time_figure", sections=PARTS)


def _normalisation_error(root: Path, shift: float) -> Path:
    return _fdpg(root, "fig5", [], kind="normalisation_error", stability=[0.01, 0.1 + shift, 1])
