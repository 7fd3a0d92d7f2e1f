"""MultiNLI: pairs, groups and parts of its files, what is refused, and the real subset where it is at hand."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from rawls.datasets import mnli
from rawls.datasets.core.picked import Picked
from rawls.datasets.core.texts import Texts
from rawls.datasets.core.word_pieces import VOCABULARY, WordPieces
from rawls.datasets.mnli import SUBSET, TEST_COUNTS, TRAIN_COUNTS, VALID_COUNTS, Mnli, has_negation
from rawls.models.architectures.minilm import MiniLm
from rawls.runners.store.stored import mark_of
from rawls.runners.training.features import provenance_of

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "no", "b", "##b")
# File, class ('-': nobody agrees), texts, part.
PAIRS = [
    ("train", "neutral", "a a a b", "bb", 0),
    ("train", "-", "a", "no", None),
    ("train", "entailment", "a a a", "b No, a", 2),
    ("dev_matched", "contradiction", "a", "no", 1),
    ("dev_matched", "-", "b", "b", None),
    ("dev_mismatched", "contradiction", "a a", "nor any", 0),
    ("dev_mismatched", "entailment", "b", "a", 0),
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("No, it is not.", True), ("NOTHING!", True), ("no-one came", False), ("nor ever", False), ("it is 'no'", True),
        ("Nobody's fool", False), ("", False), ("never\tmind", False), ("a  never  b", True),
    ],
)  # fmt: skip
def test_a_negation_is_one_of_four_words(text: str, expected: bool) -> None:
    assert has_negation(text) == expected


def test_the_counts_are_the_papers() -> None:
    assert [sum(counts) for counts in (TRAIN_COUNTS, VALID_COUNTS, TEST_COUNTS)] == [206_175, 82_462, 123_712]
    assert Mnli.group_names[3] == "entailment, negation" and Mnli().paper_group_sizes[3] == min(TRAIN_COUNTS) == 1_521


@pytest.fixture
def vocabulary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A root with a small vocabulary that passes for the real one."""
    content = "".join(f"{piece}\n" for piece in PIECES).encode()
    (tmp_path / VOCABULARY.home).parent.mkdir()
    (tmp_path / VOCABULARY.home).write_bytes(content)
    monkeypatch.setattr(mnli, "VOCABULARY", replace(VOCABULARY, sha256=hashlib.sha256(content).hexdigest()))
    return tmp_path


@pytest.fixture
def whole(vocabulary: Path) -> Path:
    """And with the four files."""
    folder = vocabulary / "mnli"
    folder.mkdir()
    for name in mnli.FILES:
        rows = [
            {"gold_label": label, "sentence1": first, "sentence2": second, "genre": "fiction"}
            for part, label, first, second, _ in PAIRS
            if name == f"multinli_1.0_{part}.jsonl"
        ]
        (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    lines = [
        f"{row},{mnli.CLASSES.index(label)},{int(has_negation(second))},{part}"
        for row, (_, label, _, second, part) in enumerate(PAIRS)
        if part is not None
    ]
    (folder / mnli.METADATA).write_text("\n".join([",gold_label,sentence2_has_negation,split", *lines]) + "\n", "utf-8")
    return vocabulary


def test_all_pairs_of_the_three_files_on_which_annotators_agree(whole: Path) -> None:
    """In order of length; parts are those of the metadata."""
    assert Mnli().found(whole) == "real"
    data = Mnli().load(whole)
    assert (
        data.provenance == "real"
        and data.num_classes == 3
        and set(data.sources) == {*mnli.FILES, mnli.METADATA, "vocab.txt"}
    )
    assert data.labels.tolist() == [1, 0, 2, 0, 1]
    assert [Mnli.group_names[group] for group in data.groups] == [
        "entailment, no negation", "contradiction, negation", "neutral, no negation", "contradiction, no negation",
        "entailment, negation",
    ]  # fmt: skip
    texts = [("b", "a"), ("a", "no"), ("a a a b", "bb"), ("a a", "nor any"), ("a a a", "b No, a")]
    assert isinstance(data.inputs, Texts) and data.inputs.shape == (128,)
    expected = WordPieces(PIECES).encode_pairs(texts, 128)
    for rows in ([3, 0, 3], [1], [0, 1, 2, 3, 4]):
        assert data.inputs.gather(torch.tensor(rows)).tolist() == expected[rows].tolist()


def test_parts_are_those_of_the_metadata(whole: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Mnli, "group_names", ("all",))
    data = replace(Mnli().read(whole, "real"))
    assert [part.tolist() for part in data.splits(0)] == [[0, 2, 3], [1], [4]]
    assert data.one_split


def test_another_byte_is_another_dataset(whole: Path) -> None:
    before = Mnli().digest(whole)
    path = whole / "mnli" / mnli.FILES[2]
    path.write_bytes(path.read_bytes() + b" ")
    assert before is not None and Mnli().digest(whole) not in (before, None)
    assert Mnli(provenance="simulated").digest(whole) is None


@pytest.mark.parametrize(("line", "changed"), [("0,2,0,0", "0,1,0,0"), ("0,2,0,0", "1,2,0,0"), ("3,0,1,1", "3,0,0,1")])
def test_metadata_of_other_pairs_are_refused(whole: Path, line: str, changed: str) -> None:
    path = whole / "mnli" / mnli.METADATA
    path.write_text(path.read_text("utf-8").replace(line, changed), "utf-8")
    with pytest.raises(ValueError, match=r"metadata_random\.csv does not fit the pairs beside it, of which 5 have"):
        Mnli().load(whole)


def test_what_is_missing_is_named(whole: Path) -> None:
    (whole / "mnli" / mnli.FILES[0]).unlink()
    assert Mnli().found(whole) == "simulated"
    with pytest.raises(ValueError, match=r"^multinli_1\.0_train\.jsonl not under .*mnli, and `rawls data mnli` knows"):
        Mnli().fetch(whole)
    with pytest.raises(ValueError, match=r"^multinli_1\.0_train\.jsonl not under"):
        Mnli(provenance="real").load(whole)


@pytest.fixture
def subset(vocabulary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """And with 20 pairs of each group, as a file that passes for the real one."""
    rows = [
        {"premise": "a " * number, "hypothesis": second, "label": label}
        for label in mnli.CLASSES for second in ("b", "no") for number in range(20)
    ]  # fmt: skip
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (vocabulary / SUBSET.home).parent.mkdir()
    (vocabulary / SUBSET.home).write_bytes(content)
    monkeypatch.setattr(mnli, "SUBSET", replace(SUBSET, sha256=hashlib.sha256(content).hexdigest()))
    return vocabulary


def test_the_subset_is_split_by_the_seed_and_stamped(subset: Path) -> None:
    assert Mnli().found(subset) == "subset" and Mnli().digest(subset) is None
    data = Mnli().load(subset)
    assert data.provenance == "subset" and set(data.sources) == {SUBSET.filename, "vocab.txt"}
    assert [mark_of(provenance_of(data, spec)) for spec in (None, MiniLm())] == ["SUBSET DATA", "SUBSET DATA, STAND-IN"]
    parts = data.splits(0)
    for part, share in zip(parts, (10, 4, 6), strict=True):
        assert np.bincount(data.groups.numpy()[part], minlength=6).tolist() == [share] * 6
    assert not np.array_equal(parts.train, data.splits(1).train)
    small = Mnli(max_examples=100).load(subset)
    assert len(small.labels) == 120 and not isinstance(small.inputs, Picked)
    assert Mnli().fetch(subset)[1:] == [subset / SUBSET.home]


def test_a_damaged_subset_is_refused(subset: Path) -> None:
    path = subset / SUBSET.home
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ValueError, match=f"{SUBSET.filename} is altered or truncated"):
        Mnli().load(subset)


def test_the_real_subset(shared_data: Path) -> None:
    if Mnli().found(shared_data) != "subset":
        pytest.skip(f"no dev matched pairs or no vocabulary under {shared_data}")
    data = Mnli().load(shared_data)
    assert np.bincount(data.groups).tolist() == [2_709, 504, 3_388, 91, 3_036, 87]
    assert [len(part) for part in data.splits(3)] == [4_908, 1_963, 2_944]
    tokens = data.inputs.gather(torch.arange(len(data.labels)))
    assert ((tokens == 102).sum(1) == 2).all() and (tokens[:, 0] == 101).all()
    filled = (tokens > 0).sum(1)
    assert (tokens[torch.arange(len(tokens)), filled - 1] == 102).all()
    assert int((filled == 128).sum()) < 50 and float(filled[:100].float().mean()) < 15  # short ones come first
