"""The privacy sheet of a run: of its plan before training, of its ledger after it. It lies beside the trained model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rawls.accounting.claims import Claim
from rawls.accounting.sheets.published import Lines, planned_lines
from rawls.accounting.sheets.sheet import Subject, open_sheet, sheet
from rawls.algorithms.core.about import about
from rawls.algorithms.core.method import Method, Task
from rawls.algorithms.core.solver import Solver
from rawls.datasets.core.base import Dataset
from rawls.runners.config.specifications import build, name_of
from rawls.runners.store.stored import mark_of

if TYPE_CHECKING:
    from rawls.runners.training.setup import Prepared


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What came of a private run.

    Args:
        lines: of its ledger.
        spent: epsilon of each cell, by the ledger.
        claim: what the paper prints for the run as it ended.
        assumptions: what is said of it beyond what was said of its plan.
    """

    lines: Lines
    spent: Sequence[float]
    claim: Claim | None
    assumptions: Sequence[str]


def privacy_sheet(config: Mapping[str, Any], prepared: Prepared, made: str, trained: Trained | None = None) -> str:
    """The sheet as Markdown.

    Args:
        made: how it came about, in a sentence.
        trained: None for a plan, and for an open method.
    """
    method, task, plan = prepared.method, prepared.task, prepared.plan
    dataset: Dataset = build(config["dataset"], "dataset")
    words = about(method)
    data, mark = name_of(config["dataset"]), mark_of(prepared.provenance)
    subject = Subject(
        method=name_of(config["algorithm"]),
        title=words.title,
        paper=words.paper,
        file=words.file,
        readings=words.readings,
        data=f"{data} ({mark})" if mark else data,
        made=made,
        group_names=prepared.group_names,
        owner_names=task.owner_names,
        public={
            "training records": task.population.total,
            **(_of_a_step(method, task) if isinstance(method, Method) else {}),
            "steps": task.steps,
        },
        granted=dataset.assumptions,
        assumptions=(*prepared.assumptions, *(trained.assumptions if trained else ())),
        secure=config["privacy"]["secure"],
        adapts=isinstance(method, Method) and type(method).adapts_after is not Method.adapts_after,
    )
    if plan is None:
        return open_sheet(subject)
    if trained is None:
        return sheet(subject, plan, planned_lines(plan), claim_before(prepared))
    return sheet(subject, plan, trained.lines, trained.claim, trained.spent)


def _of_a_step(method: Method, task: Task) -> dict[str, float]:
    return {"batch size": task.batch_size, "divisor of the noisy sum": method.divisor(task)}


def claim_before(prepared: Prepared) -> Claim | None:
    """What the paper would print, as far as it is known before training: the rule, if not its number."""
    method, task, plan = prepared.method, prepared.task, prepared.plan
    if plan is None:
        return None
    if isinstance(method, Solver):
        return method.claim(task, plan, {})
    assert isinstance(method, Method)
    return method.claim(task, plan, method.start(task, plan))
