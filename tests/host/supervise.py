"""The process behind a running test host: starts systemd-nspawn and starts it again when the guest reboots.

Run as `supervise.py FOLDER`, detached; ends when the guest powers off. Killing this process kills the guest with it.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

REBOOT = 133  # systemd-nspawn --keep-unit: "the guest wants to be started again"
PR_SET_PDEATHSIG = 1


def main(folder: Path) -> int:
    signal.pthread_sigmask(signal.SIG_SETMASK, [])  # whoever started us may have held signals back
    start = json.loads((folder / "start.json").read_text())
    libc = ctypes.CDLL(None, use_errno=True)

    def child_setup() -> None:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        for procs in start["cgroups"]:
            Path(procs, "cgroup.procs").write_text(str(os.getpid()))

    while True:
        nspawn = subprocess.Popen(
            start["argv"], env={**os.environ, **start["env"]}, stdin=subprocess.DEVNULL, preexec_fn=child_setup
        )
        (folder / "nspawn.pid").write_text(f"{nspawn.pid}\n")
        code = nspawn.wait()
        if code != REBOOT:
            return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
