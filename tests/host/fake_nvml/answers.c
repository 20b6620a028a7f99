#include "answers.h"

#include <stdint.h>
#include <stdio.h>

int references;
static char handles[MAX_GPUS];

/* ---- how every call begins -------------------------------------------------------------------------------------- */

nvmlReturn_t begin_machine(const char *function)
{
    return references ? machine_error(function) : NVML_ERROR_UNINITIALIZED;
}

nvmlReturn_t begin_device(const char *function, nvmlDevice_t device, unsigned *gpu)
{
    if (!references)
        return NVML_ERROR_UNINITIALIZED;
    uintptr_t offset = (uintptr_t)device - (uintptr_t)handles;
    if (offset >= gpu_count())
        return NVML_ERROR_INVALID_ARGUMENT;
    *gpu = (unsigned)offset;
    return gpu_error(*gpu, function);
}

/* ---- values ----------------------------------------------------------------------------------------------------- */

nvmlReturn_t give_uint(const struct json *value, unsigned *result)
{
    double number;
    if (!result)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!number_of(value, &number))
        return NVML_ERROR_NOT_SUPPORTED;
    *result = (unsigned)number;
    return NVML_SUCCESS;
}

nvmlReturn_t give_ulonglong(const struct json *value, double factor, unsigned long long *result)
{
    double number;
    if (!result)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!number_of(value, &number))
        return NVML_ERROR_NOT_SUPPORTED;
    *result = (unsigned long long)(number * factor);
    return NVML_SUCCESS;
}

nvmlReturn_t give_pair(const struct json *value, unsigned *first, unsigned *second)
{
    nvmlReturn_t result = give_uint(json_item(value, 0), first);
    return result ? result : give_uint(json_item(value, 1), second);
}

nvmlReturn_t give_text(const struct json *value, unsigned gpu, char *text, unsigned size)
{
    if (!text)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (!json_is(value, JSON_STRING))
        return NVML_ERROR_NOT_SUPPORTED;
    return text_of(value, gpu, text, size) ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t give_handle(unsigned gpu, nvmlDevice_t *device)
{
    if (!device)
        return NVML_ERROR_INVALID_ARGUMENT;
    *device = (nvmlDevice_t)(void *)(handles + gpu);
    return NVML_SUCCESS;
}

bool pci_numbers(const char *text, unsigned numbers[3])
{
    return sscanf(text, "%x:%x:%x", &numbers[0], &numbers[1], &numbers[2]) == 3;
}
