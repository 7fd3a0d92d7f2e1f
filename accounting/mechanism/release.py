"""A release: one draw of rows and every answer computed from it, as one object from which the event follows.

Nothing else in the suite states a noise scale or a sensitivity: the step draws rows from `law`, limits every
sample to the bounds, the ledger adds the noise, and the accountant reads `event`. Answers from one draw are charged
as one: for a member whose answers have bounds b_i and noise of std s_i, one Gaussian answer with multiplier
1 / ||(b_i / s_i)||. To charge them as independent draws would be too low (rate 1/92, 1,840 steps, both multipliers 1,
delta 1e-6: epsilon 4.78 instead of 8.16).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from rawls.accounting.calibration.dominance import are_dominated
from rawls.accounting.events import Event, Everyone, GaussianEvent, LaplaceEvent, Poisson, joint_multiplier
from rawls.accounting.mechanism.sampling import Population, SamplingLaw, law_from_dict

NoiseKind = Literal["gaussian", "laplace"]

_ROUNDING = 1e-9  # relative; by which a threshold that was solved for may pass its limit


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A noisy vector: a sum over the drawn rows, or a clipped statistic of them.

    Args:
        name: what is answered; it also names the noise stream.
        bounds: per cell, how far one record moves the answer: in the 2-norm under Gaussian, in the 1-norm under Laplace
            noise.
        noise_std: standard deviation of the noise on every coordinate.
    """

    name: str
    bounds: tuple[float, ...]
    noise_std: float
    noise: NoiseKind = "gaussian"

    def __post_init__(self) -> None:
        for cell, bound in enumerate(self.bounds):
            if not (bound >= 0 and math.isfinite(bound)):
                raise ValueError(f"the norm bound of cell {cell} is {bound}; it must be finite and not negative")
        if not (self.noise_std >= 0 and math.isfinite(self.noise_std)):
            raise ValueError(f"noise_std is {self.noise_std}; it must be finite and not negative")

    def noise_multiplier(self, cell: int) -> float:
        """Noise scale over the bound of one record: std for a Gaussian, std / sqrt(2) for Laplace noise."""
        scale = self.noise_std / math.sqrt(2) if self.noise == "laplace" else self.noise_std
        return scale / self.bounds[cell] if self.bounds[cell] > 0 else math.inf

    def to_dict(self) -> dict[str, Any]:
        kind = {} if self.noise == "gaussian" else {"noise": self.noise}
        return {"name": self.name, "bounds": list(self.bounds), "noise_std": self.noise_std, **kind}


@dataclass(frozen=True, kw_only=True)
class Release(Answer):
    """The answers computed from one draw of rows; the release itself is the main one.

    Args:
        law: how records are sampled.
        look: answers that are published before the main one and may set its thresholds (`rescaled`).
        beside: answers that are published with the main one.
        charged_as: a Poisson step that dominates this one for every cell, charged in its place; the proof
            (accounting/calibration/dominance.py) is made anew whenever the release is made.

    Formal guarantees: a member of cell c is exposed to `event(c)`, provided no sample adds more than its bound to
    any answer (the step enforces it).

    | edge case | event |
    | cell never sampled, or every bound 0 | none |
    | noise_std 0 | noise multiplier 0: epsilon is infinite |
    """

    law: SamplingLaw
    look: tuple[Answer, ...] = ()
    beside: tuple[Answer, ...] = ()
    charged_as: GaussianEvent | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        others = (*self.look, *self.beside)
        if len({self.name, *(answer.name for answer in others)}) <= len(others):
            raise ValueError(f"the answers of release '{self.name}' need names of their own: they name the noise")
        if others and any(answer.noise != "gaussian" for answer in (self, *others)):
            raise ValueError(f"release '{self.name}' has several answers: only Gaussian ones are charged jointly")
        for answer in (self, *others):
            if len(answer.bounds) != len(self.law.population.sizes):
                raise ValueError(
                    f"'{answer.name}' has {len(answer.bounds)} bounds for {len(self.law.population.sizes)} cells"
                )
        if self.look and not all(isinstance(law, Poisson | Everyone) for law in self._samplings if law is not None):
            # What is known of subsampling without replacement is for one Gaussian answer that nothing was seen before.
            raise ValueError(f"release '{self.name}' looks before it answers, which needs Poisson sampling")
        if self.charged_as is not None:
            self._prove_dominated(self.charged_as)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All of them, in the order of publication."""
        return (*self.look, self, *self.beside)

    def event(self, cell: int, count: int = 1) -> Event | None:
        """What `count` such releases are to a member of the cell; None when they never touch it."""
        event = self._events[cell]
        return event if event is None or count == 1 else replace(event, count=count)

    def rescaled(self, scales: Sequence[float] | np.ndarray) -> Rescaled:
        """The release with other thresholds for this step; what it is charged does not change."""
        return Rescaled(self, tuple(float(scale) for scale in scales))

    def to_dict(self) -> dict[str, Any]:
        record = {"name": self.name, "law": self.law.to_dict(), **super().to_dict()}
        for kind, answers in (("look", self.look), ("beside", self.beside)):
            if answers:
                record[kind] = [answer.to_dict() for answer in answers]
        if self.charged_as is not None:
            record["charged_as"] = self.charged_as.to_dict()
        return record

    @classmethod
    def from_dict(cls, record: Mapping[str, Any], population: Population) -> Release:
        """The release of a stored line."""
        charged = record.get("charged_as")
        return cls(
            law=law_from_dict(record["law"], population),
            look=tuple(_answer(answer) for answer in record.get("look", ())),
            beside=tuple(_answer(answer) for answer in record.get("beside", ())),
            charged_as=None if charged is None else GaussianEvent.from_dict(charged),
            **_fields(record),
        )

    @cached_property
    def _samplings(self) -> tuple[Any, ...]:
        return tuple(self.law.sampling_of(cell) for cell in range(len(self.bounds)))

    @cached_property
    def _events(self) -> tuple[Event | None, ...]:
        return tuple(self._event(cell) for cell in range(len(self.bounds)))

    def _event(self, cell: int) -> Event | None:
        sampling = self._samplings[cell]
        multipliers = [m for answer in self.answers if (m := answer.noise_multiplier(cell)) < math.inf]
        if sampling is None or not multipliers:
            return None
        if self.charged_as is not None:
            return self.charged_as
        if self.noise == "laplace":
            return LaplaceEvent(sampling, multipliers[0])
        return GaussianEvent(sampling, joint_multiplier(multipliers))

    def _prove_dominated(self, reference: GaussianEvent) -> None:
        """Every cell's step is dominated by the reference, or a ValueError."""
        if len(self.answers) > 1 or not isinstance(reference.sampling, Poisson) or reference.count != 1:
            raise ValueError(f"release '{self.name}' can be charged as one Poisson step with one answer only")
        rates = np.zeros(len(self.bounds))
        for cell, sampling in enumerate(self._samplings):
            if sampling is not None and self.bounds[cell] > 0:
                if not isinstance(sampling, Poisson):
                    raise ValueError(f"release '{self.name}' is no Poisson step, so no Poisson step dominates it")
                rates[cell] = sampling.rate
        multipliers = np.array([self.noise_multiplier(cell) for cell in range(len(rates))])
        proven = are_dominated(
            rates,
            multipliers * (1 + _ROUNDING),
            reference_rate=reference.sampling.rate,
            reference_multiplier=reference.noise_multiplier,
        )
        for cell in np.flatnonzero(~proven).tolist():
            raise ValueError(
                f"release '{self.name}', in cell {cell} at rate {rates[cell]:.6g} with noise multiplier "
                f"{multipliers[cell]:.6g}, is not dominated by {reference}"
            )


def _answer(record: Mapping[str, Any]) -> Answer:
    return Answer(**_fields(record))


def _fields(record: Mapping[str, Any]) -> dict[str, Any]:
    noise = record.get("noise", "gaussian")
    bounds = tuple(map(float, record["bounds"]))
    return {"name": record["name"], "bounds": bounds, "noise_std": float(record["noise_std"]), "noise": noise}


@dataclass(frozen=True)
class Rescaled:
    """A release whose thresholds were rescaled within its step, by public numbers, one for each cell.

    The noise follows the largest scale over ALL cells, whether or not their rows were drawn. So noise over bound is in
    no cell smaller than declared, and the release is charged as declared.
    """

    declared: Release
    scales: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.scales) != len(self.declared.bounds):
            raise ValueError(f"{len(self.declared.bounds)} cells need as many scales, not {len(self.scales)}")
        if not all(0 < scale < math.inf for scale in self.scales):
            raise ValueError(f"thresholds are rescaled by positive numbers, not by {self.scales}")

    @property
    def bounds(self) -> tuple[float, ...]:
        return tuple(bound * scale for bound, scale in zip(self.declared.bounds, self.scales, strict=True))

    @property
    def noise_std(self) -> float:
        return self.declared.noise_std * max(self.scales)
