"""`rawls budget --noise-multiplier`: what a noise multiplier guarantees, as JSON."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from rawls.accounting.accountants import epsilon
from rawls.accounting.calibration.noise_command import DescribedRun, answer, run_parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = run_parser("The epsilon that a noise multiplier (noise std / norm bound) gives.")
    parser.add_argument("--noise-multiplier", type=float, required=True)
    return answer(parser, argv, epsilon_of)


def epsilon_of(options: argparse.Namespace, run: DescribedRun) -> dict[str, Any]:
    """The answer."""
    guarantee = epsilon(
        run.events(options.noise_multiplier),
        delta=run.delta,
        neighbouring=run.neighbouring,
        accountant=run.accountant,
    )
    return run.report(options.noise_multiplier, guarantee)
