"""`attack=one_run`: one training run in which many rows are canaries, each there or not by a coin of its own.

Coins are fair and look at no data. A canary that is out contributes nothing, but still counts in the public sizes: it
is drawn as before and left out of the sum, so the run's law, noise and plan do not depend on the coins. An epsilon for
records that are exchanged covers it too, for a record that contributes nothing is one that could stand in its place.
Further runs have coins of their own, and count as one run with all their canaries.

Two attackers score each canary; both know everything but the coins, the draws and the noise:
- `sums` sees every published gradient sum. What it expects of all other rows is taken off, and the rest told apart by
  the canaries' own limited gradients, by least squares with the coins' variance as a prior: their inner products with
  what was published, less what the canaries share. A run of an open method publishes none.
- `losses` sees the final model: how much it has lowered the loss of the canary.
Their guesses are bounded by rawls.accounting.audit.one_run, for all canaries, those of each group, and of each owner.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt, Le, Lt
from torch import Tensor

from rawls.accounting.audit.one_run import audit_one_run
from rawls.accounting.mechanism.ledger import FleetLedgers, Ledger
from rawls.accounting.mechanism.release import Release, Rescaled
from rawls.accounting.mechanism.streams import Streams
from rawls.algorithms.core.method import Method, OpenMethod
from rawls.algorithms.core.open_step import OpenMember, OpenStep
from rawls.algorithms.core.rows import Gather, TrainingRows
from rawls.algorithms.core.step import NORM_MARGIN, SMALLEST_NORM, PrivateMember, PrivateStep
from rawls.datasets.core.splits import addressed
from rawls.models.engines.base import Engine
from rawls.runners.audit.tables import Report, write_tables
from rawls.runners.config.compose import run_id
from rawls.runners.config.errors import ConfigError
from rawls.runners.config.specifications import name_of
from rawls.runners.store.stored import AUDITS
from rawls.runners.sweeps.experiments import plan
from rawls.runners.sweeps.labels import labels_of
from rawls.runners.training import setup

ATTACKERS = SUMS, LOSSES = "sums", "losses"
ALL_CANARIES = "all canaries"
PIXEL = 100.0  # a dead one: far outside the data, so that the gradients of such canaries hardly touch
MOST_NUMBERS = 2 * 10**8  # that the canaries' gradients may have: they are held at once
COIN_VARIANCE = 0.25


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to ask for.

    Args:
        canaries: how many rows at most.
        runs: with coins of their own.
        where: among which rows.
        record: what stands in a canary: the row itself, the row under a wrong label, or nothing but one dead pixel.
        confidence: that no line's bound is too high.
    """

    canaries: Annotated[int, Ge(1), Le(10**6)] = 500
    runs: Annotated[int, Ge(1), Le(10**4)] = 1
    where: Literal["anywhere", "smallest_group", "most_private_owner"] = "anywhere"
    record: Literal["row", "mislabelled", "pixel"] = "mislabelled"
    confidence: Annotated[float, Gt(0), Lt(1)] = 0.95


def audit(arguments: Sequence[str], options: Options | None = None) -> Report:
    """Train and attack every configuration asked for, and write the table.

    Args:
        arguments: overrides of `rawls train`, sweeps among them.
    """
    began, options = time.perf_counter(), options or Options()
    configs = [run.config for run in plan(arguments).runs]
    rows: list[dict[str, Any]] = []
    for label, config in zip(labels_of(configs), configs, strict=True):
        rows += [{"method": label} | row for row in Game(config, options).play()]
    folder = Path(configs[0]["results"]["root"]) / AUDITS / "one_run"
    files = write_tables(folder, {"table.csv": rows})
    return Report(rows=rows, folder=folder, files=files, seconds=time.perf_counter() - began)


class Game:
    """One configuration, its canaries and their coins."""

    def __init__(self, config: setup.Config, options: Options) -> None:
        self.config, self.options = config, options
        prepared = self._prepared = setup.prepare_run(config)
        if not isinstance(prepared.method, Method | OpenMethod) or prepared.data is None:
            raise ConfigError(
                f"{name_of(config['algorithm'])} can't be attacked in one run: take a method that steps, "
                "and no schedule.plan_only"
            )
        self.method: Method | OpenMethod = prepared.method
        self.task, self.plan = prepared.task, prepared.plan
        self._device = setup.device_of(config)
        data = setup.on_device(prepared.data, self._device)
        self.engine: Engine = setup.build_engine(config, data, private=self.method.private)
        split = data.splits(config["seed"])
        _, cells = setup.cells_of(config, data, split, self.method, self.task)
        gather: Gather = partial(setup.gather, data, device=self._device)
        rows = setup.training_rows(data, split, config["seed"], self._device, gather, cells)
        self.positions = self._chosen()
        self.rows = self._with_canaries(rows, len(data.labels), data.num_classes)
        self.coins = np.stack([self._streams(run).generator("coins", 0).random(len(self.positions)) < 0.5
                               for run in range(options.runs)])  # fmt: skip

    def play(self) -> list[dict[str, Any]]:
        """Train, attack, bound."""
        began = time.perf_counter()
        members = [self._member(run) for run in range(self.options.runs)]
        params = torch.stack([self.engine.initial(self.config["seed"])] * len(members))
        before = self._losses(params[0])
        if isinstance(self.method, Method):
            watched = WatchedStep(self.engine, members, params)
            readers = [SumReader(self, watched, run) for run in range(len(members))]
            for step in range(self.task.steps):
                if watched.ended():  # a filter's; one run's end is the end of all
                    break
                for reader in readers:
                    reader.look()
                watched.step(step)
                for reader in readers:
                    reader.read()
            stepper: Any = watched
            scores = {SUMS: np.stack([reader.scores() for reader in readers])}
        else:
            stepper, scores = OpenStep(self.engine, members, params), {}
            for step in range(self.task.steps):
                stepper.step(step)
        final = np.stack([before - self._losses(stepper.shown(run)) for run in range(len(members))])
        scores[LOSSES] = final
        seconds = time.perf_counter() - began
        return [row | {"seconds": seconds} for name, found in scores.items() for row in self._bounds(name, found)]

    def _bounds(self, attacker: str, scores: np.ndarray) -> list[dict[str, Any]]:
        """A line per part of the canaries, by the names that findings of an audit have."""
        cells, population, own = self.rows.cells[self.positions].cpu().numpy(), self.task.population, self.plan
        # Without a delta of its own, an open method is held against that which a private one would have.
        delta = 1 / (2 * population.total) if own is None else own.budget.delta
        parts = [(ALL_CANARIES, np.ones(len(cells), bool), None if own is None else own.epsilon)]
        for kind, of_cells, names in (
            ("group", population.groups, self._prepared.group_names),
            ("owner", population.owners, self.task.owner_names),
        ):
            for number, name in enumerate(names):
                inside = np.asarray(of_cells)[cells] == number
                if inside.any():
                    epsilon = None if own is None else getattr(own, f"epsilon_per_{kind}")[number]
                    parts.append((f"{kind} {name}", inside, epsilon))
        claim = None if own is None else own.claim
        rows = []
        for name, inside, epsilon in parts:
            found = audit_one_run(
                scores[:, inside].ravel(),
                self.coins[:, inside].ravel(),
                delta=delta,
                confidence=self.options.confidence,
            )
            rows.append(
                {
                    "attack": f"one run, {attacker}",
                    "setting": f"{self.task.steps} steps, {self.options.record} canaries, delta {delta:.2g}",
                    "record": name,
                    "lower_bound": found.bound,
                    "bound": "any",
                    "confidence": self.options.confidence,
                    "proven": epsilon,
                    "claim": epsilon if claim is None else claim.epsilon,
                    "rule": "accounted" if claim is None else claim.rule,
                    "runs": self.options.runs,
                    "delta": delta,
                    "canaries": found.canaries,
                    "guesses": found.guesses,
                    "right": found.right,
                    "provenance": self._prepared.provenance,
                }
            )
        return rows

    def _chosen(self) -> np.ndarray:
        """Positions of the canaries, at random among those asked for."""
        population, where = self.task.population, self.options.where
        cells = np.arange(len(population.sizes))
        if where == "smallest_group":
            cells = np.flatnonzero(np.asarray(population.groups) == int(np.argmin(population.group_sizes)))
        elif where == "most_private_owner":
            if not self.task.owner_epsilons:
                raise ConfigError("where=most_private_owner: the run has no owners; choose owners=NAME and a method")
            cells = np.flatnonzero(np.asarray(population.owners) == int(np.argmin(self.task.owner_epsilons)))
        found = np.concatenate([population.starts[cell] + np.arange(population.sizes[cell]) for cell in cells])
        generator = addressed(self.config["seed"], "canaries")
        return np.sort(generator.choice(found, min(self.options.canaries, len(found)), replace=False))

    def _with_canaries(self, rows: TrainingRows, first: int, num_classes: int) -> TrainingRows:
        """The training rows with the canaries among them; `first` is a row number that no row of the data has."""
        record, generator = self.options.record, addressed(self.config["seed"], "records")
        where = torch.from_numpy(self.positions).to(self._device)
        shift = torch.from_numpy(generator.integers(1, num_classes, len(self.positions))).to(self._device)
        if record == "row":
            return rows
        labels = rows.labels.clone()
        labels[where] = (labels[where] + shift) % num_classes
        if record == "mislabelled":
            return replace(rows, labels=labels)
        shape = rows.gather(rows.rows[:1]).shape[1:]
        pool = torch.zeros(len(self.positions), *shape, device=self._device)
        places = generator.integers(pool[0].numel(), size=len(pool))
        pool.view(len(pool), -1)[torch.arange(len(pool)), torch.from_numpy(places).to(self._device)] = PIXEL
        numbers = rows.rows.clone()
        numbers[where] = first + torch.arange(len(pool), device=self._device)

        def gather(wanted: Tensor) -> Tensor:
            ours = wanted >= first
            inputs = rows.gather(torch.where(ours, 0, wanted))
            inputs[ours] = pool[wanted[ours] - first]
            return inputs

        return replace(rows, rows=numbers, labels=labels, gather=gather)

    def _streams(self, run: int) -> Streams:
        return Streams(f"{run_id(self.config)} audit {run}", secure=self.config["privacy"]["secure"])

    def _member(self, run: int) -> Any:
        streams, out = self._streams(run), self.positions[~self.coins[run]]
        shared: dict[str, Any] = {"optimizer": self._prepared.optimizer, "task": self.task, "streams": streams}
        shared |= {"data": self.rows, "without": out, "method": self.method}
        if isinstance(self.method, OpenMethod):
            return OpenMember(state=self.method.start(self.task), **shared)
        assert self.plan is not None
        ledger = Ledger(streams, self.task.population)
        return PrivateMember(plan=self.plan, ledger=ledger, state=self.method.start(self.task, self.plan), **shared)

    def _losses(self, params: Tensor) -> np.ndarray:
        where = torch.from_numpy(self.positions).to(self._device)
        parts = [
            self.engine.evaluate(params, self.rows.gather(self.rows.rows[part]), self.rows.labels[part])[0]
            for part in where.split(self.rows.rows_at_once)
        ]
        return torch.cat(parts).cpu().double().numpy()


class WatchedLedgers(FleetLedgers):
    """Keeps the gradient sums that were published last."""

    published: Tensor

    def publish(self, releases: Sequence[Release | Rescaled], totals: Tensor, step: int) -> Tensor:
        public = super().publish(releases, totals, step)
        self.published = public.clone()
        return public


class WatchedStep(PrivateStep):
    """The private step, seen from outside."""

    def __init__(self, engine: Engine, members: Sequence[PrivateMember], params: Tensor) -> None:
        super().__init__(engine, members, params)
        self.watched = self._ledgers = WatchedLedgers([member.ledger for member in members])


class SumReader:
    """What the published sums of one run say of its canaries, step after step."""

    def __init__(self, game: Game, stepper: WatchedStep, run: int) -> None:
        self._game, self._stepper, self._run = game, stepper, run
        self._where = torch.from_numpy(game.positions).to(game.rows.labels.device)
        others = np.setdiff1d(np.arange(len(game.rows.labels)), game.positions)
        self._others = torch.from_numpy(others).to(self._where.device)
        count = len(game.positions)
        if count * game.engine.num_parameters > MOST_NUMBERS:
            raise ConfigError(
                f"the gradients of {count} canaries have {game.engine.num_parameters} numbers each, too many to hold: "
                f"take canaries={MOST_NUMBERS // game.engine.num_parameters} or fewer"
            )
        self._shared = np.zeros((count, count))
        self._seen = np.zeros(count)

    @torch.inference_mode()
    def look(self) -> None:
        """Before a step: what each canary would add to it, and what is expected of all others."""
        params = self._stepper.params[self._run].clone()
        self._release = self._stepper.members[self._run].present_release()
        rates = [getattr(self._release.law.sampling_of(cell), "rate", 0.0) for cell in range(len(self._release.bounds))]
        self._rates = torch.tensor(rates, device=params.device)
        self._own = torch.cat([self._limited(params, part, apart=True) for part in self._where.split(256)])
        self._expected = 0.5 * self._own.sum(0)
        for part in self._others.split(self._game.rows.rows_at_once):
            self._expected += self._limited(params, part, apart=False)[0]

    def read(self) -> None:
        """After it: what was published."""
        std = self._release.noise_std
        if std > 0:
            beyond = (self._stepper.watched.published[self._run] - self._expected) / std
            own = self._own / std
            self._seen += (own @ beyond).cpu().double().numpy()
            self._shared += (own @ own.T).cpu().double().numpy()

    def scores(self) -> np.ndarray:
        """The coin of each canary, less a half, as least squares have it."""
        prior = np.eye(len(self._seen)) / COIN_VARIANCE
        return np.asarray(np.linalg.solve(self._shared + prior, self._seen))

    def _limited(self, params: Tensor, part: Tensor, *, apart: bool) -> Tensor:
        """The limited gradients of rows times the rates at which they are drawn: [row, parameter], or their sum [1]."""
        rows, engine = self._game.rows, self._game.engine
        cells = rows.cells[part]
        bounds = torch.tensor(self._release.bounds, device=params.device)[cells] * NORM_MARGIN
        limits, rates = (values.view(-1, 1) if apart else values.view(1, -1) for values in (bounds, self._rates[cells]))

        def weigh(_losses: Tensor, norms: Tensor, runs: slice, slots: slice) -> Tensor:
            return (limits[runs, slots] / norms.clamp_min(SMALLEST_NORM)).clamp_max(1.0) * rates[runs, slots]

        inputs, labels, dimension = rows.gather(rows.rows[part]), rows.labels[part], 1 if apart else 0
        points = params.expand(len(part) if apart else 1, -1).contiguous()
        return engine.weighted_sum(points, inputs.unsqueeze(dimension), labels.unsqueeze(dimension), weigh).total
