"""What may be asked of a run's training data beside the gradient: sums whose every term is limited, over drawn rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.mechanism.release import Release
from rawls.models.engines.base import Engine

if TYPE_CHECKING:
    from rawls.algorithms.core.step import PrivateMember


def sum_of_contributions(contributions: Tensor, bounds: Sequence[float], cells: Tensor) -> Tensor:
    """The sum over samples [slot, coordinate] -> [coordinate], each row limited to the norm bound of its cell."""
    rows = contributions.to(torch.float64).nan_to_num(nan=0.0)
    of_cells = torch.tensor(bounds, dtype=torch.float64, device=rows.device)
    factors = (of_cells[cells] / rows.norm(dim=1).clamp_min(1e-300)).clamp_max(1.0)
    return factors @ rows


class FleetQueries:
    """`PrivateQueries` of one run at one step."""

    def __init__(self, engine: Engine, params: Tensor, member: PrivateMember, step: int) -> None:
        self._engine, self._params, self._member, self._step = engine, params, member, step

    def group_losses(self, release: Release, *, centred: bool = False) -> np.ndarray:
        data = self._member.data
        sums = torch.zeros(len(release.bounds), dtype=torch.float64, device=self._params.device)
        bounds = torch.tensor(release.bounds, dtype=self._params.dtype, device=self._params.device)
        for part in self._drawn(release):
            losses, _ = self._engine.evaluate(self._params, data.gather(data.rows[part]), data.labels[part])
            cells = data.cells[part]
            of_rows = bounds[cells]
            most = 2 * of_rows if centred else of_rows
            clipped = losses.nan_to_num(nan=torch.inf).clamp(min=0).minimum(most)
            if centred:
                clipped = clipped - of_rows
            sums.index_add_(0, cells, clipped.to(torch.float64))
        return self._member.ledger.publish(release, sums, self._step).cpu().numpy()

    def losses(self, release: Release, *points: Tensor) -> list[Tensor]:
        """Private: the losses of the rows that the release draws at this step, [row] under each of the parameters."""
        data = self._member.data
        parts = [[params.new_zeros(0)] for params in points]
        for part in self._drawn(release):
            inputs, labels = data.gather(data.rows[part]), data.labels[part]
            for params, of_point in zip(points, parts, strict=True):
                of_point.append(self._engine.evaluate(params, inputs, labels)[0])
        return [torch.cat(of_point) for of_point in parts]

    def generator(self, purpose: str) -> np.random.Generator:
        return self._member.streams.generator(purpose, self._step)

    def _drawn(self, release: Release) -> Iterator[Tensor]:
        """The positions that the release's law draws at this step, as many at a time as can be gathered."""
        data = self._member.data
        generator = self._member.streams.generator(f"{release.name}: sampling", self._step)
        (positions,) = self._member.present(release.law.draw_block(generator, 1))
        for start in range(0, len(positions), data.rows_at_once):
            yield torch.from_numpy(positions[start : start + data.rows_at_once]).to(self._params.device)
