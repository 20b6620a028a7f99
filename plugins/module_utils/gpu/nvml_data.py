# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""NVML's numbers as words. Source of every row: the enumerations of NVIDIA's nvml.h, as nvidia-ml-py 13 carries them."""

from __future__ import annotations

# NVML_DEVICE_ARCH_*. The number, not the name, is what a driver returns.
ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}

# nvmlGpuP2PStatus_t
P2P_STATUS = {
    0: "ok",
    1: "chipset_not_supported",
    2: "gpu_not_supported",
    3: "topology_not_supported",
    4: "disabled_by_regkey",
    5: "not_supported",
    6: "unknown",
}

# nvmlGpuTopologyLevel_t in the words of `nvidia-smi topo -m`.
TOPOLOGY = {
    0: "PIX",  # two GPUs of one board
    10: "PIX",  # one PCIe bridge between them
    20: "PXB",  # several bridges, no host bridge
    30: "PHB",  # one host bridge
    40: "NODE",  # host bridges of one NUMA node
    50: "SYS",  # across the link between processors
}

# NVML_GPU_FABRIC_STATE_*: how far a GPU has come with registering at the NVSwitches.
FABRIC_STATES = {0: "not_supported", 1: "not_started", 2: "in_progress", 3: "completed"}

# Codes that only say "this board or driver does not have that": not supported, function not found. A GPU with only these
# is healthy.
NOT_WORTH_TELLING = (3, 13)
