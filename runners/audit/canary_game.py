"""The canary game: which of two neighbouring data sets was it, told from what runs published or from their models.

The attacker knows everything but which of the two was used and, of a step that draws its rows at random, whether the
record was among them. By the published sums a run's score is the log-likelihood ratio of all its answers, step after
step; by the final model, which is all that most attackers see, it is the difference of the two records' losses.
- Full batch: two steps on all rows. Where every answer is Gaussian and surely holds the record, the run is Gaussian DP
  and so is what is made of it: that bound is exact, and 200 runs a side show half of the noise missing.
- Own law: rows as the configuration draws them. What sampling amplifies no attack finds, so bounds are low.
Records and thresholds are chosen on runs of their own.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any, Literal

import numpy as np
import torch

from rawls.accounting.audit.bounds import best_threshold, error_rates, gaussian_bound, pure_bound
from rawls.accounting.claims import Claim
from rawls.accounting.mechanism.release import Release
from rawls.algorithms.core.method import Method, Tests
from rawls.algorithms.core.solver import PrivateRows, Solver
from rawls.runners.audit.door import Address, Door, Passed
from rawls.runners.audit.problem import Canary, Case, fleet_of, members_of
from rawls.runners.audit.tree_noise import Whitened, tree_of
from rawls.runners.audit.watched import short_blocks, solved_once, surely, watched_records

RUNS = 200  # a side
PILOTS = 100  # a side, on which a threshold is chosen
STEPS = 2  # at full batch
CONFIDENCE = 0.999

SUMS, MODEL = "published sums", "final model"
NORMAL_NOISE = ("gaussian", "tree")


@dataclass(frozen=True, kw_only=True)
class Scores:
    """What runs on one of two data sets look like: the higher a score, the more it speaks for the first.

    Args:
        by: the scores of all runs, by what the attacker sees.
        sure: all answers hold the record surely, or never.
        gaussian: and have normal noise.
        exposures: of each run, how far its answers moved with the record, over their noise, squared.
        last: the last step that the record touches.
        claim: what the paper would print for the first run.
    """

    by: Mapping[str, np.ndarray]
    sure: bool
    gaussian: bool
    exposures: np.ndarray
    last: int
    claim: Claim | None


@dataclass(frozen=True, kw_only=True)
class Proven:
    """A lower bound on epsilon, and whether it is that of Gaussian mechanisms or one for any."""

    view: str
    lower_bound: float
    bound: Literal["gaussian", "any"]


@dataclass(frozen=True, kw_only=True)
class Game:
    """What the attacks on one record prove, and what the paper would print for such a run."""

    proven: tuple[Proven, ...]
    claim: Claim | None


def audit(case: Case, *, runs: int = RUNS) -> tuple[Proven, float]:
    """By the published sums at full batch: what is shown of a record that surely takes part, and its cell's epsilon."""
    wide = case.full_batch(STEPS)
    cell = gate_cell(wide)
    game = play(wide, cell, runs=runs, pilots=PILOTS, confidence=CONFIDENCE, views=(SUMS,))
    return game.proven[0], wide.plan.epsilon_per_cell[cell]


def gate_cell(case: Case) -> int:
    """The smallest cell whose records surely take part; the smallest of all where there is none."""
    filled = [cell for cell, size in enumerate(case.sizes) if size]
    sure = [cell for cell in filled if _is_sure(case, cell)]
    return min(sure or filled, key=lambda cell: case.sizes[cell])


def play(
    case: Case, cell: int, *, runs: int, pilots: int, confidence: float, views: Sequence[str] = (SUMS, MODEL)
) -> Game:
    """Attack so many runs on either data set.

    Args:
        confidence: of each of the bounds.
    """
    candidates = case.canaries(cell)
    tried = scores_of(case, candidates, "records", second=False, steps=case.steps)
    canary = candidates[int(np.argmax(tried.exposures))]
    # Of a solver, what follows is made of what was released until then.
    steps = tried.last + 1 if isinstance(case.method, Solver) else case.steps
    sides = [scores_of(case, [canary] * runs, "game", second=second, steps=steps) for second in (False, True)]
    exact = all(side.gaussian for side in sides)
    bound = gaussian_bound if exact else pure_bound
    delta, proven, pilot = case.plan.budget.delta, [], list[Scores]()
    for view in views:
        threshold = 0.0  # halfway, for two data sets that mirror each other
        if not (exact and view == SUMS):
            pilot = pilot or [
                scores_of(case, [canary] * pilots, "pilot", second=second, steps=steps) for second in (False, True)
            ]
            threshold = best_threshold(*(side.by[view] for side in pilot), bound=bound, delta=delta)
        rates = error_rates(*(side.by[view] for side in sides), threshold=threshold, confidence=confidence)
        proven.append(Proven(view=view, lower_bound=bound(rates, delta), bound="gaussian" if exact else "any"))
    return Game(proven=tuple(proven), claim=sides[0].claim)


def scores_of(case: Case, canaries: Sequence[Canary], part: str, *, second: bool, steps: int) -> Scores:
    """The scores of a run for each canary, on the first data set or the second; as many at once as fit."""
    sure = all(_is_sure(case, case.cell_of(canary.position)) for canary in canaries)
    found = []
    for start in range(0, len(canaries), case.runs_at_once):
        some = canaries[start : start + case.runs_at_once]
        keys = [f"audit {part} {int(second)} {start + run}" for run in range(len(some))]
        found.append(_scores_at_once(case, some, keys, second=second, sure=sure, steps=steps))
        if sure and not found[-1].sure:  # it was so only at first
            found[-1] = _scores_at_once(case, some, keys, second=second, sure=False, steps=steps)
    return Scores(
        by={view: np.concatenate([one.by[view] for one in found]) for view in found[0].by},
        sure=all(one.sure for one in found),
        gaussian=all(one.gaussian for one in found),
        exposures=np.concatenate([one.exposures for one in found]),
        last=max(one.last for one in found),
        claim=found[0].claim,
    )


def _is_sure(case: Case, cell: int) -> bool:
    """Whether accountants take a record of the cell as drawn at every step, so that an attacker may too."""
    if not isinstance(case.method, Method):
        return True
    state = case.method.start(case.task, case.plan)
    releases = [case.method.gradient_release(case.task, case.plan, state)]
    if isinstance(case.method, Tests):
        releases.append(case.method.test_release(case.task, case.plan, state))
    return all(surely(release.law.sampling_of(cell)) for release in releases)


def _scores_at_once(
    case: Case, canaries: Sequence[Canary], keys: Sequence[str], *, second: bool, sure: bool, steps: int
) -> Scores:
    """A fleet is played, and what others would have summed that were given its answers: with the first record in
    every batch, with the second, and, where rows are drawn at random, with neither."""
    played, here = _fleet(case, canaries, keys, second=second, place="in" if sure else "as drawn"), int(second)
    first = Door(played)
    others = {1 - here: _fleet(case, canaries, keys, second=not second, place="in")}
    if not sure:
        others[here] = _fleet(case, canaries, keys, second=second, place="in")
        others[NEITHER] = _fleet(case, canaries, keys, second=False, place="out")
    doors = {side: Door(fleet, shown=first) for side, fleet in others.items()}
    tally = _Tally(len(canaries))
    with _drawn_for(steps):
        for step in range(steps):
            tally.ended |= set(played.ended())
            for fleet in (played, *others.values()):
                fleet.step(step)
            for run, canary in enumerate(canaries):
                if run not in tally.ended:
                    seen = {side: door.passed[run] for side, door in ({here: first} | doors).items()}
                    tally.add(run, step, first.passed[run], seen, case.cell_of(canary.position))
                    tally.models[run] = played.shown(run).clone()
            for door in (first, *doors.values()):
                door.forget()
    member = played.members[0]
    return Scores(
        by={SUMS: tally.ratios, MODEL: _by_losses(case, tally.models, canaries)},
        sure=tally.sure,
        gaussian=tally.sure and tally.normal,
        exposures=tally.exposures,
        last=tally.last,
        claim=member.method.claim(member.task, member.plan, member.state),
    )


NEITHER = 2  # beside the first data set, 0, and the second, 1: the record was not drawn

Answers = Mapping[Address, Passed]


class _Tally:
    """What is known of each run so far."""

    def __init__(self, runs: int) -> None:
        self.ratios, self.exposures = np.zeros(runs), np.zeros(runs)
        self.models: dict[int, Any] = {}
        self.sure = self.normal = True
        self.ended: set[int] = set()
        self.last = 0
        self._rounds: dict[tuple[int, int, str], Whitened] = {}

    def add(self, run: int, step: int, answers: Answers, seen: Mapping[int, Answers], cell: int) -> None:
        """The answers of a step, release by release: those of one draw stand or fall together."""
        for _, addresses in groupby(sorted(answers), key=lambda address: address[0]):
            of_release = list(addresses)
            release = answers[of_release[0]].release
            sampling = release.law.sampling_of(cell)
            if sampling is None or not any(answers[address].bound(cell) for address in of_release):
                continue
            self.last = step
            self.sure &= surely(sampling)
            self.normal &= all(answers[address].noise in NORMAL_NOISE for address in of_release)
            likely = {
                side: sum(self._log_density(run, side, answers[address], passed[address]) for address in of_release)
                for side, passed in seen.items()
            }
            if NEITHER in likely and not surely(sampling):
                drawn, not_drawn = math.log(sampling.rate), math.log1p(-sampling.rate) + likely[NEITHER]
                likely |= {side: float(np.logaddexp(drawn + likely[side], not_drawn)) for side in (0, 1)}
            self.ratios[run] += likely[0] - likely[1]
            for address in of_release:
                moved = seen[0][address].private - seen[1][address].private
                self.exposures[run] += float(moved.norm() / answers[address].noise_std) ** 2

    def _log_density(self, run: int, side: int, answer: Passed, mean: Passed) -> float:
        """Of an answer, had the sum been another one; up to a constant. The noise is what the release says."""
        distance = answer.public - mean.private
        if answer.noise == "laplace":
            return -float(distance.abs().sum()) / (answer.noise_std / math.sqrt(2))
        if tree := tree_of(answer.release):
            distance = self._rounds.setdefault((run, side, answer.release.name), Whitened(tree)).next(distance)
        return -float(distance.square().sum()) / (2 * answer.noise_std**2)


def _by_losses(case: Case, models: Mapping[int, Any], canaries: Sequence[Canary]) -> np.ndarray:
    """By how much the second record's loss lies above the first's; how low the first's is where there is no other."""
    scores = np.full(len(canaries), math.nan)
    for run, params in models.items():
        records = [record for record in (canaries[run].record, canaries[run].instead) if record is not None]
        labels = torch.tensor([record.label for record in records])
        losses, _ = case.engine.evaluate(params, torch.stack([record.inputs for record in records]), labels)
        scores[run] = float(losses[-1] - losses[0]) if len(records) > 1 else -float(losses[0])
    return scores


def _fleet(case: Case, canaries: Sequence[Canary], keys: Sequence[str], *, second: bool, place: str) -> Any:
    """Runs on one of the data sets, whose records are drawn as the law says, or are `in` or `out` of every batch."""
    rows = case.training_rows(
        [{one.position: one.instead if second and one.instead else one.record} for one in canaries]
    )
    members = members_of(
        case,
        keys,
        rows,
        watched=[one.position for one in canaries],
        held=[place == "in"] * len(canaries),
        out=[place == "out"] * len(canaries),
        absent=[second and one.instead is None for one in canaries],
    )
    return fleet_of(case, members, seeds=[0] * len(canaries))


@contextmanager
def _drawn_for(steps: int) -> Iterator[None]:
    """The records where they are to be; problems that are equal are solved once."""
    with watched_records(), short_blocks(steps), solved_once(_same_problem):
        yield


def _same_problem(release: Release, rows: PrivateRows, state: Mapping[str, np.ndarray]) -> bytes:
    """Equal for equal rows and an equal history."""
    digest = sha256(release.name.encode())
    for values in rows:
        digest.update(values.cpu().numpy().tobytes())
    for name, released in state.items():
        digest.update(name.encode() + released.tobytes())
    return digest.digest()
