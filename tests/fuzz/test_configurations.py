"""Configurations of any words: refused in one sentence, or accepted and then what was asked for."""

import json
import math
import re
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from rawls.runners.config.compose import composer, run_id
from rawls.runners.config.errors import ConfigError
from tests.fuzz.cases import count, fuzzed, is_sentence
from tests.fuzz.words import overrides

KIND = "configurations"
BASE = st.sampled_from([["algorithm=dpsgd", "dataset=digits"], ["algorithm=asc", "dataset=digits", "privacy=eps8"], []])
# What follows from other keys, or is found, may be another than was said.
_FOUND = ("data_digest", "_target_", "provenance")


@fuzzed(0.2)
@given(base=BASE, words=overrides())
def test_any_words(base: list[str], words: list[str]) -> None:
    """Accepted means: resolved to JSON, the id of a run, every number finite, and plain values as they were given."""
    try:
        config = composer()([*base, *words])
    except ConfigError as error:
        assert is_sentence(error), (words, str(error))
        count(KIND, "refused in a sentence")
        return
    assert re.fullmatch("[0-9a-f]{16}", run_id(config)), words
    assert json.loads(json.dumps(config)) == config, words
    assert all(map(math.isfinite, numbers(config))), words
    last = {text.partition("=")[0].lstrip("+"): text.partition("=")[2] for text in words}
    for key, text in last.items():
        said = plain(text)
        if said is not None and "." in key and not key.endswith(_FOUND) and not key.startswith("hydra"):
            found = OmegaConf.select(OmegaConf.create(config), key)
            assert found is None or same(found, said), (words, key, found)
    count(KIND, "accepted as it was meant")


def numbers(node: Any) -> list[float]:
    if isinstance(node, dict | list):
        return [number for item in (node.values() if isinstance(node, dict) else node) for number in numbers(item)]
    return [node] if isinstance(node, float) else []


def plain(text: str) -> Any:
    """What a number, true or false is in YAML; None for anything else."""
    try:
        said = yaml.safe_load(text)
    except yaml.YAMLError:
        return None
    return said if isinstance(said, int | float) and re.fullmatch(r"[-+.\deE]+|true|false", text) else None


def same(found: Any, said: Any) -> bool:
    if isinstance(found, str):
        return True  # a text that looks like a number
    alike = isinstance(found, bool) is isinstance(said, bool)
    return alike and (bool(found == said) or (isinstance(found, float) and math.isclose(found, said, rel_tol=1e-12)))
