# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Known troubles of GPU hosts: what each costs, what to do, and where that knowledge comes from.

``error``: vLLM cannot start, or answers wrongly, until it is mended. ``warning``: it runs, slower or at a risk.
``info``: worth knowing.
"""

from __future__ import annotations

from typing import NamedTuple


class Known(NamedTuple):
    """One row: severity, cost, remedy and source of a problem."""

    severity: str
    cost: str
    remedy: str
    source: str


# First and last PCI device id of the GPUs that only the open kernel modules start: Blackwell. Every id that
# open-gpu-kernel-modules 595.45.04 (README, Compatible GPUs) and the PCI ID database of August 2026 have in these blocks is
# of that chip, the chips next to them are not Blackwell, or no GPUs of a server (2b00 is a Jetson).
OPEN_MODULES_ONLY = (
    (0x2900, 0x29FF),  # GB100 and GB102: 2901 B200, 2941 GB200, 29bc B100
    (0x2B80, 0x2BFF),  # GB202: 2b85 RTX 5090, 2bb1 to 2bb5 RTX PRO 5000 and 6000
    (0x2C00, 0x2C7F),  # GB203: 2c02 RTX 5080, 2c31 RTX PRO 4500
    (0x2D00, 0x2DFF),  # GB206 and GB207: 2d04 RTX 5060 Ti, 2d30 RTX PRO 2000, 2d83 RTX 5050
    (0x2E00, 0x2E7F),  # GB20B: 2e12 GB10
    (0x2F00, 0x2F7F),  # GB205: 2f04 RTX 5070; 2f80 is a sound device, 2f95 Vera
    (0x3180, 0x31FF),  # GB110: 3182 B300, 31c2 GB300
)

KNOWN = {
    "client_missing": Known(
        "error",
        "nothing can be said about the GPUs: the Python package nvidia-ml-py (pynvml) is not installed for this interpreter",
        "run the role gpuhost.vllm.tools first and use its interpreter (vllm_tools.python)",
        "nvidia-ml-py",
    ),
    "library_missing": Known(
        "error",
        "no GPU can be used: libnvidia-ml.so.1, the driver's user-space library, is not installed",
        "install the driver: the role gpuhost.vllm.drivers with drivers_state=present does it",
        "nvml.h, NVML_ERROR_LIBRARY_NOT_FOUND",
    ),
    "driver_not_loaded": Known(
        "error",
        "no GPU can be used: the user-space library is there, the kernel module nvidia is not loaded",
        "on the machine itself: `modprobe nvidia`, and read `dmesg` if that fails (Secure Boot, nouveau, no module for this kernel). "
        "In a container: load it on the host",
        "nvml.h, NVML_ERROR_DRIVER_NOT_LOADED",
    ),
    "driver_library_mismatch": Known(
        "error",
        "no GPU can be used: the user-space library and the loaded kernel module are of different releases "
        '("Driver/library version mismatch"), as after an unattended upgrade',
        "on the machine itself: reboot, or unload and load the modules. In a container: install the user-space packages of "
        "exactly the kernel module's release. Then hold the packages",
        "kubespray #8540",
    ),
    "nvml_no_permission": Known(
        "error",
        "the driver refuses this user",
        "run with become, and in a container let it open /dev/nvidia* (lxc.cgroup2.devices.allow: c 195:* rwm)",
        "nvml.h, NVML_ERROR_NO_PERMISSION",
    ),
    "nvml_error": Known(
        "error",
        "NVML does not start, so no GPU can be used",
        "read the kernel log (`dmesg | grep NVRM`) and run nvidia-smi",
        "nvml.h, nvmlReturn_enum",
    ),
    "no_gpu": Known(
        "error",
        "there is no NVIDIA GPU on this machine's PCI bus",
        "check the inventory; in a virtual machine pass the GPUs through; on metal look at power and slots",
        "PCI ID database, vendor 10de",
    ),
    "gpu_not_served": Known(
        "error",
        "a GPU is on the PCI bus but the driver does not offer it",
        'read `dmesg | grep NVRM`. Usual causes: "Above 4G decoding" or Resizable BAR off in the firmware, nouveau or vfio-pci '
        "bound to it, the proprietary module on a Blackwell, or it is not passed into this container",
        "open-gpu-kernel-modules #862",
    ),
    "gpu_lost": Known(
        "error",
        "the GPU fell off the bus",
        "power-cycle the machine; if it returns: power supply, riser, PCIe link, then the card",
        "open-gpu-kernel-modules #1045, #1080, #1151; NVIDIA Xid catalogue, 79",
    ),
    "gpu_reset_required": Known(
        "error",
        "the GPU takes no work until it is reset",
        "stop all users of it, then `nvidia-smi --gpu-reset -i <index>`, or reboot",
        "nvml.h, NVML_ERROR_RESET_REQUIRED",
    ),
    "proprietary_on_blackwell": Known(
        "error",
        "Blackwell GPUs (compute capability 10.0 and newer) do not start under the proprietary kernel module: the driver counts "
        'none of them (nvidia-smi: "No devices were found")',
        "install the open kernel modules of the same release (drivers_state=present does it), then reboot; in a container: on its "
        "host",
        'NVIDIA driver installation guide, open kernel modules; the kernel log: "requires use of the NVIDIA open kernel modules"',
    ),
    "fabric_not_ready": Known(
        "error",
        "CUDA fails with error 802 (system not yet initialized): the NVSwitches between the GPUs are not set up",
        "install nvidia-fabricmanager of exactly the driver's release and start it (`systemctl enable --now "
        "nvidia-fabricmanager`), in a container on its host; it is the fabric manager's log that says why it failed "
        "(/var/log/fabricmanager.log). While it says in_progress, as just after a boot, wait a minute",
        "NVIDIA fabric manager user guide; pytorch #35710; NVSentinel #883",
    ),
    "uvm_node_missing": Known(
        "error",
        "CUDA fails with error 999 or 304: the device /dev/nvidia-uvm is missing",
        "on the machine itself: `modprobe nvidia-uvm && nvidia-modprobe -u -c 0`, and load it at each boot (drivers_state=present "
        "does it). For a container: do that on the host before the container starts and pass /dev/nvidia-uvm and "
        "/dev/nvidia-uvm-tools into it",
        "ProxmoxVE #5740",
    ),
    "device_node_missing": Known(
        "error",
        "a GPU's device node, or /dev/nvidiactl, is missing: no process can open it",
        "on the machine itself: `nvidia-modprobe -c 0`. For a container: pass the device in (lxc.mount.entry, --device, --bind)",
        "NVIDIA driver README, device nodes",
    ),
    "nouveau_loaded": Known(
        "error",
        "the kernel's nouveau driver holds the GPUs, so NVIDIA's cannot",
        "blacklist it and reboot (drivers_state=present blacklists it)",
        "NVIDIA driver installation guide",
    ),
    "secure_boot": Known(
        "error",
        "Secure Boot is on and the module is not loaded: the kernel refuses modules without a signature that it trusts",
        "enrol the key that DKMS signs with, then confirm at the console during the next boot: on Ubuntu "
        "`mokutil --import /var/lib/shim-signed/mok/MOK.der` (or `update-secureboot-policy --enroll-key`), on Debian "
        "`mokutil --import /var/lib/dkms/mok.pub`. Or use modules that the distribution signed, or turn Secure Boot off in the "
        "firmware",
        "NVIDIA driver installation guide, Secure Boot; Ubuntu wiki, UEFI/SecureBoot; Debian wiki, SecureBoot",
    ),
    "reboot_required": Known(
        "warning",
        "the module on disk is of another release or flavour than the loaded one: the next process that starts may not find its "
        "library",
        "reboot when the GPUs are free (drivers_reboot=true lets the role do it)",
        "kubespray #8540",
    ),
    "bar1_small": Known(
        "warning",
        "the window through which peers reach this GPU's memory is smaller than that memory: peer-to-peer is off or slow",
        'turn "Above 4G decoding" and "Resizable BAR" on in the firmware',
        "open-gpu-kernel-modules #862",
    ),
    "pcie_width": Known(
        "warning",
        "the PCIe link is narrower than the card can: every all-reduce over PCIe is slower by as much",
        "in a slot of fewer lanes than the card: use another slot (the board's manual tells which are wide), or undo a bifurcation "
        "in the firmware. Else reseat the card and check the riser; compare `lspci -vv` LnkCap and LnkSta",
        "NVIDIA nvidia-smi documentation, PCIe link width; Linux ABI, sysfs-bus-pci, max_link_width",
    ),
    "p2p_unavailable": Known(
        "warning",
        "GPUs cannot reach each other directly: each all-reduce goes through the host's memory, which is most of the decode "
        "time without NVLink",
        "check ACS and IOMMU below and BAR1 size; where it cannot work set NCCL_P2P_DISABLE=1 and vLLM's "
        "disable_custom_all_reduce together",
        "vllm #51513, #56128; nccl #1999",
    ),
    "acs_redirect": Known(
        "warning",
        "PCIe bridges send peer-to-peer traffic up to the root complex (ACS redirect): slow, or a hang after NCCL's start",
        "turn ACS off in the firmware (with it goes isolation between virtual machines); this collection never writes PCI registers",
        "vllm #33041, nccl #1999, #2079",
    ),
    "iommu_translates": Known(
        "warning",
        "the IOMMU translates the GPUs' addresses: peer-to-peer over PCIe is slow or hangs after NCCL's start",
        "boot with `iommu=pt`, or turn the IOMMU off in the firmware if no virtual machine needs it",
        "vllm #33041, nccl #1999, #2079",
    ),
    "persistence_off": Known(
        "warning",
        "the driver unloads its state when no process uses the GPU: slow starts, lost settings",
        "enable nvidia-persistenced (drivers_state=present does it)",
        "NVIDIA driver persistence documentation",
    ),
    "mig_enabled": Known(
        "warning",
        "the GPU is partitioned (MIG): vLLM sees slices, not the card",
        "`nvidia-smi -mig 0 -i <index>` when it is free, unless the slices are meant",
        "NVIDIA MIG user guide",
    ),
    "ecc_uncorrected": Known(
        "warning",
        "memory errors that ECC could not correct since the driver was loaded: wrong answers or stopped kernels",
        "reset the GPU; if they return, have it replaced",
        "NVIDIA Xid catalogue, 48, 94, 95",
    ),
    "row_remap_pending": Known(
        "warning",
        "bad memory rows wait to be replaced by spare ones",
        "reset the GPU or reboot",
        "NVIDIA GPU memory error management",
    ),
    "row_remap_failed": Known(
        "error",
        "a bad memory row could not be replaced: no spare is left",
        "have the card replaced",
        "NVIDIA GPU memory error management",
    ),
    "xid": Known(
        "warning",
        "the driver reported errors of the GPU since boot",
        "look the number up in NVIDIA's Xid catalogue; those of hardware come back",
        "open-gpu-kernel-modules #1045, #1080, #1151",
    ),
    "power_limited": Known(
        "warning",
        "the power limit is below the card's default: lower clocks, fewer tokens per second",
        "`nvidia-smi -i <index> -pl <default watts>`, unless the limit is meant",
        "nvml.h, power management limits",
    ),
    "hot": Known(
        "warning",
        "the GPU is at the temperature where it slows down",
        "check airflow and fans",
        "nvml.h, NVML_TEMPERATURE_THRESHOLD_SLOWDOWN",
    ),
    "prohibited": Known(
        "error",
        "the compute mode of the GPU is PROHIBITED: no CUDA process may start",
        "`nvidia-smi -c DEFAULT -i <index>`",
        "nvml.h, nvmlComputeMode_t",
    ),
    "mixed_gpus": Known(
        "warning",
        "the GPUs differ: tensor parallelism is bound by the smallest and slowest",
        "choose GPUs of one kind with vllm_gpus",
        "vLLM, memory is budgeted per GPU",
    ),
    "reserved_unknown": Known(
        "info",
        "the driver does not say how much memory it keeps for itself, so what CUDA sees is estimated",
        "use driver 510 or newer",
        "nvml.h, nvmlMemory_v2_t",
    ),
}

# What an Xid number means; only those that a serving host meets. The others are named by number alone.
# Source: NVIDIA Xid catalogue (docs.nvidia.com/deploy/xid-errors), severity by its "immediate action".
XIDS = {
    13: ("warning", "a kernel faulted (usually the application)"),
    31: ("warning", "a kernel touched memory that is not mapped (usually the application)"),
    43: ("warning", "the application's channel was stopped"),
    45: ("info", "work was cancelled, as when a process is killed"),
    48: ("error", "double-bit memory error"),
    61: ("error", "internal microcontroller stopped"),
    62: ("error", "internal microcontroller halted"),
    63: ("warning", "a memory row is to be remapped"),
    64: ("error", "remapping a memory row failed"),
    74: ("error", "NVLink error"),
    79: ("error", "the GPU fell off the bus"),
    92: ("warning", "many corrected memory errors"),
    94: ("warning", "contained memory error: one application was stopped"),
    95: ("error", "uncontained memory error: the GPU needs a reset"),
    119: ("error", "the GPU's system processor (GSP) did not answer"),
    120: ("error", "the GPU's system processor (GSP) failed"),
    140: ("error", "unrecovered memory error"),
    143: ("error", "the GPU did not initialise"),
    154: ("warning", "the GPU asks for a recovery action"),
}
