#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: tools_code
short_description: Install the collection's own code on a host as one importable zip
version_added: 0.1.0
description:
  - Packs the Python code below C(plugins/module_utils) as the package C(gpuhost_vllm) into a zip file and copies it to the host.
  - The archive depends on the code alone, so a second run changes nothing.
  - Implemented as an action plugin; it runs on the controller and copies to the host.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  dest:
    description: Where the zip file is put on the host.
    type: path
    required: true
extends_documentation_fragment:
  - gpuhost.vllm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Install the code that units and long transfers run
  gpuhost.vllm.tools_code:
    dest: /opt/vllm/tools/gpuhost_vllm.zip
"""

RETURN = r"""
dest:
  description: The file on the host.
  type: str
  returned: success
checksum:
  description: SHA-1 of the archive.
  type: str
  returned: success
"""
