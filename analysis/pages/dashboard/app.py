"""What Streamlit runs, anew at every click: the pages, and the one that is asked for.

Arguments: the results folder, then the YAML files of the targets there are.
"""

import sys
from functools import partial
from pathlib import Path

import streamlit as st

from rawls.analysis.pages.dashboard import audit, compare, curves, methods, papers, privacy, runs, target
from rawls.analysis.pages.dashboard.stored import Here

PAGES = {
    "Methods": methods.show,
    "Papers": papers.show,
    "Target": target.show,
    "Compare": compare.show,
    "Curves": curves.show,
    "Privacy": privacy.show,
    "Audit": audit.show,
    "Runs": runs.show,
}


def main(root: str, *experiments: str) -> None:
    here = Here(root=Path(root), experiments=tuple(map(Path, experiments)))
    # No page_icon: Streamlit would fetch it from another machine.
    st.set_page_config(page_title="rawls", layout="wide")
    pages = [
        st.Page(partial(show, here), title=title, url_path=title.lower(), default=title == "Methods")
        for title, show in PAGES.items()
    ]
    st.navigation(pages, position="top").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
