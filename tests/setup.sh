#!/usr/bin/env bash
# All the set-up that `make demo` and `make test` need, on a fresh Debian or Ubuntu machine with Python 3.11+ and root:
# OS packages, the development environment (.venv), and the checkout linked as an installed collection (.collections).
# Quick when there is nothing to do.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(mmdebstrap systemd-container debian-archive-keyring iproute2 openssh-client gcc libc6-dev zstd git chromium fonts-dejavu-core libnuma1 libgomp1 apt-utils dpkg-dev gpg gpg-agent)
missing=()
for package in "${packages[@]}"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
    echo "setup: installing ${missing[*]}"
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

python=${PYTHON:-python3}
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {
    echo "setup: $python is older than 3.11; set PYTHON to a newer one" >&2
    exit 1
}
stamp=.venv/.requirements.sha256
wanted=$(sha256sum tests/requirements.txt | cut -d' ' -f1)
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ]; then
    echo "setup: building .venv, which takes about a minute"
    rm -rf .venv
    "$python" -m venv .venv
    .venv/bin/python -m pip install -q --no-input -r tests/requirements.txt 2> >(grep -v 'is ignored: it is neither' >&2)
    echo "$wanted" >"$stamp"
fi

mkdir -p .collections/ansible_collections/gpuhost
ln -sfn ../../.. .collections/ansible_collections/gpuhost/vllm
