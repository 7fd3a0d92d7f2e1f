"""The ledger: noise and record in one act, equal lines merged, and a round trip through JSON."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from rawls.accounting.events import GaussianEvent, Poisson, WithoutReplacement
from rawls.accounting.mechanism.ledger import FleetLedgers, Ledger
from rawls.accounting.mechanism.release import Answer, Release
from rawls.accounting.mechanism.sampling import CellPoisson, Population, StratifiedWithoutReplacement, WholeTrainingSet
from rawls.accounting.mechanism.streams import Streams

POPULATION = Population((50, 30))


def release(batches: tuple[int, int] = (5, 3), std: float = 2.0, name: str = "gradient") -> Release:
    law = StratifiedWithoutReplacement(POPULATION, batches)
    return Release(name=name, law=law, bounds=(1.0, 0.5), noise_std=std)


def test_what_is_published_is_noised_and_recorded() -> None:
    ledger = Ledger(Streams("run"), POPULATION)
    public = ledger.publish(release(), torch.zeros(1000), step=0)
    assert 1.8 < float(public.std()) < 2.2
    assert ledger.count("gradient") == 1
    assert ledger.events()[0] == (GaussianEvent(WithoutReplacement(50, 5), 2.0, 1),)
    assert ledger.events()[1] == (GaussianEvent(WithoutReplacement(30, 3), 4.0, 1),)


def test_equal_releases_share_a_line_and_others_do_not() -> None:
    ledger = Ledger(Streams("run"), POPULATION)
    changes = [release(), release(), release((6, 2)), release((6, 2)), release()]
    for step, made in enumerate(changes):
        ledger.publish(made, torch.zeros(1), step)
    assert [(line["first_step"], line["count"]) for line in ledger.to_dicts()] == [(0, 2), (2, 2), (4, 1)]
    assert ledger.events()[0] == (
        GaussianEvent(WithoutReplacement(50, 5), 2.0, 3),
        GaussianEvent(WithoutReplacement(50, 6), 2.0, 2),
    )


def test_releases_of_different_names_interleave() -> None:
    ledger = Ledger(Streams("run"), POPULATION)
    gradient, losses = release(), release(name="group losses", std=9.0)
    for step in range(6):
        ledger.publish(gradient, torch.zeros(1), step)
        if step % 3 == 2:
            ledger.publish(losses, torch.zeros(1), step)
    assert [(line["name"], line["count"]) for line in ledger.to_dicts()] == [("gradient", 6), ("group losses", 2)]


def test_a_group_that_is_never_drawn_pays_nothing() -> None:
    ledger = Ledger(Streams("run"), POPULATION)
    ledger.publish(release((5, 0)), torch.zeros(1), 0)
    assert ledger.events()[1] == ()


def test_a_resumed_ledger_goes_on_in_the_same_lines() -> None:
    straight, first = Ledger(Streams("run"), POPULATION), Ledger(Streams("run"), POPULATION)
    for step in range(4):
        straight.publish(release(), torch.zeros(1), step)
        first.publish(release(), torch.zeros(1), step)
    resumed = Ledger(Streams("run"), POPULATION, json.loads(json.dumps(first.to_dicts())))
    for step in range(4, 7):
        straight.publish(release(), torch.zeros(1), step)
        resumed.publish(release(), torch.zeros(1), step)
    assert resumed.to_dicts() == straight.to_dicts()
    assert resumed.events() == straight.events()


@pytest.mark.parametrize("resumed", [False, True])
def test_a_second_release_of_one_name_at_one_step_is_refused(resumed: bool) -> None:
    """Its noise would be the first one's, so that their difference had none."""
    ledger = Ledger(Streams("run"), POPULATION)
    for step in range(3):
        ledger.publish(release(), torch.zeros(1), step)
    if resumed:
        ledger = Ledger(Streams("run"), POPULATION, ledger.to_dicts())
    ledger.publish(release(name="group losses"), torch.zeros(1), 2)
    with pytest.raises(ValueError, match="'gradient' was already released at step 2"):
        ledger.publish(release((6, 2)), torch.zeros(1), 2)
    assert ledger.count("gradient") == 3


@pytest.mark.parametrize(("field", "value"), [("bounds", (float("nan"), 1.0)), ("noise_std", -1.0)])
def test_a_release_that_bounds_nothing_is_refused(field: str, value: object) -> None:
    fields = {"name": "gradient", "law": release().law, "bounds": (1.0, 0.5), "noise_std": 2.0} | {field: value}
    with pytest.raises(ValueError, match="norm bound|noise_std"):
        Release(**fields)  # type: ignore[arg-type]


def test_a_fleet_publishes_as_each_run_alone() -> None:
    """Same noise, same record; a second release of one name at one step is refused here too."""
    keys, stds = ("a", "b"), (2.0, 5.0)
    ledgers = [Ledger(Streams(key), POPULATION) for key in keys]
    together = FleetLedgers(ledgers)
    releases = [release(std=std) for std in stds]
    for step in range(3):
        totals = together.publish(releases, torch.zeros(2, 40), step)
        for run, key in enumerate(keys):
            alone = Ledger(Streams(key), POPULATION)
            assert torch.equal(totals[run], alone.publish(releases[run], torch.zeros(40), step))
    for ledger, asked in zip(ledgers, releases, strict=True):
        assert ledger.count("gradient") == 3
        assert ledger.events()[0] == (asked.event(0, 3),)
    with pytest.raises(ValueError, match="already released at step 2"):
        together.publish(releases, torch.zeros(2, 40), 2)


def test_a_fleet_refuses_a_second_release_at_one_step_and_tells_others_apart() -> None:
    """Also of the very releases that it published last, which it records without looking at them anew."""
    ledgers = [Ledger(Streams(f"run {run}"), POPULATION) for run in range(2)]
    together, usual, other = FleetLedgers(ledgers), [release(), release()], [release(), release(std=3.0)]
    for step, made in enumerate([usual, usual, other, other, usual]):
        together.publish(made, torch.zeros(2, 4), step)
    with pytest.raises(ValueError, match="already released at step 4"):
        together.publish(usual, torch.zeros(2, 4), 4)
    told = [[(line["first_step"], line["count"]) for line in ledger.to_dicts()] for ledger in ledgers]
    assert told == [[(0, 5)], [(0, 2), (2, 2), (4, 1)]]


def test_beside_a_release_that_equals_the_last_one_answers_are_published() -> None:
    """As after an adaptation that changed nothing: an equal release, made anew."""
    ledger = Ledger(Streams("run"), POPULATION)
    together = FleetLedgers([ledger])
    beside = (Answer(name="count", bounds=(1.0, 1.0), noise_std=3.0),)
    for step in range(3):
        made = replace(release(), beside=beside)
        together.publish([made], torch.zeros(1, 4), step)
        ledger.publish_beside(made, {"count": torch.zeros(2)}, step)
    assert [(line["first_step"], line["count"]) for line in ledger.to_dicts()] == [(0, 3)]


def test_after_a_resume_a_release_that_comes_every_few_steps_gets_no_noise_twice() -> None:
    """What was released last is stored: to count from the first step would let step 10 come again."""
    ledger = Ledger(Streams("run"), POPULATION)
    for step in (0, 5, 10):
        ledger.publish(release(), torch.zeros(1), step)
    resumed = Ledger(Streams("run"), POPULATION, json.loads(json.dumps(ledger.to_dicts())))
    with pytest.raises(ValueError, match="'gradient' was already released at step 10"):
        resumed.publish(release((6, 2)), torch.zeros(1), 10)
    resumed.publish(release(), torch.zeros(1), 15)
    assert resumed.count("gradient") == 4


def test_releases_that_are_charged_otherwise_do_not_share_a_line() -> None:
    poisson = Release(name="gradient", law=CellPoisson(POPULATION, (0.1, 0.1)), bounds=(1.0, 1.0), noise_std=2.0)
    cheaper = replace(poisson, charged_as=GaussianEvent(Poisson(0.1), 1.9))
    ledger = Ledger(Streams("run"), POPULATION)
    for step, made in enumerate([poisson, cheaper, poisson]):
        ledger.publish(made, torch.zeros(1), step)
    assert [line["count"] for line in ledger.to_dicts()] == [1, 1, 1]
    multipliers = [event.noise_multiplier for event in ledger.events()[0] if isinstance(event, GaussianEvent)]
    assert multipliers == [2.0, 1.9]


def test_a_ledger_grows_by_a_line_for_each_release_that_changes() -> None:
    """Stored without its events: 2,000 changes of ten groups in less than 450 bytes each."""
    cells = Population((500,) * 10)
    ledger = Ledger(Streams("run"), cells)
    for step in range(2000):
        law = StratifiedWithoutReplacement(cells, tuple(10 + (step + group) % 40 for group in range(10)))
        bounds = tuple(1 / (1 + (step * group) % 97) for group in range(10))
        made = Release(name="gradient", law=law, bounds=bounds, noise_std=3.3)
        ledger.publish(made, torch.zeros(1), step)
    text = json.dumps(ledger.to_dicts())
    assert len(text) < 450 * 2000
    assert Ledger(Streams("run"), cells, json.loads(text)).events() == ledger.events()


def test_laplace_noise_has_the_declared_scale() -> None:
    """n = 40,000: mean absolute value within 3 % of the scale; 8 % less would be seen."""
    made = Release(name="losses", law=WholeTrainingSet(POPULATION), bounds=(1, 1), noise_std=3.0, noise="laplace")
    noise = Ledger(Streams("run"), POPULATION).publish(made, torch.zeros(40_000), 0)
    scale = float(noise.abs().mean())
    assert scale == pytest.approx(3.0 / math.sqrt(2), rel=0.03)
    assert 0.92 * scale != pytest.approx(3.0 / math.sqrt(2), rel=0.03)
    assert float(noise.std()) == pytest.approx(3.0, rel=0.03)
