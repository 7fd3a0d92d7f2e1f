"""Modules that a configuration names, among them those of files beside the command.

The folder you are in is no place where Python looks for modules when `rawls` is called, and it does not become one: a
file there that happens to be called like a package of somebody else's would take its place. Only what a `_target_`
names, and nobody has installed, is looked for.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def imported(module: str) -> ModuleType:
    """The module of this name, installed or in the folder you are in.

    Raises:
        ImportError: there is none, or it does not work.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        top = module.partition(".")[0]
        if error.name != top or not _take(top):
            raise
    return importlib.import_module(module)


def _take(top: str) -> bool:
    """Import a file or a package of the folder you are in by its name; False if there is none."""
    here = Path.cwd()
    package = here / top / "__init__.py"
    path = package if package.is_file() else here / f"{top}.py"
    if not path.is_file():
        return False
    folders = [str(package.parent)] if path == package else None
    spec = importlib.util.spec_from_file_location(top, path, submodule_search_locations=folders)
    assert spec is not None and spec.loader is not None
    sys.modules[top] = found = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(found)
    except BaseException:
        del sys.modules[top]
        raise
    return True
