/* What the pretended driver knows: read from the scenario file anew on every call. */
#ifndef SCENARIO_H
#define SCENARIO_H

#include <stddef.h>

#define MAX_GPUS 16
#define MAX_MIGS 8
#define MAX_PROCS 512
#define MAX_RULES 64
#define UNKNOWN_MEMORY (-1LL)

typedef struct {
    int present, lost, mig_mode, util, mem_util, temperature, recovery, old_layout;
    long long total, reserved, used, power, power_limit; /* MiB, milliwatts */
    char uuid[96], name[96];
} Gpu;

typedef struct {
    int gpu, slot;
    long long total, used;
    char uuid[96];
} Mig;

/* A process that holds memory; `shown` is what NVML admits for it. */
typedef struct {
    int gpu;
    unsigned pid;
    long long held, shown; /* MiB */
    int graphics, instance, util;
} Proc;

typedef struct {
    char function[80];
    int gpu; /* -1: every one */
    int code;
    double seconds;
} Rule;

typedef struct {
    char driver[64];
    Gpu gpus[MAX_GPUS];
    Mig migs[MAX_MIGS];
    Proc procs[MAX_PROCS];
    Rule rules[MAX_RULES];
    int n_gpus, n_migs, n_procs, n_rules;
} Scenario;

/* 0, or -1 when there is no scenario: no driver then. */
int scenario_read(Scenario *into);

/* Sleeps as the scenario says for this function and GPU, then gives its error code, 0 if none. */
int scenario_outcome(const Scenario *in, const char *function, int gpu);

/* MiB in use on a GPU without what the driver reserves. */
long long scenario_used(const Scenario *in, int gpu);

#endif
