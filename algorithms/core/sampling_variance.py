"""The sampling variance of a method's update, Eqs (9)-(11) of the ASC paper, measured on the training data.

A diagnostic of the paper's Fig. 3: it reads private data outside the accounting and never feeds back into training;
runs that use it say so in their ledger. Eq. (11) prints m_g where the batch M_g of aZB-prop is meant, so
that Eqs (10) and (11) are one formula here. U(D_g) and Var_g are estimated on fresh rows, Var_g without bias.
"""

from __future__ import annotations

import numpy as np
import torch

from rawls.accounting.mechanism.sampling import OneGroup, StratifiedWithoutReplacement
from rawls.algorithms.core.step import PrivateMember
from rawls.models.engines.base import Engine

NOTE = "sampling variance was measured on training data outside the accounting (diagnostic; not private)"


def sampling_variance(
    engine: Engine, params: torch.Tensor, member: PrivateMember, step: int, *, rows_per_group: int = 100
) -> float | None:
    """The variance of the present update of one run (params [parameter]); None for laws the theorem does not cover."""
    law = member.present_release().law
    if not isinstance(law, OneGroup | StratifiedWithoutReplacement):
        return None
    sizes = np.asarray(member.task.population.sizes)
    means, within = _group_gradients(engine, params, member, step, rows_per_group)
    batches = np.asarray(law.batches)
    # (n-m)/(n-1) Var_g, where Var_g divides by n and our estimate by one less than its rows.
    correction = (sizes - batches) / sizes
    if isinstance(law, StratifiedWithoutReplacement):
        total = batches.sum()
        return float((batches / total * correction * within).sum() / total)
    weights = np.asarray(law.weights) / np.sum(law.weights)
    target = torch.from_numpy(weights).to(means) @ means
    between = (means - target).square().sum(1).cpu().numpy()
    return float((weights / batches * correction * within).sum() + (weights * between).sum())


def _group_gradients(
    engine: Engine, params: torch.Tensor, member: PrivateMember, step: int, rows_per_group: int
) -> tuple[torch.Tensor, np.ndarray]:
    """Mean gradient [group, parameter] and within-group variance [group], each group as one run of the engine."""
    generator = member.streams.generator("probe", step)
    population = member.task.population
    means, variances = [], []
    for start, size in zip(population.starts, population.sizes, strict=True):
        count = min(rows_per_group, size)
        picked = torch.from_numpy(start + generator.choice(size, count, replace=False)).to(params.device)
        rows = member.data.rows[picked]
        summed = engine.weighted_sum(
            params.unsqueeze(0),
            member.data.gather(rows).unsqueeze(0),
            member.data.labels[picked].unsqueeze(0),
            lambda losses, norms, _runs, _slots: torch.ones_like(norms),
        )
        mean = summed.total[0] / count
        spread = summed.norms[0].double().square().mean() - mean.double().square().sum()
        means.append(mean)
        variances.append(float(spread) * count / max(count - 1, 1))
    return torch.stack(means), np.asarray(variances)
