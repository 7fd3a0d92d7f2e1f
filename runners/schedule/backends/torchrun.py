"""One run trained by several processes: `torchrun --nproc-per-node N -m rawls.runners.train ...`.

Every process makes every step of the run (models/engines/sharded.py divides the batch), so each holds the same
parameters, public state and ledger. Process 0 alone claims the run, draws what must be drawn once, writes, tracks,
reports and answers signals; the others hold no folder and write nothing. Rows are addressed by run and step, so all
draw the same ones; noise is drawn by process 0 and sent, and so are rows under privacy.secure.

What goes wrong in a process is noted where all can read it, and the process ends. That closes its connections, on
which every other one ends too instead of waiting; process 0 fails the run with what was noted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.method import Method
from rawls.algorithms.core.rows import Gather
from rawls.models.engines.base import Engine
from rawls.models.engines.sharded import Parted, ShardedEngine, gather_share, together
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import build, name_of
from rawls.runners.process import lifecycle
from rawls.runners.process.worker import Report
from rawls.runners.schedule import launcher
from rawls.runners.schedule.progress import Message
from rawls.runners.store.results_store import RunFolder
from rawls.runners.training import fleet
from rawls.runners.training.setup import device_of

TASK = "rawls.runners.schedule.backends.torchrun:train_fleet"
PATIENCE = timedelta(minutes=30)  # for a process that lives but does not answer; of a dead one the others hear at once
_CPU = torch.device("cpu")

T = TypeVar("T")


def told(value: T) -> T:
    """What process 0 says here; the value of the others is not looked at."""
    box = [value]
    with together():
        dist.broadcast_object_list(box, src=0, device=_CPU)
    return box[0]


@dataclass(frozen=True)
class SharedStreams(Streams):
    """The streams of a run in several processes: where bits matter, what process 0 draws is what all go on with.

    Were noise drawn by each for itself, GPUs of two kinds would draw different noise, and their parameters, together,
    would tell more than one release.
    """

    _own: Streams = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_own", Streams(self.key, self.secure))

    def generator(self, purpose: str, index: int) -> np.random.Generator:
        generator = self._own.generator(purpose, index)
        if self.secure:  # else it is a function of its address
            generator.bit_generator.state = told(generator.bit_generator.state)
        return generator

    def add_normal(self, values: Tensor, std: float, index: int, purpose: str = "noise") -> None:
        if dist.get_rank() == 0:
            self._own.add_normal(values, std, index, purpose)
        _send(values)

    def normal_block(self, like: Tensor, block: int, purpose: str) -> Tensor:
        drawn = self._own.normal_block(like, block, purpose)
        _send(drawn)
        return drawn


def _send(values: Tensor) -> None:
    """Give every process the values of process 0, in place."""
    sent = values.contiguous()
    with together():
        dist.broadcast(sent, src=0)
    values.copy_(sent)


@dataclass(frozen=True, kw_only=True)
class Order:
    """What the others need to know of the run that process 0 has claimed."""

    run_id: str
    path: Path
    checkpoint: dict[str, Any] | None


class Onlooker:
    """A run's folder for a process that does not hold it: where to resume, and nothing is ever written."""

    def __init__(self, order: Order) -> None:
        self.run_id, self.path, self._checkpoint = order.run_id, order.path, order.checkpoint

    def load_checkpoint(self) -> dict[str, Any] | None:
        return self._checkpoint

    def rewind_history(self) -> None: ...

    def append_history(self, row: Mapping[str, Any]) -> None: ...

    def save_checkpoint(self, state: Mapping[str, Any]) -> None: ...

    def finish(self, *results: Any) -> None: ...


class Team:
    """The processes of a run, as one of them sees them."""

    def __init__(self, device: str) -> None:
        """Meet the others, where the environment says."""
        if device.startswith("cuda"):
            torch.cuda.set_device(device)
        self._store: Any
        self._store, self.rank, self.size = next(rendezvous("env://", timeout=PATIENCE))
        backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
        dist.init_process_group(backend, store=self._store, rank=self.rank, world_size=self.size, timeout=PATIENCE)
        self.device = device
        self.parted = False

    def engine(self, engine: Engine) -> Engine:
        """The engine with its batches divided among the processes."""
        return ShardedEngine(engine)

    def gather(self, gather: Gather) -> Gather:
        """Inputs by row number, as far as this process computes with them."""
        return gather_share(gather)

    def streams(self, key: str, secure: bool) -> Streams:
        """The streams of a run, drawn once for all processes."""
        return SharedStreams(key, secure)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Around a part that all make together: on an error this process has parted from the others, and says why."""
        try:
            yield
        except KeyboardInterrupt:  # agreed upon, see `_agreed`
            raise
        except Parted:
            self.parted = True
            raise
        except BaseException as error:
            self.parted = True
            first_line = str(error).strip().partition("\n")[0]
            with suppress(RuntimeError):
                self._store.set(f"rawls/{self.rank}", f"process {self.rank}: {type(error).__name__}: {first_line}")
            raise

    def leave(self) -> None:
        """Close the connections; the interpreter would abort if it found their threads at its end."""
        if not (self.parted and self.device.startswith("cuda")):  # nccl would wait for what the others never finish
            dist.destroy_process_group()

    def cause(self) -> str:
        """Why the others have parted, as far as they could say."""
        notes = []
        with suppress(RuntimeError):
            keys = [f"rawls/{rank}" for rank in range(self.size)]
            notes = [self._store.get(key).decode() for key in keys if self._store.check([key])]
        return "; ".join(notes) or f"one of the {self.size} processes of this run has ended or did not answer"


_team: Team | None = None  # of this process; a launcher finds it by `TASK`, which can carry nothing


def train(config: dict[str, Any], command: str) -> int:
    """Train one run with the other processes; each of them is to call it with the same configuration.

    Returns:
        What the process should exit with.

    Raises:
        ValueError: the run cannot be trained.
    """
    global _team
    lifecycle.prepare_process()
    if dist.is_torchelastic_launched():
        lifecycle.die_with_parent(os.getppid())  # or they would train on when torchrun is killed, and hold the run
    team = _team = Team(_device(config))
    try:
        return _lead(config, team, command) if team.rank == 0 else _follow(config, team)
    finally:
        team.leave()


def train_fleet(configs: list[dict[str, Any]], folders: list[RunFolder], report: Report) -> None:
    """Process 0's part of a run that it has claimed."""
    team = _team
    assert team is not None and not team.parted
    (config,), (folder,) = configs, folders
    try:
        with team.at_work():
            told(Order(run_id=folder.run_id, path=folder.path, checkpoint=folder.load_checkpoint()))
            fleet.train_fleet([config | {"device": team.device}], [folder], _agreed(report), team)
    except Parted as error:
        raise RuntimeError(team.cause()) from error


def _lead(config: dict[str, Any], team: Team, command: str) -> int:
    """Check the run and train it; then let the others go."""
    if not isinstance(build(config["algorithm"], "algorithm"), Method):
        # An open method weighs a whole batch, of which a process sees a part; a solver's loop is its own.
        raise ConfigError(f"{name_of(config['algorithm'])} trains in one process: start it without torchrun")
    outcome = launcher.train([config], command=command, task=TASK)
    if not team.parted:
        with suppress(Parted):
            told(outcome.exit_code)
    return outcome.exit_code


def _follow(config: dict[str, Any], team: Team) -> int:
    """Train what process 0 orders, until it says with what to exit."""
    mine = config | {"device": team.device, "tracking": config["tracking"] | {"mode": "off"}}
    try:
        with lifecycle.Stop():  # torchrun sends signals to all; when to stop, process 0 says
            while isinstance(order := told(cast(Order | int, 0)), Order):
                folder = cast(RunFolder, Onlooker(order))
                with suppress(KeyboardInterrupt), team.at_work():
                    fleet.train_fleet([mine], [folder], _agreed(_say_nothing), team)
            return order
    except Parted:
        team.parted = True
        return 1  # who parted has said why


def _agreed(report: Report) -> Report:
    """A report from which every process is interrupted at the same step, or none: process 0 decides."""

    def report_and_ask(message: Message) -> None:
        stop = False
        try:
            report(message)
        except KeyboardInterrupt:
            stop = True
        word = torch.tensor([stop])
        _send(word)
        if word.item():
            raise KeyboardInterrupt

    return report_and_ask


def _say_nothing(_message: Message) -> None:
    pass


def _device(config: Mapping[str, Any]) -> str:
    """Where this process computes: on a machine with GPUs, each on one of its own."""
    device = device_of(config)
    if device.type != "cuda":
        return str(device)
    if device.index is not None:
        raise ConfigError(
            f"device={device} is one GPU, but every process needs one of its own: set device=cuda, and each takes one"
        )
    own, there = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
    if own >= there:
        raise ConfigError(f"device=cuda: torch sees {there} GPUs here: start no more processes than that on a machine")
    return f"cuda:{own}"
