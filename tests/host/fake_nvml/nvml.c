/* The functions of libnvidia-ml.so.1 that pynvml asks for, answering from a JSON file (config.h). Shapes and codes as in
 * NVIDIA's nvml.h; functions that are not here are missing for the caller too, as in an older driver. Not thread-safe. */
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "config.h"

#define API __attribute__((visibility("default")))
#define MIB (1024.0 * 1024.0)

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

static int references; /* calls of nvmlInit without their nvmlShutdown */
static char handles[MAX_GPUS];

/* ---- how every call begins -------------------------------------------------------------------------------------- */

static nvmlReturn_t begin_machine(const char *function)
{
    return references ? machine_error(function) : NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t begin_device(const char *function, nvmlDevice_t device, unsigned *gpu)
{
    if (!references)
        return NVML_ERROR_UNINITIALIZED;
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    if (offset >= gpu_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *gpu = (unsigned)offset;
    return gpu_error(*gpu, function);
}

#define BEGIN_MACHINE                                   \
    nvmlReturn_t refusal = begin_machine(__func__);     \
    if (refusal)                                        \
        return refusal
#define BEGIN_DEVICE                                            \
    unsigned gpu;                                               \
    nvmlReturn_t refusal = begin_device(__func__, device, &gpu); \
    if (refusal)                                                \
        return refusal

/* ---- values ----------------------------------------------------------------------------------------------------- */

static nvmlReturn_t give_uint(const struct json *value, unsigned *result)
{
    double number;
    if (!result)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!number_of(value, &number))
        return NVML_ERROR_NOT_SUPPORTED;
    *result = (unsigned)number;
    return NVML_SUCCESS;
}

static nvmlReturn_t give_ulonglong(const struct json *value, double factor, unsigned long long *result)
{
    double number;
    if (!result)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!number_of(value, &number))
        return NVML_ERROR_NOT_SUPPORTED;
    *result = (unsigned long long)(number * factor);
    return NVML_SUCCESS;
}

static nvmlReturn_t give_pair(const struct json *value, unsigned *first, unsigned *second)
{
    nvmlReturn_t result = give_uint(json_item(value, 0), first);
    return result ? result : give_uint(json_item(value, 1), second);
}

static nvmlReturn_t give_text(const struct json *value, unsigned gpu, char *text, unsigned size)
{
    if (!text)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!json_is(value, JSON_STRING))
        return NVML_ERROR_NOT_SUPPORTED;
    return text_of(value, gpu, text, size) ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

static nvmlReturn_t give_handle(unsigned gpu, nvmlDevice_t *device)
{
    if (!device)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)(void *)(handles + gpu);
    return NVML_SUCCESS;
}

/* ---- start and end ---------------------------------------------------------------------------------------------- */

/* Release of this library: what `nvml_version` says after its first number, else that of the driver. */
static nvmlReturn_t library_version(char *version, unsigned size)
{
    const struct json *own = machine_value("nvml_version");
    if (json_is(own, JSON_STRING))
        return give_text(own, 0, version, size);
    char driver[80];
    nvmlReturn_t result = give_text(machine_value("driver_version"), 0, driver, sizeof driver);
    if (!result && (unsigned)snprintf(version, size, "13.%s", driver) >= size)
        result = NVML_ERROR_INSUFFICIENT_SIZE;
    return result;
}

/* A library does not start with a kernel module of another release. */
static nvmlReturn_t match_kernel_module(void)
{
    char library[80], module[80];
    const struct json *version = machine_value("kernel_module_version");
    if (!text_of(json_is(version, JSON_STRING) ? version : machine_value("driver_version"), 0, module, sizeof module))
        return NVML_SUCCESS;
    if (library_version(library, sizeof library) || !strchr(library, '.'))
        return NVML_SUCCESS;
    return strcmp(strchr(library, '.') + 1, module) ? NVML_ERROR_LIB_RM_VERSION_MISMATCH : NVML_SUCCESS;
}

static nvmlReturn_t start(void)
{
    nvmlReturn_t result = config_load();
    if (!result)
        result = machine_error("nvmlInit");
    if (!result)
        result = match_kernel_module();
    if (!result)
        references++;
    return result;
}

API nvmlReturn_t nvmlInit(void) { return start(); }
API nvmlReturn_t nvmlInit_v2(void) { return start(); }

API nvmlReturn_t nvmlInitWithFlags(unsigned flags)
{
    (void)flags;
    return start();
}

API nvmlReturn_t nvmlShutdown(void)
{
    if (!references)
        return NVML_ERROR_UNINITIALIZED;
    if (--references == 0)
        config_unload();
    return NVML_SUCCESS;
}

API const char *nvmlErrorString(nvmlReturn_t result)
{
    switch (result) {
    case NVML_SUCCESS:
        return "The operation was successful";
    case NVML_ERROR_UNINITIALIZED:
        return "NVML was not first initialized with nvmlInit()";
    case NVML_ERROR_INVALID_ARGUMENT:
        return "A supplied argument is invalid";
    case NVML_ERROR_NOT_SUPPORTED:
        return "The requested operation is not available on target device";
    case NVML_ERROR_NOT_FOUND:
        return "A query to find an object was unsuccessful";
    case NVML_ERROR_INSUFFICIENT_SIZE:
        return "An input argument is not large enough";
    case 9:
        return "Driver Not Loaded";
    case 15:
        return "GPU is lost";
    case 18:
        return "Driver/library version mismatch";
    default:
        return "Unknown Error";
    }
}

/* ---- the machine ------------------------------------------------------------------------------------------------ */

API nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    BEGIN_MACHINE;
    return give_text(machine_value("driver_version"), 0, version, length);
}

/* The library's own version can be asked for before, or after a failed, nvmlInit. */
API nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length)
{
    bool loaded = references > 0;
    if (!loaded && config_load())
        return NVML_ERROR_UNKNOWN;
    nvmlReturn_t result = machine_error(__func__);
    if (!result)
        result = version ? library_version(version, length) : NVML_ERROR_INVALID_ARGUMENT;
    if (!loaded)
        config_unload();
    return result;
}

static nvmlReturn_t give_cuda_version(int *version)
{
    char text[32];
    int major = 0, minor = 0;
    if (!version)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!text_of(machine_value("cuda_version"), 0, text, sizeof text) || sscanf(text, "%d.%d", &major, &minor) != 2)
        return NVML_ERROR_NOT_SUPPORTED;
    *version = major * 1000 + minor * 10;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version)
{
    BEGIN_MACHINE;
    return give_cuda_version(version);
}

API nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version)
{
    BEGIN_MACHINE;
    return give_cuda_version(version);
}

API nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length)
{
    BEGIN_MACHINE;
    char path[64];
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *stream = fopen(path, "r");
    if (!stream)
        return NVML_ERROR_NOT_FOUND;
    size_t size = length ? fread(name, 1, length - 1, stream) : 0;
    fclose(stream);
    if (length)
        name[size] = '\0';
    return NVML_SUCCESS;
}

/* ---- finding a GPU ---------------------------------------------------------------------------------------------- */

static nvmlReturn_t give_count(unsigned *count)
{
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = gpu_count();
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetCount(unsigned *count)
{
    BEGIN_MACHINE;
    return give_count(count);
}

API nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count)
{
    BEGIN_MACHINE;
    return give_count(count);
}

static nvmlReturn_t handle_by_index(const char *function, unsigned index, nvmlDevice_t *device)
{
    nvmlReturn_t refusal = begin_machine(function);
    if (refusal)
        return refusal;
    if (index >= gpu_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct json *errors = gpu_value(index, "errors"); /* "*" means the device's own functions, not finding it */
    refusal = json_member(errors, function) ? gpu_error(index, function) : NVML_SUCCESS;
    return refusal ? refusal : give_handle(index, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned index, nvmlDevice_t *device)
{
    return handle_by_index("nvmlDeviceGetHandleByIndex", index, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *device)
{
    return handle_by_index("nvmlDeviceGetHandleByIndex", index, device);
}

static nvmlReturn_t handle_by_text(const char *key, const char *wanted, nvmlDevice_t *device)
{
    char text[128];
    for (unsigned gpu = 0; wanted && gpu < gpu_count(); gpu++)
        if (text_of(gpu_value(gpu, key), gpu, text, sizeof text) && strcmp(text, wanted) == 0)
            return give_handle(gpu, device);
    return wanted ? NVML_ERROR_NOT_FOUND : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    BEGIN_MACHINE;
    return handle_by_text("uuid", uuid, device);
}

API nvmlReturn_t nvmlDeviceGetHandleBySerial(const char *serial, nvmlDevice_t *device)
{
    BEGIN_MACHINE;
    return handle_by_text("serial", serial, device);
}

/* "0000:01:00.0" and "00000000:01:00.0" name the same function. */
static bool pci_numbers(const char *text, unsigned numbers[3])
{
    return sscanf(text, "%x:%x:%x", &numbers[0], &numbers[1], &numbers[2]) == 3;
}

static nvmlReturn_t handle_by_pci(const char *wanted, nvmlDevice_t *device)
{
    char text[64];
    unsigned asked[3], own[3];
    if (!wanted || !pci_numbers(wanted, asked))
        return NVML_ERROR_INVALID_ARGUMENT;
    for (unsigned gpu = 0; gpu < gpu_count(); gpu++)
        if (text_of(gpu_value(gpu, "pci_bus_id"), gpu, text, sizeof text) && pci_numbers(text, own) &&
            memcmp(asked, own, sizeof own) == 0)
            return give_handle(gpu, device);
    return NVML_ERROR_NOT_FOUND;
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId(const char *bus_id, nvmlDevice_t *device)
{
    BEGIN_MACHINE;
    return handle_by_pci(bus_id, device);
}

API nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device)
{
    BEGIN_MACHINE;
    return handle_by_pci(bus_id, device);
}

API nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index)
{
    BEGIN_DEVICE;
    if (!index)
        return NVML_ERROR_INVALID_ARGUMENT;
    *index = gpu;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor)
{
    BEGIN_DEVICE;
    const struct json *own = gpu_value(gpu, "minor_number");
    if (own)
        return give_uint(own, minor);
    if (!minor)
        return NVML_ERROR_INVALID_ARGUMENT;
    *minor = gpu;
    return NVML_SUCCESS;
}

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

/* ---- health ----------------------------------------------------------------------------------------------------- */

static nvmlReturn_t give_ecc_errors(unsigned gpu, unsigned error_type, unsigned long long *count)
{
    const struct json *errors = gpu_value(gpu, "ecc_errors");
    if (error_type > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    return give_ulonglong(json_member(errors, error_type ? "uncorrected" : "corrected"), 1, count);
}

API nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, unsigned error_type, unsigned counter_type,
                                             unsigned long long *count)
{
    BEGIN_DEVICE;
    (void)counter_type; /* since the driver's start and ever: the same in the fake */
    return give_ecc_errors(gpu, error_type, count);
}

API nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t device, unsigned error_type, unsigned counter_type,
                                                 unsigned location, unsigned long long *count)
{
    BEGIN_DEVICE;
    (void)counter_type;
    if (location == 2) /* NVML_MEMORY_LOCATION_DEVICE_MEMORY: all errors of the fake are there */
        return give_ecc_errors(gpu, error_type, count);
    if (!count)
        return NVML_ERROR_INVALID_ARGUMENT;
    *count = 0;
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned *correctable, unsigned *uncorrectable,
                                           unsigned *pending, unsigned *failed)
{
    BEGIN_DEVICE;
    const struct json *rows = gpu_value(gpu, "remapped_rows");
    nvmlReturn_t result = give_uint(json_member(rows, "correctable"), correctable);
    result = result ? result : give_uint(json_member(rows, "uncorrectable"), uncorrectable);
    result = result ? result : give_uint(json_member(rows, "pending"), pending);
    return result ? result : give_uint(json_member(rows, "failed"), failed);
}

/* `retired_pages`: {"corrected": [address, ...], "uncorrected": [...]}, in the order of nvmlPageRetirementCause_t. */
static nvmlReturn_t give_retired_pages(unsigned gpu, unsigned cause, unsigned *count, unsigned long long *addresses)
{
    const struct json *pages = gpu_value(gpu, "retired_pages");
    if (!json_is(pages, JSON_OBJECT))
        return NVML_ERROR_NOT_SUPPORTED;
    if (!count || cause > 1)
        return NVML_ERROR_INVALID_ARGUMENT;
    pages = json_member(pages, cause ? "uncorrected" : "corrected");
    unsigned room = *count;
    *count = (unsigned)json_length(pages);
    if (*count > room)
        return NVML_ERROR_INSUFFICIENT_SIZE;
    for (unsigned i = 0; addresses && i < *count; i++)
        give_ulonglong(json_item(pages, i), 1, &addresses[i]);
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, unsigned cause, unsigned *count, unsigned long long *addresses)
{
    BEGIN_DEVICE;
    return give_retired_pages(gpu, cause, count, addresses);
}

API nvmlReturn_t nvmlDeviceGetRetiredPages_v2(nvmlDevice_t device, unsigned cause, unsigned *count,
                                              unsigned long long *addresses, unsigned long long *timestamps)
{
    BEGIN_DEVICE;
    nvmlReturn_t result = give_retired_pages(gpu, cause, count, addresses);
    for (unsigned i = 0; !result && timestamps && i < *count; i++)
        timestamps[i] = 0;
    return result;
}

static nvmlReturn_t give_temperature(unsigned gpu, unsigned sensor, unsigned *celsius)
{
    return sensor ? NVML_ERROR_INVALID_ARGUMENT : give_uint(gpu_value(gpu, "temperature_c"), celsius);
}

API nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, unsigned sensor, unsigned *celsius)
{
    BEGIN_DEVICE;
    return give_temperature(gpu, sensor, celsius);
}

struct temperature_v1 {
    unsigned version;
    unsigned sensor;
    int celsius;
};

API nvmlReturn_t nvmlDeviceGetTemperatureV(nvmlDevice_t device, struct temperature_v1 *temperature)
{
    BEGIN_DEVICE;
    unsigned celsius = 0;
    if (!temperature)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (temperature->version != (1u << 24 | sizeof *temperature))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    nvmlReturn_t result = give_temperature(gpu, temperature->sensor, &celsius);
    temperature->celsius = (int)celsius;
    return result;
}

API nvmlReturn_t nvmlDeviceGetTemperatureThreshold(nvmlDevice_t device, unsigned threshold, unsigned *celsius)
{
    BEGIN_DEVICE;
    return give_uint(json_item(gpu_value(gpu, "temperature_thresholds_c"), threshold), celsius);
}

API nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, unsigned rates[2])
{
    BEGIN_DEVICE;
    const struct json *rate = gpu_value(gpu, "utilization_percent");
    if (!rates)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = give_uint(json_member(rate, "gpu"), &rates[0]);
    return result ? result : give_uint(json_member(rate, "memory"), &rates[1]);
}

API nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    BEGIN_DEVICE;
    return give_uint(json_item(gpu_value(gpu, "clocks_mhz"), type), mhz);
}

API nvmlReturn_t nvmlDeviceGetMaxClockInfo(nvmlDevice_t device, unsigned type, unsigned *mhz)
{
    BEGIN_DEVICE;
    return give_uint(json_item(gpu_value(gpu, "clocks_max_mhz"), type), mhz);
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

/* ---- how GPUs and CPUs are connected ---------------------------------------------------------------------------- */

/* A value that holds for all pairs, or a matrix. */
static nvmlReturn_t give_of_pair(const struct json *value, unsigned gpu, unsigned peer, unsigned *result)
{
    return give_uint(json_is(value, JSON_ARRAY) ? json_item(json_item(value, gpu), peer) : value, result);
}

API nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t device, nvmlDevice_t peer_device, unsigned capability, unsigned *status)
{
    static const char *const capabilities[] = {"read", "write", "nvlink", "atomics", "pci"};
    BEGIN_DEVICE;
    unsigned peer;
    nvmlReturn_t result = begin_device(__func__, peer_device, &peer);
    if (result)
        return result;
    if (capability >= sizeof capabilities / sizeof *capabilities || gpu == peer)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct json *p2p = machine_value("p2p");
    return give_of_pair(json_is(p2p, JSON_OBJECT) ? json_member(p2p, capabilities[capability]) : p2p, gpu, peer, status);
}

/* `topology`, or else what the NUMA nodes say: 40 (NODE) on the same one, 50 (SYSTEM) on different ones. */
API nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device, nvmlDevice_t peer_device, unsigned *level)
{
    BEGIN_DEVICE;
    unsigned peer, own_node = 0, peer_node = 0;
    nvmlReturn_t result = begin_device(__func__, peer_device, &peer);
    if (result)
        return result;
    if (!level)
        return NVML_ERROR_INVALID_ARGUMENT;
    const struct json *topology = machine_value("topology");
    if (topology)
        return give_of_pair(topology, gpu, peer, level);
    give_uint(gpu_value(gpu, "numa_node"), &own_node);
    give_uint(gpu_value(peer, "numa_node"), &peer_node);
    *level = gpu == peer ? 0 : own_node == peer_node ? 40 : 50;
    return NVML_SUCCESS;
}

/* `cpu_affinity`: list of CPU numbers. */
API nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words, unsigned long *set)
{
    BEGIN_DEVICE;
    const struct json *cpus = gpu_value(gpu, "cpu_affinity");
    const unsigned bits = CHAR_BIT * sizeof *set;
    if (!set)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!json_is(cpus, JSON_ARRAY))
        return NVML_ERROR_NOT_SUPPORTED;
    memset(set, 0, words * sizeof *set);
    for (const struct json *cpu = cpus->first; cpu; cpu = cpu->next) {
        unsigned number;
        if (give_uint(cpu, &number) || number / bits >= words)
            return NVML_ERROR_INSUFFICIENT_SIZE;
        set[number / bits] |= 1ul << number % bits;
    }
    return NVML_SUCCESS;
}

API nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned words, unsigned long *set, unsigned scope)
{
    BEGIN_DEVICE;
    (void)scope;
    unsigned node;
    if (!set || !words)
        return NVML_ERROR_INVALID_ARGUMENT;
    nvmlReturn_t result = give_uint(gpu_value(gpu, "numa_node"), &node);
    if (result)
        return result;
    memset(set, 0, words * sizeof *set);
    set[0] = 1ul << node;
    return NVML_SUCCESS;
}
