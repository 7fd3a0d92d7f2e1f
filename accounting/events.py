"""What happened to the data, in the words the accountants read: sampling laws and noisy steps.

A noise multiplier is kappa = noise / norm bound of ONE record: std over L2 norm for Gaussian noise, scale over L1 norm
for Laplace noise. Under replace-one a record can move the sum by twice its bound; accountants apply that factor
(`Neighbouring.sensitivity`), callers never do.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar, Literal, Self

Accountant = Literal["rdp", "pld", "prv"]


class Neighbouring(StrEnum):
    """Which datasets count as neighbours: one record more or less, or one record exchanged."""

    ADD_REMOVE = "add_remove"
    REPLACE_ONE = "replace_one"

    @property
    def sensitivity(self) -> int:
        """How far one record moves a clipped sum, in units of the norm bound of one record."""
        return 2 if self is Neighbouring.REPLACE_ONE else 1


@dataclass(frozen=True)
class Poisson:
    """Every record takes part independently with probability `rate`."""

    law: ClassVar[str] = "poisson"
    rate: float

    def __post_init__(self) -> None:
        if not 0 <= self.rate <= 1:
            raise ValueError(f"a Poisson rate lies in [0, 1], but it is {self.rate}")

    def to_dict(self) -> dict[str, Any]:
        return {"law": self.law, "rate": float(self.rate)}


@dataclass(frozen=True)
class WithoutReplacement:
    """A uniformly random subset of exactly `batch` of the `population` records."""

    law: ClassVar[str] = "without_replacement"
    population: int
    batch: int

    def __post_init__(self) -> None:
        if self.population < 1:
            raise ValueError(f"a population has at least one record, but it is {self.population}")
        if not 0 <= self.batch <= self.population:
            raise ValueError(
                f"a batch of {self.batch} cannot be drawn from {self.population} records "
                "without replacement: choose a batch between 0 and the population"
            )

    @property
    def rate(self) -> float:
        return self.batch / self.population

    def to_dict(self) -> dict[str, Any]:
        return {"law": self.law, "population": int(self.population), "batch": int(self.batch)}


@dataclass(frozen=True)
class Everyone:
    """No subsampling: every record takes part."""

    law: ClassVar[str] = "everyone"
    rate: ClassVar[float] = 1.0

    def to_dict(self) -> dict[str, Any]:
        return {"law": self.law}


Sampling = Poisson | WithoutReplacement | Everyone
_LAWS: dict[str, type[Poisson] | type[WithoutReplacement] | type[Everyone]] = {
    law.law: law for law in (Poisson, WithoutReplacement, Everyone)
}


def sampling_from_dict(record: Mapping[str, Any]) -> Sampling:
    fields = dict(record)
    law = fields.pop("law", None)
    if law not in _LAWS:
        raise ValueError(f"unknown sampling law {law!r}: choose one of {', '.join(_LAWS)}")
    return _LAWS[law](**fields)


def _check_count(count: int) -> None:
    if count < 0 or count != int(count):
        raise ValueError(f"an event happens a whole number of times, but the count is {count}")


@dataclass(frozen=True)
class _NoisySum:
    """`count` sums of bounded records: sample, limit, add noise in proportion to the bound of one record.

    A noise multiplier of 0 is no noise (epsilon is infinite); infinity is no release at all (no cost).
    """

    kind: ClassVar[str]
    sampling: Sampling
    noise_multiplier: float
    count: int = 1

    def __post_init__(self) -> None:
        _check_count(self.count)
        if not self.noise_multiplier >= 0:
            raise ValueError(f"a noise multiplier is not negative, but it is {self.noise_multiplier}")

    def times(self, count: int) -> Self:
        """The event repeated `count` times over."""
        return replace(self, count=self.count * count)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "sampling": self.sampling.to_dict(),
            "noise_multiplier": float(self.noise_multiplier),
            "count": int(self.count),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        return cls(
            sampling=sampling_from_dict(record["sampling"]),
            noise_multiplier=float(record["noise_multiplier"]),
            count=int(record["count"]),
        )


@dataclass(frozen=True)
class GaussianEvent(_NoisySum):
    """Every coordinate of the sum gets Gaussian noise of std noise_multiplier x L2 bound of one record."""

    kind: ClassVar[str] = "gaussian"


@dataclass(frozen=True)
class LaplaceEvent(_NoisySum):
    """Every coordinate of the sum gets Laplace noise of scale noise_multiplier x L1 bound of one record."""

    kind: ClassVar[str] = "laplace"


def joint_multiplier(multipliers: Iterable[float], *, norm: Literal[1, 2] = 2) -> float:
    """The noise multiplier of several answers computed from one draw of records, as one sum: 1 / ||1 / m||.

    Scaled to equal noise and put side by side, the answers are one vector, whose bound for one record is the norm of
    theirs. Charged one by one they would look like independent draws, which costs less: too little.

    Args:
        norm: that of the record bounds: 2 for Gaussian noise, 1 for Laplace noise.
    """
    known = list(multipliers)
    if not all(multiplier >= 0 for multiplier in known):
        raise ValueError(f"a noise multiplier is not negative, but they are {known}")
    least = min(known, default=math.inf)
    if least == 0 or math.isinf(least):
        return least
    exposures = [least / multiplier for multiplier in known]  # of the least, so that one alone stays what it is
    return least / (math.hypot(*exposures) if norm == 2 else math.fsum(exposures))


@dataclass(frozen=True)
class RdpEvent:
    """`count` steps known only to be (order, epsilon)-RDP at one fixed order: ASC's budgeted steps."""

    kind: ClassVar[str] = "rdp"
    order: float
    epsilon: float
    count: int = 1

    def __post_init__(self) -> None:
        _check_count(self.count)
        if not (self.order > 1 and math.isfinite(self.order)):
            raise ValueError(f"a Renyi order is finite and above 1, but it is {self.order}")
        if not self.epsilon >= 0:
            raise ValueError(f"a Renyi divergence is not negative, but it is {self.epsilon}")

    def times(self, count: int) -> Self:
        """The event repeated `count` times over."""
        return replace(self, count=self.count * count)

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "order": float(self.order),
            "epsilon": float(self.epsilon),
            "count": int(self.count),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, Any]) -> Self:
        return cls(order=float(record["order"]), epsilon=float(record["epsilon"]), count=int(record["count"]))


Event = GaussianEvent | LaplaceEvent | RdpEvent
_KINDS: dict[str, type[GaussianEvent] | type[LaplaceEvent] | type[RdpEvent]] = {
    event.kind: event for event in (GaussianEvent, LaplaceEvent, RdpEvent)
}


def event_from_dict(record: Mapping[str, Any]) -> Event:
    """The inverse of `to_dict`, for a ledger read back from JSON."""
    kind = record.get("kind")
    if kind not in _KINDS:
        raise ValueError(f"unknown kind of event {kind!r}: choose one of {', '.join(_KINDS)}")
    return _KINDS[kind].from_dict(record)
