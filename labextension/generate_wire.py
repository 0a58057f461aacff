"""Writes ``src/wire.ts`` from ``wire.py`` and ``administration.py``, so that both sides speak of the same things.

``python labextension/generate_wire.py`` writes it; a test fails when it was forgotten.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from jupyter_gpusched import administration, wire

TARGET = Path(__file__).parent / "src" / "wire.ts"
SPOKEN = (wire.JobView, wire.GpuView, wire.ArrayView, wire.Alert, wire.Health, wire.ErrorBody, administration.Report)

_HEAD = """// Generated from jupyter_gpusched/wire.py by labextension/generate_wire.py; edit that, not this.
"""
_PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def typescript() -> str:
    _, components = msgspec.json.schema_components(SPOKEN, ref_template="{name}")
    interfaces = [_interface(name, schema) for name, schema in sorted(components.items())]
    return "\n".join([_HEAD, f'export const PREFIX = "{wire.PREFIX}";', *interfaces])


def _interface(name: str, schema: dict[str, Any]) -> str:
    fields = [f"  {field}: {_type(form)};" for field, form in schema["properties"].items()]
    return "\n".join([f"\nexport interface {name} {{", *fields, "}"])


def _type(form: dict[str, Any]) -> str:
    """Answers carry every field: one with a default is no less there."""
    if "$ref" in form:
        return str(form["$ref"])
    if "anyOf" in form:
        return " | ".join(map(_type, form["anyOf"]))
    kind = form.get("type")
    if kind == "array":
        item = _type(form["items"])
        return f"({item})[]" if " " in item else f"{item}[]"
    if kind == "object":
        return f"Record<string, {_type(form.get('additionalProperties') or {})}>"
    return _PLAIN[kind] if kind else "unknown"


if __name__ == "__main__":
    TARGET.write_text(typescript() + "\n")
