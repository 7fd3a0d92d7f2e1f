"""The part of a privacy sheet that lists every answer computed from private data: its law, bound, noise and charge."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rawls.accounting.events import GaussianEvent
from rawls.accounting.mechanism.plan import Plan
from rawls.accounting.mechanism.release import Answer, Release
from rawls.accounting.mechanism.sampling import Population, law_from_dict
from rawls.accounting.sheets.words import between, bullets, documented, event_in_words, listed, number, table, times

Lines = Sequence[Mapping[str, Any]]
"""Releases as a ledger stores them, each with its `count`."""

NORMS = {"gaussian": "2-norm", "laplace": "1-norm"}  # in which bounds are, by the noise
_SHOWN = frozenset(
    {"name", "law", "bounds", "noise_std", "noise", "look", "beside", "charged_as"}  # by the table and what is below it
    | {"count", "first_step", "last_step"}
)
_HEADER = ["Answer", "How often", "One record adds at most", "Noise", "Noise over bound"]


def planned_lines(plan: Plan) -> Lines:
    """What the ledger of a plan says, if nothing changes after the first step."""
    return [{**release.to_dict(), "count": count} for release, count in plan.charges if count]


def published(population: Population, lines: Lines) -> list[str]:
    """A table of all answers, and how their records are drawn and how they are charged."""
    counts: dict[str, int] = {}
    named: dict[str, list[Release]] = {}
    for line in lines:
        counts[line["name"]] = counts.get(line["name"], 0) + line["count"]
        named.setdefault(line["name"], []).append(_release(line, population))
    rows = [
        [name if same[0].name == name else f"{name}: {same[0].name}", times(counts[name]), *_numbers(same)]
        for name, releases in named.items()
        for same in zip(*(release.answers for release in releases), strict=True)
    ]
    said: dict[str, list[str]] = {}
    for name, releases in named.items():
        for text in (_drawn(releases), _together(releases)):
            said.setdefault(text, []).append(name)
    said.pop("", None)
    for line in lines:
        if "charged_as" in line:
            charge = event_in_words(GaussianEvent.from_dict(line["charged_as"]))
            said.setdefault(f"Charged as a step that reveals no less, by a proof: {charge}.", []).append(line["name"])
        if further := ", ".join(_further(line)):
            said.setdefault(f"Further numbers of it: {further}.", []).append(line["name"])
    texts = [f"{listed(list(dict.fromkeys(names)))}: {text}" for text, names in said.items()]
    return [table(_HEADER, rows), bullets(texts)]


def draws_at_random(population: Population, lines: Lines) -> bool:
    """Whether the charge of any line is lower because nobody knows which records it drew."""
    laws = [law_from_dict(line["law"], population) for line in lines]
    samplings = [law.sampling_of(cell) for law in laws for cell in range(len(population.sizes))]
    return any(sampling is not None and 0 < sampling.rate < 1 for sampling in samplings)


def _further(line: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """What a line says beyond every release, of kinds that are not known here: 'rounds 100', 'tree nodes 7'."""
    for key, value in line.items():
        name = f"{prefix}{key.replace('_', ' ')}"
        if not prefix and key in _SHOWN:
            continue
        if isinstance(value, Mapping):
            yield from _further(value, f"{name} ")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield f"{name} {number(value)}"


def _release(line: Mapping[str, Any], population: Population) -> Release:
    """Without the cheaper charge of a dominating step: its proof was made when the line was recorded."""
    return Release.from_dict({key: value for key, value in line.items() if key != "charged_as"}, population)


def _numbers(same: Sequence[Answer]) -> list[str]:
    """Bound, noise and their ratio of one answer, over all lines that have it."""
    bounds = [bound for answer in same for bound in answer.bounds if bound > 0]
    multipliers = [answer.noise_multiplier(cell) for answer in same for cell in range(len(answer.bounds))]
    finite = [multiplier for multiplier in multipliers if multiplier < math.inf]
    return [
        f"{between(bounds)} ({NORMS.get(same[0].noise, 'norm')})" if bounds else "nothing",
        f"{same[0].noise.capitalize()}, std {between(answer.noise_std for answer in same)}",
        between(finite) if finite else "–",
    ]


def _drawn(releases: Sequence[Release]) -> str:
    """How the records of equally named releases are drawn, and how often one of them is."""
    laws = " ".join(documented(law) for law in dict.fromkeys(type(release.law) for release in releases))
    samplings = [release.law.sampling_of(cell) for release in releases for cell in range(len(release.bounds))]
    rates = [sampling.rate for sampling in samplings if sampling is not None and sampling.rate > 0]
    if not rates or min(rates) == 1:
        return laws
    return f"{laws} Each time a record takes part with probability {between(rates)}; that is public."


def _together(releases: Sequence[Release]) -> str:
    answers = releases[0].answers
    if len(answers) == 1:
        return ""
    events = [release.event(cell) for release in releases for cell in range(len(release.bounds))]
    joint = between(event.noise_multiplier for event in events if isinstance(event, GaussianEvent))
    looked = " What is published first may rescale the bounds of its step: the noise then follows the largest."
    return (
        f"{len(answers)} answers from one draw of records, charged together as one whose noise is {joint} times its "
        f"bound.{looked if releases[0].look else ''}"
    )
