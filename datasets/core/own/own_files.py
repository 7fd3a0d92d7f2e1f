"""A dataset of one's own files: the columns of a table say what class, group, owner and part each row is of.

What the files hold is found when they are read, once in a process while they stay as they are: the groups, what must be
assumed public, and a text of what was found (`findings`), which is shown before anything is trained. A run is told by
what its files hold, not by where they lie.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from rawls.datasets.core.base import Data, Inputs, Provenance
from rawls.datasets.core.own import findings
from rawls.datasets.core.own.by_columns import ByColumns, Roles
from rawls.datasets.core.own.columns import Column, counted, gathered
from rawls.datasets.core.own.encoding import Encoding
from rawls.datasets.core.own.readers import TableFile, not_there, open_table
from rawls.datasets.core.splits import Rows


@dataclass(frozen=True, kw_only=True, eq=False)
class Held:
    """What the files hold; group_names, minority_groups, assumptions and findings as a `Dataset` says them."""

    data: Data
    group_names: tuple[str, ...]
    minority_groups: tuple[int, ...]
    assumptions: tuple[str, ...]
    findings: str


@dataclass(frozen=True, kw_only=True, eq=False)
class Taken:
    """What the rows are to a model.

    Args:
        uses: of columns that are inputs or might be, in words.
        private: what was read of the data for it beside the accounting, in the words of an assumption.
        notes: what a careful reader would ask.
        encoding: what columns became, if inputs are made of them.
    """

    inputs: Inputs
    uses: Mapping[str, str]
    private: tuple[str, ...] = ()
    encoding: Encoding | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OwnFiles(ByColumns):
    """Files of one's own.

    Fields:
        path: where they lie, from the folder in which the command is given; no part of a run's id.
    """

    provenance: Literal["real"] | None = None
    path: str

    def __hash__(self) -> int:
        """By what can be hashed: mappings are compared, too, where two are alike in it."""
        return hash((type(self), self.path, self.label))

    @property
    @abstractmethod
    def table(self) -> Path:
        """The file of the columns."""

    @abstractmethod
    def wanted(self, names: Sequence[str]) -> list[str]:
        """Of the columns of the file those that are looked at.

        Raises:
            ValueError: a field names one that is not there.
        """

    @abstractmethod
    def take(self, file: TableFile, columns: Mapping[str, Column], found: Roles, fitted_on: Rows) -> Taken:
        """What the rows are to a model.

        Args:
            columns: of all rows of the file.
            found: which of them are taken.
            fitted_on: which of those that are taken some seed may train on.
        """

    @property
    def group_names(self) -> tuple[str, ...]:
        return self._held.group_names

    @property
    def minority_groups(self) -> tuple[int, ...]:
        """The smallest group."""
        return self._held.minority_groups

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self._held.assumptions

    @property
    def findings(self) -> str:
        return self._held.findings

    @property
    def paper_group_sizes(self) -> None:
        """No paper has them."""

    @property
    def place(self) -> Path:
        return Path(self.path).expanduser()

    def found(self, root: Path) -> Provenance:
        return "real"

    def read(self, root: Path, provenance: Provenance) -> Data:
        return self._held.data

    def simulate(self) -> Data:
        raise ValueError(f"files of your own have no simulated twin: leave dataset.provenance out with {self.name}")

    def fetch(self, root: Path) -> list[Path]:
        """Nothing: they are there, and `findings` says what they hold."""
        return []

    @property
    def _held(self) -> Held:
        whole = replace(self, provenance=None, max_examples=None, half_of=None)
        if not self.table.is_file():
            raise ValueError(not_there(self.table))
        state = self.table.stat()
        return _held(whole, state.st_size, state.st_mtime_ns)

    def hold(self) -> Held:
        """What the files hold, read anew.

        Raises:
            ValueError: what is wrong in them, in a sentence.
        """
        file = open_table(self.table)
        self.check_columns(file.names)
        wanted = self.wanted(file.names)
        columns = gathered(file.batches(wanted), wanted)
        num_rows = columns[self.label].num_rows
        if not num_rows:
            raise ValueError(f"{self.table} has a line of names and no rows: give a table with rows")
        found = self.roles_of(columns)
        splits = self.splits_of(found)
        train, valid, _ = splits(0)
        fitted_on = train if found.part is not None else np.sort(np.concatenate([train, valid]))
        taken = self.take(file, columns, found, fitted_on)
        data = Data(
            inputs=taken.inputs,
            labels=torch.from_numpy(found.labels.codes),
            groups=torch.from_numpy(found.groups.codes),
            num_classes=len(found.labels.names),
            provenance="real",
            sources={self.place.name: self.digest(self.place) or ""},
            splits=splits,
            owners=None if found.owners is None else torch.from_numpy(found.owners.codes),
            owner_names=() if found.owners is None else found.owners.names,
            class_names=found.labels.names,
            encoding=taken.encoding,
        )
        lines = [
            f"{self.table}: {counted(num_rows, 'row')} of {counted(len(file.names), 'column')} {file.form}",
            *findings.of_columns([(column, self._use(name, taken.uses)) for name, column in columns.items()]),
            findings.of_classes(self.label, found.labels),
            *findings.of_groups(", ".join(self.group_columns), found.groups.names, data),
            *([] if found.owners is None else [findings.of_owners(str(self.owner), found.owners)]),
            *findings.noted([*found.notes, *taken.notes]),
            *findings.of_assumptions(taken.private),
        ]
        sizes = np.bincount(found.groups.codes[train], minlength=len(found.groups.names))
        return Held(
            data=data,
            group_names=found.groups.names,
            minority_groups=(int(np.argmin(sizes)),),
            assumptions=taken.private,
            findings="\n".join(lines),
        )

    def _use(self, name: str, uses: Mapping[str, str]) -> str:
        used = {
            "label": name == self.label,
            "group": name in self.group_columns,
            "owner": name == self.owner,
            "split": name == self.split,
            uses.get(name, ""): True,
        }
        return "; ".join(use for use, is_one in used.items() if use and is_one)


@lru_cache(maxsize=4)
def _held(dataset: OwnFiles, size: int, mtime_ns: int) -> Held:
    return dataset.hold()
