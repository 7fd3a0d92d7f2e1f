"""`python -m rawls.runners.train`, watched: it saves at every step, leaves what it came to, and misbehaves when told
to.

WATCHED is a folder, for the last parameters, params.<process>.pt, and the rows and the public state of each step,
steps.<process>.pt; MISBEHAVE is a list of `process:step:what`, where what is kill (itself, by
SIGKILL), interrupt (itself, as Ctrl-C does) or raise.
"""

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch

import rawls.runners.schedule.backends.torchrun  # noqa: F401 - to be there already when this module is loaded once for many processes
from rawls.algorithms.core.step import PrivateStep
from rawls.models.engines.base import WeightedSum
from rawls.runners import train
from rawls.runners.config.errors import guarded
from rawls.runners.training import fleet

seen: list[torch.Tensor] = []


class Watched(PrivateStep):
    """The private step of this process."""

    def step(self, step: int) -> WeightedSum:
        number = os.environ.get("RANK", "0")
        for process, at, what in (text.split(":") for text in os.environ.get("MISBEHAVE", "").split()):
            if (process, at) == (number, str(step)):
                misbehave(what)
        (member,) = self.members
        seen.append(torch.from_numpy(member.positions(step)))
        summed = super().step(step)
        seen.extend(torch.from_numpy(values) for values in member.state.values())
        if step + 1 == member.task.steps:
            folder = Path(os.environ["WATCHED"])
            torch.save(self.params.clone(), folder / f"params.{number}.pt")
            torch.save(seen, folder / f"steps.{number}.pt")
        return summed


def misbehave(what: str) -> None:
    if what == "raise":
        raise ArithmeticError("no inverse\nand more of it")
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "interrupt": signal.SIGINT}[what])


def main(arguments: Sequence[str]) -> int:
    fleet.PrivateStep = Watched  # type: ignore[attr-defined]
    fleet.SECONDS_BETWEEN_CHECKPOINTS, fleet.SAVING_SHARE = 0.0, 1.0
    return guarded(lambda: train.main(arguments))


def main_in(environment: Mapping[str, str], errors: Path, arguments: Sequence[str]) -> None:
    """The same in a process that has begun already."""
    os.environ.update(environment)
    with open(errors, "w", encoding="utf-8") as file:
        os.dup2(file.fileno(), 2)
    sys.exit(main(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
