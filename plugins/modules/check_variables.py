#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: check_variables
short_description: Stop on misspelt variables and impossible values before anything is changed
version_added: 0.1.0
description:
  - A variable that begins like one of this collection (C(vllm_), or a role's name) and is none, but comes close to one, is an error that names
    the nearest one. Names that come close to none are the user's own. The values are not looked at for this.
  - A variable of your own that only looks misspelt is let through when its name is listed in C(vllm_own_variables).
  - For the given roles, the variables must be of the types that they ask for, and follow the rules that can be checked without a host. The
    message names the variable that was written, such as C(vllm_port), and shows no secrets.
  - Each of the instances in C(vllm_instances) is checked with its own variables.
  - Implemented as an action plugin; it runs on the controller and opens no connection.
author:
  - The gpuhost.vllm developers (@gpuhost)
options:
  roles:
    description: Names of the collection's roles that the play is going to run.
    type: list
    elements: str
    default: []
  rules:
    description: Whether the rules of these roles must hold, too; otherwise only names and types are checked.
    type: bool
    default: true
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
"""

EXAMPLES = r"""
- name: Stop on what is misspelt, before anything is changed
  gpuhost.vllm.check_variables:
    roles: [plan, serve]
"""

RETURN = r"""
problems:
  description: One sentence for each thing that is wrong.
  type: list
  elements: str
  returned: failure
  sample:
    - vllm_engine_arg is no variable of this collection; did you mean vllm_engine_args?
"""
