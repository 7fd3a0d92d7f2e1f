"""`rawls dashboard`: start Streamlit for this machine alone, and ask nothing of any other."""

import re
import socket
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

USUAL_PORT = 8501
LOCALHOST = "127.0.0.1"
APP = Path(__file__).with_name("app.py")
# By which names a browser may reach it: a page elsewhere whose name is made to lead here has another.
NAMES = (LOCALHOST, "localhost", "::1")
KEYS = "results.root=FOLDER, port=NUMBER, host=NAME and headless=true can be set"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.\-]*[A-Za-z0-9])?")


def main(arguments: Sequence[str], experiments: Iterable[Path] = ()) -> int:
    """Serve until Ctrl-C.

    Args:
        arguments: results.root=FOLDER; port=NUMBER (the usual one, or a free one if that is taken);
            headless=true to open no browser; host=NAME,NAME by which a proxy of yours hands it on.
        experiments: the YAML files of the targets there are, for those that never ran.

    Raises:
        ValueError: an argument that is not known, or a port that is taken.
    """
    given = _parsed(arguments)
    root = Path(given.get("results.root", "results")).absolute()
    port = _port(given["port"]) if "port" in given else free_port()
    if (headless := given.get("headless", "false")) not in ("true", "false"):
        raise ValueError(f"headless={headless}: say headless=true to open no browser, or leave it out")
    hosts = [name for name in given.get("host", "").split(",") if name]
    if wrong := [name for name in hosts if not _NAME.fullmatch(name)]:
        raise ValueError(f"host={wrong[0]} is no name of a machine: give it as the browser's address has it, no port")
    print(f"rawls dashboard of {root}: http://{LOCALHOST}:{port} (Ctrl-C ends it)", flush=True)
    return _serve(flags(port, headless=headless == "true", hosts=hosts), [str(root), *map(str, experiments)])


def flags(port: int, *, headless: bool, hosts: Sequence[str] = ()) -> list[str]:
    """Streamlit's own options: nobody else is served or told, and nothing is watched."""
    options = {
        "server.address": LOCALHOST,
        "server.port": port,
        "server.headless": headless,
        "server.fileWatcherType": "none",
        "browser.serverAddress": LOCALHOST,
        "browser.gatherUsageStats": False,
        "client.toolbarMode": "minimal",
        "global.developmentMode": False,
        "logger.hideWelcomeMessage": True,
        "theme.base": "light",
        "theme.primaryColor": "#0072B2",
        "theme.linkColor": "#005A8F",
    }
    found = [f"--{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in options.items()]
    return found + [f"--server.allowedHosts={name}" for name in (*NAMES, *hosts)]


def free_port() -> int:
    """The usual port, or any free one."""
    return next(port for port in (_bound(USUAL_PORT), _bound(0)) if port)


def _bound(port: int) -> int | None:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # one that was left a minute ago is free
        try:
            probe.bind((LOCALHOST, port))
        except OSError:
            return None
        return int(probe.getsockname()[1])


def _parsed(arguments: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in arguments:
        key, _, value = text.partition("=")
        if key not in ("results.root", "port", "host", "headless") or not value:
            raise ValueError(f"rawls dashboard does not know '{text}': {KEYS}")
        found[key] = value
    return found


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise ValueError(f"port={text} is no port: give a number up to 65535, or leave it out for a free one")
    if not _bound(int(text)):
        raise ValueError(f"port={text} is taken: leave it out, and a free one is used")
    return int(text)


def _serve(options: list[str], arguments: list[str]) -> int:
    try:
        from streamlit.web.cli import main as streamlit
    except ModuleNotFoundError:
        raise ValueError("the dashboard needs Streamlit: pip install 'rawls[dashboard]'") from None
    try:
        streamlit(["run", *options, str(APP), "--", *arguments], standalone_mode=False)
    except SystemExit as ended:
        return int(ended.code or 0)
    except KeyboardInterrupt:
        print(file=sys.stderr)
    return 0
