/* What the fake GPUs are: a JSON file over the defaults compiled in (default.json). */
#ifndef FAKE_NVML_CONFIG_H
#define FAKE_NVML_CONFIG_H

#include <stdbool.h>
#include <stddef.h>

#include "json.h"

#define MAX_GPUS 64u

/* Codes of nvml.h (nvmlReturn_enum) that the fake itself gives. */
enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999
};

struct gpu_process {
    unsigned pid;
    unsigned long long used_bytes; /* ULLONG_MAX: not told, as in a container */
};

/* Reads the file again; NVML_ERROR_UNKNOWN, with a line on stderr, if it is no JSON. A missing file means the defaults. */
int config_load(void);
void config_unload(void);

unsigned gpu_count(void);
/* The value of a key of the whole machine, or of one GPU; NULL if nothing says it. */
const struct json *machine_value(const char *key);
const struct json *gpu_value(unsigned gpu, const char *key);
/* The error that `errors` asks a function to return; NVML_SUCCESS if none. */
int machine_error(const char *function);
int gpu_error(unsigned gpu, const char *function);

/* A number (or a string like "0x2bb5"); false if the value is missing or null. */
bool number_of(const struct json *value, double *number);
/* Text with {index} replaced by the GPU's; false if the value is missing, null or too long for `size`. */
bool text_of(const struct json *value, unsigned gpu, char *text, size_t size);

/* Bytes in use on a GPU now: `memory_used_mib` and what the listed processes use. */
unsigned long long gpu_used_bytes(unsigned gpu);
/* Processes of a kind ("compute", "graphics", "mps") on a GPU now: fills at most `capacity`, returns how many there are. */
size_t gpu_processes(unsigned gpu, const char *kind, struct gpu_process *found, size_t capacity);

#endif
