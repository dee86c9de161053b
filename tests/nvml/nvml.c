/* libnvidia-ml.so.1 without a driver: the calls a monitor makes, answered from the scenario.
   Layouts and codes are those of NVIDIA's public nvml.h, as its Python binding declares them. */
#include "scenario.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

typedef int Return;
typedef void *Device;

enum {
    OK = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
    NO_DRIVER = 9, LOST = 15, VERSION_MISMATCH = 25
};

#define MIB (1024ULL * 1024ULL)
#define FIRST_MIG 1000 /* a handle is 1 + index, or FIRST_MIG + index of the mig line */

typedef struct { unsigned long long total, free, used; } Memory;
typedef struct { unsigned version; unsigned long long total, reserved, free, used; } MemoryV2;
typedef struct { unsigned gpu, memory; } Utilization;
typedef struct { unsigned pid; unsigned long long memory; unsigned gpu_instance, compute_instance; } Process;
typedef struct { unsigned pid; unsigned long long memory; } OldProcess;
typedef struct { unsigned pid; unsigned long long time; unsigned sm, mem, enc, dec; } Sample;
typedef struct { unsigned version, sensor; int temperature; } Temperature;
typedef struct {
    char legacy[16]; unsigned domain, bus, device, id, subsystem; char bus_id[32];
} Pci;
typedef union { double d; unsigned u; unsigned long ul; unsigned long long ull; long long sll; int i; } Value;
typedef struct {
    unsigned field, scope; int64_t timestamp, latency; unsigned type; Return status; Value value;
} Field;

static int initialized;

/* The start of every call: the scenario, what it says of this call, and the device it is about. */
static Return begin(Scenario *s, const char *function, Device device, int *gpu, const Mig **mig) {
    uintptr_t handle = (uintptr_t)device;
    if (!initialized) {
        return UNINITIALIZED;
    }
    if (scenario_read(s) != 0) {
        return NO_DRIVER;
    }
    *mig = NULL;
    if (handle >= FIRST_MIG && handle < FIRST_MIG + (uintptr_t)s->n_migs) {
        *mig = &s->migs[handle - FIRST_MIG];
        *gpu = (*mig)->gpu;
    } else {
        *gpu = (int)handle - 1;
    }
    if (*gpu < 0 || *gpu >= s->n_gpus || !s->gpus[*gpu].present) {
        return INVALID;
    }
    Return code = scenario_outcome(s, function, *gpu);
    if (code == OK && s->gpus[*gpu].lost) {
        return LOST;
    }
    return code;
}

#define BEGIN(device)                                              \
    Scenario s;                                                    \
    int gpu;                                                       \
    const Mig *mig;                                                \
    Return code = begin(&s, __func__, (device), &gpu, &mig);       \
    if (code != OK) {                                              \
        return code;                                               \
    }                                                              \
    (void)mig

/* Calls about no device. */
static Return begin_system(Scenario *s, const char *function) {
    if (!initialized) {
        return UNINITIALIZED;
    }
    return scenario_read(s) != 0 ? NO_DRIVER : scenario_outcome(s, function, -1);
}

static Return put(char *into, unsigned size, const char *text) {
    return (unsigned)snprintf(into, size, "%s", text) < size ? OK : TOO_SMALL;
}

static Return init(const char *function) {
    Scenario s;
    if (scenario_read(&s) != 0) {
        return NO_DRIVER;
    }
    Return code = scenario_outcome(&s, function, -1);
    if (code == OK) {
        code = scenario_outcome(&s, "init", -1);
    }
    initialized += code == OK;
    return code;
}

Return nvmlInit_v2(void) { return init(__func__); }
Return nvmlInitWithFlags(unsigned flags) { (void)flags; return init(__func__); }

Return nvmlShutdown(void) {
    if (!initialized) {
        return UNINITIALIZED;
    }
    initialized--;
    return OK;
}

const char *nvmlErrorString(Return code) {
    switch (code) {
    case OK: return "Success";
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case 4: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case NO_DRIVER: return "Driver Not Loaded";
    case LOST: return "GPU is lost";
    case 16: return "GPU requires reset";
    case 18: return "RM has detected an NVML/RM version mismatch.";
    default: return "Unknown Error";
    }
}

Return nvmlSystemGetDriverVersion(char *into, unsigned size) {
    Scenario s;
    Return code = begin_system(&s, __func__);
    return code == OK ? put(into, size, s.driver) : code;
}

Return nvmlSystemGetNVMLVersion(char *into, unsigned size) {
    Scenario s;
    Return code = begin_system(&s, __func__);
    if (code != OK) {
        return code;
    }
    char text[80];
    snprintf(text, sizeof text, "12.%s", s.driver);
    return put(into, size, text);
}

Return nvmlSystemGetCudaDriverVersion_v2(int *into) {
    Scenario s;
    Return code = begin_system(&s, __func__);
    *into = 12080;
    return code;
}
Return nvmlSystemGetCudaDriverVersion(int *into) { return nvmlSystemGetCudaDriverVersion_v2(into); }

Return nvmlSystemGetProcessName(unsigned pid, char *into, unsigned size) {
    Scenario s;
    Return code = begin_system(&s, __func__);
    char path[64], name[64] = "";
    snprintf(path, sizeof path, "/proc/%u/comm", pid);
    FILE *file = code == OK ? fopen(path, "re") : NULL;
    if (file == NULL) {
        return code == OK ? NOT_FOUND : code;
    }
    if (fgets(name, sizeof name, file) != NULL) {
        name[strcspn(name, "\n")] = '\0';
    }
    fclose(file);
    return put(into, size, name);
}

Return nvmlDeviceGetCount_v2(unsigned *into) {
    Scenario s;
    Return code = begin_system(&s, __func__);
    *into = 0;
    for (int i = 0; code == OK && i < s.n_gpus; i++) {
        *into += (unsigned)s.gpus[i].present;
    }
    return code;
}

Return nvmlDeviceGetHandleByIndex_v2(unsigned index, Device *into) {
    Scenario s;
    Return code = begin_system(&s, "");
    if (code == OK && (index >= (unsigned)s.n_gpus || !s.gpus[index].present)) {
        return INVALID;
    }
    if (code == OK) {
        code = scenario_outcome(&s, __func__, (int)index);
    }
    *into = (Device)(uintptr_t)(index + 1);
    return code;
}

Return nvmlDeviceGetHandleByUUID(const char *uuid, Device *into) {
    Scenario s;
    Return code = begin_system(&s, __func__);
    for (int i = 0; code == OK && i < s.n_gpus; i++) {
        if (s.gpus[i].present && strcmp(s.gpus[i].uuid, uuid) == 0) {
            *into = (Device)(uintptr_t)(i + 1);
            return OK;
        }
    }
    return code == OK ? NOT_FOUND : code;
}

/* Calls that give one number. */
#define NUMBER(name, type, expression)         \
    Return name(Device device, type *into) {   \
        BEGIN(device);                         \
        *into = (type)(expression);            \
        return OK;                             \
    }
NUMBER(nvmlDeviceGetIndex, unsigned, gpu)
NUMBER(nvmlDeviceGetMinorNumber, unsigned, gpu)
NUMBER(nvmlDeviceGetPowerUsage, unsigned, s.gpus[gpu].power)
NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned, s.gpus[gpu].power_limit)
NUMBER(nvmlDeviceGetPersistenceMode, unsigned, 1)
NUMBER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, s.gpus[gpu].util > 0 ? 0 : 1) /* bit 0: idle */
NUMBER(nvmlDeviceGetMaxMigDeviceCount, unsigned, s.gpus[gpu].mig_mode ? 7 : 0)
NUMBER(nvmlDeviceIsMigDeviceHandle, unsigned, mig != NULL)

Return nvmlDeviceGetName(Device device, char *into, unsigned size) {
    BEGIN(device);
    return put(into, size, s.gpus[gpu].name);
}

Return nvmlDeviceGetUUID(Device device, char *into, unsigned size) {
    BEGIN(device);
    return put(into, size, mig != NULL ? mig->uuid : s.gpus[gpu].uuid);
}

Return nvmlDeviceGetPciInfo_v3(Device device, Pci *into) {
    BEGIN(device);
    memset(into, 0, sizeof *into);
    into->bus = (unsigned)(gpu * 16 + 1);
    snprintf(into->legacy, sizeof into->legacy, "0000:%02X:00.0", into->bus);
    snprintf(into->bus_id, sizeof into->bus_id, "00000000:%02X:00.0", into->bus);
    return OK;
}

static unsigned long long in_use(const Scenario *s, int gpu, const Mig *mig) {
    return (unsigned long long)(mig != NULL ? mig->used : scenario_used(s, gpu)) * MIB;
}

static unsigned long long size_of(const Scenario *s, int gpu, const Mig *mig) {
    return (unsigned long long)(mig != NULL ? mig->total : s->gpus[gpu].total) * MIB;
}

Return nvmlDeviceGetMemoryInfo(Device device, Memory *into) {
    BEGIN(device);
    /* The first version of the call counts the driver's reserve as used. */
    unsigned long long reserved = mig != NULL ? 0 : (unsigned long long)s.gpus[gpu].reserved * MIB;
    into->total = size_of(&s, gpu, mig);
    into->used = in_use(&s, gpu, mig) + reserved;
    into->free = into->total - into->used;
    return OK;
}

Return nvmlDeviceGetMemoryInfo_v2(Device device, MemoryV2 *into) {
    BEGIN(device);
    if (into->version != (sizeof(MemoryV2) | 2U << 24)) {
        return VERSION_MISMATCH;
    }
    into->total = size_of(&s, gpu, mig);
    into->reserved = mig != NULL ? 0 : (unsigned long long)s.gpus[gpu].reserved * MIB;
    into->used = in_use(&s, gpu, mig);
    into->free = into->total - into->used - into->reserved;
    return OK;
}

Return nvmlDeviceGetUtilizationRates(Device device, Utilization *into) {
    BEGIN(device);
    if (mig != NULL || s.gpus[gpu].mig_mode) {
        return NOT_SUPPORTED;
    }
    into->gpu = (unsigned)s.gpus[gpu].util;
    into->memory = (unsigned)s.gpus[gpu].mem_util;
    return OK;
}

Return nvmlDeviceGetTemperature(Device device, unsigned sensor, unsigned *into) {
    BEGIN(device);
    *into = (unsigned)s.gpus[gpu].temperature;
    return sensor == 0 ? OK : INVALID;
}

Return nvmlDeviceGetTemperatureV(Device device, Temperature *into) {
    BEGIN(device);
    into->temperature = s.gpus[gpu].temperature;
    return into->sensor == 0 ? OK : INVALID;
}

Return nvmlDeviceGetFieldValues(Device device, int count, Field *fields) {
    BEGIN(device);
    for (int i = 0; i < count; i++) {
        fields[i].status = fields[i].field == 230 ? OK : NOT_SUPPORTED; /* 230: recovery action */
        fields[i].type = 1;                                             /* unsigned int */
        fields[i].value.ull = 0;
        fields[i].value.u = (unsigned)s.gpus[gpu].recovery;
    }
    return OK;
}

static unsigned long long shown(const Proc *proc) {
    return proc->shown == UNKNOWN_MEMORY ? ~0ULL : (unsigned long long)proc->shown * MIB;
}

/* The list of one kind; `old` is the layout that some drivers wrongly gave for the newer calls. */
static Return processes(const Scenario *s, int gpu, int graphics, int old, unsigned *count, void *into) {
    unsigned room = *count, found = 0;
    for (int i = 0; i < s->n_procs; i++) {
        const Proc *proc = &s->procs[i];
        /* 2 is a client of MPS, which stands on the list of compute processes too. */
        if (proc->gpu != gpu || (proc->graphics != graphics && !(proc->graphics == 2 && graphics == 0))) {
            continue;
        }
        if (found < room && into != NULL && old) {
            ((OldProcess *)into)[found] = (OldProcess){proc->pid, shown(proc)};
        } else if (found < room && into != NULL) {
            unsigned instance = (unsigned)proc->instance;
            ((Process *)into)[found] = (Process){proc->pid, shown(proc), instance, instance};
        }
        found++;
    }
    *count = found;
    return found > room ? TOO_SMALL : OK;
}

#define PROCESS_LIST(name, graphics)                                          \
    Return name(Device device, unsigned *count, void *into) {                 \
        BEGIN(device);                                                        \
        return processes(&s, gpu, (graphics), s.gpus[gpu].old_layout, count, into); \
    }
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v3, 0)
PROCESS_LIST(nvmlDeviceGetComputeRunningProcesses_v2, 0)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, 1)
PROCESS_LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, 1)
PROCESS_LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, 2)

Return nvmlDeviceGetProcessUtilization(Device device, Sample *into, unsigned *count, unsigned long long since) {
    BEGIN(device);
    unsigned room = *count, found = 0;
    for (int i = 0; i < s.n_procs; i++) {
        if (s.procs[i].gpu == gpu && s.procs[i].util > 0) {
            if (found < room && into != NULL) {
                into[found] = (Sample){s.procs[i].pid, since + 1, (unsigned)s.procs[i].util, 0, 0, 0};
            }
            found++;
        }
    }
    *count = found;
    return found == 0 ? NOT_FOUND : found > room ? TOO_SMALL : OK;
}

Return nvmlDeviceGetMigMode(Device device, unsigned *current, unsigned *pending) {
    BEGIN(device);
    *current = *pending = (unsigned)s.gpus[gpu].mig_mode;
    return OK;
}

Return nvmlDeviceGetMigDeviceHandleByIndex(Device device, unsigned index, Device *into) {
    BEGIN(device);
    for (int i = 0; i < s.n_migs; i++) {
        if (s.migs[i].gpu == gpu && s.migs[i].slot == (int)index) {
            *into = (Device)(uintptr_t)(FIRST_MIG + i);
            return OK;
        }
    }
    return NOT_FOUND;
}

Return nvmlDeviceGetDeviceHandleFromMigDeviceHandle(Device device, Device *into) {
    BEGIN(device);
    *into = (Device)(uintptr_t)(gpu + 1);
    return mig != NULL ? OK : INVALID;
}

Return nvmlDeviceGetGpuInstanceId(Device device, unsigned *into) {
    BEGIN(device);
    *into = mig != NULL ? (unsigned)mig->slot : 0;
    return mig != NULL ? OK : INVALID;
}
