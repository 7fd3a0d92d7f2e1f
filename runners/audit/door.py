"""What passes the only door between private and public: a run's ledger, watched on the real path.

A door stands before the ledgers of a fleet and keeps every answer as it went in and as it came out. A second fleet,
on neighbouring data, can be shown the answers of the first: then both have seen the same public history, and what they
ask next may differ by what is declared, no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rawls.accounting.mechanism.ledger import Ledger
from rawls.accounting.mechanism.release import Answer, Release, Rescaled
from rawls.algorithms.core.step import PrivateStep
from rawls.runners.audit.solver_fleet import SolverFleet


class ContractBroken(AssertionError):
    """What a method does is not what it says."""


@dataclass(frozen=True, kw_only=True)
class Passed:
    """One answer: what the ledger will say of it, the noise that its release asked for, and what went in and out."""

    release: Release
    declared: Mapping[str, Any]
    noise_std: float
    private: Tensor
    public: Tensor

    def bound(self, cell: int) -> float:
        """How far a record of the cell moves the answer, at most and as declared."""
        return float(self.declared["bounds"][cell])

    @property
    def noise(self) -> str:
        return "tree" if "tree" in self.declared else str(self.declared.get("noise", "gaussian"))

    @property
    def scale(self) -> float:
        """By how much the step's noise is larger than declared."""
        return self.noise_std / float(self.declared["noise_std"])


Address = tuple[str, str, int]
"""(release, answer, step)"""


class Door:
    """The answers of a fleet's runs, by address; `shown` are those of a fleet that went first."""

    def __init__(self, stepper: PrivateStep | SolverFleet, shown: Door | None = None) -> None:
        self.passed: list[dict[Address, Passed]] = [{} for _ in stepper.members]
        self._shown = shown
        self._declared: dict[int, tuple[Any, Mapping[str, Any]]] = {}
        members: Sequence[Any] = stepper.members
        for run, member in enumerate(members):
            self._stand_before(member.ledger, run)
        if isinstance(stepper, SolverFleet):  # whose runs publish one by one
            return
        publish = stepper._ledgers.publish

        def publish_all(releases: Any, totals: Tensor, step: int) -> Tensor:
            private = totals.detach().clone()
            public = publish(releases, totals, step)
            for run, release in enumerate(releases):
                declared = release.declared if isinstance(release, Rescaled) else release
                self._keep(run, declared, declared, release.noise_std, private[run], public[run], step)
            return public

        setattr(stepper._ledgers, "publish", publish_all)  # noqa: B010

    def of_step(self, run: int, step: int) -> dict[Address, Passed]:
        return {address: passed for address, passed in self.passed[run].items() if address[2] == step}

    def forget(self) -> None:
        """What passed until now, once it has been compared: of many runs it would not fit into memory."""
        for of_run in self.passed:
            of_run.clear()

    def _stand_before(self, ledger: Ledger, run: int) -> None:
        publish, look, beside = ledger.publish, ledger.look, ledger.publish_beside

        def publish_one(release: Any, total: Tensor, step: int) -> Tensor:
            private = total.detach().clone()
            public = publish(release, total, step)
            declared = release.declared if isinstance(release, Rescaled) else release
            self._keep(run, declared, declared, release.noise_std, private, public, step)
            return public

        def several(ask: Any, kind: str) -> Any:
            def ask_all(release: Release, sums: Mapping[str, Tensor], step: int) -> dict[str, Tensor]:
                private = {name: values.detach().clone() for name, values in sums.items()}
                public: dict[str, Tensor] = ask(release, sums, step)
                answers: tuple[Answer, ...] = getattr(release, kind)
                if public.keys() != {answer.name for answer in answers}:
                    raise ContractBroken(
                        f"'{release.name}' declares {[a.name for a in answers]}, published {[*public]}"
                    )
                for answer in answers:
                    into, out = private[answer.name], public[answer.name]
                    self._keep(run, release, answer, answer.noise_std, into, out, step)
                return public

            return ask_all

        for name, watched in (
            ("publish", publish_one),
            ("look", several(look, "look")),
            ("publish_beside", several(beside, "beside")),
        ):
            setattr(ledger, name, watched)

    def _keep(
        self, run: int, release: Release, answer: Answer, std: float, private: Tensor, public: Tensor, step: int
    ) -> None:
        address = (release.name, answer.name, step)
        if self._shown is not None:
            first = self._shown.passed[run].get(address)
            if first is None or first.public.shape != public.shape:
                raise ContractBroken(f"{address} is published on one of two neighbouring data sets only")
            public.copy_(first.public)
        self.passed[run][address] = Passed(
            release=release,
            declared=self._record_of(release, answer),
            noise_std=float(std),
            private=private.to(torch.float64),
            public=public.detach().clone().to(torch.float64),
        )

    def _record_of(self, release: Release, answer: Answer) -> Mapping[str, Any]:
        """The part of the release's ledger line that is about the answer."""
        _, line = self._declared.setdefault(id(release), (release, release.to_dict()))
        if answer is release:
            return line
        return next(one for kind in ("look", "beside") for one in line.get(kind, ()) if one["name"] == answer.name)
