import json
from pathlib import Path

from tests.analysis.pages.dashboard.pages import page, text, with_settings

SAMPLING = {"law": "poisson", "rate": 0.1}
LEDGER = {
    "releases": [
        {
            "name": "gradient", "law": {"law": "poisson"}, "noise_std": 2.0, "first_step": 0, "count": count,
            "events": [{"kind": "gaussian", "sampling": SAMPLING, "noise_multiplier": noise, "count": 1}],
        }
        for count, noise in ((1000, 2.0), (500, 3.0))
    ],
    "assumptions": ["group sizes are public"],
}  # fmt: skip


def test_who_is_not_covered_and_what_was_released(results_root: Path) -> None:
    plan = {"epsilon_per_group": [1.0, 1.0, 14.3], "covered_groups": [0, 1], "assumptions": ["group sizes are public"]}
    run = with_settings(results_root, "azb_weak", 0, plan=plan, group_sizes=[100, 100, 5])
    (results_root / "runs" / run / "ledger.json").write_text(json.dumps(LEDGER))
    said = text(page("privacy", results_root))
    assert "all but 8" in said
    assert "<strong>14.300, above the target</strong>" in said
    assert "1\N{NARROW NO-BREAK SPACE}500" in said
    assert "2 – 3" in said
    assert "- group sizes are public" in said


def test_a_run_without_a_ledger_is_said_so(results_root: Path) -> None:
    with_settings(results_root, "asc", 0)
    assert "This run has no ledger" in text(page("privacy", results_root))


def test_the_sheet_of_a_run_is_shown_where_it_left_one(results_root: Path) -> None:
    run = with_settings(results_root, "asc", 0)
    assert "Protected is" not in text(page("privacy", results_root))
    (results_root / "runs" / run / "privacy.md").write_text("# Privacy sheet: asc\n\nProtected is <b>.\n")
    shown = page("privacy", results_root)
    assert "<p>Protected is &lt;b&gt;.</p>" in text(shown)
    assert any(box.label.startswith("Privacy sheet: who is protected") for box in shown.expander)
