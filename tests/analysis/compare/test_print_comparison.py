import json
from pathlib import Path
from typing import Any

import pytest

from rawls.analysis.compare.print_comparison import WIDTH, compare_text
from tests.analysis.compare.two_sides import DPSGD, sweep, write_configured
from tests.analysis.stores import write_unfinished

EXPECTED = """\
ASC: method ASC of asc/table1 default; 3 runs compared
DPSGD: method DPSGD of asc/table1 default; 3 runs compared
Paired by seed (0, 1, 2).

| What differs       | ASC  | DPSGD |
| ------------------ | ---- | ----- |
| algorithm          | asc  | dpsgd |
| algorithm.group_lr | 0.15 | –     |
| optimizer.lr       | 0.01 | 0.5   |

Unbalanced MNIST, target ε = 1

| Test       |         ASC |       DPSGD |   n | Difference | 95 % interval |     p | p exact | p Holm |
| ---------- | ----------: | ----------: | --: | ---------: | ------------: | ----: | ------: | -----: |
| WGA        |  58.0 ± 7.2 |  25.0 ± 5.0 |   3 |      +33.0 | [+5.0, +61.0] | 0.037 |   0.250 |  0.073 |
| AVG        |  84.0 ± 1.0 |  84.7 ± 0.6 |   3 |       −0.7 |  [−4.5, +3.1] | 0.529 |   0.750 |  0.529 |
| ε target   | 1.00 ± 0.00 | 1.00 ± 0.00 |   3 |       0.00 |  [0.00, 0.00] |     – |       – |      – |
| ε realised | 0.99 ± 0.00 | 0.99 ± 0.00 |   3 |       0.00 |  [0.00, 0.00] |     – |       – |      – |
| 0          |  70.0 ± 0.0 |  70.0 ± 0.0 |   3 |        0.0 |    [0.0, 0.0] |     – |   1.000 |      – |
| 1          |  60.0 ± 0.0 |  60.0 ± 0.0 |   3 |        0.0 |    [0.0, 0.0] |     – |   1.000 |      – |
| 8          |  50.0 ± 0.0 |  50.0 ± 0.0 |   3 |        0.0 |    [0.0, 0.0] |     – |   1.000 |      – |

Accuracy in percent, last iterate, mean ± standard deviation over n seeds. Difference: ASC minus DPSGD. An epsilon is
planned, not sampled: it has no p. p: paired t test, two-sided. p Holm: the same, adjusted for the 2 cells that have
one. p exact: all sign flips of the differences (n up to 12); with n = 3 it cannot be below 0.25."""


def text(root: Path, *arguments: str) -> str:
    one, other, *overrides = arguments
    found = compare_text(root, one, other, overrides)
    assert max(map(len, found.splitlines())) <= WIDTH
    return found


def test_two_methods_of_a_target(results_root: Path) -> None:
    sweep(results_root)
    assert text(results_root, "ASC", "DPSGD", "target=asc/table1") == EXPECTED


def test_two_variants_of_a_target_method_by_method(results_root: Path) -> None:
    sweep(results_root, variant="eps1")
    sweep(results_root, variant="eps2", epsilon=2.0, better=0.1)
    found = text(results_root, "asc/table1/eps1", "asc/table1/eps2")
    assert "A: asc/table1 eps1; 6 runs compared\nB: asc/table1 eps2; 6 runs compared" in found
    assert "| privacy.epsilon | 1 | 2 |" in " ".join(found.split())
    assert [line for line in found.splitlines() if line.startswith("Unb")] == [
        "Unbalanced MNIST, method ASC",
        "Unbalanced MNIST, method DPSGD",
    ]
    assert "−10.0" in found and "Difference: A minus B" in found


def test_two_runs_have_no_interval_and_say_so(results_root: Path) -> None:
    for run, seed in (("aaaa", 0), ("bbbb", 0), ("cccc", 1)):
        summary = {"wga": DPSGD[seed][0], "avg": 0.8}
        write_configured(results_root, run, algorithm="dpsgd", seed=seed, summary=summary, clip_norm=ord(run[0]))
    found = text(results_root, "aaaa", "bbbb")
    assert "Paired by seed (0)." in found and "No test: it needs two seeds" in found
    found = text(results_root, "aaaa", "cccc")
    assert "No seed in common (aaaa: 0; cccc: 1): unpaired, by Welch's t." in found
    assert "| 1, 1 |" in " ".join(found.split())
    assert "−10.0" in found


def test_what_is_no_real_data_or_unfinished_is_stamped(results_root: Path) -> None:
    sweep(results_root)
    for seed in range(3):
        summary: dict[str, Any] = {"wga": 0.1, "avg": 0.2, "provenance": "simulated", "scale": "smoke"}
        write_configured(results_root, f"azb{seed}", algorithm="azb", seed=seed, summary=summary)
    write_unfinished(results_root, "running", "running", label="azb", seed=3)
    lines = text(results_root, "azb", "asc").splitlines()
    assert "azb: SIMULATED DATA · scale: smoke" in lines
    assert "azb: UNFINISHED: 3 of 4 runs, 1 running" in lines
    assert not [line for line in lines if line.startswith("asc: ") and "SIM" in line]


def test_what_has_no_counterpart_is_said(results_root: Path) -> None:
    sweep(results_root, epochs=8)
    sweep(results_root)
    write_configured(results_root, "alone", algorithm="asc", seed=9, summary={}, group_lr=0.15)
    write_configured(results_root, "more", algorithm="asc", seed=0, summary={}, group_lr=0.15, epochs=4)
    lines = text(results_root, "asc", "dpsgd").splitlines()
    assert "Paired by seed (0, 1, 2): Unbalanced MNIST, target ε = 1, epochs 8" in lines
    assert lines[3] == (
        "Paired by seed (0, 1, 2); seeds without a counterpart, left out: asc 9: "
        "Unbalanced MNIST, target ε = 1, epochs 60"
    )
    assert "Without a counterpart at equal settings, left out: 1 configuration (1 run)." in lines


def test_runs_on_both_sides_are_not_compared_with_themselves(results_root: Path) -> None:
    sweep(results_root)
    sweep(results_root, variant="better", better=0.1, note="better")
    first, second = (results_root / f"targets/asc/table1/{variant}/manifest.json" for variant in ("default", "better"))
    default, better = (json.loads(path.read_text()) for path in (first, second))
    better["runs"][3:] = default["runs"][3:]  # DP-SGD's
    second.write_text(json.dumps(better))
    found = text(results_root, "asc/table1/default", "asc/table1/better")
    assert "On both sides, and not compared with themselves: 3 runs." in found.splitlines()
    assert "method ASC" in found and "−10.0" in found
    assert "DPSGD" not in found


def test_many_settings_are_shown_by_wga_and_avg(results_root: Path) -> None:
    for epochs in range(1, 9):
        sweep(results_root, epochs=epochs)
    found = text(results_root, "asc", "dpsgd")
    rows = [line.split("|")[1].strip() for line in found.splitlines() if line.startswith("| WGA")]
    assert rows == [f"WGA epochs {epochs}" for epochs in range(1, 9)]
    assert "Many settings: WGA and AVG alone." in found
    assert "adjusted for the 16 cells" in found


@pytest.mark.parametrize("epsilon", [14.5, 10_145.0])
def test_wide_numbers_and_long_names_fit(results_root: Path, epsilon: float) -> None:
    for label, weak in (("azb", 1.0), ("azb_weak", epsilon)):
        for seed in range(5):
            accuracy = [0.0, 1.0] if (seed + len(label)) % 2 else [1.0, 0.0]
            scores = {"wga": 0.0, "avg": accuracy[0], "accuracy": accuracy, "loss": [1, 1], "count": [200_000, 3]}
            write_configured(
                results_root, f"{label}{seed}", algorithm=label, seed=seed, long_text="x" * 200,
                summary={
                    "test": scores, "valid": None,
                    "group_names": ["non-fraud under 50", "a group with a very long name"],
                    "plan": {"epsilon_per_group": [weak + seed / 100, 1.0]},
                },
            )  # fmt: skip
    found = text(results_root, "azb", "azb_weak")
    assert "| non-fraud under 50 " in found and "| a group with a very… " in found


@pytest.mark.parametrize("override", ["dataset", "=x", "dataset="])
def test_what_is_no_override_is_refused(results_root: Path, override: str) -> None:
    with pytest.raises(ValueError, match="after the two names, write KEY=VALUE"):
        text(results_root, "asc", "dpsgd", override)
