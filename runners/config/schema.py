"""Every key of a run's configuration, with its type and default; conf/config.yaml is a defaults list over it.

The values of `dataset`, `model` and `algorithm` are not listed here: their keys are the fields of the
frozen dataclass that their `_target_` names. What OmegaConf's types leave open, a field's `must` says: a type that
runners/config/specifications.py checks as it does theirs. A new key should default to null: null is not hashed, so
the ids of all earlier runs stay.
"""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, Lt
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

from rawls.accounting.fields import Count, NotNegative, Positive, Share

SPECS = ("dataset", "model", "algorithm")
OPTIONAL_SPECS = ("owners",)


def _switch(default: bool) -> Any:
    """True or false and nothing else: OmegaConf would take 1004 for true."""
    return field(default=default, metadata={"must": bool})


@dataclass
class Privacy:
    """The budget: an epsilon whose noise is found, or a noise whose epsilon is; an open method has neither.

    `delta` null is 1 / (2n), n the training rows; `claim` is the rule by which the paper prints epsilon (null: the
    method's own); `secure` draws from the operating system. `tries` says that the run is one of a random number of
    tries with this mean, of which the best is published: epsilon then covers the choice (`rawls choose private=true`).
    """

    epsilon: float | None = field(default=MISSING, metadata={"must": Positive | None})
    delta: float | None = field(default=None, metadata={"must": Share | None})
    noise_multiplier: float | None = field(default=None, metadata={"must": Positive | None})
    neighbouring: str | None = field(default=None, metadata={"must": Literal["replace_one", "add_remove"] | None})
    accountant: str = field(default="rdp", metadata={"must": Literal["rdp", "pld", "prv"]})
    search: str = field(default="tight", metadata={"must": Literal["tight", "opacus"]})
    claim: str | None = field(default=None, metadata={"must": Literal["gdp_clt"] | None})
    secure: Any = _switch(False)
    tries: float | None = field(default=None, metadata={"must": Annotated[float, Gt(1), Le(1000)] | None})


@dataclass
class Optimizer:
    """The fields of rawls.algorithms.core.optimizers.Optimizer; momentum without dampening, no Nesterov."""

    lr: float = field(default=MISSING, metadata={"must": Positive})
    momentum: float = field(default=0.0, metadata={"must": Annotated[float, Ge(0), Lt(1)]})
    weight_decay: float = field(default=0.0, metadata={"must": NotNegative})
    kind: str | None = field(default=None, metadata={"must": Literal["sgd", "adam", "adamw"] | None})
    beta1: float | None = field(default=None, metadata={"must": Annotated[float, Ge(0), Lt(1)] | None})
    beta2: float | None = field(default=None, metadata={"must": Annotated[float, Ge(0), Lt(1)] | None})
    eps: float | None = field(default=None, metadata={"must": Annotated[float, Gt(0), Lt(1)] | None})
    schedule: str | None = field(default=None, metadata={"must": Literal["linear", "cosine", "steps"] | None})
    radius: float | None = field(default=None, metadata={"must": Positive | None})
    average: str | None = field(default=None, metadata={"must": Literal["all", "last_half"] | None})


@dataclass
class Schedule:
    """steps = min(max_steps, epochs * ceil(n / batch_size)); `plan_only` calibrates and trains nothing.

    `rate` draws every row with this probability instead of batch_size / n: rate, divisor (batch_size) and steps
    (floor(1 / rate) an epoch) are then three numbers of their own, as in WYSIWYG's code. Null batch size and epochs
    follow from the training rows (runners/config/by_rows.py); null evaluations are one for each epoch.
    """

    batch_size: int | None = field(default=MISSING, metadata={"must": Count | None})
    rate: float | None = field(default=None, metadata={"must": Annotated[float, Gt(0), Le(1)] | None})
    epochs: int | None = field(default=MISSING, metadata={"must": Count | None})
    max_steps: int | None = field(default=None, metadata={"must": Count | None})
    evaluations: int | None = field(default=MISSING, metadata={"must": Count | None})
    plan_only: Any = _switch(False)


@dataclass
class Probe:
    """Measurements beside the training, outside the accounting, each every so many steps; null is never.

    `group_gradients_rows` is how many rows of each group are measured at most; null takes the whole training set.
    `gap_noise` measures the whole training and test parts at every evaluation, as they are and with Gaussian noise on
    every input, so many times as large as the inputs' own deviation; `running` the accuracy of each group over the
    batches between evaluations.
    """

    sampling_variance_every: int | None = field(default=None, metadata={"must": Count | None})
    group_gradients_every: int | None = field(default=None, metadata={"must": Count | None})
    group_gradients_rows: int | None = field(default=None, metadata={"must": Count | None})
    gap_noise: float | None = field(default=None, metadata={"must": Positive | None})
    running: Any = field(default=None, metadata={"must": bool | None})


@dataclass
class Scale:
    """`seeds` caps what an experiment asks for; null takes all."""

    name: str = MISSING
    seeds: int | None = field(default=None, metadata={"must": Count | None})


@dataclass
class Tracking:
    """Weights & Biases."""

    mode: str = field(default=MISSING, metadata={"must": Literal["offline", "online", "off"]})
    project: str = "rawls"
    entity: str | None = None


@dataclass
class Results:
    """Where runs and targets are kept, relative to the folder the command is called in, and what of a run is.

    `weights` are the final parameters (weights.safetensors), `scores` those of every example (scores.npz).
    """

    root: str = "results"
    weights: Any = _switch(True)
    scores: Any = _switch(False)


@dataclass
class DataFiles:
    """Where data files lie."""

    root: str = "data"


@dataclass
class Block:
    """A small grid of overrides, every value alone or in a list; `label` is what tables call it."""

    label: str = MISSING
    overrides: dict[str, Any] = MISSING


@dataclass
class Experiment:
    """A target: the runs it needs (each block, with what all have in common) and how it is drawn.

    Without blocks it needs none, and is computed as it is drawn. `fitting` leaves out what the data, the model or the
    budget at hand do not allow, instead of refusing the whole (runners/sweeps/fitting.py).
    """

    title: str = MISSING
    seeds: int = field(default=MISSING, metadata={"must": Count})
    common: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)
    fitting: bool = False
    draw: dict[str, Any] = MISSING


@dataclass
class Config:
    """One run."""

    dataset: dict[str, Any] = MISSING
    model: dict[str, Any] = MISSING
    algorithm: dict[str, Any] = MISSING
    owners: dict[str, Any] | None = None
    privacy: Privacy = field(default_factory=Privacy)
    optimizer: Optimizer = field(default_factory=Optimizer)
    schedule: Schedule = field(default_factory=Schedule)
    probe: Probe = field(default_factory=Probe)
    seed: int = field(default=0, metadata={"must": Annotated[int, Ge(0), Le(2**63 - 1)]})
    # Found, not given: what tells data that no checksum pins from others; null where one does.
    data_digest: str | None = None
    scale: Scale = field(default_factory=Scale)
    device: str = "auto"
    engine: str = field(default="auto", metadata={"must": Literal["auto", "fused", "opacus_hooks", "opacus_ghost"]})
    # Samples at a time in the Opacus engine: memory and speed, and rounding. The fused one finds its own.
    physical_batch: int | None = field(default=None, metadata={"must": Count | None})
    # In no fleet with others, so that the seconds it takes are its own.
    alone: Any = _switch(False)
    # What is done already is put aside and trained again.
    retrain: Any = _switch(False)
    tracking: Tracking = field(default_factory=Tracking)
    results: Results = field(default_factory=Results)
    data: DataFiles = field(default_factory=DataFiles)
    experiment: Experiment | None = None


ConfigStore.instance().store(name="schema", node=Config, provider="rawls")
