# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Install the collection's module_utils on a host as one importable zip.

A unit's ExecStartPre and a transfer that outlives the connection need the code of the modules after Ansible has left.
One deterministic zip keeps that a single copy: same code, same bytes, nothing to change.
"""

from __future__ import annotations

import io
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

PACKAGE = "gpuhost_vllm"
# The oldest time that a zip can store: the archive must depend on the code alone.
EPOCH = (1980, 1, 1, 0, 0, 0)


def zip_package(source: Path, package: str = PACKAGE) -> bytes:
    """Every ``.py`` file below ``source`` as ``package/…``, in sorted order with fixed times and modes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        names = sorted(path.relative_to(source).as_posix() for path in source.rglob("*.py"))
        if "__init__.py" not in names:
            archive.writestr(zipfile.ZipInfo(f"{package}/__init__.py", EPOCH), "")
        for name in names:
            entry = zipfile.ZipInfo(f"{package}/{name}", EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, (source / name).read_bytes())
    return buffer.getvalue()


class ActionModule(ActionBase):
    _requires_connection = True
    _supports_check_mode = True
    _VALID_ARGS = frozenset(("dest",))

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        _validation, options = self.validate_argument_spec({"dest": {"type": "path", "required": True}})
        source = Path(__file__).resolve().parents[1] / "module_utils"
        with tempfile.NamedTemporaryFile(prefix=PACKAGE, suffix=".zip") as archive:
            archive.write(zip_package(source))
            archive.flush()
            copy = self._task.copy()
            copy.args = {"src": archive.name, "dest": options["dest"], "owner": "root", "group": "root", "mode": "0644"}
            action = self._shared_loader_obj.action_loader.get(
                "ansible.legacy.copy",
                task=copy,
                connection=self._connection,
                play_context=self._play_context,
                loader=self._loader,
                templar=self._templar,
                shared_loader_obj=self._shared_loader_obj,
            )
            result.update(action.run(task_vars=task_vars))
        # The archive is binary: a diff would only be noise.
        result.pop("diff", None)
        return result
