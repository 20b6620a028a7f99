/* How one GPU fares: errors, temperature, load. */
#include "answers.h"

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
