"""Numbers, laws and events in words, and the little Markdown that a privacy sheet is written in.

What a law means is said by its class's own docstring, and how often a record is drawn by the law itself: a new one
needs no word here.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Sequence

from rawls.accounting.events import Event, Everyone, Neighbouring, RdpEvent, Sampling, WithoutReplacement

QUESTIONS = {
    Neighbouring.REPLACE_ONE: "whether it was this record or another one in its place",
    Neighbouring.ADD_REMOVE: "whether this record was there or not",
}
NEIGHBOURS = {
    Neighbouring.REPLACE_ONE: "replace-one: one record is exchanged for another",
    Neighbouring.ADD_REMOVE: "add/remove: one record more or less",
}


def number(value: float) -> str:
    """To four digits; whole numbers as they are."""
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


def percent(share: float) -> str:
    """Rounded up to hundredths: it is said of what is possible at most."""
    return f"{min(math.ceil(1e4 * share) / 100, 100.0):g} %"


def between(values: Iterable[float]) -> str:
    """'0.5', or '0.5 to 0.8' where values differ as they are printed."""
    known = list(values)
    return " to ".join(dict.fromkeys((number(min(known)), number(max(known)))))


def times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def listed(texts: Sequence[str]) -> str:
    """'a, b and c'."""
    return " and ".join(part for part in (", ".join(texts[:-1]), *texts[-1:]) if part)


def documented(thing: type) -> str:
    """The docstring of a class as one paragraph."""
    return " ".join((inspect.getdoc(thing) or thing.__name__).split())


def event_in_words(event: Event) -> str:
    """'1,500 times: Gaussian noise of 1.2 times the bound, on a Poisson sample at rate 0.063'."""
    if isinstance(event, RdpEvent):
        spent = f"at most {number(event.epsilon)} in Renyi divergence of order {number(event.order)}"
        return f"{times(event.count)}: {spent}, however the records are drawn"
    noise = f"{event.kind.capitalize()} noise of {number(event.noise_multiplier)} times the bound"
    return f"{times(event.count)}: {noise}, on {_sample(event.sampling)}"


def _sample(sampling: Sampling) -> str:
    match sampling:
        case Everyone():
            return "all records"
        case WithoutReplacement(population=population, batch=batch):
            return f"{batch:,} of {population:,} records, drawn without replacement"
        case _:
            return f"a {sampling.law.capitalize()} sample at rate {number(sampling.rate)}"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(text.replace('|', '/') for text in line)} |" for line in lines)


def bullets(texts: Iterable[str]) -> str:
    return "\n".join(f"- {text}" for text in texts)
