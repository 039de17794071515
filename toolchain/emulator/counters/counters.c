// Counts what kernels do: instructions by class, and the 32-byte sectors of device memory that a warp's
// accesses touch. For units that were made to be counted (qbuild.emulator.counted). The instructions are
// those of the device IR, before ptxas: an estimate.

#include "../kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 7 }; // qbuild.emulator.counted.CLASSES, in its order
enum { SECTOR = 32, KERNELS = 4096 };

struct counts {
    const char * name;
    uint64_t blocks, threads;
    uint64_t instructions[CLASSES];
    uint64_t shared[2];                              // loads, stores (atomics are stores)
    uint64_t device[2], bytes[2], requests, sectors; // device memory: of threads, of threads, of warps, of warps
};

static struct counts   every[KERNELS];
static uint32_t        count;
static struct counts * now;

// What the block that runs has touched: each lane's n-th time at one access belongs to the warp's n-th time.
struct touch {
    uint64_t request, sector;
};

static struct touch * touched;
static size_t         touched_count, touched_room;

struct times {
    uint32_t block, thread, site, times;
};

enum { TIMES = 1 << 20 };
static struct times times[TIMES];
static uint32_t     block = 1, used;
static uint8_t      begun[QE_MAX_THREADS];

static int by_request(const void * a, const void * b) {
    const struct touch * x = a, * y = b;
    return x->request != y->request ? (x->request < y->request ? -1 : 1)
                                    : (x->sector > y->sector) - (x->sector < y->sector);
}

static void end_block(void) {
    if (now == NULL) {
        return;
    }
    qsort(touched, touched_count, sizeof *touched, by_request);
    for (size_t i = 0; i < touched_count; i++) {
        int same = i > 0 && touched[i].request == touched[i - 1].request;
        now->requests += !same;
        now->sectors += !same || touched[i].sector != touched[i - 1].sector;
    }
    touched_count = 0;
    now->blocks++;
    memset(begun, 0, sizeof begun);
    block++;
    used = 0;
}

// In front of a kernel, for each of its threads.
void qe_count_thread(struct qe_thread * t, const char * name) {
    if (now == NULL || begun[t->index] || now->name != name) {
        end_block(); // all threads of a block begin before one of them begins in the next
        for (now = every; now < every + count && now->name != name; now++) {
        }
        if (now == every + KERNELS) {
            abort();
        }
        count += now == every + count;
        now->name = name;
    }
    begun[t->index] = 1;
    now->threads++;
}

void qe_count_block(const uint32_t classes[CLASSES]) {
    for (int i = 0; now != NULL && i < CLASSES; i++) {
        now->instructions[i] += classes[i];
    }
}

static uint32_t times_at(uint32_t thread, uint32_t site) {
    uint32_t at = (thread * 2654435761u ^ site * 2246822519u) % TIMES;
    while (times[at].block == block && (times[at].thread != thread || times[at].site != site)) {
        at = (at + 1) % TIMES;
    }
    if (times[at].block != block) {
        if (++used == TIMES) {
            abort();
        }
        times[at] = (struct times) { block, thread, site, 0 };
    }
    return times[at].times++;
}

void qe_count_access(struct qe_thread * t, const void * address, uint32_t bytes, uint32_t site) {
    const char * p = address;
    int store = (site & 3) != 0;
    if (now == NULL || (p >= t->stack_top - 128 * 1024 && p < t->stack_top + 64)) {
        return; // parameters, and what ptxas keeps in registers
    }
    // Static arrays of the largest unit end below one MiB.
    if (p >= t->block->shared && p < t->block->shared + (1 << 20)) {
        now->shared[store]++;
        return;
    }
    now->device[store]++;
    now->bytes[store] += bytes;
    uint64_t request = (uint64_t) t->warp->index << 56 | (uint64_t) (site / 4) << 28 | times_at(t->index, site);
    for (uint64_t sector = (uintptr_t) p / SECTOR; sector <= ((uintptr_t) p + bytes - 1) / SECTOR; sector++) {
        if (touched_count == touched_room) {
            touched_room = touched_room ? 2 * touched_room : 1 << 16;
            touched = realloc(touched, touched_room * sizeof *touched);
            if (touched == NULL) {
                abort();
            }
        }
        touched[touched_count++] = (struct touch) { request, sector };
    }
}

__attribute__((destructor)) static void write_counts(void) {
    const char * path = getenv("QBUILD_EMULATOR_COUNTS");
    FILE * out = path && count ? fopen(path, "a") : NULL;
    if (out == NULL) {
        return;
    }
    end_block();
    for (const struct counts * c = every; c < every + count; c++) {
        fprintf(out, "%s\t%llu\t%llu", c->name, (unsigned long long) c->blocks, (unsigned long long) c->threads);
        for (int i = 0; i < CLASSES; i++) {
            fprintf(out, "\t%llu", (unsigned long long) c->instructions[i]);
        }
        const uint64_t rest[] = { c->shared[0], c->shared[1], c->device[0], c->device[1],
                                  c->bytes[0], c->bytes[1], c->requests, c->sectors };
        for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
            fprintf(out, "\t%llu", (unsigned long long) rest[i]);
        }
        fputc('\n', out);
    }
    fclose(out);
}
