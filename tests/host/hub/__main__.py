"""Serve a folder of repositories: ``python -m tests.host.hub --root FOLDER --listen ADDRESS:PORT``. See README.md."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from pathlib import Path
from types import FrameType

from tests.host import paths
from tests.host.background import Background

from .control import Control
from .server import Hub


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.host.hub", description=__doc__)
    parser.add_argument("--root", type=Path, default=paths.HUB_REPOS, help="default: %(default)s")
    parser.add_argument("--listen", type=address, default=("127.0.0.1", 0), metavar="ADDRESS:PORT")
    parser.add_argument(
        "--control", type=address, metavar="ADDRESS:PORT", help="loopback only; faults and requests, see README.md"
    )
    parser.add_argument("--faults", type=Path, metavar="FILE", help="JSON: a list of rules to begin with")
    parser.add_argument("--token", action="append", default=[], metavar="TOKEN=USER")
    parser.add_argument("--gated", action="append", default=[], metavar="REPOSITORY=USER,…")
    parser.add_argument("--page-size", type=int, default=1000)
    parser.add_argument("--url-lifetime", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--background", metavar="NAME", help="return as soon as it serves; --stop NAME ends it")
    parser.add_argument("--stop", metavar="NAME")
    options = parser.parse_args()
    if options.stop:
        Background(options.stop).stop()
        return
    if options.background:
        words = [word for word in sys.argv[1:] if word not in ("--background", f"--background={options.background}")]
        if options.background in words:
            words.remove(options.background)
        command = [sys.executable, "-m", "tests.host.hub", *words]
        Background(options.background).ensure(command, ready="hub: ready")
        return

    hub = Hub(options.root, options.listen, page_size=options.page_size, url_lifetime_s=options.url_lifetime)
    hub.tokens = dict(pair.split("=", 1) for pair in options.token)
    hub.gated = {repo: set(users.split(",")) for repo, _, users in (pair.partition("=") for pair in options.gated)}
    if options.faults:
        hub.faults.replace(json.loads(options.faults.read_text()))

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(0)

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGINT, leave)
    with hub:
        control = Control(hub, options.control).start() if options.control else None
        print(f"hub: {hub.endpoint} serves {options.root}", flush=True)
        if control:
            print(f"hub: control at {control.url}", flush=True)
        print("hub: ready", flush=True)
        signal.pause()


def address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host or "127.0.0.1", int(port)


if __name__ == "__main__":
    main()
