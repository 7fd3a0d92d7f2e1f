import pytest

from rawls.runners.process import news


def test_long_work_says_how_far_it_is_and_short_work_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(news.counted("abc", "planned", 3)) == ["a", "b", "c"]
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(news, "SECONDS_BETWEEN_NEWS", 0.0)
    assert list(news.counted("ab", "planned", 300_000)) == ["a", "b"]
    assert capsys.readouterr().err == "planned: 0 of 300,000\nplanned: 1 of 300,000\n"
