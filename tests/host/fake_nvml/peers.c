/* How GPUs and CPUs are connected. */
#include <limits.h>
#include <string.h>

#include "answers.h"

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

/* `fabric`: {"state": 3, "status": 0}, how far the GPU has come with registering at the NVSwitches: 0 there are none, 1 not
 * started, 2 in progress, 3 completed, and how that ended. The state is one byte, as in nvml.h. */
struct fabric {
    unsigned char cluster_uuid[16];
    nvmlReturn_t status;
    unsigned clique;
    unsigned char state;
};

struct fabric_v2 { /* pynvml's _v2_t; the same function takes _v3_t, which ends with a byte more */
    unsigned version;
    unsigned char cluster_uuid[16];
    nvmlReturn_t status;
    unsigned clique;
    unsigned char state;
    unsigned health;
};

static nvmlReturn_t give_fabric(unsigned gpu, unsigned char *state, nvmlReturn_t *status)
{
    const struct json *fabric = gpu_value(gpu, "fabric");
    unsigned number = 0, ended = 0;
    nvmlReturn_t result = give_uint(json_member(fabric, "state"), &number);
    if (!result)
        result = give_uint(json_member(fabric, "status"), &ended);
    *state = (unsigned char)number;
    *status = (nvmlReturn_t)ended;
    return result;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, struct fabric *fabric)
{
    BEGIN_DEVICE;
    return fabric ? give_fabric(gpu, &fabric->state, &fabric->status) : NVML_ERROR_INVALID_ARGUMENT;
}

API nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, struct fabric_v2 *fabric)
{
    BEGIN_DEVICE;
    if (!fabric)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (fabric->version != (2u << 24 | sizeof *fabric) && fabric->version != (3u << 24 | (sizeof *fabric + 4)))
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    return give_fabric(gpu, &fabric->state, &fabric->status);
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
