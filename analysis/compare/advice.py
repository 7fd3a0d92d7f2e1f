"""Which method to take, and why, in sentences: what a ranking says to someone who must choose."""

import math
from collections.abc import Sequence

from rawls.analysis.metrics.ranking import Place

BASELINE = "dpsgd"
UNREACHED = 1.0  # percent of the worst group, below which it is not learnt
MOST_NAMED = 6


def advice(places: Sequence[Place], *, of: str = "") -> str:
    """The method to take, what it buys over DP-SGD and what it costs, and which others are not told apart from it.

    Args:
        places: of one dataset, ranked.
        of: the dataset, where there are several.
    """
    private = [place for place in places if place.rank]
    if not places:
        return f"{of or 'Here'}: there are no validation rows to choose by; give dataset.validation a share."
    if not private:
        return f"{of or 'Here'}: no method with privacy is trained yet."
    first, *others = private
    if first.wga < UNREACHED:
        best = max(private, key=lambda place: place.avg)
        return (
            f"{f'{of}: no' if of else 'No'} method reaches every group: {first.method}, the first by validation, has "
            f"{first.wga:.1f} % in its worst{_group(first)} and {best.method} the highest mean, {best.avg:.1f} %. Take "
            "a larger epsilon, more rows or steps, or merge the smallest groups."
        )
    sentences = [
        f"{f'{of}: take' if of else 'Take'} {_named(first)}: of {len(private)} methods it has the highest validation "
        f"WGA. On test its worst group{_group(first)} has {first.wga:.1f} %, all groups in the mean {first.avg:.1f} %."
    ]
    if base := next((place for place in others if _is_baseline(place)), None):
        sentences.append(_against(first, base))
    if level := [place.method for place in others if place.behind is not None and not place.apart]:
        named = "any of the others" if len(level) == len(others) > MOST_NAMED else ", ".join(level)
        sentences.append(f"Not told apart from it by these seeds: {named}.")
    if ahead := [place for place in others if place.wga > first.wga]:
        best = max(ahead, key=lambda place: place.wga)
        sentences.append(
            f"On test {best.method} is higher ({best.wga:.1f} %); a choice by test would not be one to report."
        )
    if open_methods := [place for place in places if not place.private]:
        best = max(open_methods, key=lambda place: place.wga)
        sentences.append(f"The best without privacy is {_bare(best.method)}: {best.wga:.1f} % and {best.avg:.1f} %.")
    return " ".join(sentences)


def _named(place: Place) -> str:
    return f"{place.method} ({place.setting})" if place.setting else place.method


def _group(place: Place) -> str:
    return f", {place.worst[0]}," if place.worst[0] else ""


def _is_baseline(place: Place) -> bool:
    return bool((place.runs["algorithm"] == BASELINE).any())


def _against(first: Place, base: Place) -> str:
    gain, cost, interval = first.wga - base.wga, base.avg - first.avg, ""
    if base.behind is not None and base.behind.n:
        gain = base.behind.mean
        if not math.isnan(base.behind.low):
            interval = f" (95 %: {base.behind.low:.1f} to {base.behind.high:.1f})"
    more = f"{abs(gain):.1f} points {'more' if gain >= 0 else 'less'} than {base.method}{interval}"
    price = f"for {cost:.1f} points less in the mean" if cost > 0 else f"and {-cost:.1f} points more in the mean"
    return f"That is {more}, {price}."


def _bare(method: str) -> str:
    return method.removesuffix(" (no privacy)")
