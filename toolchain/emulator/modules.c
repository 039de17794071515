// Fat binaries and kernels. See modules.h.
//
// A fat binary that holds machine code is known by its sha256: the index beside the library of kernels
// says which unit was made from the same device IR. A program that was compiled without device code (a
// stand-in in its place) is known by the names of its kernels.

#include "platform.h" // first: it asks for what POSIX hides

#include "modules.h"
#include "sha256.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct module {
    const void * data;
    const struct qe_unit * unit;
    int searched;
};

struct index_row {
    char unit[64];
    char sha256[65];
};

struct usage_row {
    char * name;
    int registers, local_bytes;
};

static struct module * modules[1024];
static uint32_t module_count;
static struct qe_function ** functions;
static uint32_t function_count, function_room;
static uint32_t * slots, slot_count; // hash table: host address -> function + 1
static struct index_row * rows;
static uint32_t row_count;
static struct usage_row * usages; // sorted by name, as qbuild writes them
static uint32_t usage_count, usage_room;
static const struct qe_library * library;
static int opened;
static char kernels_path[4096];
static qe_mutex mutex = QE_MUTEX;

static void load_index(void) {
    char path[4200];
    snprintf(path, sizeof path, "%s.index", kernels_path);
    FILE * file = fopen(path, "r");
    if (file == NULL) {
        return;
    }
    char line[4096], name[4000];
    while (fgets(line, sizeof line, file)) {
        struct index_row row;
        struct usage_row usage;
        if (sscanf(line, "unit %63s %64s", row.unit, row.sha256) == 2) {
            struct index_row * more = realloc(rows, (row_count + 1) * sizeof *rows);
            if (more == NULL) {
                break;
            }
            rows = more;
            rows[row_count++] = row;
        } else if (sscanf(line, "kernel %d %d %3999s", &usage.registers, &usage.local_bytes, name) == 3) {
            if (usage_count == usage_room) {
                usage_room = usage_room ? usage_room * 2 : 4096;
                struct usage_row * more = realloc(usages, usage_room * sizeof *usages);
                if (more == NULL) {
                    break;
                }
                usages = more;
            }
            usage.name = malloc(strlen(name) + 1);
            if (usage.name == NULL) {
                break;
            }
            strcpy(usage.name, name);
            usages[usage_count++] = usage;
        }
    }
    fclose(file);
}

static void open_library(void) {
    if (opened) {
        return;
    }
    opened = 1;
    const char * named = getenv("QBUILD_EMULATOR_KERNELS");
    if (named && *named) {
        snprintf(kernels_path, sizeof kernels_path, "%s", named);
    } else {
        qe_own_folder(kernels_path, sizeof kernels_path - 64, (const void *) &mutex);
        char * slash = strrchr(kernels_path, '/'), * back = strrchr(kernels_path, '\\');
        slash = back > slash ? back : slash;
        strcpy(slash ? slash + 1 : kernels_path, KERNELS_FILE);
    }
    void * handle = qe_open(kernels_path);
    const struct qe_library * found = handle ? qe_symbol(handle, "qe_library") : NULL;
    if (found == NULL || found->format != QE_FORMAT) {
        fprintf(stderr, "emulated GPU: %s: %s\n", kernels_path,
                handle == NULL ? "no such library of kernels" : "not a library of kernels of this version");
        return;
    }
    library = found;
    load_index();
    atexit(qe_report);
}

void * qe_register_module(const void * wrapper) {
    // struct { int magic 0x466243b1; int version; const void * data; void * file; }
    struct module * m = calloc(1, sizeof *m);
    if (m == NULL || module_count == sizeof modules / sizeof *modules) {
        abort();
    }
    memcpy(&m->data, (const char *) wrapper + 8, sizeof m->data);
    modules[module_count++] = m;
    return m;
}

static uint32_t slot_of(const void * host) {
    uint64_t x = (uint64_t) (uintptr_t) host * 0x9e3779b97f4a7c15ull;
    return (uint32_t) (x >> 32) & (slot_count - 1);
}

static void put(uint32_t number) {
    uint32_t at = slot_of(functions[number]->host);
    while (slots[at]) {
        at = (at + 1) & (slot_count - 1);
    }
    slots[at] = number + 1;
}

void qe_register_function(void * module, const void * host, const char * name) {
    qe_lock(&mutex);
    if (function_count == function_room) {
        function_room = function_room ? function_room * 2 : 4096;
        functions = realloc(functions, function_room * sizeof *functions);
        free(slots);
        slot_count = function_room * 2;
        slots = calloc(slot_count, sizeof *slots);
        if (functions == NULL || slots == NULL) {
            abort();
        }
        for (uint32_t i = 0; i < function_count; i++) {
            put(i);
        }
    }
    struct qe_function * f = calloc(1, sizeof *f);
    if (f == NULL) {
        abort();
    }
    f->host = host;
    f->name = name;
    f->module = module;
    functions[function_count] = f;
    put(function_count++);
    qe_unlock(&mutex);
}

static const struct qe_kernel * kernel_named(const struct qe_unit * unit, const char * name) {
    for (uint32_t i = 0; i < unit->count; i++) {
        if (!strcmp(unit->kernels[i].name, name)) {
            return &unit->kernels[i];
        }
    }
    return NULL;
}

static int holds_all(const struct qe_unit * unit, const struct module * m) {
    for (uint32_t i = 0; i < function_count; i++) {
        if (functions[i]->module == m && !kernel_named(unit, functions[i]->name)) {
            return 0;
        }
    }
    return 1;
}

static void find_unit(struct module * m) {
    m->searched = 1;
    uint32_t magic;
    memcpy(&magic, m->data, sizeof magic);
    char hex[65] = "";
    if (magic == 0xba55ed50u) {
        uint16_t header;
        uint64_t body;
        memcpy(&header, (const char *) m->data + 6, sizeof header);
        memcpy(&body, (const char *) m->data + 8, sizeof body);
        qe_sha256(m->data, header + body, hex);
    }
    for (uint32_t u = 0; u < library->count; u++) {
        const struct qe_unit * unit = library->units[u];
        int same = magic != 0xba55ed50u;
        for (uint32_t i = 0; i < row_count && !same; i++) {
            same = !strcmp(rows[i].unit, unit->name) && !strcmp(rows[i].sha256, hex);
        }
        if (same && holds_all(unit, m)) {
            m->unit = unit;
            return;
        }
    }
    if (*hex) {
        fprintf(stderr, "emulated GPU: no kernels are prepared for the fat binary %s\n", hex);
    }
}

static void find_usage(struct qe_function * f) {
    uint32_t low = 0, high = usage_count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = strcmp(usages[middle].name, f->name);
        if (order == 0) {
            f->registers = usages[middle].registers;
            f->local_bytes = usages[middle].local_bytes;
            return;
        }
        if (order < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
}

struct qe_function * qe_function_of(const void * host) {
    struct qe_function * f = NULL;
    qe_lock(&mutex);
    open_library();
    if (library && slot_count) {
        for (uint32_t at = slot_of(host); slots[at]; at = (at + 1) & (slot_count - 1)) {
            if (functions[slots[at] - 1]->host == host) {
                f = functions[slots[at] - 1];
                break;
            }
        }
    }
    if (f && f->kernel == NULL) {
        struct module * m = f->module;
        if (!m->searched) {
            find_unit(m);
        }
        f->unit = m->unit;
        f->kernel = m->unit ? kernel_named(m->unit, f->name) : NULL;
        if (f->kernel == NULL) {
            fprintf(stderr, "emulated GPU: kernel %s is not prepared\n", f->name);
            f = NULL;
        } else {
            find_usage(f);
        }
    }
    qe_unlock(&mutex);
    return f;
}

int qe_run_kernel(const struct qe_launch * launch, const struct qe_options * options) {
    static qe_mutex one = QE_MUTEX; // a device runs one kernel at a time, whoever launched it
    qe_lock(&one);
    int failed = library->run(launch, options);
    qe_unlock(&one);
    return failed;
}

static FILE * open_report(void) {
    const char * path = getenv("QBUILD_EMULATOR_REPORT");
    return path && *path ? fopen(path, "a") : NULL;
}

void qe_report_first(const struct qe_function * f) {
    FILE * file = open_report();
    if (file) {
        fprintf(file, "%s\t%s\t0\t0\t0\t0\n", f->unit->name, f->name);
        fclose(file);
    }
}

void qe_report(void) {
    FILE * file = open_report();
    if (file == NULL) {
        return;
    }
    for (uint32_t i = 0; i < function_count; i++) {
        const struct qe_function * f = functions[i];
        if (f->launches) {
            fprintf(file, "%s\t%s\t%llu\t%llu\t%llu\t%.6f\n", f->unit->name, f->name, (unsigned long long) f->launches,
                    (unsigned long long) f->blocks, (unsigned long long) f->threads, f->seconds);
        }
    }
    fclose(file);
}
