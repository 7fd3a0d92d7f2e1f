"""What engines compute of a batch before its weights are known: it is shown, weighed and added part by part."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate, groupby
from typing import NamedTuple

import torch
from torch import Tensor

from rawls.models.engines.base import Look, SecondPoint, Triple, Weigh, bindable


class Part(NamedTuple):
    """What an engine has computed of a window of samples, up to their weights.

    Args:
        window: runs and slots.
        losses, norms: [run, slot] of the window.
        finite: whether all norms are.
        add: adds the weighted gradients to the total, for weights [run, slot] that are 0 where a norm is not finite.
    """

    window: tuple[slice, slice]
    losses: Tensor
    norms: Tensor
    finite: bool
    add: Callable[[Tensor], None]


def weigh_parts(
    parts: Callable[[], Iterable[Part]],
    runs: slice,
    weigh: Weigh,
    look: Look | None,
    counts: Sequence[int] | None,
    like: Tensor,
    *,
    keep: bool = True,
) -> list[Triple]:
    """Losses, norms and weights of the parts: first all of them are shown, then they are weighed and added one by one.

    Args:
        parts: computes the parts of these runs, in order of their slots.
        counts: slots in use of all runs.
        like: a tensor of the type of the losses, for a batch without parts.
        keep: whether all parts of a look fit into memory; else they are computed twice.
    """

    def finish(part: Part) -> Triple:
        weights = weigh(part.losses, part.norms, *part.window)
        if not part.finite:
            weights = torch.where(part.norms < math.inf, weights, 0.0)  # not a product: zero times nan is nan
        part.add(weights)
        return part.losses, part.norms, weights

    if look is None or not any(look.needs[runs]):
        return list(map(finish, parts()))  # map lets go of a part before it asks for the next one
    kept: deque[Part] = deque()
    shown: list[tuple[Tensor, Tensor]] = []
    for part in parts():
        shown.append((part.losses, part.norms))
        if keep:
            kept.append(part)
        del part
    if len(shown) == 1:
        losses, norms = shown[0]
    else:
        nothing = (like.new_zeros(runs.stop - runs.start, 0),) * 2
        losses, norms = (torch.cat(values, 1) for values in zip(nothing, *shown, strict=True))
    for row, run in enumerate(range(runs.start, runs.stop)):
        if need := look.needs[run]:
            used = slice(None if counts is None else counts[run])
            look.see(run, losses[row, used], norms[row, used] if need == "norms" else None)
    return list(map(finish, (kept.popleft() for _ in range(len(kept))) if keep else parts()))


def alike(second: SecondPoint | None, runs: int) -> list[slice]:
    """Neighbouring runs that take their gradients at the same points."""
    if second is None:
        return [slice(0, runs)]
    lengths = [len(list(same)) for _, same in groupby(second.shares, key=lambda share: (share == 0, share == 1))]
    stops = list(accumulate(lengths))
    return [slice(stop - length, stop) for length, stop in zip(lengths, stops, strict=True)]


Point = tuple[Tensor, Sequence[float] | None]
"""Parameters [run, parameter], and the share of their gradients per run; None where that is all of it."""


def points(params: Tensor, second: SecondPoint | None, runs: slice) -> list[Point]:
    """Where runs that are alike take their gradients; their losses are those at the first of the points."""
    if second is None or second.shares[runs.start] == 0:
        return [(rows_of(params, runs), None)]
    if second.shares[runs.start] == 1:
        return [(rows_of(second.params, runs), None)]
    shares = second.shares[runs]
    return [(rows_of(params, runs), [1 - share for share in shares]), (rows_of(second.params, runs), shares)]


PointOfRun = tuple[Tensor, float | None]


def points_of_run(params: Tensor, second: SecondPoint | None, run: int) -> list[PointOfRun]:
    """The same for one run, as flat parameters that a module can be bound to."""
    where = points(params, second, slice(run, run + 1))
    return [(bindable(rows[0]), None if shares is None else shares[0]) for rows, shares in where]


def rows_of(params: Tensor, runs: slice) -> Tensor:
    """The rows of these runs; the tensor itself when they are all, so that engines know it again."""
    return params if runs.start == 0 and runs.stop == params.shape[0] else params[runs]
