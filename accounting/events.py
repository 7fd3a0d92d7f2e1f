"""What happened to the data, in the words the accountants read: sampling laws and noisy steps.

A noise multiplier is kappa = noise std / norm bound of ONE record. Under replace-one a record can move the
sum by twice its bound; accountants apply that factor (`Neighbouring.sensitivity`), callers never do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
class GaussianEvent:
    """`count` noisy sums of bounded records: sample, clip, add noise of std noise_multiplier x bound.

    A noise multiplier of 0 is no noise (epsilon is infinite); infinity is no release at all (no cost).
    """

    kind: ClassVar[str] = "gaussian"
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


Event = GaussianEvent | RdpEvent


def event_from_dict(record: Mapping[str, Any]) -> Event:
    """The inverse of `to_dict`, for a ledger read back from JSON."""
    match record.get("kind"):
        case GaussianEvent.kind:
            return GaussianEvent.from_dict(record)
        case RdpEvent.kind:
            return RdpEvent.from_dict(record)
        case kind:
            raise ValueError(f"unknown kind of event {kind!r}: choose gaussian or rdp")
