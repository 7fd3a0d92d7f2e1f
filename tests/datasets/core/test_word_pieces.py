"""Texts as BERT's uncased word pieces: by a small vocabulary, and by known numbers where the real one is at hand."""

from pathlib import Path

import pytest

from rawls.datasets.core.sources import locate, verified
from rawls.datasets.core.word_pieces import LONGEST_WORD, VOCABULARY, VOCABULARY_SIZE, WordPieces, words

SMALL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff", "##able", "affable", "##a", "cafe", ",", "!", "中", "a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  Hello,\tWORLD!\n", ["hello", ",", "world", "!"]),
        ("it's $5 <b>~", ["it", "'", "s", "$", "5", "<", "b", ">", "~"]),
        ("Café NAÏVE Cafe\u0301 İstanbul", ["cafe", "naive", "cafe", "istanbul"]),
        ("“a” — b…", ["“", "a", "”", "—", "b", "…"]),
        ("a中文b", ["a", "中", "文", "b"]),
        ("a\u00a0b\u2028c\u3000d", ["a", "b", "c", "d"]),
        ("re\u00adad\u200bing \x00\x07\ufffd", ["reading"]),  # soft hyphen, space of no width, controls, no character
        ("5€ ½ ©", ["5€", "½", "©"]),  # signs that are no punctuation and not ASCII stay where they are
        ("", []),
    ],
)
def test_words(text: str, expected: list[str]) -> None:
    assert words(text) == expected


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("unaffable", ["un", "##aff", "##able"]),
        ("Affable, CAFÉ!", ["affable", ",", "cafe", "!"]),
        ("unb", ["[UNK]"]),  # whole, though it begins with a piece
        ("affable" * 15, ["[UNK]"]),
        ("中a", ["中", "a"]),
        ("[SEP]", ["[UNK]", "[UNK]", "[UNK]"]),  # what somebody writes is no sign of ours
        ("", []),
    ],
)
def test_pieces_are_the_longest_there_are(text: str, pieces: list[str]) -> None:
    row = WordPieces(SMALL).encode([text], 10)[0].tolist()
    wanted = [SMALL.index(piece) for piece in ["[CLS]", *pieces, "[SEP]"]]
    assert row == wanted + [0] * (10 - len(wanted))


def test_a_word_of_a_hundred_characters_is_the_longest_known() -> None:
    pieces, unknown = WordPieces([*SMALL, "##" + "a" * 99]), SMALL.index("[UNK]")
    longest, longer = (row[1:3].tolist() for row in pieces.encode(["a" * LONGEST_WORD, "a" * (LONGEST_WORD + 1)], 5))
    assert longest == [SMALL.index("a"), len(SMALL)]
    assert longer == [unknown, SMALL.index("[SEP]")]


def test_a_row_ends_where_it_is_full_even_within_a_word() -> None:
    rows = WordPieces(SMALL).encode(["a a unaffable a", "a a", "a a a a a a a"], 5)
    assert [[SMALL[number] for number in row] for row in rows.tolist()] == [
        ["[CLS]", "a", "a", "un", "[SEP]"],
        ["[CLS]", "a", "a", "[SEP]", "[PAD]"],
        ["[CLS]", "a", "a", "a", "[SEP]"],
    ]
    assert WordPieces(SMALL).encode([], 5).shape == (0, 5)


def test_the_known_numbers(shared_data: Path) -> None:
    if locate(VOCABULARY, shared_data) is None:
        pytest.skip(f"no vocabulary under {shared_data}")
    path = verified(VOCABULARY, shared_data, "blog")
    assert len(path.read_text("utf-8").splitlines()) == VOCABULARY_SIZE
    rows = WordPieces.read(path).encode(["Hello, world!", "Unaffable résumé", "🙂"], 9)
    assert rows.tolist() == [
        [101, 7592, 1010, 2088, 999, 102, 0, 0, 0],
        [101, 14477, 20961, 3468, 13746, 102, 0, 0, 0],
        [101, 100, 102, 0, 0, 0, 0, 0, 0],
    ]


def test_a_pair_is_two_texts_with_an_end_each() -> None:
    row = WordPieces(SMALL).encode_pairs([("a cafe", "Unaffable!")], 10)[0].tolist()
    assert [SMALL[number] for number in row] == [
        "[CLS]", "a", "cafe", "[SEP]", "un", "##aff", "##able", "!", "[SEP]", "[PAD]",
    ]  # fmt: skip
    assert WordPieces(SMALL).encode_pairs([("", "")], 5).tolist() == [[2, 3, 3, 0, 0]]
    assert WordPieces(SMALL).encode_pairs([], 5).shape == (0, 5)


@pytest.mark.parametrize("length", range(4, 13))
def test_of_a_pair_that_does_not_fit_the_longer_text_is_cut(length: int) -> None:
    """Piece by piece, the second of two equal ones."""
    pieces = WordPieces(SMALL)
    for first, second in [(one, other) for one in range(8) for other in range(8)]:
        kept = [first, second]
        while sum(kept) > length - 3:
            kept[0 if kept[0] > kept[1] else 1] -= 1
        wanted = [2, *[13] * kept[0], 3, *[7] * kept[1], 3]
        (row,) = pieces.encode_pairs([("a " * first, "affable " * second)], length).tolist()
        assert row == wanted + [0] * (length - len(wanted))
