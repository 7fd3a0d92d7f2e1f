"""A table once, as Markdown, LaTeX (booktabs) and the text of its cells; and the papers' way to print a mean.

Numbers that a program should read go into a CSV of their own, long and unformatted: `csv_text`.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from rawls.analysis.draw.titles import DASH
from rawls.analysis.metrics.statistics import Spread

GREEK = {"α": "alpha", "γ": "gamma", "δ": "delta", "ε": "varepsilon", "ζ": "zeta", "η": "eta", "κ": "kappa"}
GREEK |= {"λ": "lambda", "ξ": "xi", "π": "pi", "σ": "sigma", "τ": "tau"}
LATEX = {letter: rf"$\{name}$" for letter, name in GREEK.items()} | {
    "\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "{": r"\{", "}": r"\}",
    "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "–": "--", "−": "$-$", "·": r"$\cdot$",
    "±": r"$\pm$", "×": r"$\times$", "≈": r"$\approx$", "≥": r"$\ge$", "≤": r"$\le$", "✓": r"$\checkmark$",
    "✗": r"$\neq$",
}  # fmt: skip

_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_TAGS = re.compile(r"<(?=[A-Za-z/!?])")
_NUMBER = re.compile(r"[+-]?[\d.]+([eE][+-]?\d+)?")
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


@dataclass(frozen=True, kw_only=True)
class Cell:
    """`mark`, of analysis/compare/against_paper.py, is a kind of cell that pages may colour: its text says the same."""

    text: str
    bold: bool = False
    mark: str = ""


@dataclass(frozen=True, kw_only=True)
class Table:
    """`header` is one row of titles; `spans` an optional row above it: (title, number of columns)."""

    caption: str
    header: list[str]
    rows: list[list[Cell]]
    spans: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    num_labels: int = 1  # leading columns that name the row: set left, the others right

    def markdown(self) -> str:
        """Padded, to read well in a terminal too. There is one header row: spans go before the titles."""
        header = list(map(_in_markdown, self.header))
        if self.spans:
            above = [title for title, width in self.spans for _ in range(width)]
            header = [" ".join(part for part in pair if part) for pair in zip(above, header, strict=True)]
        body = [
            [f"**{_in_markdown(cell.text)}**" if cell.bold else _in_markdown(cell.text) for cell in row]
            for row in self.rows
        ]
        widths = [max(3, *map(len, column)) for column in zip(header, *body, strict=True)]

        def line(texts: Sequence[str]) -> str:
            padded = [
                text.ljust(width) if index < self.num_labels else text.rjust(width)
                for index, (text, width) in enumerate(zip(texts, widths, strict=True))
            ]
            return "| " + " | ".join(padded) + " |"

        rule = ["-" * width if i < self.num_labels else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
        lines = [self.caption, "", line(header), line(rule), *map(line, body)]
        return "\n".join(lines + [text for note in self.notes for text in ("", note)]) + "\n"

    def latex(self) -> str:
        """A `table` environment; needs booktabs, and amssymb where a tick is printed."""
        head = []
        if self.spans:
            first, rules = 1, []
            for title, width in self.spans:
                if title:
                    rules.append(rf"\cmidrule(lr){{{first}-{first + width - 1}}}")
                first += width
            titles = [rf"\multicolumn{{{width}}}{{c}}{{{latex_text(title)}}}" for title, width in self.spans]
            head = [" & ".join(titles) + r" \\", " ".join(rules)]
        head.append(" & ".join(map(latex_text, self.header)) + r" \\")
        body = [" & ".join(_latex_cell(cell) for cell in row) + r" \\" for row in self.rows]
        columns = "l" * self.num_labels + "r" * (len(self.header) - self.num_labels)
        caption = " ".join([self.caption, *self.notes])
        lines = [
            r"\begin{table}", r"\centering", rf"\caption{{{latex_text(caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *head, r"\midrule", *body, r"\bottomrule",
            r"\end{tabular}", r"\end{table}",
        ]  # fmt: skip
        return "\n".join(lines) + "\n"


def latex_text(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in text)


def _latex_cell(cell: Cell) -> str:
    return rf"\textbf{{{latex_text(cell.text)}}}" if cell.bold else latex_text(cell.text)


def _in_markdown(text: str) -> str:
    """A cell's text: no new cell, line, tag or link begins in it, nor does it steer a terminal."""
    text = _CONTROLS.sub(" ", text).replace("|", r"\|")
    return _TAGS.sub(r"\\<", text).replace("](", r"]\(")


def _in_csv(value: Any) -> Any:
    """A text that no spreadsheet takes for a formula; a number stays one."""
    if not isinstance(value, str) or not value.startswith(_FORMULAS) or _NUMBER.fullmatch(value):
        return value
    return f"'{value}"


def csv_text(frame: pd.DataFrame) -> str:
    frame = frame.assign(**{name: frame[name].map(_in_csv) for name in frame.columns if _has_texts(frame[name])})
    return str(frame.to_csv(index=False, lineterminator="\n", float_format="%.8g"))


def _has_texts(column: pd.Series) -> bool:
    return bool(column.dtype == object or pd.api.types.is_string_dtype(column.dtype))


def spread_text(value: Spread, *, needed: int, decimals: int = 1) -> str:
    """'59.2 ± 2.5'; with '(n=3/5)' when seeds are missing, and '– (n=0/5)' when all are."""
    return _spread_text(value, needed, f".{decimals}f")


def magnitude_text(value: Spread, *, needed: int) -> str:
    """The same in three digits, '0.00123 ± 0.0004', for what runs through orders of magnitude."""
    return _spread_text(value, needed, ".3g")


def _spread_text(value: Spread, needed: int, form: str) -> str:
    count = "" if value.n == needed else f" (n={count_text(value.n, needed)})"
    if value.n == 0:
        return DASH + count
    std = "" if math.isnan(value.std) else f" ± {value.std:{form}}"
    return f"{value.mean:{form}}{std}{count}"


def count_text(n: int, needed: int) -> str:
    """'5', or '3/5' when seeds are missing."""
    return str(n) if n == needed else f"{n}/{needed}"


def best(values: Sequence[Spread]) -> list[bool]:
    """The papers' bold: the highest mean, and all that lie within one (its) standard deviation of it."""
    means = [value.mean for value in values if value.n]
    if not means:
        return [False] * len(values)
    top = max((value for value in values if value.n), key=lambda value: value.mean)
    reach = 0.0 if math.isnan(top.std) else top.std
    return [value.n > 0 and top.mean - value.mean <= reach + 1e-9 for value in values]
