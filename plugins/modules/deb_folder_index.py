#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: deb_folder_index
short_description: Makes an apt repository of a folder of .deb files, without copying them
version_added: 0.1.0
description:
  - Writes a C(Packages) index, and a link C(pool) to the folder, into another folder; apt then reads
    C(deb [trusted=yes] file:DEST ./).
  - Needs only dpkg-deb, which every Debian has, and never writes into the folder with the packages.
author:
  - The gpuhost.vllm developers (@gpuhost)
extends_documentation_fragment:
  - gpuhost.vllm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
options:
  folder:
    description: Folder with .deb files, searched to any depth.
    type: path
    required: true
  dest:
    description: Folder for the index; it is created.
    type: path
    required: true
"""

EXAMPLES = r"""
- name: Make the driver's packages known to apt
  gpuhost.vllm.deb_folder_index:
    folder: /srv/nvidia-driver
    dest: /var/lib/vllm/driver-repository
"""

RETURN = r"""
packages:
  description: How many packages the index has.
  returned: success
  type: int
failure:
  description: C(code) V(no_packages) or V(bad_package).
  returned: failure
  type: dict
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.errors import VllmHostError
from ..module_utils.gpu.deb_index import POOL, index


def main() -> None:
    module = AnsibleModule(
        argument_spec={"folder": {"type": "path", "required": True}, "dest": {"type": "path", "required": True}},
        supports_check_mode=True,
    )
    folder, dest = Path(module.params["folder"]), Path(module.params["dest"])
    try:
        text, count = index(folder)
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    file, pool = dest / "Packages", dest / POOL
    linked = pool.is_symlink() and os.readlink(pool) == str(folder)  # noqa: PTH115 - as text, without interpretation
    changed = not linked or not file.exists() or file.read_text() != text
    if changed and not module.check_mode:
        dest.mkdir(mode=0o755, parents=True, exist_ok=True)
        aside = Path(module.tmpdir) / "Packages"
        aside.write_text(text)
        module.atomic_move(str(aside), str(file))
        module.set_mode_if_different(str(file), 0o644, changed)
        if not linked:
            pool.unlink(missing_ok=True)
            pool.symlink_to(folder)
    module.exit_json(changed=changed, packages=count)


if __name__ == "__main__":
    main()
