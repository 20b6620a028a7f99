"""The command line of the test hosts: `tests/host/testhost --help`."""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from . import layers, machine, network
from .errors import HostError
from .image import RELEASES, ensure_image
from .locks import locked
from .paths import CACHE
from .signals import raise_on_stop_signals, undivided


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; 0 on success, 1 with a message on stderr, 130 after Ctrl-C (having cleaned up)."""
    raise_on_stop_signals()
    words = list(sys.argv[1:] if argv is None else argv)
    arguments = _parser().parse_args(words)
    command: Callable[[argparse.Namespace], int] = arguments.command
    try:
        if os.geteuid() != 0:
            raise HostError("test hosts need root: mounts, namespaces and a bridge")
        return command(arguments)
    except HostError as error:
        print(f"testhost: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("testhost: interrupted", file=sys.stderr)
        return 130


def _image(arguments: argparse.Namespace) -> int:
    print(ensure_image(arguments.release).base)
    return 0


def _create(arguments: argparse.Namespace) -> int:
    host = machine.create(
        arguments.name,
        arguments.release,
        binds=arguments.ro,
        layers=arguments.layer,
        gpus=arguments.gpus,
        memory_bytes=arguments.memory,
    )
    _print_json(host.describe())
    return 0


def _list(arguments: argparse.Namespace) -> int:
    hosts = machine.all_hosts()
    if arguments.json:
        _print_json([host.describe() for host in hosts])
    else:
        for host in hosts:
            print(f"{host.name:<24} {host.status:<9} {host.release:<9} {host.address:<15} {' '.join(host.layers)}")
    return 0


def _login(arguments: argparse.Namespace) -> int:
    words = arguments.words[1:] if arguments.words[:1] == ["--"] else arguments.words
    command = machine.load(arguments.name).ssh(
        *([shlex.join(words)] if len(words) > 1 else words), tty=sys.stdin.isatty()
    )
    os.execvp(command[0], command)


def _destroy(arguments: argparse.Namespace) -> int:
    if bool(arguments.names) == arguments.all:
        raise HostError("say which hosts to destroy, or --all")
    there = {host.name: host for host in machine.all_hosts()}
    for name in there if arguments.all else arguments.names:
        if name in there:
            with undivided():
                machine.destroy(there[name])
        else:
            print(f"testhost: there is no test host {name!r}", file=sys.stderr)  # which is what was asked for
    return 0


def _inventory(arguments: argparse.Namespace) -> int:
    print(machine.inventory(machine.load(arguments.name), arguments.group), end="")
    return 0


def _gpus(arguments: argparse.Namespace) -> int:
    machine.set_gpus(machine.load(arguments.name), arguments.file)
    return 0


def _save(arguments: argparse.Namespace) -> int:
    host = machine.load(arguments.name)
    users = [other.name for other in machine.all_hosts() if arguments.layer in other.layers and other.name != host.name]
    if users:
        raise HostError(
            f"layer {arguments.layer!r} is in use by {', '.join(users)}: destroy them first, or choose another key"
        )
    machine.stop(host)
    with undivided():
        print(layers.save_layer(host.folder / "upper", arguments.layer, host.image))
        machine.destroy(host)
    return 0


def _layers(arguments: argparse.Namespace) -> int:
    hosts = machine.all_hosts()
    for key in arguments.remove:
        users = [host.name for host in hosts if key in host.layers]
        if users:
            raise HostError(f"layer {key!r} is in use by {', '.join(users)}: destroy them first")
        layers.remove_layer(key)
    for key, image in layers.all_layers().items():
        print(f"{key:<40} {image}")
    return 0


def _cache(_arguments: argparse.Namespace) -> int:
    print(CACHE)
    return 0


def _network(_arguments: argparse.Namespace) -> int:
    with locked(machine.REGISTRY_LOCK):
        network.ensure()
    _print_json(network.describe())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="testhost", description="Test hosts on this machine: real systemd, SSH, fake GPUs."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], int], text: str) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text)
        sub.set_defaults(command=command)
        return sub

    sub = add("create", _create, "make and boot a host; prints JSON when it is up")
    sub.add_argument("name")
    sub.add_argument("--release", choices=RELEASES, default=RELEASES[0])
    sub.add_argument(
        "--ro", metavar="SRC:DST", action="append", default=[], help="show a folder or file of this machine, read-only"
    )
    sub.add_argument("--layer", action="append", default=[], help="start with what `save` stored under this key")
    sub.add_argument("--gpus", metavar="FILE.json", type=Path, help="other fake GPUs than fake_nvml/default.json")
    sub.add_argument("--memory", metavar="SIZE", type=_size, help="limit of all its processes: 2G, 512M or bytes")
    sub = add("list", _list, "the hosts that are there")
    sub.add_argument("--json", action="store_true")
    sub = add("login", _login, "a shell on a host, or one command")
    sub.add_argument("name")
    sub.add_argument("words", metavar="-- COMMAND", nargs=argparse.REMAINDER)
    sub = add("destroy", _destroy, "end hosts and remove all they have")
    sub.add_argument("names", metavar="NAME", nargs="*")
    sub.add_argument("--all", action="store_true")
    sub = add("inventory", _inventory, "print an Ansible inventory for a host")
    sub.add_argument("name")
    sub.add_argument("--group", default="vllm")
    sub = add("gpus", _gpus, "give a running host other fake GPUs")
    sub.add_argument("name")
    sub.add_argument("file", metavar="FILE.json", type=Path)
    sub = add("save", _save, "stop a host, keep what it changed as a layer, and destroy it")
    sub.add_argument("name")
    sub.add_argument("layer")
    sub = add("layers", _layers, "what `save` stored, and the image each belongs on")
    sub.add_argument("--remove", metavar="KEY", action="append", default=[])
    add("network", _network, "bring the hosts' bridge up; prints the address where they reach this machine")
    add("cache", _cache, "print the folder where images, hosts, wheelhouses and checkpoints are kept")
    sub = add("image", _image, "build (or find) the image of a release; prints its folder")
    sub.add_argument("release", choices=RELEASES)
    return parser


def _size(text: str) -> int:
    match = re.fullmatch(r"([1-9]\d*)([kmg]?)", text.lower())
    if not match:
        raise ValueError(f"{text!r} is no size such as 512M or 2G")  # argparse tells it in its own words
    return int(match[1]) << {"": 0, "k": 10, "m": 20, "g": 30}[match[2]]


def _print_json(value: object) -> None:
    print(json.dumps(value, indent=2))
