"""Surnames of 18 countries (Robertson 2017; INO-SGD's SU): whence is a name? Groups are the countries.

A file per country, a name a line: 20,074 names, 9,408 of them Russian. As in the paper's code a name is its bytes
between a start (256) and an end (257), filled up with 258: 259 signs. Rows are as long as the longest name, 20 bytes,
needs; spaces about a name are no part of it.

The paper's one split is a file that it does not show; ours holds out a fifth of each country as test, by the seed.
Countries are in the order of the alphabet, where the paper counts the Russians as country 4. The paper holds nothing
out beside that: `validation` takes a share of what is trained on.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rawls.datasets.core.base import Data, Dataset, HeldOut, Provenance
from rawls.datasets.core.sources import Source, opened, verified
from rawls.datasets.core.splits import Rows, addressed, seeded_split, shares_of_parts

START, END, FILLING = 256, 257, 258
LENGTH = 22
TEST_RATE = 0.2
LETTERS = b"abcdefghijklmnopqrstuvwxyz"  # of the twin's names

# Of each country: names, and the file's checksum.
COUNTRIES = {
    "Arabic": (2_000, "6f424a8dbe51cbbbabab7a57d38b617210125e4e3991f3c657cb79b8f104bafc"),
    "Chinese": (268, "49263ef55a8cb1740e841d65cad8214b2f9b5b869bc534c811746422496fa91e"),
    "Czech": (519, "145bbbd6d0816578f03388e92c264d39ef1c60df920b081d371fa5c5cc055a8e"),
    "Dutch": (297, "924f32b635170eae561f84538632138fc07d4c8bbd70ba3fb980de1ecc4d2af3"),
    "English": (3_668, "9cca037066d3d5989e24bc01801416162de506b5e28e15b7c092a47905d29bf2"),
    "French": (277, "81e65b36c60ed5b89a17422f6edcadbb89546f38ad69e960e64e7ba682012a95"),
    "German": (724, "7449cd590b97a733e18d613a4155decd77ec35dc5f8aadd7a82204dce4f051db"),
    "Greek": (203, "3555b5186de7f401e6d991b088e9e644ca3099116477818c25ab5793801389e6"),
    "Irish": (232, "cf8c7013256252a88d2503127b87282a11f21b2ff6db1bded68834c19a1ec058"),
    "Italian": (709, "f88414c27d0606a11a678b4859277828c2565d6cc4d9ee932deef6e94f3b35e4"),
    "Japanese": (991, "e0e717e114fec3e7eade4d9dabe0067c475f43147e36a22b47902ee76ad9e67f"),
    "Korean": (94, "cd54221ccb362a6cba4c78828838cf3268a0e59744767a37cf6ec4b74036b136"),
    "Polish": (139, "45bab898af2f60ed3a728bbf6980e28821011a7caa53227553b5785903a40826"),
    "Portuguese": (74, "50a8735f41f4f73757c8ce5b16cb0275cd86b2b214bcbc8c9805f508cb131c53"),
    "Russian": (9_408, "43b3e64ce351f77f1ac9e0cdf7566012d127f4371875fd25208845b5c9d6f7c3"),
    "Scottish": (100, "78d0252711d87d948ea86fe34826c51d2d794a8e52d15b5d6f7b6244d45d62dd"),
    "Spanish": (298, "1bcb462ed3316756a85781d68232bddae04498fdddd5d9219c53fd1fbdeba7a7"),
    "Vietnamese": (73, "f3f9e4164ab47601178a6e45b216464a64122f49d05541f24bf18a757253281d"),
}
COUNTS = tuple(count for count, _ in COUNTRIES.values())


def _source(country: str, sha256: str) -> Source:
    return Source(
        filename=f"{country}.txt",
        sha256=sha256,
        folders=("surnames/names", "surnames", "names"),
        url=f"https://raw.githubusercontent.com/spro/practical-pytorch/master/data/names/{country}.txt",
        page="https://github.com/spro/practical-pytorch/tree/master/data/names",
    )


@dataclass(frozen=True, kw_only=True)
class Surnames(Dataset):
    """Names by country.

    Fields:
        validation: share of the training rows that is held out for validation; the paper holds out none.
    """

    name: ClassVar[str] = "surnames"
    group_names: ClassVar[tuple[str, ...]] = tuple(COUNTRIES)
    minority_groups: ClassVar[tuple[int, ...]] = (13, 17)  # Portuguese and Vietnamese
    sources: ClassVar[tuple[Source, ...]] = tuple(_source(country, row[1]) for country, row in COUNTRIES.items())
    validation: HeldOut = 0.0

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        """By our split."""
        train, _, _ = shares_of_parts(COUNTS, test=TEST_RATE, validation=self.validation)
        return tuple(train.tolist())

    def read(self, root: Path, provenance: Provenance) -> Data:
        names, labels = [], []
        for label, source in enumerate(self.sources):
            with opened(verified(source, root, self.name)) as stream:
                own = [line.strip() for line in stream.read().splitlines() if line.strip()]
            names += own
            labels += [label] * len(own)
        files = {source.filename: source.sha256 for source in self.sources}
        return self._data(encode(names), np.array(labels, dtype=np.int64), "real", files)

    def simulate(self) -> Data:
        """A country has letters of its own that are frequent."""
        generator = np.random.default_rng(0)
        labels = generator.permutation(np.repeat(np.arange(len(COUNTS)), COUNTS))
        ends = np.cumsum(generator.dirichlet(np.full(len(LETTERS), 0.5), size=len(COUNTS)), axis=1)
        lengths = generator.integers(4, 13, size=len(labels))
        drawn = generator.random((len(labels), int(lengths.max())))
        names = [
            bytes(LETTERS[letter] for letter in np.searchsorted(ends[label][:-1], row[:length]))
            for label, length, row in zip(labels, lengths, drawn, strict=True)
        ]
        return self._data(encode(names), labels, "simulated", {})

    def _data(self, tokens: NDArray[np.int64], labels: Rows, provenance: Provenance, files: dict[str, str]) -> Data:
        rows, rates = np.arange(len(labels)), {"test": TEST_RATE, "validation": self.validation}
        return Data.in_memory(
            tokens,
            labels,
            labels,
            num_classes=len(COUNTS),
            provenance=provenance,
            sources=files,
            splits=lambda seed: seeded_split(rows, labels, addressed(seed, "split"), **rates),
        )


def encode(names: list[bytes]) -> NDArray[np.int64]:
    """Names as rows of LENGTH signs."""
    tokens = np.full((len(names), LENGTH), FILLING, dtype=np.int64)
    tokens[:, 0] = START
    for row, name in enumerate(names):
        tokens[row, 1 : len(name) + 1] = list(name)
        tokens[row, len(name) + 1] = END
    return tokens
