/* nvidia-smi without a driver: the query forms a script uses, answered from the scenario. */
#include "scenario.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int nounits;

static void memory(long long mib) {
    if (mib == UNKNOWN_MEMORY) {
        printf("[N/A]");
    } else {
        printf(nounits ? "%lld" : "%lld MiB", mib);
    }
}

/* One value of one GPU; 0 when there is no such field. */
static int gpu_field(const Scenario *s, int index, const char *field, int print) {
    const Gpu *gpu = &s->gpus[index];
    long long used = scenario_used(s, index);
    static const char *const known[] = {
        "index", "name", "gpu_name", "uuid", "gpu_uuid", "driver_version", "pci.bus_id",
        "memory.total", "memory.reserved", "memory.used", "memory.free", "utilization.gpu",
        "utilization.memory", "temperature.gpu", "power.draw", "enforced.power.limit",
        "mig.mode.current", "gpu_recovery_action", NULL};
    static const char *const actions[] = {"None", "Reset", "Reboot", "Drain P2P", "Drain and Reset"};
    int which = 0;
    while (known[which] != NULL && strcmp(known[which], field) != 0) {
        which++;
    }
    if (known[which] == NULL || !print) {
        return known[which] != NULL;
    }
    if (gpu->lost && which > 5) {
        printf("[GPU is lost]");
        return 1;
    }
    switch (which) {
    case 0: printf("%d", index); break;
    case 1: case 2: printf("%s", gpu->name); break;
    case 3: case 4: printf("%s", gpu->uuid); break;
    case 5: printf("%s", s->driver); break;
    case 6: printf("00000000:%02X:00.0", index * 16 + 1); break;
    case 7: memory(gpu->total); break;
    case 8: memory(gpu->reserved); break;
    case 9: memory(used); break;
    case 10: memory(gpu->total - gpu->reserved - used); break;
    case 11: gpu->mig_mode ? printf("[N/A]") : printf(nounits ? "%d" : "%d %%", gpu->util); break;
    case 12: gpu->mig_mode ? printf("[N/A]") : printf(nounits ? "%d" : "%d %%", gpu->mem_util); break;
    case 13: printf("%d", gpu->temperature); break;
    case 14: printf(nounits ? "%.2f" : "%.2f W", (double)gpu->power / 1000); break;
    case 15: printf(nounits ? "%.2f" : "%.2f W", (double)gpu->power_limit / 1000); break;
    case 16: printf(gpu->mig_mode ? "Enabled" : "Disabled"); break;
    default: printf("%s", gpu->recovery >= 0 && gpu->recovery < 5 ? actions[gpu->recovery] : "Unknown");
    }
    return 1;
}

static void process_name(unsigned pid) {
    char path[64], name[4096] = "";
    snprintf(path, sizeof path, "/proc/%u/cmdline", pid);
    FILE *file = fopen(path, "re");
    size_t got = file == NULL ? 0 : fread(name, 1, sizeof name - 1, file);
    if (file != NULL) {
        fclose(file);
    }
    printf("%s", got == 0 ? "[Not Found]" : name);
}

static int process_field(const Scenario *s, const Proc *proc, const char *field, int print) {
    int is_memory = !strcmp(field, "used_memory") || !strcmp(field, "used_gpu_memory");
    int is_name = !strcmp(field, "process_name") || !strcmp(field, "name");
    int is_uuid = !strcmp(field, "gpu_uuid"), is_pid = !strcmp(field, "pid");
    if (!print) {
        return is_memory || is_name || is_uuid || is_pid;
    }
    if (is_memory) {
        memory(proc->shown);
    } else if (is_name) {
        process_name(proc->pid);
    } else if (is_uuid) {
        printf("%s", s->gpus[proc->gpu].uuid);
    } else {
        printf("%u", proc->pid);
    }
    return 1;
}

/* Rows of a query, or the refusal of its first unknown field. */
static int query(const Scenario *s, const char *fields, int of_processes, int header) {
    char names[32][64];
    int n = 0;
    char *copy = strdup(fields), *rest = copy, *field;
    while (n < 32 && (field = strsep(&rest, ",")) != NULL) {
        snprintf(names[n++], sizeof names[0], "%s", field);
    }
    free(copy);
    for (int i = 0; i < n; i++) {
        if (!(of_processes ? process_field(s, NULL, names[i], 0) : gpu_field(s, 0, names[i], 0))) {
            printf("Field \"%s\" is not a valid field to query.\n\n", names[i]);
            return 2;
        }
    }
    for (int i = 0; header && i < n; i++) {
        printf("%s%s%s", i ? ", " : "", names[i], i == n - 1 ? "\n" : "");
    }
    int rows = of_processes ? s->n_procs : s->n_gpus;
    for (int row = 0; row < rows; row++) {
        if (of_processes ? s->procs[row].graphics : !s->gpus[row].present) {
            continue;
        }
        for (int i = 0; i < n; i++) {
            printf(i ? ", " : "");
            of_processes ? process_field(s, &s->procs[row], names[i], 1)
                         : gpu_field(s, row, names[i], 1);
        }
        printf("\n");
    }
    return 0;
}

int main(int argc, char **argv) {
    Scenario s;
    const char *gpus = NULL, *apps = NULL;
    int header = 1, list = 0;
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], "--query-gpu=", 12) == 0) {
            gpus = argv[i] + 12;
        } else if (strncmp(argv[i], "--query-compute-apps=", 21) == 0) {
            apps = argv[i] + 21;
        } else if (strncmp(argv[i], "--format=", 9) == 0) {
            nounits = strstr(argv[i], "nounits") != NULL;
            header = strstr(argv[i], "noheader") == NULL;
        } else if (strcmp(argv[i], "-L") == 0) {
            list = 1;
        } else {
            printf("ERROR: Option %s is not recognized. Please run 'nvidia-smi -h'.\n\n", argv[i]);
            return 2;
        }
    }
    int code = scenario_read(&s) != 0 ? 9 : scenario_outcome(&s, "init", -1);
    if (code == 0) {
        code = scenario_outcome(&s, "nvidia-smi", -1);
    }
    if (code == 18) {
        printf("Failed to initialize NVML: Driver/library version mismatch\n"
               "NVML library version: %.3s\n", s.driver);
    } else if (code == 9) {
        printf("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n");
    } else if (code != 0) {
        printf("Failed to initialize NVML: Unknown Error\n");
    }
    if (code != 0) {
        return code;
    }
    for (int i = 0; list && i < s.n_gpus; i++) {
        printf("GPU %d: %s (UUID: %s)\n", i, s.gpus[i].name, s.gpus[i].uuid);
    }
    code = gpus != NULL ? query(&s, gpus, 0, header) : 0;
    return code == 0 && apps != NULL ? query(&s, apps, 1, header) : code;
}
