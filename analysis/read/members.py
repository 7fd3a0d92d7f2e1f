"""The groups and owners of a run, from its summary: a row of `groups`, `partition` and `owners` for each.

In the table that analysis/read/load.py keeps of all runs, they are lists in the run's row, a column each.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from rawls.runners.store.stored import EVALUATED, EVALUATED_SIZES, of_partition

POSITIVES = ["positives", "predicted_positives", "true_positives"]
GROUPS = [
    "run_id", "split", "group", "group_name", "accuracy", "loss", "count", "train_count", "calibrated", "epsilon",
    "epsilon_spent", *POSITIVES,
]  # fmt: skip
OWNERS = ["run_id", "owner", "owner_name", "budget", "epsilon", "epsilon_spent"]

_GROUP_TYPES = {"split": pa.string(), "group": pa.int64(), "group_name": pa.string(), "calibrated": pa.bool_()}
# A run's rows of `groups` are lists in its row of `runs`, a column each.
OF_GROUPS = {f"groups.{name}": pa.list_(_GROUP_TYPES.get(name, pa.float64())) for name in GROUPS[1:]}
# And so of the partition, for runs whose evaluated groups are others.
OF_PARTITION = {f"parted.{name}": OF_GROUPS[f"groups.{name}"] for name in GROUPS[1:]}
# And so of owners, whose number is the place in the list.
OF_OWNERS = {f"owners.{name}": pa.list_(pa.float64()) for name in OWNERS[1:]}
OF_OWNERS |= {"owners.owner": pa.list_(pa.int64()), "owners.owner_name": pa.list_(pa.string())}


def group_rows(summary: dict[str, Any]) -> dict[str, list[Any]]:
    """The run's rows of `groups`; and of `partition`, where the evaluated groups overlap: only that is charged."""
    plan = summary.get("plan") or {}
    names, epsilons = summary.get("group_names") or [], plan.get("epsilon_per_group") or []
    number, covered = max(len(names), len(epsilons)), plan.get("covered_groups")
    partition: dict[str, list[Any]] = {
        "group": list(range(number)),
        "group_name": _named(names, number),
        "train_count": _padded(summary.get("group_sizes"), number),
        "calibrated": [None if covered is None else group in covered for group in range(number)],
        "epsilon": _padded(epsilons, number),
        "epsilon_spent": _padded(summary.get("ledger_epsilon_per_group"), number),
    }
    evaluated = summary.get(EVALUATED)
    if evaluated is None:
        return _by_split(summary, partition, "groups", str)
    number = len(evaluated)
    of_all: dict[str, list[Any]] = {
        "group": list(range(number)),
        "group_name": _named(evaluated, number),
        "train_count": _padded(summary.get(EVALUATED_SIZES), number),
        **{name: [None] * number for name in ("calibrated", "epsilon", "epsilon_spent")},
    }
    return _by_split(summary, of_all, "groups", str) | _by_split(summary, partition, "parted", of_partition)


def _by_split(
    summary: dict[str, Any], groups: Mapping[str, list[Any]], frame: str, called: Callable[[str], str]
) -> dict[str, list[Any]]:
    """A row for each of the groups in each split. A plan-only run has no splits: one row each, with split None.

    Epsilon is the plan's, which the ledger was found to keep. What the ledger spent is no guarantee where what a group
    is charged depends on what was released (ASC's batches do).

    Args:
        called: what the summary calls a score of theirs.
    """
    number = len(groups["group"])
    splits: list[str | None] = [split for split in ("test", "valid") if summary.get(split)] or [None]
    found: dict[str, list[Any]] = {f"{frame}.{name}": [] for name in GROUPS[1:]}
    for split in splits:
        scores = summary.get(split) or {} if split else {}
        counts = _padded(scores.get(called("count")), number)
        found[f"{frame}.split"] += [split] * number
        found[f"{frame}.count"] += counts
        for name in ("accuracy", "loss"):
            values = _padded(scores.get(called(name)), number)
            found[f"{frame}.{name}"] += [None if count == 0 else x for x, count in zip(values, counts, strict=True)]
        for name in POSITIVES:
            found[f"{frame}.{name}"] += _padded(scores.get(called(name)), number)
        for name, values in groups.items():
            found[f"{frame}.{name}"] += values
    return found


def owner_rows(summary: dict[str, Any]) -> dict[str, list[Any]]:
    """The run's rows of `owners`: none, unless its method keeps a budget for each."""
    plan = summary.get("plan") or {}
    budgets, epsilons = plan.get("owner_budgets") or [], plan.get("epsilon_per_owner") or []
    number = max(len(budgets), len(epsilons))
    return {
        "owners.owner": list(range(number)),
        "owners.owner_name": _named(summary.get("owner_names"), number),
        "owners.budget": _padded(budgets, number),
        "owners.epsilon": _padded(epsilons, number),
        "owners.epsilon_spent": _padded(summary.get("ledger_epsilon_per_owner"), number),
    }


def _named(names: Sequence[Any] | None, number: int) -> list[str | None]:
    return [None if name is None else str(name) for name in _padded(names, number)]


def _padded(values: Sequence[Any] | None, number: int) -> list[Any]:
    given = list(values or [])[:number]
    return given + [None] * (number - len(given))
