"""MultiNLI (Williams et al. 2018) in Sagawa et al.'s form (2020), as WYSIWYG has it: does one text entail another?

Classes are contradiction, entailment and neutral; groups are class x whether the second text has a word of negation
(nobody, no, never, nothing), by which models are misled. The split is Sagawa et al.'s, of all pairs of the corpus'
three files: 206,175, 82,462 and 123,712.

A row is BERT's word pieces of both texts, 128 at most ([CLS], the first, [SEP], the second, [SEP], zeros behind them).
The paper reads features that Sagawa et al. had cached, made so; here they are made of the texts, which takes half a
minute. Rows lie in the order of the texts' lengths, so that a frozen encoder is given little padding.

Whole: the three files of multinli_1.0 and metadata_random.csv, whose rows are those pairs of the three, one behind the
other, on whose class the annotators agree. The dev matched pairs alone are a subset, of which the seed holds 30 % out
for the test and 20 % for validation, of each group.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

import numpy as np
import pandas as pd

from rawls.datasets.core.base import Data, Dataset, Inputs, Provenance
from rawls.datasets.core.simulate import SimulatedTexts
from rawls.datasets.core.sources import Source, digest_of, locate, obtain, sha256, verified
from rawls.datasets.core.splits import Rows, Split, addressed, seeded_split
from rawls.datasets.core.texts import Texts
from rawls.datasets.core.word_pieces import VOCABULARY, VOCABULARY_SIZE, WordPieces

CLASSES = ("contradiction", "entailment", "neutral")
NEGATIONS = frozenset({"nobody", "no", "never", "nothing"})
LENGTH = 128  # word pieces of a row
# Of each class, without and with a negation.
TRAIN_COUNTS = (57_498, 11_158, 67_376, 1_521, 66_630, 1_992)
VALID_COUNTS = (22_814, 4_634, 26_949, 613, 26_655, 797)
TEST_COUNTS = (34_597, 6_655, 40_496, 886, 39_930, 1_148)
TEST_RATE, VALIDATION_RATE = 0.3, 0.2 / 0.7  # of the subset; of what is left

FOLDERS = ("mnli", "mnli/multinli_1.0", "multinli_1.0")  # under data.root; ours is the first
FILES = tuple(f"multinli_1.0_{part}.jsonl" for part in ("train", "dev_matched", "dev_mismatched"))
METADATA = "metadata_random.csv"
PAGES = {
    "multinli_1.0.zip": "https://cims.nyu.edu/~sbowman/multinli/",
    METADATA: "https://github.com/kohpangwei/group_DRO/tree/master/dataset_metadata/multinli",
}
SUBSET = Source(
    filename="multinli_dev_matched.jsonl",
    sha256="081af9b80f4fe75aba97d034c0ff21a8017c4d18e3b5b2b0b7612ab2cc3c7bf2",
    folders=("mnli",),
)

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class Pair(NamedTuple):
    """Two texts, and what is to be known of them."""

    first: str
    second: str
    label: int

    @property
    def group(self) -> int:
        return 2 * self.label + has_negation(self.second)


@dataclass(frozen=True, kw_only=True)
class Mnli(Dataset):
    """Pairs of texts."""

    name: ClassVar[str] = "mnli"
    group_names: ClassVar[tuple[str, ...]] = tuple(
        f"{label}, {negation}" for label in CLASSES for negation in ("no negation", "negation")
    )
    minority_groups: ClassVar[tuple[int, ...]] = (3, 5)

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        return TRAIN_COUNTS

    def found(self, root: Path) -> Provenance:
        if locate(VOCABULARY, root) is None:
            return "simulated"
        if _whole(root):
            return "real"
        return "simulated" if locate(SUBSET, root) is None else "subset"

    def digest(self, root: Path) -> str | None:
        """Of the four files; the subset and the vocabulary have their checksums."""
        paths = _whole(root)
        return digest_of(paths) if paths and (self.provenance or self.found(root)) == "real" else None

    def fetch(self, root: Path) -> list[Path]:
        found = obtain((VOCABULARY,), root)
        if not (paths := _whole(root)):
            paths = _files(root) if locate(SUBSET, root) is None else [verified(SUBSET, root, self.name)]
        return [*found, *paths]

    def read(self, root: Path, provenance: Provenance) -> Data:
        return self._read_subset(root) if provenance == "subset" else self._read_whole(root)

    def _read_whole(self, root: Path) -> Data:
        *parts, metadata = _files(root)
        table = pd.read_csv(metadata, index_col=0)
        rows = [row for path in parts for row in _lines(path)]
        agreed = [place for place, row in enumerate(rows) if row["gold_label"] in CLASSES]
        pairs = [_pair(rows[place], "sentence1", "sentence2", "gold_label") for place in agreed]
        known = [2 * label + negated for label, negated in zip(*_columns(table), strict=True)]
        if agreed != table.index.tolist() or [pair.group for pair in pairs] != known:
            raise ValueError(
                f"{metadata} does not fit the pairs beside it, of which {len(agreed)} have a class: put both there "
                f"again, from {' and '.join(PAGES.values())}"
            )
        order = _by_length(pairs)
        part_of = table["split"].to_numpy()[order]
        split = Split(*(np.flatnonzero(part_of == part) for part in range(3)))
        sources = {path.name: sha256(path) for path in (*parts, metadata)}
        return self._of_pairs([pairs[place] for place in order], root, lambda seed: split, "real", sources)

    def _read_subset(self, root: Path) -> Data:
        pairs = [_pair(row, "premise", "hypothesis", "label") for row in _lines(verified(SUBSET, root, self.name))]
        pairs = [pairs[place] for place in _by_length(pairs)]
        groups = np.array([pair.group for pair in pairs], dtype=np.int64)
        sources = {SUBSET.filename: SUBSET.sha256}
        return self._of_pairs(pairs, root, lambda seed: _seeded(groups, seed), "subset", sources)

    def _of_pairs(
        self,
        pairs: Sequence[Pair],
        root: Path,
        splits: Callable[[int], Split],
        provenance: Provenance,
        sources: Mapping[str, str],
    ) -> Data:
        pieces = WordPieces.read(verified(VOCABULARY, root, self.name))
        inputs = Texts([(pair.first, pair.second) for pair in pairs], pieces.encode_pairs, LENGTH)
        groups = np.array([pair.group for pair in pairs], dtype=np.int64)
        return _data(inputs, groups, splits, provenance, {**sources, VOCABULARY.filename: VOCABULARY.sha256})

    def simulate(self) -> Data:
        """Class and group tell in how often words occur, in the first text as in the second."""
        generator = np.random.default_rng(0)
        parts = (TRAIN_COUNTS, VALID_COUNTS, TEST_COUNTS)
        groups = np.concatenate([generator.permutation(np.repeat(np.arange(6), counts)) for counts in parts])
        ends = np.cumsum([sum(counts) for counts in parts])
        split = Split(*np.split(np.arange(len(groups)), ends[:-1]))
        twin = SimulatedTexts(groups // 2, groups, length=LENGTH, vocabulary=VOCABULARY_SIZE, texts=2, seed=1)
        return _data(twin, groups, lambda seed: split, "simulated", {})


def has_negation(text: str) -> bool:
    """Whether a word is one of negation, once punctuation and capitals are gone; spaces alone divide words."""
    return not NEGATIONS.isdisjoint(text.translate(_NO_PUNCTUATION).lower().split(" "))


def _data(
    inputs: Inputs,
    groups: Rows,
    splits: Callable[[int], Split],
    provenance: Provenance,
    sources: Mapping[str, str],
) -> Data:
    import torch  # here, as wherever tensors are made: data are specified without it

    return Data(
        inputs=inputs,
        labels=torch.from_numpy(groups // 2),
        groups=torch.from_numpy(groups),
        num_classes=len(CLASSES),
        provenance=provenance,
        sources=sources,
        splits=splits,
        one_split=provenance != "subset",
    )


def _seeded(groups: Rows, seed: int) -> Split:
    return seeded_split(
        np.arange(len(groups)), groups, addressed(seed, "split"), test=TEST_RATE, validation=VALIDATION_RATE
    )


def _lines(path: Path) -> Iterator[dict[str, str]]:
    with path.open(encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _pair(row: Mapping[str, str], first: str, second: str, label: str) -> Pair:
    return Pair(row[first], row[second], CLASSES.index(row[label]))


def _columns(table: pd.DataFrame) -> tuple[list[int], list[int]]:
    return table["gold_label"].tolist(), table["sentence2_has_negation"].tolist()


def _by_length(pairs: Sequence[Pair]) -> list[int]:
    """Their places, those with the shortest texts first."""
    return sorted(range(len(pairs)), key=lambda place: len(pairs[place].first) + len(pairs[place].second))


def _whole(root: Path) -> list[Path]:
    """The four files, if one folder has them all."""
    for folder in FOLDERS:
        paths = [root / folder / name for name in (*FILES, METADATA)]
        if all(path.is_file() for path in paths):
            return paths
    return []


def _files(root: Path) -> list[Path]:
    """The four files.

    Raises:
        ValueError: they are not there.
    """
    if paths := _whole(root):
        return paths
    lacking = [name for name in (*FILES, METADATA) if not (root / FOLDERS[0] / name).is_file()]
    pages = " and ".join(f"{name} of {page}" for name, page in PAGES.items())
    raise ValueError(
        f"{', '.join(lacking)} not under {root / FOLDERS[0]}, and `rawls data {Mnli.name}` knows no checksum to obtain "
        f"what is missing by: put it there, from {pages}"
    )
