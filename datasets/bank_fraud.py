"""Bank Account Fraud, Base (Jesus et al. 2022; ASC section 6): groups are fraud x (age under 50 or not).

Train, validation and test are months 0-4, 5 and 6-7: 675,666 training rows, which is what the paper's
delta and steps imply. The paper says nothing of the encoding; ours: every column but the target, the
month and the constant device_fraud_count; numbers are standardised by the mean and deviation of the
training rows ("-1 = unknown" is left a number), categories are one-hot, 50 inputs in all. These
statistics are not accounted for in the privacy budget.

An extract of some months (alerts.parquet: rows an alert model scored high, months 3-7) is split by the
same months and marked as a subset. Base.parquet has no fixed bytes to take a checksum of: its rows and
frauds per month are compared with Base.csv's instead.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rawls.datasets.core.base import Data, Dataset, Provenance
from rawls.datasets.core.sources import Source, digest_of, locate, opened, sha256, verified
from rawls.datasets.core.splits import Rows, Split, apportion

TARGET = "fraud_bool"
CATEGORIES: dict[str, tuple[str, ...]] = {
    "payment_type": ("AA", "AB", "AC", "AD", "AE"),
    "employment_status": ("CA", "CB", "CC", "CD", "CE", "CF", "CG"),
    "housing_status": ("BA", "BB", "BC", "BD", "BE", "BF", "BG"),
    "source": ("INTERNET", "TELEAPP"),
    "device_os": ("linux", "macintosh", "other", "windows", "x11"),
}
NUMBERS = (
    "income",
    "name_email_similarity",
    "prev_address_months_count",
    "current_address_months_count",
    "customer_age",
    "days_since_request",
    "intended_balcon_amount",
    "zip_count_4w",
    "velocity_6h",
    "velocity_24h",
    "velocity_4w",
    "bank_branch_count_8w",
    "date_of_birth_distinct_emails_4w",
    "credit_risk_score",
    "email_is_free",
    "phone_home_valid",
    "phone_mobile_valid",
    "bank_months_count",
    "has_other_cards",
    "proposed_credit_limit",
    "foreign_request",
    "session_length_in_minutes",
    "keep_alive_session",
    "device_distinct_emails_8w",
)
NUM_INPUTS = len(NUMBERS) + sum(len(values) for values in CATEGORIES.values())
GROUP_NAMES = ("non-fraud under 50", "non-fraud from 50", "fraud under 50", "fraud from 50")

ROWS_BY_MONTH = (132_440, 127_620, 136_979, 150_936, 127_691, 119_323, 108_168, 96_843)
FRAUDS_BY_MONTH = (1_500, 1_198, 1_198, 1_392, 1_452, 1_411, 1_450, 1_428)
# Not printed: implied by the noise multipliers and epsilons that are (125,350 within 600).
TRAIN_GROUP_SIZES = (543_576, 125_350, 3_914, 2_826)

WHOLE = Source(
    filename="Base.csv",
    sha256="ba7a015e4695399c89da8bf9ffac850be7c23b4666a6cf22af3b3424ecca0957",
    folders=("bank_fraud", "BankAccountFraud", "."),
    page="https://www.kaggle.com/datasets/sgpjesus/bank-account-fraud-dataset-neurips-2022",
)
EXTRACT = Source(
    filename="alerts.parquet",
    sha256="bfdef9c69b185dc09712bc7040269f995a0a0160dd8bd8e4bb30316af9dc0777",
    folders=("bank_fraud",),
)


@dataclass(frozen=True, kw_only=True)
class BankFraud(Dataset):
    """BAF Base by month."""

    name: ClassVar[str] = "bank_fraud"
    group_names: ClassVar[tuple[str, ...]] = GROUP_NAMES
    minority_groups: ClassVar[tuple[int, ...]] = (2, 3)
    assumptions: ClassVar[tuple[str, ...]] = (
        "mean and standard deviation of the training inputs are public (they scale the inputs outside the accounting)",
    )
    sources: ClassVar[tuple[Source, ...]] = (WHOLE,)

    @property
    def paper_group_sizes(self) -> tuple[int, ...]:
        return TRAIN_GROUP_SIZES

    def found(self, root: Path) -> Provenance:
        if locate(WHOLE, root) is not None or _parquet(root) is not None:
            return "real"
        return "subset" if locate(EXTRACT, root) is not None else "simulated"

    def digest(self, root: Path) -> str | None:
        real = (self.provenance or self.found(root)) == "real"
        parquet = _parquet(root) if real and locate(WHOLE, root) is None else None
        return None if parquet is None else digest_of([parquet])

    def fetch(self, root: Path) -> list[Path]:
        if locate(WHOLE, root) is None and (parquet := _parquet(root)) is not None:
            _read_parquet(parquet)
            return [parquet]
        return super().fetch(root)

    def read(self, root: Path, provenance: Provenance) -> Data:
        if provenance == "subset":
            path = verified(EXTRACT, root, self.name)
            frame = pd.read_parquet(path)
        elif locate(WHOLE, root) is None and (parquet := _parquet(root)) is not None:
            path, frame = parquet, _read_parquet(parquet)
        else:
            path = verified(WHOLE, root, self.name)
            with opened(path) as stream:
                frame = pd.read_csv(stream)
        train, valid, test = (np.flatnonzero(part) for part in _parts(frame["month"].to_numpy()))
        labels = frame[TARGET].to_numpy(dtype=np.int64)
        groups = 2 * labels + (frame["customer_age"].to_numpy() >= 50)
        return _data(encode(frame, train), groups, Split(train, valid, test), provenance, {path.name: sha256(path)})

    def simulate(self) -> Data:
        """Normal numbers and random categories; fraud shifts them, and less so from 50 years on."""
        generator = np.random.default_rng(0)
        sizes = [np.array(TRAIN_GROUP_SIZES), _held_out_sizes(5), _held_out_sizes(6, 7)]
        groups = np.concatenate([generator.permutation(np.repeat(np.arange(4), part)) for part in sizes])
        ends = np.cumsum([part.sum() for part in sizes])
        split = Split(*(np.arange(end - part.sum(), end) for part, end in zip(sizes, ends, strict=True)))
        return _data(_twin_inputs(groups, generator), groups, split, "simulated", {})


def encode(frame: pd.DataFrame, train: Rows) -> NDArray[np.float32]:
    """The rows as model inputs [rows, NUM_INPUTS], standardised by the training rows."""
    inputs = np.zeros((len(frame), NUM_INPUTS), dtype=np.float32)
    for column, name in enumerate(NUMBERS):
        values = frame[name].to_numpy(dtype=np.float64)
        inputs[:, column] = (values - values[train].mean()) / (values[train].std() or 1.0)
    column = len(NUMBERS)
    for name, values in CATEGORIES.items():
        codes = pd.Index(values).get_indexer(frame[name].astype(str))
        if (codes < 0).any():
            unknown = frame[name].iloc[int(codes.argmin())]
            raise ValueError(f"column {name} of bank_fraud holds {unknown!r}, which is none of {values}")
        inputs[np.arange(len(frame)), column + codes] = 1
        column += len(values)
    return inputs


def _parquet(root: Path) -> Path | None:
    paths = (root / folder / "Base.parquet" for folder in WHOLE.folders)
    return next((path for path in paths if path.is_file()), None)


def _read_parquet(path: Path) -> pd.DataFrame:
    """BAF Base as Parquet, or one sentence if it is something else."""
    try:
        frame = pd.read_parquet(path)
        months = frame.groupby("month")[TARGET].agg(["size", "sum"])
    except (OSError, ValueError, KeyError) as error:
        raise ValueError(f"{path} is altered or truncated ({error}): remove it and use Base.csv") from error
    if (tuple(months["size"]), tuple(months["sum"])) != (ROWS_BY_MONTH, FRAUDS_BY_MONTH):
        raise ValueError(f"{path} is not BAF Base: its rows or frauds per month differ; use Base.csv")
    return frame


def _parts(months: Rows) -> tuple[NDArray[np.bool_], ...]:
    """Which rows are training, validation and test rows."""
    return months <= 4, months == 5, months >= 6


def _data(
    inputs: NDArray[np.float32],
    groups: Rows,
    split: Split,
    provenance: Provenance,
    sources: Mapping[str, str],
) -> Data:
    return Data.in_memory(
        inputs,
        groups // 2,
        groups,
        num_classes=2,
        provenance=provenance,
        sources=sources,
        splits=lambda seed: split,
    )


def _held_out_sizes(*months: int) -> Rows:
    """Group sizes of some months: their own number of frauds, divided by age as in training."""
    frauds = sum(FRAUDS_BY_MONTH[month] for month in months)
    others = sum(ROWS_BY_MONTH[month] for month in months) - frauds
    return np.concatenate([apportion(others, TRAIN_GROUP_SIZES[:2]), apportion(frauds, TRAIN_GROUP_SIZES[2:])])


def _twin_inputs(groups: Rows, generator: np.random.Generator) -> NDArray[np.float32]:
    inputs = np.zeros((len(groups), NUM_INPUTS), dtype=np.float32)
    shifts = np.zeros((4, len(NUMBERS)), dtype=np.float32)
    fraud = generator.standard_normal(len(NUMBERS)).astype(np.float32)
    shifts[2], shifts[3] = 0.3 * fraud, 0.15 * fraud
    shifts[:, NUMBERS.index("customer_age")] = (-0.5, 2.0, -0.5, 2.0)
    inputs[:, : len(NUMBERS)] = (
        generator.standard_normal((len(groups), len(NUMBERS)), dtype=np.float32) + shifts[groups]
    )
    column = len(NUMBERS)
    for values in CATEGORIES.values():
        usual, other = generator.dirichlet(np.ones(len(values)), size=2)
        for is_fraud, shares in ((False, usual), (True, 0.6 * usual + 0.4 * other)):
            rows = np.flatnonzero((groups >= 2) == is_fraud)
            inputs[rows, column + generator.choice(len(values), size=len(rows), p=shares)] = 1
        column += len(values)
    return inputs
