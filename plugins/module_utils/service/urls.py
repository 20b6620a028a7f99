# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The URL of a server, checked before anything is done with it."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from ..errors import VllmHostError

_ODD = re.compile(r"[\s\x00-\x1f\x7f]")
_CREDENTIALS = re.compile(r"//[^/]*@")


def server_url(url: str) -> SplitResult:
    """The parts of an http or https URL, host and port being sound.

    Raises:
        VllmHostError: ``url_invalid``; a password in the URL is not shown.
    """
    try:
        parts = urlsplit(url)
        # A vLLM server knows no users, and messages name the URL.
        sound = bool(parts.hostname) and (parts.port is None or parts.port > 0) and "@" not in parts.netloc
    except ValueError:
        sound = False
    if not sound or parts.scheme not in ("http", "https") or _ODD.search(url):
        told = _CREDENTIALS.sub("//...@", url)[:200]
        raise VllmHostError(
            "url_invalid", f"{told!r} is no URL such as http://127.0.0.1:8000, without user and password.", url=told
        )
    return parts


def server_port(parts: SplitResult) -> int:
    """The port of a URL that ``server_url`` accepted."""
    return parts.port or (443 if parts.scheme == "https" else 80)
