#!/usr/bin/python
# Copyright (c) 2026 The gpuhost.vllm developers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
module: gpu_info
short_description: What the NVIDIA GPUs of a host are, and what is wrong with them
version_added: 0.1.0
description:
  - Reads NVIDIA's management library (NVML), the kernel and the PCI bus, and names known problems with their remedies.
  - What a driver, board or container does not tell is null. A host without a driver, without GPUs or without
    C(nvidia-ml-py) is a result, not a failure.
author:
  - The gpuhost.vllm developers (@gpuhost)
extends_documentation_fragment:
  - gpuhost.vllm.attributes
  - gpuhost.vllm.attributes.info_module
options: {}
requirements:
  - nvidia-ml-py (C(pynvml)); the role P(gpuhost.vllm.tools#role) installs it
notes:
  - Run it as root, else the kernel log, PCI configuration space and owners of processes may stay null.
"""

EXAMPLES = r"""
- name: Read the GPUs
  gpuhost.vllm.gpu_info:
  register: found
  vars:
    ansible_python_interpreter: "{{ vllm_tools.python }}"

- name: Stop on what would keep vLLM from starting
  ansible.builtin.assert:
    that: found.problems | selectattr('severity', 'eq', 'error') | length == 0
"""

RETURN = r"""
gpus:
  description: The GPUs that the driver offers, by NVML's index. Sizes are bytes.
  returned: always
  type: list
  elements: dict
  contains:
    index:
      description: NVML's index, which is CUDA's with C(CUDA_DEVICE_ORDER=PCI_BUS_ID).
      type: int
    name:
      description: Product name.
      type: str
    uuid:
      description: Identity of the card.
      type: str
    pci_id:
      description: Place on the PCI bus as the kernel spells it.
      type: str
    device_node:
      description: Its device in C(/dev).
      type: str
    architecture:
      description: Such as V(blackwell).
      type: str
    compute_capability:
      description: Such as V(12.0).
      type: str
    total_bytes:
      description: All memory, as nvidia-smi shows it.
      type: int
    reserved_bytes:
      description: Kept by the driver (NVML's v2 information).
      type: int
    cuda_visible_bytes:
      description: Total less reserved, what CUDA calls the total.
      type: int
    used_bytes:
      description: In use now.
      type: int
    free_bytes:
      description: Free now.
      type: int
    bar1_total_bytes:
      description: Window through which peers and the host reach the memory.
      type: int
    bar1_used_bytes:
      description: Used part of that window.
      type: int
    pcie:
      description: The link now and at most (C(generation), C(generation_max), C(width), C(width_max)) in NVML's words, whose most is
        that of card and slot together. The generation drops when idle.
      type: dict
    ecc:
      description: C(enabled), C(pending), and C(uncorrected) errors since the driver was loaded.
      type: dict
    mig:
      description: C(enabled) and C(pending).
      type: dict
    persistence:
      description: Whether the driver stays initialised without users.
      type: bool
    compute_mode:
      description: NVML's number; 0 is shared, 2 prohibits compute.
      type: int
    power:
      description: C(usage_watts), C(limit_watts), C(default_limit_watts).
      type: dict
    temperature:
      description: C(celsius), C(slowdown_celsius).
      type: dict
    remapped_rows:
      description: Memory rows replaced by spares (C(correctable), C(uncorrectable)), and whether one is C(pending) or C(failed).
      type: dict
    numa_node:
      description: NUMA node of its PCIe slot; null where the machine has one.
      type: int
    iommu_group:
      description: IOMMU group.
      type: int
    iommu_type:
      description: V(identity) passes addresses through, V(DMA) and V(DMA-FQ) translate.
      type: str
    acs_redirecting:
      description: PCI ids of the bridges above it that redirect peer traffic to the root complex.
      type: list
      elements: str
    fabric:
      description: >-
        Whether it is registered at the machine's NVSwitches. C(state) is V(not_supported) (it has none), V(not_started), V(in_progress) or
        V(completed), then C(status) is V(success) or NVML's name of the failure. Both are null where NVML does not say.
      type: dict
    errors:
      description: NVML calls that failed unexpectedly, and NVML's name of the failure.
      type: dict
driver_version:
  description: Release of the kernel driver.
  returned: always
  type: str
  sample: 580.95.05
cuda_version:
  description: Newest CUDA that the driver runs.
  returned: always
  type: str
  sample: "13.0"
kernel_module:
  description: The driver in the kernel.
  returned: always
  type: dict
  contains:
    loaded:
      description: Whether the module C(nvidia) is loaded.
      type: bool
    version:
      description: Release of the loaded module.
      type: str
    flavour:
      description: V(open) or V(proprietary).
      type: str
    matches_library:
      description: Whether the user-space library is of the same release.
      type: bool
    installed_version:
      description: Release of the module on disk for the running kernel.
      type: str
    installed_flavour:
      description: V(open) or V(proprietary), of the module on disk.
      type: str
    uvm_loaded:
      description: Whether C(nvidia-uvm) is loaded; CUDA needs it.
      type: bool
    nouveau_loaded:
      description: Whether the kernel's own driver is loaded.
      type: bool
    secure_boot:
      description: Whether the firmware enforces signatures.
      type: bool
container:
  description: V(none), V(lxc), V(nspawn), V(docker), V(podman), V(oci), V(wsl) or V(other).
  returned: always
  type: str
p2p:
  description: Square matrices by GPU index; null where NVML does not say.
  returned: always
  type: dict
  contains:
    access:
      description: V(ok), V(self), or NVML's reason why the two cannot reach each other.
      type: list
      elements: list
    nvlink:
      description: Whether that path is NVLink.
      type: list
      elements: list
    topology:
      description: V(PIX), V(PXB), V(PHB), V(NODE), V(SYS) as C(nvidia-smi topo -m) prints them.
      type: list
      elements: list
processes:
  description: Compute processes on the GPUs. Names and users are null for processes outside this container.
  returned: always
  type: list
  elements: dict
  sample:
    - {gpu: 0, pid: 4711, memory_bytes: 91268055040, name: VLLM::Worker_TP0, user: vllm, unit: vllm-kimi-k25.service}
nvml:
  description: Whether the library answers.
  returned: always
  type: dict
  contains:
    state:
      description: V(ok), V(client_missing), V(library_missing), V(driver_not_loaded), V(version_mismatch), V(no_permission) or V(error).
      type: str
    error:
      description: NVML's C(code) and C(name) when it did not start.
      type: dict
    library_version:
      description: Release of the user-space library.
      type: str
device_nodes:
  description: Devices in C(/dev), namely C(gpus) (paths), and whether C(control), C(uvm), C(uvm_tools) exist.
  returned: always
  type: dict
pci_gpus:
  description: NVIDIA GPUs on the PCI bus, whether or not a driver serves them.
  returned: always
  type: list
  elements: dict
  contains:
    pci_id:
      description: Place on the PCI bus.
      type: str
    device_id:
      description: PCI device id, such as V(2bb5).
      type: str
    driver:
      description: The kernel driver that holds it.
      type: str
    numa_node:
      description: NUMA node of its slot; null where the machine has one.
      type: int
    iommu_group:
      description: IOMMU group.
      type: int
    iommu_type:
      description: V(identity) passes addresses through, V(DMA) and V(DMA-FQ) translate.
      type: str
    bar1_bytes:
      description: Its largest memory window.
      type: int
    acs_redirecting:
      description: PCI ids of the bridges above it that redirect peer traffic to the root complex.
      type: list
      elements: str
    needs_open_modules:
      description: Whether the proprietary kernel module refuses it (Blackwell), by its device id or the kernel log.
      type: bool
    link_width:
      description: PCIe lanes now.
      type: int
    link_width_max:
      description: PCIe lanes of the card itself, in whatever slot.
      type: int
    slot_width_max:
      description: PCIe lanes of the port above it; null in most virtual machines.
      type: int
iommu:
  description: Whether an IOMMU is active.
  returned: always
  type: bool
nvswitches:
  description: NVSwitches on the PCI bus. Those of Blackwell are not there. Null where the bus is not visible.
  returned: always
  type: int
fabric_manager:
  description: Whether C(nv-fabricmanager) runs; null without NVSwitches on the bus, and in a container.
  returned: always
  type: bool
xids:
  description: Xid events of this boot (C(pci_id), C(xid), C(count), C(last)); null where the kernel log cannot be read.
  returned: always
  type: list
  elements: dict
problems:
  description: Known troubles, errors first.
  returned: always
  type: list
  elements: dict
  contains:
    id:
      description: Stable name.
      type: str
    severity:
      description: V(error) (vLLM cannot run), V(warning) (slower or at a risk) or V(info).
      type: str
    gpus:
      description: Indices it is about; empty when it is about the host.
      type: list
      elements: int
    found:
      description: What was seen.
      type: str
    cost:
      description: What it costs.
      type: str
    remedy:
      description: What to do.
      type: str
    source:
      description: Where this is known from.
      type: str
"""

from ansible.module_utils.basic import AnsibleModule

from ..module_utils.gpu.info import collect
from ..module_utils.gpu.nvml import import_client


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, **collect(import_client()))


if __name__ == "__main__":
    main()
