#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: checkpoint_fetch
short_description: Have a commit of a model repository on disk, whole and verified
version_added: 0.1.0
description:
  - Downloads the files of one commit from a Hub into C(<store>/<org>--<name>/snapshots/<commit>/), verifies each against the digest that the commit's tree
    lists (sha256, or git's blob id for small files), and writes C(.manifest.json) there. The files are read-only and never change.
  - A branch or tag is resolved to a commit once. A commit that is complete on disk needs no Hub.
  - Interrupted transfers go on at the byte, also after a kill or a power loss. A file whose content is wrong is fetched again. One bad file does not stop
    the others, but the task fails unless every file is right.
  - With O(background) the transfer runs as a transient systemd unit, which a lost connection or a cancelled job does not end. The task shows its progress
    and waits; a later task joins the running transfer.
  - Another transfer into the same repository's folder at the same time is refused.
author:
  - The gpuhost.vllm developers (@gpuhost)
requirements:
  - huggingface_hub >= 2.4 (role tools installs it; run the module with its Python)
options:
  repo_id:
    description: Repository, as C(organization/name).
    type: str
    required: true
  revision:
    description: Branch, tag or commit. With O(state=absent) also V(*) for all commits.
    type: str
    default: main
  store:
    description: Folder of the checkpoints.
    type: path
    default: /var/lib/vllm/checkpoints
  endpoint:
    description: URL of the Hub or of a mirror. Empty means the environment variable E(HF_ENDPOINT), or huggingface.co.
    type: str
    default: ''
  source:
    description:
      - Folder on the host to copy from instead of a Hub, for hosts without a network. A snapshot of another store or of the Hub's own cache brings its commit
        and digests; for any other folder O(revision) must be the commit, and the digests are computed.
    type: path
  xet:
    description:
      - Fetch large files over Xet, the storage protocol of huggingface.co, by C(hf_xet) in a process of its own. At its first failure, or when it is silent for
        O(timeout) seconds, it is ended, and the rest comes over plain HTTP. Files are verified either way.
      - Without effect at any other endpoint, which gets plain HTTP.
    type: bool
    default: false
  token:
    description: Access token. Without it and O(token_file) the environment variable E(HF_TOKEN) of the host is used.
    type: str
    default: ''
  token_file:
    description: File on the host with the access token.
    type: path
  allow_patterns:
    description: Shell globs; only files that match one of them are fetched. V(*) also matches C(/); a pattern that ends with C(/) means the folder.
    type: list
    elements: str
    default: []
  ignore_patterns:
    description: Shell globs; files that match one of them are not fetched.
    type: list
    elements: str
    default: []
  workers:
    description: So many files are fetched at once.
    type: int
    default: 8
  verify:
    description:
      - How files that a manifest vouches for are looked at again.
      - V(size) compares sizes; no file is read. V(full) computes every digest, about a minute for each 60 GB. V(never) trusts the manifest.
    type: str
    choices: [size, full, never]
    default: size
  state:
    description: V(absent) removes the snapshot from the store, unless a view uses it.
    type: str
    choices: [present, absent]
    default: present
  prune:
    description: Afterwards remove the repository's other snapshots that no view uses.
    type: bool
    default: false
  space_margin_bytes:
    description: So much has to stay free on the filesystem; checked before the first byte.
    type: int
    default: 1073741824
  timeout:
    description: Longest silence of the other side, in seconds; then the transfer is taken up again.
    type: int
    default: 30
  retries:
    description: Failures in a row, without a single byte of progress, after which a file is given up.
    type: int
    default: 8
  background:
    description: Run the transfer as a process of its own, wait for it and show its progress.
    type: bool
    default: false
  progress_interval:
    description: Seconds between two lines of progress, with O(background).
    type: int
    default: 30
  job:
    description: Used by the action plugin to ask for the transfer that it waits for.
    type: str
    default: ''
extends_documentation_fragment:
  - gpuhost.vllm.attributes
attributes:
  check_mode:
    support: full
    details: Asks the Hub for the commit and its tree, looks at the disk, and writes nothing.
  diff_mode:
    support: none
  idempotent:
    support: full
"""

EXAMPLES = r"""
- name: Fetch a checkpoint at a pinned commit
  gpuhost.vllm.checkpoint_fetch:
    repo_id: nvidia/Kimi-K2.5-NVFP4
    revision: 6a0e42d8e8f3e2a0a4b9f83a4b8ad0a2b7c1d9e4
    background: true
  vars:
    ansible_python_interpreter: "{{ vllm_tools.python }}"
  register: checkpoint

- name: Read every byte again and repair what is damaged
  gpuhost.vllm.checkpoint_fetch:
    repo_id: nvidia/Kimi-K2.5-NVFP4
    verify: full

- name: Remove all of a repository's snapshots
  gpuhost.vllm.checkpoint_fetch:
    repo_id: nvidia/Kimi-K2.5-NVFP4
    revision: "*"
    state: absent
"""

RETURN = r"""
path:
  description: The snapshot's folder.
  type: str
  returned: success, unless state is absent
commit:
  description: The commit that O(revision) meant.
  type: str
  returned: success, unless state is absent
bytes_total:
  description: Size of all files that were asked for.
  type: int
  returned: success, unless state is absent
bytes_downloaded:
  description: Bytes that came over the network.
  type: int
  returned: success, unless state is absent
bytes_resumed:
  description: Bytes that an earlier, interrupted run had received.
  type: int
  returned: success, unless state is absent
bytes_to_download:
  description: In check mode, bytes that are still to be fetched.
  type: int
  returned: success, unless state is absent
files:
  description: The files that were asked for.
  type: list
  elements: dict
  returned: success, unless state is absent
  contains:
    path:
      description: Path in the snapshot.
      type: str
    size:
      description: Bytes.
      type: int
    digest:
      description: sha256, or git's blob id for files outside large-file storage.
      type: str
removed:
  description: Commits whose snapshots were removed.
  type: list
  elements: str
  returned: with O(prune) or O(state=absent)
finished:
  description: With O(background), whether the transfer has ended. Always true when a task returns; the action plugin waits for it.
  type: bool
  returned: with O(background)
job:
  description: Name of the transfer.
  type: str
  returned: with O(background)
progress:
  description: How far it is.
  type: dict
  returned: with O(background)
failure:
  description: Code and details of a failure.
  type: dict
  returned: failure
"""

import dataclasses
import os
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ..module_utils.checkpoint import fetch, hub, job, store
from ..module_utils.checkpoint.retry import RetryPolicy
from ..module_utils.errors import VllmHostError


def read_token(options: dict[str, Any]) -> str:
    """The token from where it is: option, file, environment."""
    if options["token"] or not options["token_file"]:
        return str(options["token"] or os.environ.get("HF_TOKEN", "")).strip()
    try:
        return Path(options["token_file"]).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise VllmHostError(
            "token_file_unreadable",
            f"token_file {options['token_file']} cannot be read: {getattr(error, 'strerror', None) or 'not text'}.",
            path=options["token_file"],
        ) from error


def make_request(options: dict[str, Any]) -> fetch.FetchRequest:
    return fetch.FetchRequest(
        repo_id=options["repo_id"],
        revision=options["revision"],
        store=options["store"],
        endpoint=options["endpoint"] or os.environ.get("HF_ENDPOINT", ""),
        source=options["source"] or "",
        xet=options["xet"],
        token=read_token(options),
        allow_patterns=options["allow_patterns"],
        ignore_patterns=options["ignore_patterns"],
        workers=options["workers"],
        verify=options["verify"],
        timeout_s=float(options["timeout"]),
        space_margin_bytes=options["space_margin_bytes"],
        policy=RetryPolicy(attempts=options["retries"]),
    )


def run(options: dict[str, Any], check_mode: bool) -> dict[str, Any]:
    """Result for ``exit_json``; raises VllmHostError."""
    where = store.Store(Path(options["store"]), options["repo_id"])
    if options["state"] == "absent":
        removed = where.remove(options["revision"], check_mode)
        return {"changed": bool(removed), "removed": removed}
    request = make_request(options)
    if options["background"] and not check_mode:
        return in_background(request, where, options)
    result = dataclasses.asdict(fetch.fetch(request, check_mode))
    return pruned(result, where, options["prune"], check_mode)


def in_background(request: fetch.FetchRequest, where: store.Store, options: dict[str, Any]) -> dict[str, Any]:
    """One look: start the transfer, join the one that runs, or hand over its result."""
    if options["job"]:
        result = job.outcome(where, options["job"])
        if result is not None:
            return {
                **pruned(result, where, options["prune"], check_mode=False),
                "finished": True,
                "job": options["job"],
            }
    other = job.running(where)
    if other is None:
        settled = fetch.settled(request)
        if settled:
            return {**pruned(dataclasses.asdict(settled), where, options["prune"], False), "finished": True, "job": ""}
        name = job.start(request, where)
    else:
        # Somebody else's transfer into the same folder: join it if it is the same one, else wait until it has ended.
        name = other["job"] if other["request"] == job.request_key(request) else ""
    state = job.running(where) or {}
    return {"changed": False, "finished": False, "job": name, "progress": state.get("progress")}


def pruned(result: dict[str, Any], where: store.Store, prune: bool, check_mode: bool) -> dict[str, Any]:
    if not prune:
        return result
    removed = where.prune(result["commit"], check_mode)
    return {**result, "removed": removed, "changed": result["changed"] or bool(removed)}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "repo_id": {"type": "str", "required": True},
            "revision": {"type": "str", "default": "main"},
            "store": {"type": "path", "default": "/var/lib/vllm/checkpoints"},
            "endpoint": {"type": "str", "default": ""},
            "source": {"type": "path"},
            "xet": {"type": "bool", "default": False},
            "token": {"type": "str", "default": "", "no_log": True},
            "token_file": {"type": "path", "no_log": False},
            "allow_patterns": {"type": "list", "elements": "str", "default": []},
            "ignore_patterns": {"type": "list", "elements": "str", "default": []},
            "workers": {"type": "int", "default": 8},
            "verify": {"type": "str", "choices": ["size", "full", "never"], "default": "size"},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "prune": {"type": "bool", "default": False},
            "space_margin_bytes": {"type": "int", "default": 1 << 30},
            "timeout": {"type": "int", "default": 30},
            "retries": {"type": "int", "default": 8},
            "background": {"type": "bool", "default": False},
            "progress_interval": {"type": "int", "default": 30},
            "job": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    if hub.MISSING_LIBRARY:
        module.fail_json(msg=missing_required_lib("huggingface_hub"), exception=str(hub.MISSING_LIBRARY))
    try:
        result = run(module.params, module.check_mode)
    except VllmHostError as error:
        module.fail_json(**error.as_result())
    for warning in result.pop("warnings", []):
        module.warn(warning)
    module.exit_json(**result)


if __name__ == "__main__":
    main()
