"""``python -m tests.host.driver_packages``: build the driver repository of the test hosts if it is not there yet."""

from tests.host.driver_packages import ensure

ensure()
