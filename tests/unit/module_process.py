"""A module as it runs on a host, in the process of the tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from ansible.module_utils import _internal
from ansible.module_utils.common import warnings
from ansible.module_utils.testing import patch_module_args


@contextmanager
def module_process(options: dict[str, Any]) -> Iterator[None]:
    """Arguments for the module, and what is a fresh process's own.

    Any test that imports an action plugin or ansible.plugins makes the process a controller for good: from then on warnings of a module are
    displayed and no longer part of its result, and what earlier modules warned of is still there.
    """
    with (
        patch_module_args(options),
        mock.patch.object(_internal, "is_controller", False),
        mock.patch.dict(warnings._global_warnings, clear=True),
        mock.patch.dict(warnings._global_deprecations, clear=True),
    ):
        yield
