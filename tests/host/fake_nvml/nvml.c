/* The functions of libnvidia-ml.so.1 that pynvml asks for, here and in gpu.c, health.c and peers.c, answering from a JSON file
 * (config.h). Shapes and codes as in NVIDIA's nvml.h; functions that are not here are missing for the caller too, as in an older
 * driver. Not thread-safe. This file: start and end, the machine, and finding a GPU. */
#include <stdio.h>
#include <string.h>

#include "answers.h"

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
