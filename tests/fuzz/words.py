"""Words of command lines: those that mean something, those that nearly do, and any text at all."""

from functools import lru_cache

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from rawls.runners.config.compose import choices, compose, resolve

GROUPS = ("dataset", "model", "algorithm", "privacy", "owners", "optimizer", "recipe", "scale", "tracking", "tuned")
ODD = [
    *("", "null", "~", "nan", "inf", "-inf", "-1", "0", "1e308", "1e-320", "9" * 30, "9e18", "1e22", "true", "[]"),
    *("{}", "[1,2]", "{a:1}", "'", '"', "a b", "a,b", "range(0,3)", "range(0,10,0)", "choice(1,2)", "glob(*)"),
    *("shuffle(1,2)", "${seed}", "${oc.env:HOME}", "${oc.env:NOTHING,1}", "${foo}", "${", "$", "???", "/", "\x00"),
    *("../../etc/passwd", "ε", "日本", "\u202e", "=", "==", "a=b", "!!python/object:os.system", "0x10", "1_000"),
    *("on", ".5", "1.", "--", "-m", "int(3)", "str(a)", "cast(", "sort(3,1)", "@", "#x", "%s", "{0}", "\\", "\n"),
    *("\t", "'a'b", "[", "]", "(", ")"),
]


@lru_cache
def keys() -> tuple[str, ...]:
    """Every key of some configurations."""
    found: dict[str, None] = {}
    for words in ([], ["algorithm=dpsgd"], ["algorithm=ino_sgd", "owners=digits"]):
        _walk(resolve(compose([*words, "dataset=digits"])), "", found)
    return tuple(found)


def _walk(node: object, prefix: str, found: dict[str, None]) -> None:
    if isinstance(node, dict):
        for key, value in node.items():
            found[f"{prefix}{key}"] = None
            _walk(value, f"{prefix}{key}.", found)


def values() -> SearchStrategy[str]:
    numbers = st.integers(-(2**70), 2**70) | st.floats() | st.sampled_from([0.1, 0.5, 1, 2, 8, 16])
    return st.one_of(st.sampled_from(ODD), numbers.map(str), numbers.map(str), st.text(max_size=8))


def names(group: str) -> SearchStrategy[str]:
    known = st.sampled_from(choices(group)) if choices(group) else st.just("none")
    return known | known | st.tuples(known, st.sampled_from(["", "x", "-", "s"])).map("".join)


@st.composite
def override(draw: st.DrawFn) -> str:
    """KEY=VALUE, nearly always of a key that there is."""
    kind = draw(st.integers(0, 9))
    if kind < 3:
        group = draw(st.sampled_from(GROUPS))
        return f"{group}={draw(names(group))}"
    key = draw(st.sampled_from(keys()))
    if kind == 3:
        key = draw(st.sampled_from([key[:-1], f"{key}x", f"{key}.x", key.replace(".", "..", 1), key.upper()]))
    elif kind == 4:
        key = draw(st.sampled_from(["+", "++", "~", "hydra.", "-", "@"])) + key
    elif kind == 5:
        return draw(st.text(max_size=12))
    return f"{key}={draw(values())}" if kind != 6 else key


def overrides(most: int = 3) -> SearchStrategy[list[str]]:
    return st.lists(override(), min_size=1, max_size=most)
