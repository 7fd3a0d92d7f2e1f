"""What columns say of rows, as a configuration asks them: class, group, owner and part of each row that is taken."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from annotated_types import Gt, Le

from rawls.datasets.core.base import Dataset, HeldOut
from rawls.datasets.core.own import parts, roles
from rawls.datasets.core.own.columns import Column, counted, named
from rawls.datasets.core.own.roles import Named, Thresholds
from rawls.datasets.core.splits import Rows, Split

Tested = Annotated[float, Gt(0), Le(0.5)]


@dataclass(frozen=True, kw_only=True, eq=False)
class Roles:
    """What the columns say of the rows that are taken.

    Args:
        rows: which of the file's they are.
        part: of each, by its place in PARTS; None where no column states it.
        notes: what was done to rows or groups.
    """

    rows: Rows
    labels: Named
    groups: Named
    owners: Named | None
    part: Rows | None
    notes: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ByColumns(Dataset):
    """A dataset whose fields name the columns of a table.

    Fields:
        label: the column of classes.
        group: the column of groups, or several, which cross.
        owner: the column of who owns a row; their budgets are those of owners=column.
        split: a column that says train, valid or test of each row. None: `test` of the rows are tested on, the same
            with every seed, and `validation` of the others are held out for validation, by the seed.
        thresholds: numbers at which a numeric label or group column is cut into classes or groups.
        as_category: columns whose numbers are names.
        small_groups: what becomes of groups that are too small for their parts: one group together, or left out;
            None refuses them.
    """

    label: str
    group: str | tuple[str, ...]
    owner: str | None = None
    split: str | None = None
    thresholds: Mapping[str, tuple[float, ...]] | None = None
    as_category: tuple[str, ...] = ()
    small_groups: Literal["merge", "drop"] | None = None
    test: Tested = 0.2
    validation: HeldOut = 0.1

    @property
    def group_columns(self) -> tuple[str, ...]:
        return (self.group,) if isinstance(self.group, str) else self.group

    @property
    def role_columns(self) -> tuple[str, ...]:
        """Those that say what a row is."""
        others = [name for name in (self.owner, self.split) if name is not None]
        return tuple(dict.fromkeys((self.label, *self.group_columns, *others)))

    def check_columns(self, names: Sequence[str]) -> None:
        """That the columns which fields name are there.

        Raises:
            ValueError: one is not; the nearest is named.
        """
        if not self.group_columns:
            raise ValueError("dataset.group names no column: give one, or several that cross")
        fields = {
            "label": (self.label,),
            "group": self.group_columns,
            "owner": (self.owner,) if self.owner else (),
            "split": (self.split,) if self.split else (),
            "as_category": self.as_category,
            "thresholds": tuple(self.thresholds or ()),
        }
        for field, own in fields.items():
            for name in own:
                named(name, names, f"dataset.{field}")
        for name in self.thresholds or ():
            if name not in (self.label, *self.group_columns):
                raise ValueError(
                    f"dataset.thresholds names {name!r}, which is no column of the label or the groups: leave it out"
                )

    def roles_of(self, columns: Mapping[str, Column]) -> Roles:
        """What the columns say.

        Raises:
            ValueError: of something they say nothing, or too much.
        """
        thresholds: Thresholds = self.thresholds or {}
        notes = []
        labels = roles.classes(columns[self.label], thresholds, self.as_category)
        owners = None if self.owner is None else roles.owners(columns[self.owner])
        part = None if self.split is None else roles.stated_parts(columns[self.split])
        rows = np.flatnonzero(labels.codes >= 0)
        if without := len(labels.codes) - len(rows):
            first = int(np.argmax(labels.codes < 0)) + 1
            notes.append(f"{counted(without, 'row')} without {self.label} left out, the first is row {first:,}")
        groups = roles.groups([columns[name].rows(rows) for name in self.group_columns], thresholds, self.as_category)
        sized = parts.of_fair_size(
            labels.codes[rows],
            groups,
            None if part is None else part[rows],
            test=self.test,
            validation=self.validation,
            instead=self.small_groups,
        )
        rows = rows[sized.kept]
        found = Roles(
            rows=rows,
            labels=labels.rows(rows),
            groups=sized.groups,
            owners=None if owners is None else owners.rows(rows),
            part=None if part is None else part[rows],
            notes=(*notes, *sized.notes),
        )
        if len(found.labels.names) < 2:
            raise ValueError(f"the rows that are left have one {self.label} alone, so there is nothing to learn")
        if len(found.groups.names) < 2:
            raise ValueError(
                f"dataset.group={', '.join(self.group_columns)} makes one group of all rows, "
                f"{found.groups.names[0]!r}, so there is nothing to compare: name a column that tells groups apart"
            )
        if found.part is not None:
            for number, name in enumerate(roles.PARTS):
                if name != "valid" and not (found.part == number).any():
                    raise ValueError(
                        f"dataset.split={self.split} has no row in {name}: name some, or null to have the rows split"
                    )
        return found

    def splits_of(self, found: Roles) -> Callable[[int], Split]:
        """The rows that are taken, in parts, by the seed."""
        if found.part is None:
            return parts.splits(found.labels.codes, found.groups.codes, test=self.test, validation=self.validation)
        stated = Split(*(np.flatnonzero(found.part == number) for number in range(len(roles.PARTS))))
        return lambda seed: stated
