"""`python -m accounting.epsilon`: what a run with a given noise multiplier guarantees, as one JSON object."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from accounting.accountants import epsilon
from accounting.calibrate import Run, answer, run_parser


def main(argv: Sequence[str] | None = None) -> int:
    parser = run_parser("accounting.epsilon", "The epsilon that a noise multiplier (noise std / norm bound) gives.")
    parser.add_argument("--noise-multiplier", type=float, required=True)
    return answer(parser, argv, _epsilon)


def _epsilon(options: argparse.Namespace, run: Run) -> dict[str, Any]:
    guarantee = epsilon(
        run.events(options.noise_multiplier),
        delta=run.delta,
        neighbouring=run.neighbouring,
        accountant=run.accountant,
    )
    return run.report(options.noise_multiplier, guarantee)


if __name__ == "__main__":
    sys.exit(main())
