"""Where the tables of the benches stand in docs/explanation/scheduling.md: between two comments each."""

from pathlib import Path

PAGE = Path(__file__).resolve().parents[2] / "docs" / "explanation" / "scheduling.md"


def put(text: str, name: str, bench: str) -> None:
    """Replace what stands between the comments of that name. Raises ``ValueError`` if they are not there."""
    begin, end = f"<!-- {name}: made by tests/bench/{bench} -->", f"<!-- end of {name} -->"
    before, found, rest = PAGE.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not found or not ended:
        raise ValueError(f"{PAGE.name} has no place for {name}")
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}")
