/* What one GPU is: names, links, PCI, memory, processes. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "answers.h"

/* ---- one text, or one number ------------------------------------------------------------------------------------ */

#define TEXT_GETTER(function, key)                                             \
    API nvmlReturn_t function(nvmlDevice_t device, char *text, unsigned length) \
    {                                                                          \
        BEGIN_DEVICE;                                                          \
        return give_text(gpu_value(gpu, key), gpu, text, length);              \
    }

#define UINT_GETTER(function, key)                                    \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *result)  \
    {                                                                 \
        BEGIN_DEVICE;                                                 \
        return give_uint(gpu_value(gpu, key), result);                \
    }

#define ULONGLONG_GETTER(function, key)                                         \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned long long *result)  \
    {                                                                           \
        BEGIN_DEVICE;                                                           \
        return give_ulonglong(gpu_value(gpu, key), 1, result);                  \
    }

#define PAIR_GETTER(function, key)                                                       \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *first, unsigned *second)    \
    {                                                                                    \
        BEGIN_DEVICE;                                                                    \
        return give_pair(gpu_value(gpu, key), first, second);                            \
    }

TEXT_GETTER(nvmlDeviceGetName, "name")
TEXT_GETTER(nvmlDeviceGetUUID, "uuid")
TEXT_GETTER(nvmlDeviceGetSerial, "serial")
TEXT_GETTER(nvmlDeviceGetVbiosVersion, "vbios_version")
TEXT_GETTER(nvmlDeviceGetBoardPartNumber, "board_part_number")

UINT_GETTER(nvmlDeviceGetArchitecture, "architecture")
UINT_GETTER(nvmlDeviceGetBrand, "brand")
UINT_GETTER(nvmlDeviceGetComputeMode, "compute_mode")
UINT_GETTER(nvmlDeviceGetCurrPcieLinkGeneration, "pcie_generation")
UINT_GETTER(nvmlDeviceGetCurrPcieLinkWidth, "pcie_width")
UINT_GETTER(nvmlDeviceGetDisplayActive, "display_active")
UINT_GETTER(nvmlDeviceGetDisplayMode, "display_active")
UINT_GETTER(nvmlDeviceGetEnforcedPowerLimit, "power_limit_mw")
UINT_GETTER(nvmlDeviceGetFanSpeed, "fan_speed_percent")
UINT_GETTER(nvmlDeviceGetGpuMaxPcieLinkGeneration, "pcie_generation_max")
UINT_GETTER(nvmlDeviceGetMaxPcieLinkGeneration, "pcie_generation_max")
UINT_GETTER(nvmlDeviceGetMaxPcieLinkWidth, "pcie_width_max")
UINT_GETTER(nvmlDeviceGetMemoryBusWidth, "memory_bus_width_bits")
UINT_GETTER(nvmlDeviceGetNumGpuCores, "cores")
UINT_GETTER(nvmlDeviceGetNumaNodeId, "numa_node")
UINT_GETTER(nvmlDeviceGetPcieReplayCounter, "pcie_replays")
UINT_GETTER(nvmlDeviceGetPcieSpeed, "pcie_speed_mbps")
UINT_GETTER(nvmlDeviceGetPerformanceState, "performance_state")
UINT_GETTER(nvmlDeviceGetPersistenceMode, "persistence_mode")
UINT_GETTER(nvmlDeviceGetPowerManagementDefaultLimit, "power_limit_default_mw")
UINT_GETTER(nvmlDeviceGetPowerManagementLimit, "power_limit_mw")
UINT_GETTER(nvmlDeviceGetPowerUsage, "power_usage_mw")
UINT_GETTER(nvmlDeviceGetRetiredPagesPendingStatus, "retired_pages_pending")
UINT_GETTER(nvmlDeviceGetVirtualizationMode, "virtualization_mode")

ULONGLONG_GETTER(nvmlDeviceGetCurrentClocksEventReasons, "clocks_event_reasons")
ULONGLONG_GETTER(nvmlDeviceGetCurrentClocksThrottleReasons, "clocks_event_reasons")
ULONGLONG_GETTER(nvmlDeviceGetSupportedEventTypes, "event_types")

PAIR_GETTER(nvmlDeviceGetEccMode, "ecc_mode")
PAIR_GETTER(nvmlDeviceGetMigMode, "mig_mode")
PAIR_GETTER(nvmlDeviceGetPowerManagementLimitConstraints, "power_limits_mw")

API nvmlReturn_t nvmlDeviceGetGspFirmwareVersion(nvmlDevice_t device, char *version)
{
    BEGIN_DEVICE;
    return give_text(gpu_value(gpu, "gsp_firmware_version"), gpu, version, 64);
}

API nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
    BEGIN_DEVICE;
    char text[16];
    if (!major || !minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!text_of(gpu_value(gpu, "compute_capability"), gpu, text, sizeof text))
        return NVML_ERROR_NOT_SUPPORTED;
    return sscanf(text, "%d.%d", major, minor) == 2 ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

/* ---- PCI -------------------------------------------------------------------------------------------------------- */

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

static nvmlReturn_t give_pci_info(unsigned gpu, struct pci_info *info)
{
    unsigned numbers[3];
    if (!info)
        return NVML_ERROR_INVALID_ARGUMENT;
    memset(info, 0, sizeof *info);
    if (!text_of(gpu_value(gpu, "pci_bus_id"), gpu, info->bus_id, sizeof info->bus_id) ||
        !pci_numbers(info->bus_id, numbers))
        return NVML_ERROR_NOT_SUPPORTED;
    info->domain = numbers[0];
    info->bus = numbers[1];
    info->device = numbers[2];
    snprintf(info->bus_id_legacy, sizeof info->bus_id_legacy, "%04x:%02x:%02x.0", numbers[0] & 0xFFFF, numbers[1] & 0xFF,
             numbers[2] & 0xFF);
    give_uint(gpu_value(gpu, "pci_device_id"), &info->pci_device_id);
    give_uint(gpu_value(gpu, "pci_subsystem_id"), &info->pci_subsystem_id);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct pci_info *info)
{
    BEGIN_DEVICE;
    return give_pci_info(gpu, info);
}

/* ---- memory ----------------------------------------------------------------------------------------------------- */

struct memory {
    unsigned long long total, free, used;
};

struct memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
};

static nvmlReturn_t give_memory(unsigned gpu, struct memory_v2 *memory)
{
    nvmlReturn_t result = give_ulonglong(gpu_value(gpu, "memory_total_mib"), MIB, &memory->total);
    if (!result)
        result = give_ulonglong(gpu_value(gpu, "memory_reserved_mib"), MIB, &memory->reserved);
    unsigned long long usable = memory->total - memory->reserved;
    memory->used = gpu_used_bytes(gpu);
    if (memory->used > usable)
        memory->used = usable;
    memory->free = usable - memory->used;
    return result;
}

/* The first version counts what the driver reserves as used. */
API nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, struct memory *memory)
{
    BEGIN_DEVICE;
    struct memory_v2 all = {0};
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = give_memory(gpu, &all);
    *memory = (struct memory){all.total, all.free, all.used + all.reserved};
    return result;
}

API nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, struct memory_v2 *memory)
{
    BEGIN_DEVICE;
    if (!memory)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != (2u << 24 | sizeof *memory))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return give_memory(gpu, memory);
}

API nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, struct memory *bar1)
{
    BEGIN_DEVICE;
    if (!bar1)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = give_ulonglong(gpu_value(gpu, "bar1_total_mib"), MIB, &bar1->total);
    if (!result)
        result = give_ulonglong(gpu_value(gpu, "bar1_used_mib"), MIB, &bar1->used);
    if (!result)
        bar1->free = bar1->total - bar1->used;
    return result;
}

/* ---- processes -------------------------------------------------------------------------------------------------- */

struct process_v1 {
    unsigned pid;
    unsigned long long used_bytes;
};

struct process_v2 { /* _v3 is the same */
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
};

static nvmlReturn_t give_processes(unsigned gpu, const char *kind, unsigned *count, struct process_v2 *processes)
{
    struct gpu_process found[256];
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = processes ? *count : 0;
    size_t there = gpu_processes(gpu, kind, found, sizeof found / sizeof *found);
    *count = (unsigned)there;
    if (there > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (size_t i = 0; i < there; i++)
        processes[i] = (struct process_v2){found[i].pid, found[i].used_bytes, UINT_MAX, UINT_MAX};
    return NVML_SUCCESS;
}

static nvmlReturn_t give_processes_v1(unsigned gpu, const char *kind, unsigned *count, struct process_v1 *processes)
{
    struct process_v2 all[256];
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    unsigned room = processes ? *count : 0;
    *count = sizeof all / sizeof *all;
    nvmlReturn_t result = give_processes(gpu, kind, count, all);
    if (result || *count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < *count; i++)
        processes[i] = (struct process_v1){all[i].pid, all[i].used_bytes};
    return NVML_SUCCESS;
}

#define PROCESS_GETTERS(function, kind)                                                                         \
    API nvmlReturn_t function(nvmlDevice_t device, unsigned *count, struct process_v1 *processes)               \
    {                                                                                                           \
        BEGIN_DEVICE;                                                                                           \
        return give_processes_v1(gpu, kind, count, processes);                                                  \
    }                                                                                                           \
    API nvmlReturn_t function##_v2(nvmlDevice_t device, unsigned *count, struct process_v2 *processes)          \
    {                                                                                                           \
        BEGIN_DEVICE;                                                                                           \
        return give_processes(gpu, kind, count, processes);                                                     \
    }                                                                                                           \
    API nvmlReturn_t function##_v3(nvmlDevice_t device, unsigned *count, struct process_v2 *processes)          \
    {                                                                                                           \
        BEGIN_DEVICE;                                                                                           \
        return give_processes(gpu, kind, count, processes);                                                     \
    }

PROCESS_GETTERS(nvmlDeviceGetComputeRunningProcesses, "compute")
PROCESS_GETTERS(nvmlDeviceGetGraphicsRunningProcesses, "graphics")
PROCESS_GETTERS(nvmlDeviceGetMPSComputeRunningProcesses, "mps")
