"""How long test hosts take from `create` to `is-system-running = running`, from the cached image, and to be destroyed.

``python -m tests.benchmark.host_boot [--boots 5]`` prints medians with the extremes; it asserts nothing.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

from tests.host import image, paths

TESTHOST = paths.CHECKOUT / "tests/host/testhost"


def seconds(*words: str) -> float:
    started = time.monotonic()
    subprocess.run([TESTHOST, *words], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    return time.monotonic() - started


def show(what: str, measured: list[float]) -> None:
    median, low, high = statistics.median(measured), min(measured), max(measured)
    print(f"{what:<40} {median:6.2f} s   ({low:.2f} to {high:.2f}, n={len(measured)})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--boots", type=int, default=5)
    boots = parser.parse_args().boots
    load = ", ".join(f"{value:.1f}" for value in os.getloadavg())
    print(f"{os.cpu_count()} cores, load {load}")
    for release in image.RELEASES:
        image.ensure_image(release)
        created, destroyed = [], []
        for number in range(boots):
            name = f"bench-{release}-{number}"
            created.append(seconds("create", name, "--release", release))
            destroyed.append(seconds("destroy", name))
        show(f"{release}: create, one at a time", created)
        show(f"{release}: destroy", destroyed)
    names = [f"bench-{number}" for number in range(4)]
    with ThreadPoolExecutor() as pool:
        started = time.monotonic()
        list(pool.map(lambda name: seconds("create", name), names))
        show(f"{image.RELEASES[0]}: create, {len(names)} at once", [time.monotonic() - started])
    subprocess.run([TESTHOST, "destroy", *names], check=True)


if __name__ == "__main__":
    main()
