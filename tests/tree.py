"""The files of the repository, and what must never be among them.

Needs nothing but Python: `.ci/run` calls it as a script before anything is installed.
"""

import io
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("conf", "algorithms", "datasets", "models", "accounting", "runners", "analysis")

MAX_BYTES = 1_000_000
DATA_SUFFIXES = frozenset(
    [".npy", ".npz", ".pt", ".pth", ".ckpt", ".safetensors", ".pkl", ".pickle", ".joblib", ".parquet"]
    + [".feather", ".arrow", ".h5", ".hdf5", ".mat", ".arff", ".sqlite", ".db", ".gz", ".bz2", ".xz", ".zst"]
    + [".zip", ".tar", ".tgz", ".whl", ".ubyte", ".jpg", ".jpeg", ".xls", ".xlsx"]
)
# Tables are results or what the papers report (analysis), or the small examples of a test; never a data set.
TABLE_SUFFIXES = frozenset({".csv", ".tsv", ".jsonl"})
TABLE_FOLDERS = frozenset({"analysis", "tests"})
# Recorded runs (`rawls record`) are archives; what they hold is looked at like any other file.
RECORDS, RECORD_SUFFIX = Path("analysis/reproduced/runs"), ".tar.xz"

# Written in pieces, for this file is searched too.
_HOSTS = [("pypi", "org"), ("pythonhosted", "org"), ("npmjs", "org"), ("npmjs", "com"), ("debian", "org")]
_PLACES = ["work", "root", "opt/pypi", "opt/wheels", "tmp/w"]
_LOCAL = {
    "a package registry": re.compile("|".join(re.escape(".".join(host)) for host in _HOSTS), re.IGNORECASE),
    "a path of one machine": re.compile(r"(?<![\w.~$})])/(" + "|".join(_PLACES) + r")(/|\b)"),
}


def files() -> list[Path]:
    """Every file that is committed, or would be by `git add --all`; without git, every file not hidden."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    else:
        folders = [ROOT / name for name in (*PACKAGES, "src", "tests", "docs", "examples", ".ci")]
        paths = [path for folder in folders for path in folder.rglob("*") if "__pycache__" not in path.parts]
        paths += list(ROOT.glob("*"))
    return sorted(path for path in paths if path.is_file())


def offences(name: str, content: bytes) -> Iterator[str]:
    """What is wrong with a file of this name (relative to the root) and content, one sentence each."""
    path = Path(name)
    if len(content) > MAX_BYTES:
        yield f"{name}: {len(content)} bytes, more than {MAX_BYTES}: keep large files out of the repository"
    if path.parent == RECORDS and path.name.endswith(RECORD_SUFFIX):
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                file = archive.extractfile(member)
                yield from offences(f"{path.parent}/{path.name}:{member.name}", file.read() if file else b"")
        return
    if path.suffix.lower() in DATA_SUFFIXES:
        yield f"{name}: looks like a data file or a checkpoint: name its source and checksum instead"
    if path.suffix.lower() in TABLE_SUFFIXES and path.parts[0] not in TABLE_FOLDERS:
        yield f"{name}: tables belong to {' or '.join(sorted(TABLE_FOLDERS))}"
    for number, line in enumerate(content.decode("utf-8", errors="ignore").splitlines(), start=1):
        for what, pattern in _LOCAL.items():
            if found := pattern.search(line):
                yield f"{name}:{number}: names {what}: {found.group()}"


def main() -> int:
    """Print every offence of the tree; the exit code says whether there is one."""
    found = [
        sentence for path in files() for sentence in offences(path.relative_to(ROOT).as_posix(), path.read_bytes())
    ]
    print("\n".join(found) or "tree: nothing that must not be committed")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
