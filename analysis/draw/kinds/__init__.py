"""The kinds of tables and figures that a target's `draw.kind` names: each draws one from a manifest and the runs."""
