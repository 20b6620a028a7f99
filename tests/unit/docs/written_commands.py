# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The commands and the YAML that the docs show: code blocks, commands in running text, and commands in comments of YAML files."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.host.paths import CHECKOUT

PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "roles/*/README.md")
    for path in CHECKOUT.glob(pattern)
    if path.name != "CHANGELOG.md"
)
COMMENTED = sorted(
    path
    for pattern in ("*.yml", "playbooks/**/*.yml", "inventories/**/*.yml")
    for path in CHECKOUT.glob(pattern)
    if path.name != "hosts.yml"
)
PROGRAMS = r"(?:make|molecule|python|ansible(?:-[a-z]+)?)"
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_IN_TEXT = re.compile(rf"`(?!ansible -m`)({PROGRAMS} [^`…]+)`")
_IN_COMMENT = re.compile(rf"^# {{2,}}((?:[A-Z_]+=\S+ )*{PROGRAMS} .+)$|^#.*`({PROGRAMS} [^`]+)`", re.MULTILINE)

# What the reader is to fill in.
PLACEHOLDERS = {
    "INVENTORY": "inventories/rtx_pro_6000x8",
    "HOST": "gpu1",
    "NAME": "small",
    "IMAGE": "registry.example.com/ee",
    "TOKEN": "a-token",
    "PYTHON": "python3",
}


@dataclass(frozen=True)
class Command:
    """One command as it is written, and where."""

    page: Path
    text: str

    @property
    def words(self) -> list[str]:
        """The words of the command, optional parts included, placeholders filled in, without environment and comment."""
        text = re.sub(r"\[(-[^\]]+)\]", r"\1", self.text)
        text = re.sub(
            "|".join(rf"(?<=[=\s]){name}\b" for name in PLACEHOLDERS), lambda found: PLACEHOLDERS[found[0]], text
        )
        words = shlex.split(text, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            words.pop(0)
        return words

    @property
    def name(self) -> str:
        return f"{self.page.relative_to(CHECKOUT)}: {' '.join(self.words)}"


def commands() -> Iterator[Command]:
    """All commands, each once."""
    seen: set[tuple[str, ...]] = set()
    for command in _all_commands():
        if command.words and tuple(command.words) not in seen:
            seen.add(tuple(command.words))
            yield command


def _all_commands() -> Iterator[Command]:
    for page in PAGES:
        text = page.read_text()
        for language, block in _BLOCK.findall(text):
            if language in ("", "sh", "bash", "shell", "console") and not _is_drawing(block):
                for line in block.replace("\\\n", " ").splitlines():
                    yield Command(page, line)
        for inline in _IN_TEXT.findall(_BLOCK.sub("", text)):
            yield Command(page, inline)
    for page in COMMENTED:
        for indented, quoted in _IN_COMMENT.findall(page.read_text()):
            yield Command(page, indented or quoted)


def _is_drawing(block: str) -> bool:
    return bool(re.search("[─│▶]", block))


def yaml_blocks() -> Iterator[tuple[Path, Any]]:
    for page in PAGES:
        for language, block in _BLOCK.findall(page.read_text()):
            if language in ("yaml", "yml"):
                yield page, yaml.safe_load(block)
