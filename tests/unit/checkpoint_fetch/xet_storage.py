"""A Xet storage in a folder, written by hf_xet itself, and clients that misbehave."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.host.hub import Hub

# hf_xet never lets go of a storage in a folder, and one process at a time may have it.
WRITE = """
import json, sys
from pathlib import Path
import hf_xet
found = {}
for path in sys.argv[2:]:
    with hf_xet.XetSession().new_upload_commit(endpoint=sys.argv[1]) as upload:
        file = upload.start_upload_bytes(Path(path).read_bytes())
    found[Path(path).name] = file.result().xet_info.hash
print(json.dumps(found))
"""


def keep_sources(folder: Path, contents: Iterable[bytes]) -> list[str]:
    """The contents as files that are named by their digest."""
    folder.mkdir()
    paths = []
    for content in contents:
        path = folder / hashlib.sha256(content).hexdigest()
        path.write_bytes(content)
        paths.append(str(path))
    return paths


def keep_in_xet(hub: Hub, folder: Path, sources: list[str]) -> None:
    """Write the files into a storage, and have the Hub announce them."""
    folder.mkdir()
    hub.xet_storage = f"local://{folder}"
    command = [sys.executable, "-c", WRITE, hub.xet_storage, *sources]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env={"HOME": str(folder)})
    hub.xet_hashes = json.loads(done.stdout)


def client(body: str) -> list[str]:
    """A stand-in for the client: ``order`` is what it is asked for, ``send`` writes bytes of the file as Xet would."""
    script = f"""
import json, os, signal, sys, time
order = json.load(sys.stdin)
source = open(os.environ["XET_SOURCES"] + "/" + order["hash"], "rb")
source.seek(order["start"])
def send(count):
    sys.stdout.buffer.write(source.read(count))
    sys.stdout.buffer.flush()
{body}
"""
    return [sys.executable, "-c", script]
