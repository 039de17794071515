// Emulated devices and their memory. See device.h.

#include "platform.h" // first: it asks for what POSIX hides

#include "device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    ALIGN    = 256,          // as cudaMalloc's
    RED_ZONE = 512,          // between two allocations
    CONTEXT_BYTES = 96 << 20,     // what a CUDA context takes of the card
};

struct allocation {
    char * at;
    size_t bytes;            // as asked for
    int device;              // -1: pinned host memory
    void * raw;
};

static struct qe_device devices[QE_MAX_DEVICES];
static int device_count = -1;
static struct allocation * table; // sorted by address
static size_t used, room;
static qe_mutex mutex = QE_MUTEX;

// NVIDIA, CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; the card's
// own figures from its data sheet. qbuild passes those of other GPUs.
static const char standard[] =
    "name=GTX 1060;cc=6.1;sms=10;memory=6144;shared=48;optin=48;sm_shared=96;threads=2048;blocks=32;"
    "clock=1708;memory_clock=4004;bus=192;l2=1536";

static void set(struct qe_device * d, const char * key, const char * value) {
    double number = atof(value);
    if (!strcmp(key, "name")) {
        snprintf(d->name, sizeof d->name, "%s (emulated)", value);
    } else if (!strcmp(key, "cc")) {
        sscanf(value, "%d.%d", &d->major, &d->minor);
    } else if (!strcmp(key, "sms")) {
        d->multiprocessors = (int) number;
    } else if (!strcmp(key, "memory")) {
        d->memory = (size_t) (number * 1048576);
    } else if (!strcmp(key, "shared")) {
        d->shared = (size_t) (number * 1024);
    } else if (!strcmp(key, "optin")) {
        d->shared_optin = (size_t) (number * 1024);
    } else if (!strcmp(key, "sm_shared")) {
        d->shared_per_multiprocessor = (size_t) (number * 1024);
    } else if (!strcmp(key, "threads")) {
        d->threads_per_multiprocessor = (int) number;
    } else if (!strcmp(key, "blocks")) {
        d->blocks_per_multiprocessor = (int) number;
    } else if (!strcmp(key, "clock")) {
        d->clock_khz = (int) (number * 1000);
    } else if (!strcmp(key, "memory_clock")) {
        d->memory_clock_khz = (int) (number * 1000);
    } else if (!strcmp(key, "bus")) {
        d->bus_bits = (int) number;
    } else if (!strcmp(key, "l2")) {
        d->l2 = (int) (number * 1024);
    } else {
        fprintf(stderr, "emulated GPU: QBUILD_EMULATED_GPU: what is %s?\n", key);
        exit(2);
    }
}

static void describe(struct qe_device * d, const char * text) {
    char words[512];
    snprintf(words, sizeof words, "%s", text);
    for (char * part = words, * next; part && *part; part = next) {
        next = strchr(part, ';');
        if (next) {
            *next++ = 0;
        }
        char * value = strchr(part, '=');
        if (value) {
            *value++ = 0;
            set(d, part, value);
        }
    }
}

int qe_devices(struct qe_device ** found) {
    qe_lock(&mutex);
    if (device_count < 0) {
        const char * text = getenv("QBUILD_EMULATED_GPU");
        char words[QE_MAX_DEVICES * 512];
        snprintf(words, sizeof words, "%s", text && *text ? text : standard);
        device_count = 0;
        for (char * part = words, * next; part && *part && device_count < QE_MAX_DEVICES; part = next) {
            next = strchr(part, '|');
            if (next) {
                *next++ = 0;
            }
            struct qe_device * d = &devices[device_count++];
            describe(d, standard);
            describe(d, part);
            d->arena = qe_reserve(d->memory);
            d->used  = CONTEXT_BYTES;
            if (d->arena == NULL) {
                fprintf(stderr, "emulated GPU: no address space for %zu bytes of %s\n", d->memory, d->name);
                exit(2);
            }
        }
    }
    qe_unlock(&mutex);
    *found = devices;
    return device_count;
}

// The first entry at or behind an address.
static size_t place(const char * address) {
    size_t low = 0, high = used;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (table[middle].at < address) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static int insert(struct allocation new) {
    if (used == room) {
        size_t more = room ? room * 2 : 256;
        struct allocation * bigger = realloc(table, more * sizeof *table);
        if (bigger == NULL) {
            return 0;
        }
        table = bigger;
        room  = more;
    }
    size_t at = place(new.at);
    memmove(&table[at + 1], &table[at], (used - at) * sizeof *table);
    table[at] = new;
    used++;
    return 1;
}

static size_t taken(size_t bytes) { return ((bytes + ALIGN - 1) & ~(size_t) (ALIGN - 1)) + RED_ZONE; }

void * qe_device_alloc(int device, size_t bytes) {
    struct qe_device * d = &devices[device];
    size_t need = taken(bytes);
    void * result = NULL;
    qe_lock(&mutex);
    if (bytes <= d->memory && d->used + need <= d->memory) {
        char * at = d->arena + RED_ZONE, * end = d->arena + d->memory;
        for (size_t i = place(d->arena); i <= used; i++) {
            char * stop = i < used && table[i].at < end ? table[i].at - RED_ZONE : end - RED_ZONE;
            if (at <= stop && (size_t) (stop - at) >= need - RED_ZONE) {
                if (qe_commit(at, need) && insert((struct allocation) { at, bytes, device, NULL })) {
                    d->used += need;
                    result = at;
                }
                break;
            }
            if (i == used || table[i].at >= end) {
                break;
            }
            at = table[i].at + taken(table[i].bytes);
        }
    }
    qe_unlock(&mutex);
    return result;
}

static int take_out(void * address, int host) {
    qe_lock(&mutex);
    size_t at = place(address);
    int found = at < used && table[at].at == address && (table[at].device < 0) == host;
    if (found) {
        struct allocation a = table[at];
        memmove(&table[at], &table[at + 1], (used - at - 1) * sizeof *table);
        used--;
        if (host) {
            free(a.raw);
        } else {
            devices[a.device].used -= taken(a.bytes);
            qe_release(a.at, a.bytes);
        }
    }
    qe_unlock(&mutex);
    return !found;
}

int qe_device_free(void * address) { return take_out(address, 0); }
int qe_host_free(void * address) { return take_out(address, 1); }

void * qe_host_alloc(size_t bytes) {
    char * raw = malloc(bytes + 2 * 4096);
    if (raw == NULL) {
        return NULL;
    }
    char * at = (char *) (((uintptr_t) raw + 4095) & ~(uintptr_t) 4095);
    qe_lock(&mutex);
    int kept = insert((struct allocation) { at, bytes, -1, raw });
    qe_unlock(&mutex);
    if (!kept) {
        free(raw);
        return NULL;
    }
    return at;
}

int qe_device_of(const void * address) {
    for (int i = 0; i < device_count; i++) {
        if ((const char *) address >= devices[i].arena && (const char *) address < devices[i].arena + devices[i].memory) {
            return i;
        }
    }
    return -1;
}

const char * qe_memory_check(const void * address, size_t bytes, int write, char * words, size_t words_room) {
    int device = qe_device_of(address);
    if (device < 0) {
        return NULL;
    }
    const char * p = address, * result = NULL;
    qe_lock(&mutex);
    size_t next = place(p + 1), before = next;
    const struct allocation * a = before > 0 && table[before - 1].device == device ? &table[before - 1] : NULL;
    if (a == NULL || p + bytes > a->at + a->bytes) {
        const char * verb = write ? "write" : "read";
        if (a == NULL) {
            snprintf(words, words_room, "%s of %zu bytes of %s's memory that nothing was allocated in", verb, bytes,
                     devices[device].name);
        } else {
            snprintf(words, words_room, "%s of %zu bytes, %td bytes into a buffer of %zu bytes at %p", verb, bytes,
                     p - a->at, a->bytes, (void *) a->at);
        }
        result = words;
    }
    qe_unlock(&mutex);
    return result;
}

int qe_memory_around(const void * address, const char ** from, const char ** to) {
    const char * p = address;
    qe_lock(&mutex);
    size_t next = place(p + 1);
    int found = next > 0 && p < table[next - 1].at + table[next - 1].bytes;
    if (found) {
        *from = table[next - 1].at;
        *to = table[next - 1].at + table[next - 1].bytes;
    }
    qe_unlock(&mutex);
    return found;
}
