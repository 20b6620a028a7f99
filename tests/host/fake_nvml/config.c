#define _POSIX_C_SOURCE 200809L
#include "config.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MIB (1024.0 * 1024.0)

extern const char fake_nvml_defaults[] __attribute__((visibility("hidden")));

static struct json *defaults;
static struct json *file;      /* NULL if there is no file */
static struct timespec loaded; /* when the file was written: time 0 of its schedules */

static const char *config_path(void)
{
    const char *path = getenv("FAKE_NVML_CONFIG");
    return path && *path ? path : "/etc/fake-nvml.json";
}

/* The whole of a small file, with a closing NUL; NULL if it cannot be read. */
static char *read_file(const char *path, size_t *length)
{
    FILE *stream = fopen(path, "r");
    if (!stream)
        return NULL;
    size_t size = 0, room = 4096;
    char *text = malloc(room);
    while (text && !feof(stream) && !ferror(stream)) {
        if (room - size < 2048) {
            char *larger = realloc(text, room *= 2);
            if (!larger)
                break;
            text = larger;
        }
        size += fread(text + size, 1, room - size - 1, stream);
    }
    fclose(stream);
    if (text)
        text[size] = '\0';
    if (length)
        *length = size;
    return text;
}

int config_load(void)
{
    int line;
    config_unload();
    defaults = json_parse(fake_nvml_defaults, &line);
    if (!defaults) {
        fprintf(stderr, "fake NVML: default.json: no JSON (line %d)\n", line);
        return NVML_ERROR_UNKNOWN;
    }
    struct stat status;
    char *text = read_file(config_path(), NULL);
    if (!text)
        return NVML_SUCCESS;
    if (stat(config_path(), &status) == 0)
        loaded = status.st_mtim;
    file = json_parse(text, &line);
    free(text);
    if (json_is(file, JSON_OBJECT))
        return NVML_SUCCESS;
    fprintf(stderr, "fake NVML: %s: no JSON object (line %d)\n", config_path(), line);
    return NVML_ERROR_UNKNOWN;
}

void config_unload(void)
{
    json_free(defaults);
    json_free(file);
    defaults = file = NULL;
}

const struct json *machine_value(const char *key)
{
    const struct json *value = json_member(file, key);
    return value ? value : json_member(defaults, key);
}

unsigned gpu_count(void)
{
    const struct json *gpus = machine_value("gpus");
    double count = 0;
    if (!number_of(gpus, &count))
        count = (double)json_length(gpus);
    return count < 0 ? 0 : count > MAX_GPUS ? MAX_GPUS : (unsigned)count;
}

const struct json *gpu_value(unsigned gpu, const char *key)
{
    const struct json *layers[] = {
        json_item(json_member(file, "gpus"), gpu),
        json_member(file, "gpu"),
        json_member(file, "gpus") ? NULL : json_item(json_member(defaults, "gpus"), gpu),
        json_member(defaults, "gpu"),
    };
    for (size_t i = 0; i < sizeof layers / sizeof *layers; i++) {
        const struct json *value = json_member(layers[i], key);
        if (value)
            return value;
    }
    return NULL;
}

static int error_code(const struct json *value)
{
    /* nvmlReturn_enum in order, from 0 on */
    static const char *const names[] = {
        "SUCCESS", "UNINITIALIZED", "INVALID_ARGUMENT", "NOT_SUPPORTED", "NO_PERMISSION", "ALREADY_INITIALIZED",
        "NOT_FOUND", "INSUFFICIENT_SIZE", "INSUFFICIENT_POWER", "DRIVER_NOT_LOADED", "TIMEOUT", "IRQ_ISSUE",
        "LIBRARY_NOT_FOUND", "FUNCTION_NOT_FOUND", "CORRUPTED_INFOROM", "GPU_IS_LOST", "RESET_REQUIRED",
        "OPERATING_SYSTEM", "LIB_RM_VERSION_MISMATCH", "IN_USE", "MEMORY", "NO_DATA",
    };
    if (json_is(value, JSON_NUMBER))
        return (int)value->number;
    for (size_t i = 0; json_is(value, JSON_STRING) && i < sizeof names / sizeof *names; i++)
        if (strcmp(value->text, names[i]) == 0)
            return (int)i;
    return json_is(value, JSON_NULL) || !value ? NVML_SUCCESS : NVML_ERROR_UNKNOWN;
}

/* An entry for nvmlX holds for nvmlX_v2 too; one for nvmlX_v2 only for that. */
static const struct json *error_entry(const struct json *errors, const char *function)
{
    char base[128];
    snprintf(base, sizeof base, "%s", function);
    size_t length = strlen(base);
    if (length > 3 && base[length - 3] == '_' && base[length - 2] == 'v')
        base[length - 3] = '\0';
    const struct json *entry = json_member(errors, function);
    return entry ? entry : json_member(errors, base);
}

int machine_error(const char *function)
{
    return error_code(error_entry(json_member(file, "errors"), function));
}

int gpu_error(unsigned gpu, const char *function)
{
    const struct json *errors = gpu_value(gpu, "errors");
    const struct json *entry = error_entry(errors, function);
    if (!entry)
        entry = json_member(errors, "*");
    return entry ? error_code(entry) : machine_error(function);
}

bool number_of(const struct json *value, double *number)
{
    if (json_is(value, JSON_NUMBER) || json_is(value, JSON_BOOL)) {
        *number = value->number;
        return true;
    }
    char *end = NULL;
    if (json_is(value, JSON_STRING) && *value->text)
        *number = strtod(value->text, &end); /* knows 0x */
    return end && *end == '\0';
}

bool text_of(const struct json *value, unsigned gpu, char *text, size_t size)
{
    static const char placeholder[] = "{index}";
    if (!json_is(value, JSON_STRING) || size == 0)
        return false;
    size_t length = 0;
    for (const char *at = value->text; *at;) {
        int added;
        if (strncmp(at, placeholder, sizeof placeholder - 1) == 0) {
            added = snprintf(text + length, size - length, "%u", gpu);
            at += sizeof placeholder - 1;
        } else {
            added = snprintf(text + length, size - length, "%c", *at++);
        }
        length += (size_t)added;
        if (length >= size)
            return false;
    }
    text[length] = '\0';
    return true;
}

/* A number, or a course of [seconds since the file was written, number] pairs, straight between them. */
static bool number_now(const struct json *value, double *number)
{
    if (!json_is(value, JSON_ARRAY))
        return number_of(value, number);
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    double now = difftime(clock.tv_sec, loaded.tv_sec) + (double)(clock.tv_nsec - loaded.tv_nsec) / 1e9;
    double time_before = 0, before = 0;
    bool first = true;
    for (const struct json *pair = value->first; pair; pair = pair->next) {
        double time, then;
        if (!number_of(json_item(pair, 0), &time) || !number_of(json_item(pair, 1), &then))
            return false;
        if (now <= time) {
            *number = first ? then : before + (then - before) * (now - time_before) / (time - time_before);
            return true;
        }
        time_before = time;
        before = then;
        first = false;
    }
    *number = before;
    return !first;
}

/* The state letter of /proc/PID/stat; 0 if there is no such process. */
static char process_state(unsigned pid)
{
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    char *stat = read_file(path, NULL);
    const char *end_of_name = stat ? strrchr(stat, ')') : NULL;
    if (end_of_name && end_of_name[1] == ' ')
        state = end_of_name[2];
    free(stat);
    return state;
}

static bool is_alive(unsigned pid)
{
    char state = process_state(pid);
    return state && state != 'Z' && state != 'X'; /* a zombie has given its GPU memory back */
}

static bool command_contains(unsigned pid, const char *part)
{
    char path[64];
    size_t length = 0;
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    char *command = read_file(path, &length);
    for (size_t i = 0; command && i + 1 < length; i++)
        if (!command[i])
            command[i] = ' ';
    bool contains = command && strstr(command, part);
    free(command);
    return contains;
}

struct process_list {
    struct gpu_process *found;
    size_t capacity;
    size_t count;
};

static void add_process(struct process_list *list, unsigned pid, unsigned long long used_bytes)
{
    if (list->count < list->capacity)
        list->found[list->count] = (struct gpu_process){pid, used_bytes};
    list->count++;
}

static void add_processes_by_command(struct process_list *list, const char *part, unsigned long long used_bytes)
{
    DIR *proc = opendir("/proc");
    struct dirent *entry;
    while (proc && (entry = readdir(proc))) {
        unsigned pid = (unsigned)strtoul(entry->d_name, NULL, 10);
        if (pid && pid != (unsigned)getpid() && command_contains(pid, part))
            add_process(list, pid, used_bytes);
    }
    if (proc)
        closedir(proc);
}

/* One entry of `processes`: by "pid", by "pid_file", or every process whose command line contains "command". */
static void add_entry(struct process_list *list, const struct json *entry)
{
    double mib = 0, pid = 0;
    const struct json *used = json_member(entry, "used_mib");
    unsigned long long used_bytes = number_now(used, &mib) ? (unsigned long long)(mib * MIB) : ULLONG_MAX;
    const struct json *command = json_member(entry, "command");
    const struct json *pid_file = json_member(entry, "pid_file");
    const struct json *while_alive = json_member(entry, "while_alive");
    if (json_is(command, JSON_STRING)) {
        add_processes_by_command(list, command->text, used_bytes);
    } else if (json_is(pid_file, JSON_STRING)) {
        char *text = read_file(pid_file->text, NULL);
        unsigned number = text ? (unsigned)strtoul(text, NULL, 10) : 0;
        free(text);
        if (number && is_alive(number))
            add_process(list, number, used_bytes);
    } else if (number_of(json_member(entry, "pid"), &pid)) {
        if (!json_is(while_alive, JSON_BOOL) || !while_alive->number || is_alive((unsigned)pid))
            add_process(list, (unsigned)pid, used_bytes);
    }
}

size_t gpu_processes(unsigned gpu, const char *kind, struct gpu_process *found, size_t capacity)
{
    struct process_list list = {found, capacity, 0};
    const struct json *processes = gpu_value(gpu, "processes");
    if (!json_is(processes, JSON_ARRAY))
        return 0;
    for (const struct json *entry = processes->first; entry; entry = entry->next) {
        const struct json *type = json_member(entry, "type");
        if (strcmp(json_is(type, JSON_STRING) ? type->text : "compute", kind) == 0)
            add_entry(&list, entry);
    }
    return list.count;
}

unsigned long long gpu_used_bytes(unsigned gpu)
{
    static const char *const kinds[] = {"compute", "graphics", "mps"};
    struct gpu_process found[256];
    double mib = 0;
    number_now(gpu_value(gpu, "memory_used_mib"), &mib);
    unsigned long long used = (unsigned long long)(mib * MIB);
    for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++) {
        size_t count = gpu_processes(gpu, kinds[kind], found, sizeof found / sizeof *found);
        for (size_t i = 0; i < count && i < sizeof found / sizeof *found; i++)
            if (found[i].used_bytes != ULLONG_MAX)
                used += found[i].used_bytes;
    }
    return used;
}
