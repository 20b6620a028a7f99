#!/usr/bin/env bash
# ansible-test sanity on a copy of the tracked files: it refuses a symlink and wants …/ansible_collections/gpuhost/vllm.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
copy=$work/ansible_collections/gpuhost/vllm
mkdir -p "$copy"
# Development tools are held by ruff and mypy alone; sanity's rules are for what is installed on other people's machines.
git ls-files -z --cached --others --exclude-standard -- . ':!molecule' ':!tests/awx' ':!tests/benchmark' ':!tests/host' ':!tests/unit' |
    while IFS= read -r -d '' file; do if [ -e "$file" ]; then printf '%s\0' "$file"; fi; done |
    xargs -0 cp --parents -t "$copy"
# ansible-test lists files through git.
git -C "$copy" init -q && git -C "$copy" add -A

# ansible-test bootstraps pip with a script that it downloads from a fixed address. Where that cannot be reached, a stand-in runs
# the same release of pip from its wheel, found through pip's own configuration.
python=$(python -c 'import sys; print(f"{sys.version_info.major}.{sys.version_info.minor}")')
cache=$HOME/.ansible/test/cache
version=$(python - <<'PY'
import re
from pathlib import Path

import ansible_test

source = (Path(ansible_test.__path__[0]) / "_internal/python_requirements.py").read_text()
print(re.search(r"'pip': '([0-9.]+)'|pip='([0-9.]+)'", source).group(0).split("'")[-2])
PY
)
stand_in=$cache/get_pip_${version//./_}.py
if [ ! -s "$stand_in" ]; then
    mkdir -p "$cache"
    python -m pip download -q --no-deps --dest "$cache" "pip==$version"
    cat >"$stand_in" <<PY
import sys

wheel = "$cache/pip-$version-py3-none-any.whl"
sys.path.insert(0, wheel)
sys.argv[1:] = ["install", "--quiet", "--disable-pip-version-check", "--no-index", wheel]

from pip._internal.cli.main import main

sys.exit(main())
PY
fi

cd "$copy"
# The checkout's own PYTHONPATH would make ansible-test import the collection twice.
env -u PYTHONPATH ansible-test sanity --local --python "$python" --requirements --color no "$@"
