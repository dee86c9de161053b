#define _GNU_SOURCE
#include "scenario.h"

#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* $SPECOPS_NVML_SCENARIO, else the file nvml-scenario beside this library or program. */
static int scenario_path(char *into, size_t size) {
    const char *named = getenv("SPECOPS_NVML_SCENARIO");
    if (named != NULL && *named != '\0') {
        return snprintf(into, size, "%s", named) < (int)size ? 0 : -1;
    }
    Dl_info here;
    char real[PATH_MAX];
    /* A program's own name may be a bare word, found on the PATH. */
    const char *self = "/proc/self/exe";
#ifndef PROGRAM
    if (dladdr((void *)scenario_path, &here) == 0) {
        return -1;
    }
    self = here.dli_fname;
#else
    (void)here;
#endif
    if (realpath(self, real) == NULL) {
        return -1;
    }
    char *slash = strrchr(real, '/');
    *slash = '\0';
    return snprintf(into, size, "%s/nvml-scenario", real) < (int)size ? 0 : -1;
}

/* State letter and start ticks from a stat file; 0 when it cannot be read. */
static char stat_state(const char *path, unsigned long long *start) {
    char text[1024];
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) {
        return 0;
    }
    text[got] = '\0';
    char *after = strrchr(text, ')');
    if (after == NULL) {
        return 0;
    }
    char state = after[2];
    char *field = after + 2;
    for (int i = 3; i < 22 && field != NULL; i++) {
        field = strchr(field + 1, ' ');
    }
    *start = field == NULL ? 0 : strtoull(field + 1, NULL, 10);
    return state;
}

/* Whether any thread of this very process still runs: memory is freed when the last one goes. */
static int holds(unsigned pid, unsigned long long start) {
    char path[PATH_MAX];
    unsigned long long began = 0;
    snprintf(path, sizeof path, "/proc/%u/stat", pid);
    char state = stat_state(path, &began);
    if (state == 0 || (start != 0 && began != start)) {
        return 0;
    }
    if (state != 'Z' && state != 'X') {
        return 1;
    }
    snprintf(path, sizeof path, "/proc/%u/task", pid);
    DIR *tasks = opendir(path);
    if (tasks == NULL) {
        return 0;
    }
    int alive = 0;
    struct dirent *task;
    while (!alive && (task = readdir(tasks)) != NULL) {
        if (task->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof path, "/proc/%u/task/%.20s/stat", pid, task->d_name);
        state = stat_state(path, &began);
        alive = state != 0 && state != 'Z' && state != 'X';
    }
    closedir(tasks);
    return alive;
}

/* Whether the driver is still freeing: less than `lag` seconds since it was first seen gone. */
static int lingers(const char *scenario, unsigned pid, double lag) {
    char mark[PATH_MAX];
    struct stat seen;
    struct timespec now;
    if (lag <= 0) {
        return 0;
    }
    if (snprintf(mark, sizeof mark, "%s.gone.%u", scenario, pid) >= (int)sizeof mark) {
        return 0;
    }
    int fd = open(mark, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
    }
    if (stat(mark, &seen) != 0) {
        return 0;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    double age = difftime(now.tv_sec, seen.st_mtim.tv_sec) +
                 (double)(now.tv_nsec - seen.st_mtim.tv_nsec) / 1e9;
    return age < lag;
}

/* The value of KEY= in the rest of a line, or NULL. `name=` takes all to the line's end. */
static const char *option(char *line, const char *key, char *into, size_t size) {
    size_t length = strlen(key);
    for (char *at = line; (at = strstr(at, key)) != NULL; at += length) {
        if ((at == line || at[-1] == ' ') && at[length] == '=') {
            const char *value = at + length + 1;
            size_t end = strcmp(key, "name") == 0 ? strlen(value) : strcspn(value, " ");
            snprintf(into, size, "%.*s", (int)end, value);
            return into;
        }
    }
    return NULL;
}

static long long number(char *line, const char *key, long long otherwise) {
    char text[64];
    if (option(line, key, text, sizeof text) == NULL) {
        return otherwise;
    }
    return strcmp(text, "N/A") == 0 ? UNKNOWN_MEMORY : strtoll(text, NULL, 10);
}

static void read_gpu(Scenario *into, char *line) {
    int index = atoi(line);
    if (index < 0 || index >= MAX_GPUS) {
        return;
    }
    Gpu *gpu = &into->gpus[index];
    gpu->present = 1;
    gpu->lost = (int)number(line, "lost", 0);
    gpu->mig_mode = (int)number(line, "mig", 0);
    gpu->util = (int)number(line, "util", 0);
    gpu->mem_util = (int)number(line, "mem_util", 0);
    gpu->temperature = (int)number(line, "temp", 30);
    gpu->recovery = (int)number(line, "recovery", 0);
    gpu->old_layout = (int)number(line, "old_layout", 0);
    gpu->total = number(line, "total", 143771);
    gpu->reserved = number(line, "reserved", 601);
    gpu->used = number(line, "used", 0);
    gpu->power = number(line, "power", 76000);
    gpu->power_limit = number(line, "power_limit", 700000);
    if (option(line, "uuid", gpu->uuid, sizeof gpu->uuid) == NULL) {
        snprintf(gpu->uuid, sizeof gpu->uuid, "GPU-00000000-0000-0000-0000-%012d", index);
    }
    if (option(line, "name", gpu->name, sizeof gpu->name) == NULL) {
        snprintf(gpu->name, sizeof gpu->name, "NVIDIA H200");
    }
    if (index >= into->n_gpus) {
        into->n_gpus = index + 1;
    }
}

static void read_mig(Scenario *into, char *line) {
    if (into->n_migs == MAX_MIGS) {
        return;
    }
    Mig *mig = &into->migs[into->n_migs++];
    sscanf(line, "%d %d", &mig->gpu, &mig->slot);
    mig->total = number(line, "total", 18000);
    mig->used = number(line, "used", 0);
    if (option(line, "uuid", mig->uuid, sizeof mig->uuid) == NULL) {
        snprintf(mig->uuid, sizeof mig->uuid, "MIG-00000000-0000-0000-0000-%06d%06d", mig->gpu,
                 mig->slot);
    }
}

static void read_proc(Scenario *into, char *line, const char *path, int elsewhere) {
    Proc proc = {.instance = -1};
    if (into->n_procs == MAX_PROCS ||
        sscanf(line, "%d %u %lld", &proc.gpu, &proc.pid, &proc.held) != 3) {
        return;
    }
    char lag[32] = "0";
    option(line, "lag", lag, sizeof lag);
    unsigned long long start = (unsigned long long)number(line, "start", 0);
    if (!elsewhere && !holds(proc.pid, start) && !lingers(path, proc.pid, strtod(lag, NULL))) {
        return;
    }
    proc.shown = number(line, "shown", proc.held);
    proc.graphics = (int)number(line, "graphics", 0);
    proc.instance = (int)number(line, "instance", -1);
    proc.util = (int)number(line, "util", 0);
    into->procs[into->n_procs++] = proc;
}

static void read_rule(Scenario *into, char *line, int hangs) {
    Rule rule = {.gpu = -1};
    char gpu[16] = "*", value[32] = "0";
    if (into->n_rules == MAX_RULES || sscanf(line, "%79s %15s %31s", rule.function, gpu, value) != 3) {
        return;
    }
    rule.gpu = strcmp(gpu, "*") == 0 ? -1 : atoi(gpu);
    if (hangs) {
        rule.seconds = strtod(value, NULL);
    } else {
        rule.code = atoi(value);
    }
    into->rules[into->n_rules++] = rule;
}

int scenario_read(Scenario *into) {
    char path[PATH_MAX], line[1024];
    memset(into, 0, sizeof *into);
    snprintf(into->driver, sizeof into->driver, "570.124.06");
    if (scenario_path(path, sizeof path) != 0) {
        return -1;
    }
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return -1;
    }
    while (fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        char *rest = strchr(line, ' ');
        if (line[0] == '#' || rest == NULL) {
            continue;
        }
        *rest++ = '\0';
        if (strcmp(line, "driver") == 0) {
            snprintf(into->driver, sizeof into->driver, "%.60s", rest);
        } else if (strcmp(line, "gpu") == 0) {
            read_gpu(into, rest);
        } else if (strcmp(line, "mig") == 0) {
            read_mig(into, rest);
        } else if (strcmp(line, "proc") == 0) {
            read_proc(into, rest, path, 0);
        } else if (strcmp(line, "elsewhere") == 0) {
            read_proc(into, rest, path, 1);
        } else if (strcmp(line, "fail") == 0) {
            read_rule(into, rest, 0);
        } else if (strcmp(line, "hang") == 0) {
            read_rule(into, rest, 1);
        }
    }
    fclose(file);
    return 0;
}

int scenario_outcome(const Scenario *in, const char *function, int gpu) {
    int code = 0;
    for (int i = 0; i < in->n_rules; i++) {
        const Rule *rule = &in->rules[i];
        if (strcmp(rule->function, function) != 0 || (rule->gpu != -1 && rule->gpu != gpu)) {
            continue;
        }
        if (rule->seconds > 0) {
            struct timespec pause = {(time_t)rule->seconds,
                                     (long)((rule->seconds - (double)(time_t)rule->seconds) * 1e9)};
            nanosleep(&pause, NULL);
        } else if (code == 0) {
            code = rule->code;
        }
    }
    return code;
}

long long scenario_used(const Scenario *in, int gpu) {
    long long used = in->gpus[gpu].used;
    for (int i = 0; i < in->n_procs; i++) {
        if (in->procs[i].gpu == gpu) {
            used += in->procs[i].held;
        }
    }
    return used;
}
