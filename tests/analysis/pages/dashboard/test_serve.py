import socket
from pathlib import Path
from typing import Any

import pytest

from rawls.analysis.pages.dashboard import serve


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], list[str]]]:
    """What Streamlit would have been started with."""
    calls: list[tuple[list[str], list[str]]] = []

    def note(*given: Any) -> int:
        calls.append(given)
        return 0

    monkeypatch.setattr(serve, "_serve", note)
    return calls


def test_it_is_bound_to_this_machine_and_tells_nobody(
    served: list[tuple[list[str], list[str]]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve.main([f"results.root={tmp_path}", "headless=true"], [Path("a.yaml")]) == 0
    ((options, arguments),) = served
    assert {"--server.address=127.0.0.1", "--browser.gatherUsageStats=false", "--server.headless=true"} <= set(options)
    assert arguments == [str(tmp_path), "a.yaml"]
    assert "http://127.0.0.1:" in capsys.readouterr().out


def test_only_names_of_this_machine_reach_it_unless_told_otherwise() -> None:
    """A page elsewhere may have its name lead to 127.0.0.1 (DNS rebinding): its browser then says that name."""
    config = pytest.importorskip("streamlit.config")
    websocket = pytest.importorskip("streamlit.web.server.starlette.starlette_websocket")

    def answers(*hosts: str) -> list[str]:
        options = serve.flags(8501, headless=True, hosts=hosts)
        allowed = [text.partition("=")[2] for text in options if text.startswith("--server.allowedHosts=")]
        before = config.get_option("server.allowedHosts")
        config.set_option("server.allowedHosts", allowed)
        try:
            asked = ["127.0.0.1:8501", "localhost:8501", "[::1]:8501", "evil.example:8501", "gate.example", "", None]
            return [str(host) for host in asked if websocket.is_host_allowed(host)]
        finally:
            config.set_option("server.allowedHosts", before)

    ours = ["127.0.0.1:8501", "localhost:8501", "[::1]:8501"]
    assert answers() == ours
    assert answers("gate.example") == [*ours, "gate.example"]


def test_another_port_is_taken_when_the_usual_one_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind((serve.LOCALHOST, 0))
        other.listen()
        taken = other.getsockname()[1]
        monkeypatch.setattr(serve, "USUAL_PORT", taken)
        assert serve.free_port() not in (0, taken)
        with pytest.raises(ValueError, match=f"port={taken} is taken: leave it out"):
            serve.main([f"port={taken}"])
    assert serve.free_port() == taken


@pytest.mark.parametrize(
    "argument", ["results.rot=x", "results.root=", "--help-me", "host=a/b", "port=x", "port=70000", "headless=yes"]
)
def test_what_is_wrong_is_named_with_the_way_out(argument: str, served: list[Any]) -> None:
    with pytest.raises(ValueError, match=argument.partition("=")[0]):
        serve.main([argument])
    assert served == []
