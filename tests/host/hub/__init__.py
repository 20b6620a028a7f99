"""A Hub on this machine: folders served by the protocol of huggingface.co, with faults on demand. See README.md."""

from __future__ import annotations

from .faults import Faults, Rule
from .server import Hub

__all__ = ["Faults", "Hub", "Rule"]
