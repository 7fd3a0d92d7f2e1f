"""A method to copy: DP-SGD with Poisson sampling, and a weight that lowers large losses. It is no method of the suite.

1. Copy this file to algorithms/<name>.py, or as <name>.py into a folder of your own that PYTHONPATH names.
2. Write <name>.yaml: `_target_: rawls.algorithms.<name>.<Class>` (in a folder of your own `<name>.<Class>`), then every
   field of the class with its default, for conf/algorithm/ or for algorithm/ in the folder that `--config-dir` names.
3. `rawls train algorithm=<name> privacy=eps8`; with folders of your own,
   `PYTHONPATH=FOLDER RAWLS_MODULES=<name> rawls train --config-dir CONF algorithm=<name> privacy=eps8`.

Say here what it is and in brackets, in the first paragraph, whose: '(Name and Name 2031, Algorithm 2)'; then what is
read otherwise than it is written. Privacy sheets say it again. The hooks stand in the order of the pseudocode, each
naming its lines. None of them clips, adds noise or counts privacy: the step does.

What this method does not do is told by deriving from another class of algorithms/core/method.py, which says what to
write:
- Normalises: an option that normalises gradients instead of clipping them (algorithms/dp_is_sgd.py).
- Looks: thresholds that follow from published statistics of the whole batch (algorithms/dpsgd_f.py).
- Counts: statistics published beside the gradient; `observe` gets them (algorithms/fdpg.py).
- Directs: the noisy gradient passes a filter, or gradients are taken at a second point (algorithms/disk.py).
- Tests: a step is tried, tested on a second draw and taken back (algorithms/dpsur.py).
- Ranks: a sample's weight depends on its rank in the batch (algorithms/ino_sgd.py).
- keeps_owners = True: rows have owners with budgets of their own (algorithms/idp_sgd.py).
- OpenMethod: no privacy, and weights from the whole batch (algorithms/gdro.py).
- Attacks: no privacy, and inputs that are made worse before the step is taken on them (algorithms/pgd_at.py).
- Solver: a loop of its own, where no order of the step's parts fits (algorithms/minimax_phased_erm.py).
- start, adapts_after, adapt: public state that changes every k steps, from releases only
  (algorithms/core/group_weights.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from rawls.accounting.events import Neighbouring
from rawls.accounting.fields import Positive
from rawls.accounting.mechanism.plan import Budget, Plan
from rawls.accounting.mechanism.release import Release
from rawls.accounting.mechanism.sampling import UniformPoisson
from rawls.algorithms.core.method import Method, PublicState, Samples, Task


@dataclass(frozen=True, kw_only=True)
class Mine(Method):
    """Sample, weigh, clip to clip_norm, sum, add noise, step.

    The fields are the keys of the YAML. A type says what is allowed: what lies outside is refused before training.

    Args:
        clip_norm: C, the most that one sample adds to the sum.
        loss_scale: lambda; a sample whose loss is lambda counts half.
    """

    clip_norm: Positive = 1.0
    loss_scale: Positive = 2.0

    @property
    def neighbouring(self) -> Neighbouring:
        """The relation of the paper's proof; Poisson sampling is accounted for under add/remove."""
        return Neighbouring.ADD_REMOVE

    def plan(self, task: Task, budget: Budget) -> Plan:
        """Line 1: every release of the run, and how often, at a noise multiplier that `budget` finds.

        The gradient comes first. Where the paper prints another epsilon than is proven, the plan takes a rule of
        accounting/claims.py beside it: `plan.claiming(rule)`, as algorithms/dp_is_sgd.py does.
        """
        return budget.plan(lambda kappa: [(self._gradient(task, kappa * self.clip_norm), task.steps)])

    def gradient_release(self, task: Task, plan: Plan, state: PublicState) -> Release:
        """Lines 3 and 6: how a step's rows are drawn, the bound of each cell, the noise of the sum."""
        return self._gradient(task, plan.noise_std)

    def importance(self, samples: Samples) -> Tensor:
        """Line 4: the weight of each sample, by itself: no mean, sum or rank over the batch.

        The step lowers it to bound / norm where it is larger (line 5), so any weight keeps the sensitivity.
        """
        return self.loss_scale / (self.loss_scale + samples.losses)

    def _gradient(self, task: Task, noise_std: float) -> Release:
        """The one place that states law, bounds and noise; plan and step both take it, so they agree."""
        population = task.population
        return Release(
            name="gradient",
            law=UniformPoisson(population, task.batch_size / population.total),
            bounds=(self.clip_norm,) * len(population.sizes),
            noise_std=noise_std,
        )
