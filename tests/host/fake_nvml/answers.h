/* What the exported functions share: how a call begins, and how a value of the configuration becomes its answer. */
#ifndef FAKE_NVML_ANSWERS_H
#define FAKE_NVML_ANSWERS_H

#include "config.h"

#define API __attribute__((visibility("default")))
#define MIB (1024.0 * 1024.0)

typedef int nvmlReturn_t;
typedef struct nvmlDevice_st *nvmlDevice_t;

extern int references; /* calls of nvmlInit without their nvmlShutdown */

nvmlReturn_t begin_machine(const char *function);
nvmlReturn_t begin_device(const char *function, nvmlDevice_t device, unsigned *gpu);
nvmlReturn_t give_uint(const struct json *value, unsigned *result);
nvmlReturn_t give_ulonglong(const struct json *value, double factor, unsigned long long *result);
nvmlReturn_t give_pair(const struct json *value, unsigned *first, unsigned *second);
nvmlReturn_t give_text(const struct json *value, unsigned gpu, char *text, unsigned size);
nvmlReturn_t give_handle(unsigned gpu, nvmlDevice_t *device);

/* "0000:01:00.0" and "00000000:01:00.0" name the same function: domain, bus, device. */
bool pci_numbers(const char *text, unsigned numbers[3]);

/* The first lines of an exported function: refuse as the configuration says, and find out which GPU is meant. */
#define BEGIN_MACHINE                                   \
    nvmlReturn_t refusal = begin_machine(__func__);     \
    if (refusal)                                        \
        return refusal
#define BEGIN_DEVICE                                            \
    unsigned gpu;                                               \
    nvmlReturn_t refusal = begin_device(__func__, device, &gpu); \
    if (refusal)                                                \
        return refusal

#endif
