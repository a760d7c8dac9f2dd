// NVML without a GPU, for tests. It knows two GPUs: `GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadaeNN`, where NN is 00 or 01, at
// the PCI addresses 00000002:3b:05.0 and 00000002:3c:05.0. The numbers of its devices are the other way round.
//
// Readings of GPU NN change with each call: they are a row of `figures` each, the last one from then on.
//
//   NVML_MOCK_POWER=CODE         power draw is refused with this code
//   NVML_MOCK_WITHOUT_POWER      the function for it is missing
//   NVML_MOCK_WITHOUT_UUID       no GPU is found by its UUID
//   NVML_MOCK_INIT=CODE          the library cannot be initialised
// are macros: NVML reads no environment.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6 };

typedef int Result;

typedef struct Device {
    char uuid[48], address[24];
    unsigned calls[4];
} Device;

// Percent, bytes, milliwatts, degrees.
static const uint64_t figures[2][3][4] = {
    {{50, 2000000000, 250000, 40}, {100, 6000000000, 650500, 61}, {60, 4000000000, 300000, 55}},
    {{1, 1, 1000, 1}, {1, 1, 1000, 1}, {1, 1, 1000, 1}},
};

static Device devices[2];

static uint64_t next(Device *device, int figure) {
    unsigned call = device->calls[figure]++;
    return figures[device - devices][call < 3 ? call : 2][figure];
}

Result nvmlInit_v2(void) {
#ifdef NVML_MOCK_INIT
    return NVML_MOCK_INIT;
#endif
    for (int i = 0; i < 2; i++) {
        devices[i] = (Device){0};
        snprintf(devices[i].uuid, sizeof devices[i].uuid, "GPU-a0a1a2a3-a4a5-a6a7-a8a9-aaabacadae%02d", i);
        snprintf(devices[i].address, sizeof devices[i].address, "00000002:%02x:05.0", 0x3b + i);
    }
    return SUCCESS;
}

Result nvmlShutdown(void) {
    return SUCCESS;
}

const char *nvmlErrorString(Result result) {
    (void)result;
    return "an error of the mock";
}

static Result find(const char *text, size_t offset, Device **found) {
    for (int i = 0; i < 2; i++) {
        if (strcmp((const char *)&devices[i] + offset, text) == 0) {
            *found = &devices[i];
            return SUCCESS;
        }
    }
    return NOT_FOUND;
}

Result nvmlDeviceGetHandleByUUID(const char *uuid, Device **found) {
#ifdef NVML_MOCK_WITHOUT_UUID
    return NOT_FOUND;
#endif
    return find(uuid, offsetof(Device, uuid), found);
}

Result nvmlDeviceGetHandleByPciBusId_v2(const char *address, Device **found) {
    return find(address, offsetof(Device, address), found);
}

Result nvmlDeviceGetHandleByIndex_v2(unsigned index, Device **found) {
    if (index > 1)
        return INVALID_ARGUMENT;
    *found = &devices[1 - index];
    return SUCCESS;
}

typedef struct Utilization {
    unsigned gpu, memory;
} Utilization;

Result nvmlDeviceGetUtilizationRates(Device *device, Utilization *rates) {
    *rates = (Utilization){(unsigned)next(device, 0), 7};
    return SUCCESS;
}

typedef struct Memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
} Memory;

Result nvmlDeviceGetMemoryInfo_v2(Device *device, Memory *memory) {
    if (memory->version != (sizeof(Memory) | 2u << 24))
        return INVALID_ARGUMENT;
    memory->total = 80000000000;
    memory->reserved = 500000000;
    memory->used = next(device, 1);
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

#ifndef NVML_MOCK_WITHOUT_POWER
Result nvmlDeviceGetPowerUsage(Device *device, unsigned *milliwatts) {
#ifdef NVML_MOCK_POWER
    (void)device, (void)milliwatts;
    return NVML_MOCK_POWER;
#endif
    *milliwatts = (unsigned)next(device, 2);
    return SUCCESS;
}
#endif

Result nvmlDeviceGetTemperature(Device *device, int sensor, unsigned *degrees) {
    if (sensor != 0)
        return INVALID_ARGUMENT;
    *degrees = (unsigned)next(device, 3);
    return SUCCESS;
}
