"""Several processes compute one batch: each takes a share of the slots, and what it finds is added up over all.

Every process of a torch.distributed group (gloo on CPUs, nccl on GPUs) makes the same calls with the same arguments;
the inner engine, whichever it is, sees this process's share of the slots, and the sums come back to all. So every
process makes the same step, and the algorithm's code does not know that there are others.

The same mathematics as Opacus' DPDDP (DifferentiallyPrivateDistributedDataParallel with DistributedDPOptimizer). There,
each process clips its own samples and sums them, process 0 adds the noise to its part, and the parts are summed and
divided by the expected batch. Here the parts are summed first, and the noise comes after
(runners/schedule/backends/torchrun.py sees to it that it is drawn once). Clipping looks at one sample at a time and
sums commute, so both are (sum over all samples of weight x gradient + noise) / batch. What differs is who samples: with
DPDDP each process, from a part of the data of its own; here all draw the same batch, by the one law that is accounted
for, and then divide it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from rawls.models.engines.base import Engine, InputGradients, Look, SecondPoint, Weigh, WeightedSum


class Parted(RuntimeError):
    """Another process of the group has ended, or did not answer in time."""


@contextmanager
def together() -> Iterator[None]:
    """Around what needs all processes: torch says in many ways that one is missing."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise Parted("another process of this run has ended or did not answer") from error


def share(count: int, group: dist.ProcessGroup | None = None) -> slice:
    """This process's part of so many slots; the parts differ by one at most, and some may be empty."""
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    return slice(count * rank // size, count * (rank + 1) // size)


def gather_share(gather: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Inputs by row number for a sharded engine: only this process's part of them is looked up, the rest is blank.

    Decoding images costs more than anything else a process does on its CPU. For one run's rows, which all of its
    processes ask for in one order.
    """

    def gathered(rows: Tensor) -> Tensor:
        mine = share(len(rows))
        inputs = gather(rows[mine])
        whole = inputs.new_empty((len(rows), *inputs.shape[1:]))
        whole[mine] = inputs
        return whole

    return gathered


class ShardedEngine:
    """Any engine, with the slots of a batch divided among the processes of a group.

    Args:
        engine: computes this process's share.
        group: the processes; None takes all.
    """

    def __init__(self, engine: Engine, group: dist.ProcessGroup | None = None) -> None:
        self._engine = engine
        self._group = group
        self.num_parameters = engine.num_parameters
        self.num_buffers = engine.num_buffers

    def initial(self, seed: int) -> Tensor:
        """Those of the group's first process, so that all begin from the same bits."""
        params = self._engine.initial(seed)
        with together():
            dist.broadcast(params, group=self._group, group_src=0)
        return params

    def named(self, params: Tensor) -> dict[str, Tensor]:
        return self._engine.named(params)

    def weighted_sum(
        self,
        params: Tensor,
        inputs: Tensor,
        labels: Tensor,
        weigh: Weigh,
        counts: Sequence[int] | None = None,
        *,
        look: Look | None = None,
        second: SecondPoint | None = None,
        seeds: Sequence[int] | None = None,
    ) -> WeightedSum:
        """Equal on every process; `weigh` is called for the windows of this process's share, in the batch's slots.

        A look is shown the whole batch on every process.
        """
        runs, slots = labels.shape
        mine = share(slots, self._group)

        def weigh_mine(losses: Tensor, norms: Tensor, of: slice, window: slice) -> Tensor:
            first, last, _ = window.indices(mine.stop - mine.start)
            return weigh(losses, norms, of, slice(mine.start + first, mine.start + last))

        def see_mine(run: int, losses: Tensor, norms: Tensor | None) -> None:
            whole = params.new_zeros(2, slots if counts is None else counts[run])
            seen = slice(mine.start, mine.start + len(losses))
            whole[0, seen] = losses
            if norms is not None:
                whole[1, seen] = norms
            self._add_up(whole)
            assert look is not None
            look.see(run, whole[0], None if norms is None else whole[1])

        used = None
        if counts is not None:
            used = [min(max(count, mine.start), mine.stop) - mine.start for count in counts]
        part = self._engine.weighted_sum(
            params,
            inputs[:, mine],
            labels[:, mine],
            weigh_mine,
            used,
            look=look and Look(look.needs, see_mine),
            second=second,
            seeds=seeds,
        )
        samples = part.losses.new_zeros(3, runs, slots)
        samples[:, :, mine] = torch.stack([part.losses, part.norms, part.weights])
        self._add_up(samples)
        for run in part.total:  # one by one: a run's row is contiguous, the rows together are not
            self._add_up(run)
        losses, norms, weights = samples.unbind()
        return WeightedSum(losses, norms, weights, part.total)

    def evaluate(self, params: Tensor, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        mine = share(len(labels), self._group)
        losses, correct = self._engine.evaluate(params, inputs[mine], labels[mine])
        samples = losses.new_zeros(2, len(labels))
        samples[0, mine], samples[1, mine] = losses, correct.to(losses.dtype)
        self._add_up(samples)
        return samples[0], samples[1] > 0

    def predict(self, params: Tensor, inputs: Tensor) -> Tensor:
        mine = share(len(inputs), self._group)
        return self._from_all(self._engine.predict(params, inputs[mine]), mine, len(inputs))

    def input_gradients(self, params: Tensor, labels: Tensor, *, seed: int | None = None) -> InputGradients:
        mine = share(len(labels), self._group)
        gradients = self._engine.input_gradients(params, labels[mine], seed=seed)
        return lambda inputs: self._from_all(gradients(inputs[mine]), mine, len(inputs))

    def _from_all(self, values: Tensor, mine: slice, samples: int) -> Tensor:
        """The values [sample, ...] of all processes, of which these are mine."""
        whole = values.new_zeros(samples, *values.shape[1:])
        whole[mine] = values
        self._add_up(whole)
        return whole

    def _add_up(self, values: Tensor) -> None:
        """Sum over the processes, in place; where only one has something, that is copied as it is."""
        with together():
            dist.all_reduce(values, group=self._group)
