"""Bank Account Fraud: the encoding against a naive loop, the months, and the extract where it is at hand."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from rawls.datasets import bank_fraud
from rawls.datasets.bank_fraud import CATEGORIES, GROUP_NAMES, NUM_INPUTS, NUMBERS, TRAIN_GROUP_SIZES, BankFraud, encode
from rawls.datasets.core.base import InMemory
from rawls.datasets.core.sources import sha256

EXTRA = {"device_fraud_count": 0}


def table(num_rows: int = 200, seed: int = 0) -> pd.DataFrame:
    """Made-up rows with the columns of BAF Base."""
    generator = np.random.default_rng(seed)
    columns: dict[str, np.ndarray | int] = {name: generator.normal(5, 3, num_rows) for name in NUMBERS}
    columns["customer_age"] = generator.choice([20, 40, 50, 90], num_rows)
    columns |= {name: generator.choice(values, num_rows) for name, values in CATEGORIES.items()}
    columns["month"] = np.arange(num_rows) % 8
    columns["fraud_bool"] = (np.arange(num_rows) // 8) % 2
    return pd.DataFrame({**columns, **EXTRA})


def test_encoding_is_as_a_naive_loop_has_it() -> None:
    frame = table(60)
    train = np.arange(0, 60, 2)
    inputs = encode(frame, train)
    assert inputs.dtype == np.float32
    assert inputs.shape == (60, NUM_INPUTS) == (60, 50)
    for row in (0, 1, 59):
        expected = []
        for name in NUMBERS:
            known = [float(frame[name][other]) for other in train]
            mean = sum(known) / len(known)
            spread = (sum((value - mean) ** 2 for value in known) / len(known)) ** 0.5
            expected.append((frame[name][row] - mean) / spread)
        for name, values in CATEGORIES.items():
            expected += [float(frame[name][row] == value) for value in values]
        assert np.allclose(inputs[row], expected, atol=1e-5)


def test_only_training_rows_set_the_scale() -> None:
    frame = table(60)
    train = np.arange(30)
    far = frame.copy()
    far.loc[30:, "income"] = 1e6
    assert np.array_equal(encode(frame, train)[:30], encode(far, train)[:30])


def test_a_constant_column_becomes_zero() -> None:
    frame = table(20).assign(foreign_request=1)
    assert (encode(frame, np.arange(10))[:, NUMBERS.index("foreign_request")] == 0).all()


def test_an_unknown_category_is_named() -> None:
    frame = table(20)
    frame.loc[7, "source"] = "PIGEON"
    with pytest.raises(ValueError, match="column source .* 'PIGEON'"):
        encode(frame, np.arange(10))


@pytest.fixture
def small_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Base.parquet of 200 rows that passes for the whole."""
    frame = table()
    months = frame.groupby("month")["fraud_bool"]
    monkeypatch.setattr(bank_fraud, "ROWS_BY_MONTH", tuple(months.size()))
    monkeypatch.setattr(bank_fraud, "FRAUDS_BY_MONTH", tuple(months.sum()))
    path = tmp_path / "bank_fraud" / "Base.parquet"
    path.parent.mkdir()
    frame.to_parquet(path)
    return path


def test_only_the_parquet_is_told_by_its_bytes(small_base: Path) -> None:
    root = small_base.parent.parent
    first = BankFraud().digest(root)
    assert first is not None and BankFraud(provenance="simulated").digest(root) is None
    small_base.write_bytes(small_base.read_bytes() + b" ")
    assert BankFraud().digest(root) not in (first, None)
    (small_base.parent / "Base.csv").write_text("pinned")
    assert BankFraud().digest(root) is None


def test_months_are_the_parts_and_fraud_by_age_the_groups(small_base: Path, tmp_path: Path) -> None:
    data = BankFraud().load(tmp_path)
    frame = table()
    assert data.provenance == "real"
    assert list(data.sources) == ["Base.parquet"]
    for part, months in zip(data.splits(0), ({0, 1, 2, 3, 4}, {5}, {6, 7}), strict=True):
        assert set(frame["month"][part]) == months
        assert len(part) == 25 * len(months)
    for row in range(0, 200, 7):
        name = GROUP_NAMES[int(data.groups[row])]
        assert name.startswith("fraud" if frame["fraud_bool"][row] else "non-fraud")
        assert name.endswith("from 50" if frame["customer_age"][row] >= 50 else "under 50")
        assert data.labels[row] == frame["fraud_bool"][row]
    assert BankFraud().fetch(tmp_path) == [small_base]


def test_a_table_of_something_else_is_refused(small_base: Path, tmp_path: Path) -> None:
    table(192).to_parquet(small_base)
    with pytest.raises(ValueError, match=r"Base\.parquet is not BAF Base"):
        BankFraud().load(tmp_path)
    small_base.write_bytes(small_base.read_bytes()[:500])
    with pytest.raises(ValueError, match=r"Base\.parquet is altered or truncated"):
        BankFraud().fetch(tmp_path)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_text_and_parquet_are_the_same_data(
    small_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    parquet = BankFraud().load(tmp_path)
    text = small_base.with_name(f"Base.csv{suffix}")
    table().to_csv(text, index=False)
    monkeypatch.setattr(bank_fraud, "WHOLE", replace(bank_fraud.WHOLE, sha256=sha256(text)))
    data = BankFraud(provenance="real").load(tmp_path)
    assert data.provenance == "real"
    assert dict(data.sources) == {text.name: sha256(text)}
    rows = torch.arange(200)
    assert torch.allclose(data.inputs.gather(rows), parquet.inputs.gather(rows), atol=1e-6)
    assert torch.equal(data.groups, parquet.groups)


def test_an_altered_base_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bank_fraud").mkdir()
    table().to_csv(tmp_path / "bank_fraud" / "Base.csv", index=False)
    with pytest.raises(ValueError, match=rf"Base\.csv is altered or truncated.*{bank_fraud.WHOLE.sha256}"):
        BankFraud().load(tmp_path)


def test_the_counts_are_those_the_paper_implies() -> None:
    assert sum(TRAIN_GROUP_SIZES) == sum(bank_fraud.ROWS_BY_MONTH[:5]) == 675_666
    assert sum(TRAIN_GROUP_SIZES[2:]) == sum(bank_fraud.FRAUDS_BY_MONTH[:5]) == 6_740
    assert sum(bank_fraud.ROWS_BY_MONTH) == 1_000_000


def test_the_extract_of_real_rows(shared_data: Path) -> None:
    spec = BankFraud()
    if not spec.found(shared_data):
        pytest.skip(f"no BAF file under {shared_data}")
    data = spec.load(shared_data)
    assert data.provenance == "subset"
    assert list(data.sources) == ["alerts.parquet"]
    assert [len(part) for part in data.splits(0)] == [15_894, 4_871, 9_857]
    assert np.bincount(data.groups.numpy()[data.splits(0).train]).tolist() == [7_809, 6_449, 814, 822]
    assert isinstance(data.inputs, InMemory)
    train = data.inputs.tensor.numpy()[data.splits(0).train]
    assert np.allclose(train[:, : len(NUMBERS)].mean(0), 0, atol=1e-3)
    assert np.allclose(train[:, : len(NUMBERS)].std(0), 1, atol=1e-3)
    assert (train[:, len(NUMBERS) :].sum(1) == len(CATEGORIES)).all()
