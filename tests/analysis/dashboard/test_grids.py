from analysis.dashboard.grids import Tile, html, link


def test_a_table_has_headers_a_caption_and_no_markup_of_others() -> None:
    found = html("All <b>", ["Name", "n"], [["<script>", Tile(text="3", shade="near", bold=True)]])
    assert "<caption>All &lt;b&gt;</caption>" in found
    assert '<th scope="col" class="label">Name</th><th scope="col">n</th>' in found
    assert '<th scope="row" class="label">&lt;script&gt;</th>' in found
    assert '<td class="near mark"><strong>3</strong></td>' in found
    assert 'role="region" tabindex="0" aria-label="All &lt;b&gt;"' in found


def test_a_link_keeps_what_is_chosen() -> None:
    address = link("compare", {"sweep": "a · b=1", "configurations": ["x", "y"]})
    assert address == "compare?sweep=a+%C2%B7+b%3D1&configurations=x&configurations=y"
    assert link("runs", {}) == "runs"
    assert 'href="runs?a=1&amp;b=2"' in html("c", ["x"], [[Tile(text="t", href="runs?a=1&b=2")]])
