"""What holds for every unit test."""

from __future__ import annotations

LONGEST_ID = 60


def pytest_make_parametrize_id(val: object) -> str | None:
    """A hostile value may be megabytes of text: its test is named by its beginning, so that a list of tests stays readable."""
    if isinstance(val, str | bytes) and len(val) > LONGEST_ID:
        return f"{val[:LONGEST_ID]!r}.. {len(val)}"
    return None
