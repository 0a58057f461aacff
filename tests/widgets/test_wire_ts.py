"""What the front end believes about the wire is what the wire is."""

from __future__ import annotations

import importlib.util
from pathlib import Path

GENERATOR = Path(__file__).parents[2] / "labextension" / "generate_wire.py"


def test_the_front_ends_types_are_those_of_the_wire():
    spec = importlib.util.spec_from_file_location("generate_wire", GENERATOR)
    generator = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(generator)
    assert generator.TARGET.read_text() == generator.typescript() + "\n", f"run: python {GENERATOR}"


def test_the_front_end_never_sets_html():
    sources = [*GENERATOR.parent.glob("src/*.ts*"), *GENERATOR.parents[1].glob("jupyter_gpusched/*.js")]
    assert len(sources) > 10
    for source in sources:
        text = source.read_text()
        assert "innerHTML" not in text, source.name
        assert "dangerouslySetInnerHTML" not in text, source.name
        assert ": any" not in text, source.name
