#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: driver_packages_info
short_description: What apt has to do so that the whole NVIDIA driver is of one release
version_added: 0.1.0
description:
  - Compares the driver's installed packages with what the configured repositories offer, as they were last read.
  - Every installed package of the driver takes part, whoever installed it, because they depend on each other exactly.
author:
  - The gpuhost.vllm developers (@gpuhost)
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
options:
  packages:
    description:
      - Packages that must be there in that release. One that comes in no release of a driver may be of any version.
      - V(nvidia-fabricmanager) is taken under the name that it has there, with the branch or without.
    type: list
    elements: str
    required: true
  release:
    description: Branch such as V(580), or exact release such as V(580.159.04).
    type: str
    required: true
  others:
    description: Packages that must be there in any version, such as kernel headers.
    type: list
    elements: str
    default: []
  follow_kernel:
    description: Also the headers of the kernels to come, for each installed meta package that brings such kernels.
    type: bool
    default: false
  repository:
    description: URL of the repository that the driver's packages must come from; empty takes them from any that is configured.
    type: str
    default: ""
"""

EXAMPLES = r"""
- name: See what is missing for branch 580
  gpuhost.vllm.driver_packages_info:
    packages: [nvidia-driver-cuda, nvidia-kernel-open-dkms]
    release: "580"
  register: plan
"""

RETURN = r"""
release:
  description: Exact release that fits.
  returned: success
  type: str
  sample: 580.159.04
install:
  description: The whole set as C(name=version) for apt; empty when it is in place.
  returned: success
  type: list
  elements: str
remove:
  description: Installed packages of the driver that do not exist in that release.
  returned: success
  type: list
  elements: str
free:
  description: Held tools of the driver that are not offered in that release; apt may keep or remove them as it needs.
  returned: success
  type: list
  elements: str
hold:
  description: Packages of the set that are not held yet.
  returned: success
  type: list
  elements: str
held:
  description: Packages of the set that are held.
  returned: success
  type: list
  elements: str
broken:
  description: Packages of the driver that dpkg left half-way.
  returned: success
  type: list
  elements: str
installed:
  description: The driver's packages now, name to version.
  returned: success
  type: dict
failure:
  description: C(code) V(driver_not_offered) with the releases that are offered, V(fabric_manager_not_offered) or V(headers_not_offered).
  returned: failure
  type: dict
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.gpu import packages


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "packages": {"type": "list", "elements": "str", "required": True},
            "release": {"type": "str", "required": True},
            "others": {"type": "list", "elements": "str", "default": []},
            "follow_kernel": {"type": "bool", "default": False},
            "repository": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    fields = r"${db:Status-Abbrev}|${Package}|${Version}\n"
    _rc, listing, _error = module.run_command(["dpkg-query", "--show", f"--showformat={fields}"], check_rc=True)
    installed = packages.parse_dpkg(listing)
    wanted = module.params["packages"], module.params["release"], module.params["others"]
    names = packages.names_to_ask(installed, *wanted)
    _rc, offers, _error = module.run_command(["apt-cache", "madison", *names], check_rc=True)
    offered = packages.parse_madison(offers, module.params["repository"])
    try:
        found = packages.plan(installed, offered, *wanted, follow_kernel=module.params["follow_kernel"])
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
