# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""One file out of Xet onto standard output: ``python -m gpuhost_vllm.checkpoint.xet_client < ORDER``; see ``xet``, which starts it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import Any

PR_SET_PDEATHSIG = 1  # linux/prctl.h
# For each of up to `workers` clients; by default hf_xet takes gigabytes. And nothing is reported to anybody.
SETTINGS = {
    "telemetry.enabled": False,
    "reconstruction.min_reconstruction_fetch_size": "32mb",
    "reconstruction.min_prefetch_buffer": "32mb",
    "reconstruction.download_buffer_perfile_size": "32mb",
    "reconstruction.download_buffer_size": "64mb",
    "reconstruction.download_buffer_limit": "96mb",
}


def main() -> int:
    # A client that hangs would outlive a parent that was killed.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    order = json.load(sys.stdin)
    # Bytes and one word for the parent; whatever a library prints goes nowhere.
    stream, word = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    try:
        send(order, stream)
    except Exception as error:
        os.write(word, type(error).__name__.encode())
        return 1
    return 0


def send(order: dict[str, Any], stream: int) -> None:
    from hf_xet import XetConfig, XetFileInfo, XetSession

    headers = order["headers"]
    group = XetSession(XetConfig().with_config(SETTINGS)).new_download_stream_group(
        token_refresh_url=order["token_url"],
        token_refresh_headers=headers,
        custom_headers={"User-Agent": headers["user-agent"]},
    )
    start = order["start"] or None
    for chunk in group.download_stream(XetFileInfo(order["hash"], order["size"]), start=start):
        pending = memoryview(chunk)
        while pending:
            pending = pending[os.write(stream, pending) :]


if __name__ == "__main__":
    raise SystemExit(main())
