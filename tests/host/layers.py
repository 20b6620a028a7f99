"""Layers: what one host changed, kept read-only so that other hosts can start with it (vLLM installed, say).

A layer is a folder under paths.CACHE/layers: `root` is the overlay's upper folder of the host it was saved from, `layer.json` names
the image it belongs on.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path

from .errors import HostError
from .paths import CACHE

LAYERS = CACHE / "layers"
KEY = re.compile(r"[a-z0-9][a-z0-9._-]{0,99}")

# A host's own identity, which must not pass to the hosts that start from its layer.
IDENTITY = ("etc/machine-id", "etc/hostname", "etc/hosts", "etc/testhost", "etc/ssh/ssh_host_ed25519_key", "root/.ssh")


def find_layer(key: str, image: str) -> Path:
    """The read-only folder of layer `key`; HostError if there is none or if it belongs on another image."""
    try:
        belongs = json.loads((LAYERS / key / "layer.json").read_text())["image"]
    except FileNotFoundError:
        raise HostError(f"there is no layer {key!r}: make it with `testhost save NAME {key}`") from None
    if belongs != image:
        raise HostError(f"layer {key!r} belongs on image {belongs}, the host starts from {image}: save the layer anew")
    return LAYERS / key / "root"


def save_layer(upper: Path, key: str, image: str) -> Path:
    """Move a stopped host's `upper` folder into the store as layer `key`, replacing an earlier one of that key."""
    if not KEY.fullmatch(key):
        raise HostError(f"{key!r} is no key for a layer: lower case letters, digits, dots, dashes and underscores")
    LAYERS.mkdir(parents=True, exist_ok=True)
    aside = Path(tempfile.mkdtemp(prefix=f".{key}.", dir=LAYERS))
    try:
        upper.rename(aside / "root")
        for own in IDENTITY:
            path = aside / "root" / own
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        for transient in ("tmp", "var/tmp", "run", "var/log/journal"):
            shutil.rmtree(aside / "root" / transient, ignore_errors=True)
        (aside / "layer.json").write_text(json.dumps({"image": image}) + "\n")
        aside.chmod(0o755)
        shutil.rmtree(LAYERS / key, ignore_errors=True)
        aside.rename(LAYERS / key)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return LAYERS / key


def all_layers() -> dict[str, str]:
    """Keys of all layers, each with the name of the image it belongs on."""
    found = sorted(LAYERS.glob("*/layer.json"))
    return {path.parent.name: json.loads(path.read_text())["image"] for path in found}


def remove_layer(key: str) -> None:
    """Remove a layer that no host uses; nothing to do if there is none."""
    if not KEY.fullmatch(key):
        raise HostError(f"{key!r} is no key of a layer")
    shutil.rmtree(LAYERS / key, ignore_errors=True)
