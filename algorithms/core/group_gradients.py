"""Loss, gradient norm and gradient variance of each group, and what clipping takes from it (FDPG, Figs. 2, 4 and 8).

A diagnostic: it reads training rows outside the accounting and never feeds back into training; runs that use it say so
in their ledger. The paper's variance (Def. 3) is that of a sample's gradient around the mean gradient of the whole data
set, averaged over a group's samples; as its text can also be read as around the mean of the group, both are measured:
they differ by the squared distance of the two means. Eq. (2) writes what clipping takes with the threshold C, Eq. (4)
what normalisation changes with R = 1; here both are of the method's own bound, and C may differ by cell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from rawls.accounting.mechanism.sampling import Population
from rawls.algorithms.core.method import Asks, Normalises
from rawls.algorithms.core.rows import Member, TrainingRows
from rawls.algorithms.core.solver_step import SolverMember
from rawls.algorithms.core.step import PrivateMember
from rawls.models.engines.base import Engine

NOTE = "losses and gradients of the groups were measured on training rows outside the accounting (not private)"


def positions_of_groups(
    data: TrainingRows, population: Population, most: int | None, generator: np.random.Generator
) -> list[Tensor]:
    """Training positions of each group: all, or so many drawn from the rows of larger groups."""
    groups = np.asarray(population.groups)[data.cells.cpu().numpy()]
    found = []
    for group in range(len(population.group_sizes)):
        positions = np.flatnonzero(groups == group)
        # In the order of the dataset, which is the same however the group is dealt out to cells.
        positions = positions[np.argsort(data.rows.cpu().numpy()[positions])]
        if most is not None and most < len(positions):
            positions = positions[np.sort(generator.choice(len(positions), most, replace=False))]
        found.append(torch.from_numpy(positions).to(data.rows.device))
    return found


@torch.inference_mode()
def group_gradients(
    engine: Engine, params: Tensor, member: Member | SolverMember, positions: Sequence[Tensor]
) -> dict[str, list[float]]:
    """Of each group, over its samples i at these positions and one run's parameters [parameter].

    Returns:
        loss: mean loss.
        gradient_norm: mean of ||g_i||.
        gradient_variance: mean of ||g_i - g||^2, g the mean gradient of the training set.
        gradient_variance_within: the same around the mean gradient of the group.
        clipping_error: mean of max(0, ||g_i|| - C), for methods that clip to a bound C and do nothing else.
        normalisation_error: mean of | R ||g_i|| / (||g_i|| + gamma) - ||g_i|| |, for methods that normalise.
        count: how many samples were measured.

    g is the mean of the groups' means by the sizes of the groups. A gradient that is not finite makes the norm, the
    variances and the errors of its group infinite.
    """
    sizes = torch.tensor(member.task.population.group_sizes, dtype=torch.float64, device=params.device)
    losses, norms, sums = zip(
        *(_measured(engine, params, member.data, of_group) for of_group in positions), strict=True
    )
    means = torch.stack([total / len(of_norms) for total, of_norms in zip(sums, norms, strict=True)])
    squares = torch.stack([of_norms.square().mean() for of_norms in norms])
    within = (squares - means.square().sum(1)).clamp_min(0)
    off = (means - sizes @ means / sizes.sum()).square().sum(1)
    columns = {
        "loss": torch.stack([of_losses.mean() for of_losses in losses]),
        "gradient_norm": torch.stack([of_norms.mean() for of_norms in norms]),
        "gradient_variance": within + off,
        "gradient_variance_within": within,
    }
    if isinstance(member, PrivateMember) and (name := _error_of(member)):
        bounds = torch.tensor(member.present_bounds(), dtype=torch.float64, device=params.device)
        errors = [
            (_limited(member, of_norms, bounds[member.data.cells[of_group]]) - of_norms).abs().mean()
            for of_norms, of_group in zip(norms, positions, strict=True)
        ]
        columns[name] = torch.stack(errors)
    return {name: values.tolist() for name, values in columns.items()} | {"count": [len(each) for each in norms]}


def _error_of(member: PrivateMember) -> str | None:
    """What the method's error is called; None where a sample's weight is not a matter of its norm and a bound alone."""
    method = member.method
    if isinstance(method, Normalises) and method.stability is not None:
        return "normalisation_error" if type(method).importance is Normalises.importance else None
    return "clipping_error" if method.only_clips and not isinstance(method, Asks) else None


def _limited(member: PrivateMember, norms: Tensor, bounds: Tensor) -> Tensor:
    """The norms of what the method makes of gradients with these norms."""
    stability = member.method.stability if isinstance(member.method, Normalises) else None
    return norms.minimum(bounds) if stability is None else bounds / (1 + stability / norms)


def _measured(engine: Engine, params: Tensor, data: TrainingRows, positions: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Losses and gradient norms [sample], and the sum of the gradients [parameter], in double precision."""
    losses, norms = [], []
    total = torch.zeros(engine.num_parameters, dtype=torch.float64, device=params.device)
    for part in positions.split(data.rows_at_once):
        summed = engine.weighted_sum(
            params[None, : engine.num_parameters],
            data.gather(data.rows[part]).unsqueeze(0),
            data.labels[part].unsqueeze(0),
            lambda losses, *_: torch.ones_like(losses),
        )
        losses.append(summed.losses[0].double())
        norms.append(summed.norms[0].double())
        total += summed.total[0]
    return torch.cat(losses), torch.cat(norms), total
