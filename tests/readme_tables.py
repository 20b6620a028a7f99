"""Write each role's table of variables into its README from meta/argument_specs.yml; ``--check`` only compares."""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import yaml

ROLES = Path(__file__).resolve().parents[1] / "roles"
START, END = "<!-- variables -->", "<!-- /variables -->"


def _markup(text: str) -> str:
    """Ansible's documentation markup as Markdown."""
    text = re.sub(r"[CVOEPI]\(([^)]*)\)", r"`\1`", text)
    return re.sub(r"B\(([^)]*)\)", r"**\1**", text).replace("|", "\\|").replace("\n", " ")


def _default(option: dict[str, Any]) -> str:
    if "default" not in option:
        return "**required**" if option.get("required") else "–"
    value = option["default"]
    text = value if isinstance(value, str) and value else json.dumps(value, ensure_ascii=False)
    return "`" + text.replace("|", "\\|") + "`"


def _row(name: str, option: dict[str, Any]) -> str:
    description = option["description"]
    words = " ".join(description) if isinstance(description, list) else description
    if option.get("choices"):
        words += " One of " + ", ".join(f"C({choice})" for choice in option["choices"]) + "."
    kind = option.get("type", "str")
    if option.get("elements"):
        kind = f"list of {option['elements']}"
    return f"| `{name}` | {kind} | {_default(option)} | {_markup(words)} |"


def said_default(option: dict[str, Any]) -> str:
    """The expression that the last sentence of an option's description gives as its default; empty without such a sentence.

    A default that is an expression and no string cannot be the ``default`` of a documented option: the renderers want its type.
    """
    description = option.get("description", "")
    last = description[-1] if isinstance(description, list) else description
    match = re.fullmatch(r"By default V\((.*)\)\.", last)
    return match[1].replace("\\)", ")") if match else ""


def options(role: Path) -> dict[str, dict[str, Any]]:
    """The options of the role's entry point ``main``, with every default where it belongs."""
    specs = yaml.safe_load((role / "meta/argument_specs.yml").read_text())["argument_specs"]["main"]
    found: dict[str, dict[str, Any]] = specs.get("options", {})
    for option in found.values():
        if expression := said_default(option):
            option["default"] = "{{ " + expression + " }}"
            option["description"] = option["description"][:-1]
    return found


def table(role: Path) -> str:
    """The Markdown table of the role's entry point ``main``."""
    rows = [_row(name, option) for name, option in options(role).items()]
    return "\n".join(["| variable | type | default | meaning |", "|---|---|---|---|", *rows])


def rendered(role: Path) -> str:
    """The role's README with a fresh table; raises ValueError without the two markers."""
    text = (role / "README.md").read_text()
    if text.count(START) != 1 or text.count(END) != 1:
        raise ValueError(f"{role.name}/README.md: wants the lines {START} and {END} once")
    head, rest = text.split(START)
    tail = rest.split(END)[1]
    return f"{head}{START}\n{table(role)}\n{END}{tail}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when a table is out of date")
    check = parser.parse_args().check
    stale = []
    for role in sorted(path for path in ROLES.iterdir() if (path / "meta/argument_specs.yml").is_file()):
        readme = role / "README.md"
        text = rendered(role)
        if text != readme.read_text():
            stale.append(readme)
            if not check:
                readme.write_text(text)
    for readme in stale:
        print(f"{'out of date' if check else 'written'}: {readme.relative_to(ROLES.parent)}")
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
