"""Made-up records of audits, as runners/audit/records.py writes them."""

import json
from pathlib import Path
from typing import Any

FINDING = {
    "attack": "published sums", "setting": "full batch, 2 steps", "record": "smallest group", "lower_bound": 5.5,
    "bound": "gaussian", "confidence": 0.99975, "proven": 8.0, "claim": 8.0, "rule": "accounted", "runs": 2400,
    "seconds": 9.25,
}  # fmt: skip
OWN = {"setting": "own law, 16 steps", "lower_bound": 0.0, "bound": "any", "runs": 520}
TWIN = {"twin": "half the noise", "caught_by": "canary game", "says": "epsilon is 12 or more", "seconds": 2.0}


def record(method: str, verdict: str = "holds", *, twins: tuple[dict[str, Any], ...] = (), **of_finding: Any) -> Any:
    return {
        "method": method, "dataset": "digits", "provenance": "real", "model": "logistic", "epsilon": 8.0,
        "delta": 4.8e-4, "neighbouring": "replace_one", "run_id": "0" * 16, "code": "1" * 16, "confidence": 0.999,
        "findings": [FINDING | OWN, FINDING | {"attack": "final model"} | OWN, FINDING | of_finding],
        "twins": [TWIN, *twins], "verdict": verdict, "seconds": 61.4,
    }  # fmt: skip


RECORDS = [
    record("asc"),
    record("dp_is_sgd", "claim refuted by attack", claim=2.5, rule="gdp_clt"),
    record("dpsur", "claim refuted by the ledger", claim=6.5, rule="accepted_only"),
    record("fdpg", "twin not caught", claim=None, rule="gdp_clt", twins=({**TWIN, "twin": "free", "caught_by": ""},)),
]


def write_audits(root: Path) -> None:
    folder = root / "audits"
    folder.mkdir(parents=True)
    for one in RECORDS:
        (folder / f"{one['method']}-{one['run_id']}.json").write_text(json.dumps(one), encoding="utf-8")
    (folder / "torn-0.json").write_text("{", encoding="utf-8")
