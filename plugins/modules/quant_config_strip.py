#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: quant_config_strip
short_description: Make a served view of a checkpoint, with or without its KV-cache quantization
description:
  - Makes a view of a checkpoint folder and lets a name point to it. The view consists of hard links to the snapshot's files (relative
    symbolic links where it is on another file system) and, with O(state=stripped), of real files for the JSON in which the checkpoint
    declares a quantized KV cache, with that declaration taken back. vLLM then keeps the cache in the model's own 16-bit type.
  - In C(config.json) and C(hf_quant_config.json), wherever a C(quantization_config), C(compression_config) or C(quantization) object is,
    C(kv_cache_scheme) is removed and C(kv_cache_quant_algo) set to null. Every other byte stays. Shards and their scales stay, since vLLM
    ignores the scales of a cache that is not quantized.
  - The snapshot is never written to. The view is built aside, written through to the disk and renamed in, and the name switches by one
    rename, so that a run that is killed leaves the old view or the new one. A view never changes once it is made; give servers the
    returned RV(path), which is the view itself and not the name.
  - A snapshot of M(gpuhost.vllm.checkpoint_fetch) is refused while its manifest calls it incomplete. A plain folder without a manifest is
    checked against its own C(*.safetensors.index.json).
  - Views of this name that have not been served for seven days are removed when the module runs, except the one before the current.
version_added: 0.1.0
author:
  - The gpuhost.vllm developers (@gpuhost)
extends_documentation_fragment:
  - gpuhost.vllm.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
  idempotent:
    support: full
options:
  snapshot:
    description:
      - The checkpoint folder, as M(gpuhost.vllm.checkpoint_fetch) returns it or anybody's own.
      - In check mode it may still be missing or incomplete; the module then says what it would do once it is there.
    type: path
    required: true
  views:
    description:
      - The folder in which views are made; it is created if need be.
      - On the same file system as O(snapshot) for hard links.
    type: path
    required: true
  name:
    description:
      - The name under which the view is served, such as the instance.
      - C(<views>/<name>) is a link to the current view.
    type: str
    required: true
  state:
    description:
      - V(stripped) takes the declaration of a quantized KV cache back.
      - V(original) serves every file as it was fetched.
    type: str
    choices:
      - stripped
      - original
    default: stripped
"""

EXAMPLES = r"""
- name: Serve the checkpoint with a 16-bit KV cache
  gpuhost.vllm.quant_config_strip:
    snapshot: /var/lib/vllm/checkpoints/nvidia--Kimi-K2.5-NVFP4/snapshots/0123456789abcdef0123456789abcdef01234567
    views: /var/lib/vllm/checkpoints/nvidia--Kimi-K2.5-NVFP4/views
    name: kimi-k25
  register: view

- name: Show what was taken back
  ansible.builtin.debug:
    msg: "{{ view.path }}: {{ view.edits }}"

- name: Serve it as it was published again
  gpuhost.vllm.quant_config_strip:
    snapshot: /var/lib/vllm/checkpoints/nvidia--Kimi-K2.5-NVFP4/snapshots/0123456789abcdef0123456789abcdef01234567
    views: /var/lib/vllm/checkpoints/nvidia--Kimi-K2.5-NVFP4/views
    name: kimi-k25
    state: original
"""

RETURN = r"""
path:
  description:
    - The view, resolved.
    - In check mode the place where it would be; C(<views>/<name>) while the snapshot is not there yet.
  type: str
  returned: success
  sample: /var/lib/vllm/checkpoints/nvidia--Kimi-K2.5-NVFP4/views/kimi-k25+0123456789ab-stripped-5d41402abc
msg:
  description: What was done, or would be, in one sentence.
  type: str
  returned: success
  sample: "kimi-k25 serves 0123456789ab stripped: 2 declarations of a quantized KV cache taken back"
commit:
  description: Commit of the snapshot, from its manifest.
  type: str
  returned: when the snapshot has a manifest
edits:
  description:
    - The difference between the snapshot and the view; empty with O(state=original) and where there was nothing to strip.
    - The same on every run.
  type: list
  elements: dict
  returned: success
  contains:
    file:
      description: Relative to the view.
      type: str
    key:
      description: Place of the member, with dots.
      type: str
    before:
      description: Its value in the snapshot.
      type: raw
    after:
      description: Its value in the view; null where it was removed.
      type: raw
    action:
      description: V(removed), or V(set) to RV(edits[].after).
      type: str
  sample:
    - file: hf_quant_config.json
      key: quantization.kv_cache_quant_algo
      before: FP8
      after: null
      action: set
unknown:
  description: Members (C(file), C(key), C(value)) that look like the declaration of a KV cache and are not known; also given as warnings.
  type: list
  elements: dict
  returned: success
  sample: []
previous:
  description: The view that was served before; it stays for a rollback.
  type: str
  returned: when there was one and it changed
pruned:
  description: Views that were removed because they had not been served for seven days.
  type: list
  elements: str
  returned: success
diff:
  description: Difference between what the name served before (the snapshot, at first) and what it serves now, a file each.
  type: list
  elements: dict
  returned: success
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.checkpoint.served_view import serve_view
from ..module_utils.errors import VllmHostError


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "snapshot": {"type": "path", "required": True},
            "views": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["stripped", "original"], "default": "stripped"},
        },
        supports_check_mode=True,
    )
    params: dict[str, Any] = module.params
    try:
        served = serve_view(
            Path(params["snapshot"]), Path(params["views"]), params["name"], params["state"], check=module.check_mode
        )
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    for warning in served.warnings:
        module.warn(warning)
    module.exit_json(**served.as_result())


if __name__ == "__main__":
    main()
