#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: vllm_engine_config
short_description: Engine arguments as a file for vllm serve, checked by the installed release
version_added: 0.1.0
description:
  - Renders engine arguments as the YAML that C(vllm serve --config) reads, in such a form that every value arrives exactly, whatever its type.
  - An argument that the release does not know, or a value that its own parser refuses, is a failure that names the nearest known one.
  - The release is asked in a process of its own. Its options are kept in O(cache), and its parser is only run when the text differs from what is at O(path).
  - Nothing on the host is changed; the file is written by M(gpuhost.vllm.vllm_deployment).
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  engine_args:
    description: vLLM's own argument names in snake case, with values of any type. A null value leaves the argument out.
    type: dict
    required: true
  release:
    description: Folder of the installed release.
    type: path
    required: true
  path:
    description: Where the file is going to be; if it has the same text already, it was checked before.
    type: path
    required: true
  user:
    description: User that the release's parser runs as.
    type: str
    default: nobody
  env:
    description: Environment of the service as far as it is not secret; some options depend on it.
    type: dict
    default: {}
  cache:
    description: Folder where the options of a release are kept.
    type: path
    default: /var/cache/vllm/.options
requirements:
  - PyYAML
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
"""

EXAMPLES = r"""
- name: Check the engine arguments
  gpuhost.vllm.vllm_engine_config:
    engine_args:
      model: /srv/models/tiny
      max_model_len: 4096
      enable_prefix_caching: false
      compilation_config: {cudagraph_capture_sizes: [1, 2, 4]}
    release: /opt/vllm/releases/0.32.0-c43956a59b8e
    path: /etc/vllm/tiny.yaml
  vars:
    ansible_python_interpreter: /opt/vllm/tools/bin/python
  register: config
"""

RETURN = r"""
content:
  description: Text of the file.
  type: str
  returned: success
failure:
  description: Codes C(engine_argument_unknown), C(engine_argument_invalid), C(release_unusable).
  type: dict
  returned: failure
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.service.engine_config import check_known, render_config
from ..module_utils.service.environment_file import environment_text
from ..module_utils.service.release_parser import known_options, parse_config


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "engine_args": {"type": "dict", "required": True},
            "release": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "user": {"type": "str", "default": "nobody"},
            "env": {"type": "dict", "default": {}},
            "cache": {"type": "path", "default": "/var/cache/vllm/.options"},
        },
        supports_check_mode=True,
    )
    options = module.params
    release = Path(options["release"])
    python = str(release / "bin/python")
    env = {name: environment_text(value) for name, value in options["env"].items()}
    try:
        known = known_options(python, Path(options["cache"], f"{release.name}.json"), options["user"])
        check_known(options["engine_args"], known, release.name)
        content = render_config(options["engine_args"], known, release.name)
        path = Path(options["path"])
        if not path.exists() or path.read_text() != content:
            parse_config(python, content, options["user"], env)
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(changed=False, content=content)


if __name__ == "__main__":
    main()
