"""CivilComments: WILDS' file, what stands in for it and says so, and who is in which of the groups that overlap."""

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rawls.datasets import civilcomments
from rawls.datasets.civilcomments import (
    COMMENTS,
    EVALUATED,
    IDENTITIES,
    PART_SIZES,
    RATINGS,
    TERMS,
    TEST_MEMBERS,
    TRAIN_COUNTS,
    CivilComments,
    mentioned,
)
from rawls.datasets.core.base import Data
from rawls.datasets.core.word_pieces import VOCABULARY, WordPieces
from rawls.models.architectures.minilm import MiniLm
from rawls.runners.store.stored import mark_of
from rawls.runners.training.features import provenance_of

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "man", "gay", "and")
# Text, part, toxicity, identity_any, and the identities of WILDS' file.
COMMENTS_OF_FILE = [
    ("a a a a a", "train", 0.49, 0.0, {}),
    ("man", "train", 0.5, 1.0, {"male": 0.5, "LGBTQ": 1.0, "white": 0.6}),
    ("a man", "val", 0.0, 1.0, {"male": 0.5, "white": 0.49}),
    ("a a a", "test", 0.9, 0.5, {}),  # an identity that is none of the eight
    ("a a a a", "test", 0.0, 0.0, {"black": 0.4}),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The GAY man's Church", ["male", "LGBTQ"]), ("manly women, Sonsbeek", ["female"]),
        ("Islamic art.", ["muslim"]),
        ("a black hole", ["black"]), ("blackboard whitewash", []), ("Jews_and_Hindus", ["other_religions"]),
        ("Jesus\nChrist!", ["christian"]), ("", []), ("WHITE/BLACK,boy-girl", ["male", "female", "black", "white"]),
    ],
)  # fmt: skip
def test_an_identity_is_mentioned_by_a_whole_word(text: str, expected: list[str]) -> None:
    (row,) = mentioned([text])
    assert [identity for identity, has in zip(IDENTITIES, row, strict=True) if has] == expected


def test_no_word_is_of_two_identities() -> None:
    words = [word for of_identity in TERMS.values() for word in of_identity.split()]
    assert len(set(words)) == len(words) and all(word == word.lower() and word.isalpha() for word in words)


def test_the_counts_are_the_papers() -> None:
    assert PART_SIZES == (269_038, 45_180, 133_782) and sum(TRAIN_COUNTS) == PART_SIZES[0]
    assert len(EVALUATED) == 16 and EVALUATED[:2] == ("male, non-toxic", "male, toxic")
    assert EVALUATED[11] == "other religions, toxic"
    assert CivilComments.group_names[3] == "identity, toxic"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with a small vocabulary that passes for the real one."""
    content = "".join(f"{piece}\n" for piece in PIECES).encode()
    (tmp_path / VOCABULARY.home).parent.mkdir()
    (tmp_path / VOCABULARY.home).write_bytes(content)
    small = replace(VOCABULARY, sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(civilcomments, "VOCABULARY", small)
    return tmp_path


@pytest.fixture
def whole(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """And with WILDS' file; no group need be filled."""
    rows = [
        {
            "id": 7, "comment_text": text, "split": part, "toxicity": toxicity, "identity_any": some,
            **dict.fromkeys(IDENTITIES, 0.0), **own, "insult": 0.1,
        }
        for text, part, toxicity, some, own in COMMENTS_OF_FILE
    ]  # fmt: skip
    (root / "civilcomments").mkdir()
    pd.DataFrame(rows).to_csv(root / "civilcomments" / civilcomments.FILE)
    return root


def read(root: Path, provenance: str) -> Data:
    """Without what `load` asks of a whole dataset: rows of every group."""
    return CivilComments(length=6).read(root, provenance)  # type: ignore[arg-type]


def test_wilds_file_in_its_parts_by_length(whole: Path) -> None:
    assert CivilComments().found(whole) == "real"
    data = read(whole, "real")
    assert data.provenance == "real" and data.num_classes == 2 and data.one_split
    assert set(data.sources) == {civilcomments.FILE, "vocab.txt"}
    texts = ["man", "a a a", "a man", "a a a a", "a a a a a"]
    order = sorted(range(5), key=lambda row: len(COMMENTS_OF_FILE[row][0]))
    assert [COMMENTS_OF_FILE[row][0] for row in order] == [texts[0], "a man", "a a a", *texts[3:]]
    expected = WordPieces(PIECES).encode([COMMENTS_OF_FILE[row][0] for row in order], 6)
    assert data.inputs.gather(torch.tensor([4, 0, 1, 2, 3])).tolist() == expected[[4, 0, 1, 2, 3]].tolist()
    assert data.labels.tolist() == [1, 0, 1, 0, 0]
    assert [CivilComments.group_names[group] for group in data.groups] == [
        "identity, toxic", "identity, non-toxic", "identity, toxic", "no identity, non-toxic", "no identity, non-toxic",
    ]  # fmt: skip
    assert [part.tolist() for part in data.splits(0)] == [[0, 4], [1], [2, 3]]
    assert data.overlapping is not None
    found = [[EVALUATED[group] for group in np.flatnonzero(row)] for row in data.overlapping.members]
    assert found == [["male, toxic", "LGBTQ, toxic", "white, toxic"], ["male, non-toxic"], [], [], []]


def test_a_file_that_lacks_a_column_or_is_none_is_refused(whole: Path) -> None:
    path = whole / "civilcomments" / civilcomments.FILE
    pd.read_csv(path, index_col=0).drop(columns="LGBTQ").to_csv(path)
    with pytest.raises(ValueError, match=r"all_data_with_identities\.csv has no column LGBTQ: put the file of https"):
        read(whole, "real")
    path.unlink()
    with pytest.raises(ValueError, match="^all_data_with_identities.csv is not under .* put it, of https"):
        CivilComments(provenance="real").load(whole)


def test_another_byte_is_another_dataset(whole: Path) -> None:
    before = CivilComments().digest(whole)
    path = whole / "civilcomments" / civilcomments.FILE
    path.write_bytes(path.read_bytes() + b"\n")
    assert before is not None and CivilComments().digest(whole) not in (before, None)
    assert CivilComments(provenance="simulated").digest(whole) is None


@pytest.fixture
def stand_in(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """And with a small stand-in that passes for the one that is known: of each cell 40 comments, and some by hand."""
    rows = [
        (f"{'man' if some else 'a'} {'a ' * number}", ("train", "dev", "test", "train")[number % 4], toxic)
        for some in (0, 1) for toxic in (0, 1) for number in range(40)
    ]  # fmt: skip
    rows += [("NEWLINE_TOKENgayNEWLINE_TOKENTAB_TOKENand man", "test", 1), ('`a ""quoted"" a`', "train", 0)]
    comments = pd.DataFrame(rows, columns=["comment", "split", "toxic"])
    comments.insert(0, "rev_id", 100.0 + np.arange(len(rows)))
    ratings = [
        {"rev_id": row.rev_id, "worker_id": worker, "toxicity": vote}
        for row in comments.itertuples()
        for worker, vote in enumerate((1, 0, 1, 0) if row.toxic else (1, 0, 0, 0))  # half of them are enough
    ]
    for name, frame in (("COMMENTS", comments.drop(columns="toxic")), ("RATINGS", pd.DataFrame(ratings))):
        source = getattr(civilcomments, name)
        stream = io.StringIO()
        frame.to_csv(stream, sep="\t", index=False)
        (root / source.home).parent.mkdir(exist_ok=True)
        (root / source.home).write_text(stream.getvalue(), "utf-8")
        made = hashlib.sha256(stream.getvalue().encode()).hexdigest()
        monkeypatch.setattr(civilcomments, name, replace(source, sha256=made))
    return root


def test_what_stands_in_says_so(stand_in: Path) -> None:
    assert CivilComments().found(stand_in) == "stand-in" and CivilComments().digest(stand_in) is None
    data = CivilComments(length=20).load(stand_in)
    assert data.provenance == "stand-in"
    assert set(data.sources) == {COMMENTS.filename, RATINGS.filename, "vocab.txt"}
    marks = [mark_of(provenance_of(data, spec)) for spec in (None, MiniLm())]
    assert marks == ["STAND-IN DATA", "STAND-IN DATA, STAND-IN"]
    parts = data.splits(1)
    assert [len(part) for part in parts] == [81, 40, 41]
    assert np.bincount(data.groups).tolist() == [41, 40, 40, 41]
    found = data.overlapping
    assert found is not None and found.members.sum(0).tolist() == [40, 41, 0, 0, 0, 1, *[0] * 10]
    assert CivilComments(max_examples=70, length=20).load(stand_in).provenance == "stand-in"
    assert [path.name for path in CivilComments().fetch(stand_in)] == [
        "vocab.txt", "toxicity_annotated_comments.tsv", "toxicity_annotations.tsv",
    ]  # fmt: skip


def test_signs_of_the_stand_in_are_spaces(stand_in: Path) -> None:
    """And the comment that mentions two is in two groups."""
    data = CivilComments(length=20).load(stand_in)
    wanted = WordPieces(PIECES).encode(["gay and man"], 20)
    rows = [
        row for row in range(len(data.labels)) if data.inputs.gather(torch.tensor([row])).tolist() == wanted.tolist()
    ]
    assert len(rows) == 1 and data.overlapping is not None
    assert data.overlapping.members[rows[0]].sum() == 2


def test_a_damaged_stand_in_is_refused(stand_in: Path) -> None:
    path = stand_in / RATINGS.home
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{RATINGS.filename} is altered or truncated"):
        CivilComments().load(stand_in)


def test_the_twin_has_the_groups_that_overlap(tmp_path: Path) -> None:
    """Of the test part as many as are printed; who mentions an identity is in one group at least, others in none."""
    data = CivilComments(provenance="simulated", length=16).load(tmp_path)
    assert data.overlapping is not None
    members, groups = data.overlapping.members, data.groups.numpy()
    test = data.splits(0).test
    printed = [TEST_MEMBERS[label][identity] for identity in range(8) for label in (0, 1)]
    assert members[test].sum(0).tolist() == printed
    assert np.array_equal(members.any(1), groups % 2 == 1)
    assert not members[groups < 2][:, 1::2].any() and not members[groups >= 2][:, ::2].any()
    assert members.sum(1).max() > 2


# Counted by csv and split() alone.
EXPECTED = [[77_345, 7_248, 9_090, 2_009], [26_004, 2_443, 3_047, 634], [25_851, 2_398, 2_964, 653]]
MEMBERS = [880, 236, 566, 164, 124, 147, 410, 48, 217, 36, 374, 73, 279, 57, 202, 42]


def test_the_real_stand_in(shared_data: Path) -> None:
    if CivilComments().found(shared_data) != "stand-in":
        pytest.skip(f"no Wikipedia comments or no vocabulary under {shared_data}")
    data = CivilComments(length=128).load(shared_data)
    parts = data.splits(0)
    assert [len(part) for part in parts] == [95_692, 32_128, 31_866]
    sizes = [np.bincount(data.groups.numpy()[part]).tolist() for part in parts]
    assert sizes == EXPECTED
    assert data.overlapping is not None
    assert data.overlapping.sizes(parts.test).tolist() == MEMBERS
    tokens = data.inputs.gather(torch.arange(0, len(data.labels), 997))
    assert (tokens[:, 0] == 101).all() and ((tokens == 102).sum(1) == 1).all()
