"""What trains now, from the files by which the processes of a sweep show that they live (runners/store/stored.py).

One that was killed on another machine is still shown for a minute. Nothing is written here: reading is all a page may
do.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rawls.runners.store.stored import WORKERS, everyone


@dataclass(frozen=True, kw_only=True)
class Training:
    """A run in training. `rate` is in steps per second; None before it can be told."""

    run_id: str
    label: str
    host: str
    step: int | None
    steps: int | None
    rate: float | None
    wga: float | None

    @property
    def seconds_left(self) -> float | None:
        if self.step is None or self.steps is None or not self.rate:
            return None
        return (self.steps - self.step) / self.rate

    @property
    def share(self) -> float:
        return self.step / self.steps if self.step is not None and self.steps else 0.0


def training(root: Path) -> list[Training]:
    """Every run that a living worker holds."""
    return [
        _training(run, str(told.get("host", "")))
        for told in everyone(root / WORKERS)
        for run in told.get("runs") or []
        if run.get("event") not in ("done", "failed")
    ]


def _training(run: dict[str, Any], host: str) -> Training:
    step, elapsed = run.get("step"), run.get("elapsed") or 0.0
    taken = 0 if step is None else step - run.get("first", step)
    return Training(
        run_id=run["run_id"],
        label=str(run.get("label") or run["run_id"]),
        host=host,
        step=step,
        steps=run.get("steps"),
        rate=taken / elapsed if taken > 0 and elapsed > 0 else None,
        wga=run.get("wga"),
    )
