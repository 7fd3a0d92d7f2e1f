"""`rawls audit`: what it is asked, what it skips, how it ends."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rawls.runners.audit import command, records
from rawls.runners.cli import commands
from rawls.runners.config.errors import ConfigError

FINDING = {
    "attack": "published sums", "setting": "full batch, 2 steps", "record": "smallest group", "lower_bound": 5.0,
    "bound": "gaussian", "confidence": 0.99975, "proven": 8.0, "claim": 7.5, "rule": "gdp_clt", "runs": 100,
    "seconds": 1.5,
}  # fmt: skip
TWIN = {"twin": "half the noise", "caught_by": "canary game", "says": "epsilon is 12 or more", "seconds": 2.0}


def record_of(config: Mapping[str, Any], **changed: Any) -> dict[str, Any]:
    return {
        "method": config["algorithm"]["_target_"].split(".")[-2], "dataset": "digits", "provenance": "real",
        "model": "logistic", "confidence": 0.999, "code": records.code_of(config), "findings": [FINDING],
        "twins": [TWIN], "verdict": "claim refuted by the ledger", "seconds": 9.0, **changed,
    }  # fmt: skip


@pytest.fixture
def audited(monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Audits are made up; what each record is to have besides, by method."""
    changes: dict[str, dict[str, Any]] = {}

    def made_up(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, config in configs.items():
            yield name, record_of(config, **changes.get(name, {}))

    monkeypatch.setattr(command, "_audited", made_up)
    return changes


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name a method first"),
        (["asc"], "rawls audit does not know 'asc': name algorithm=NAME, or all"),
        (["algorithm=sgd"], "sgd trains without privacy: there is nothing to audit"),
        (["algorithm=ascc"], "unknown algorithm 'ascc': did you mean asc"),
        (["algorithm=asc", "privacy.epsilon=-1"], "privacy.epsilon=-1"),
    ],
)
def test_what_can_not_be_audited_is_one_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence.replace("(", r"\(")):
        command.audit(arguments)


def test_defaults_are_those_of_which_something_can_be_seen_unless_others_are_given() -> None:
    usual = command._configured("asc", [])
    assert usual["privacy"]["epsilon"] == 8 and usual["model"]["_target_"].endswith("Logistic")
    given = command._configured("asc", ["privacy=eps1", "model=digits_cnn"])
    assert given["privacy"]["epsilon"] == 1 and given["model"]["_target_"].endswith("DigitsCnn")


def test_what_was_audited_before_is_skipped_until_its_code_changes(
    audited: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ["audit", "algorithm=asc,dpsgd", f"results.root={tmp_path}"]
    assert commands.main(arguments) == 0
    first = capsys.readouterr().out
    assert "asc: claim refuted by the ledger; epsilon is 5 or more" in first and "(2 of 2, " in first
    assert "| asc " in first and "audit.png" in first and "audited before" not in first
    assert commands.main(arguments) == 0
    assert capsys.readouterr().out.count("audited before, with this configuration and code") == 2
    monkeypatch.setattr(records, "_shared_code", lambda: b"other code")
    assert commands.main(arguments) == 0
    assert "audited before" not in capsys.readouterr().out
    folder = tmp_path / "audits"
    assert {path.suffix for path in folder.iterdir()} == {".json", ".md", ".csv", ".png"}
    assert str(tmp_path) not in (folder / "audit.md").read_text("utf-8")
    (one,) = folder.glob("asc-*.json")
    assert json.loads(one.read_text("utf-8"))["findings"] == [FINDING]


@pytest.mark.parametrize("verdict", ["twin not caught", "proof refuted by attack"])
def test_a_verdict_on_us_fails_the_command(verdict: str, audited: dict[str, Any], tmp_path: Path) -> None:
    missed = {**TWIN, "caught_by": ""}
    audited["asc"] = {"verdict": verdict, "twins": [missed]}
    assert commands.main(["audit", "algorithm=asc,dpsgd", f"results.root={tmp_path}"]) == 1
    assert "NOBODY" in (tmp_path / "audits" / "audit.md").read_text("utf-8")


def test_all_takes_every_private_method_and_a_refusal_stops_no_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], audited: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(configs: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
        for name, config in configs.items():
            yield name, {"error": "cannot be"} if name == "fdpg" else record_of(config)

    monkeypatch.setattr(command, "_audited", refusing)
    assert commands.main(["audit", "all", f"results.root={tmp_path}"]) == 1
    printed = capsys.readouterr().out
    assert "sgd: trains without privacy, so there is nothing to audit" in printed
    assert "fdpg: not audited: cannot be" in printed and "minimax_phased_erm: " in printed


def test_the_code_of_a_method_is_its_own_and_what_all_share() -> None:
    asc, dpsgd = (records.code_of(command._configured(name, [])) for name in ("asc", "dpsgd"))
    assert asc != dpsgd and asc == records.code_of(command._configured("asc", ["privacy=eps1"]))
