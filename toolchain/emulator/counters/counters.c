// Counts what kernels do: instructions by class, how many of a warp's lanes run them together, the 32-byte
// sectors of device memory that a warp's accesses touch, and how often shared memory has to be passed over
// for one of them. For units that were made to be counted (qbuild.emulator.counted). The instructions are
// those of the device IR, before ptxas: an estimate.

#include "../tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLASSES = 8 }; // qbuild.emulator.counted.CLASSES, in its order
enum { SECTOR = 32, KERNELS = 4096 };
enum { PARTS = 8 }; // of one request, its lowest bits
enum { BANKS = 32, WORD = 4, PASS = BANKS * WORD }; // shared memory since compute capability 5.0

struct counts {
    const char * name;
    uint64_t blocks, threads;
    uint64_t instructions[CLASSES];
    uint64_t shared[2];                              // loads, stores (atomics are stores)
    uint64_t device[2], bytes[2], requests, sectors; // device memory: of threads, of threads, of warps, of warps
    uint64_t parts, passes;                          // shared memory, of warps: needed at least, needed
    uint64_t issued;                                 // instructions, of warps
    uint64_t tensor;                                 // work of tensor cores, of threads
    uint64_t distinct, launches;                     // sectors, each once for a launch
    uint64_t least;                                  // passes, if wide accesses need no parts
};

static struct counts   every[KERNELS];
static uint32_t        count;
static struct counts * now;

// What the block that runs has touched: each lane's n-th time at one access belongs to the warp's n-th time.
struct touch {
    uint64_t request, place; // a sector of device memory, or a word of shared memory
};

struct touches {
    struct touch * list;
    size_t count, room;
};

static struct touches device, shared;

// The sectors of device memory that a launch has touched: a bit each, by pages of 64 sectors.
struct page {
    uint64_t number, launch, sectors;
};

static struct page * pages;
static size_t        pages_used, pages_room;
static uint64_t      launch;

struct times {
    uint32_t block, thread, site, times;
};

// How often each lane of a warp has come to one basic block.
struct visits {
    uint32_t block, warp, site, weight;
    uint32_t lanes[QE_WARP];
};

enum { TIMES = 1 << 20, VISITS = 1 << 17 };
static struct times  times[TIMES];
static struct visits visits[VISITS];
static uint32_t      visited[VISITS], visited_count;
static uint32_t      block = 1, used;
static uint8_t       begun[QE_MAX_THREADS];

static void give_up(const char * what) {
    fprintf(stderr, "qbuild emulator: cannot count: %s\n", what);
    abort();
}

static void add_touch(struct touches * to, uint64_t request, uint64_t place) {
    if (to->count == to->room) {
        to->room = to->room ? 2 * to->room : 1 << 16;
        to->list = realloc(to->list, to->room * sizeof *to->list);
        if (to->list == NULL) {
            give_up("no memory");
        }
    }
    to->list[to->count++] = (struct touch) { request, place };
}

static int by_request(const void * a, const void * b) {
    const struct touch * x = a, * y = b;
    return x->request != y->request ? (x->request < y->request ? -1 : 1)
                                    : (x->place > y->place) - (x->place < y->place);
}

static struct page * page_at(uint64_t number) {
    size_t at = (size_t) (number * 0x9e3779b97f4a7c15ull >> 20) & (pages_room - 1);
    while (pages[at].launch == launch && pages[at].number != number) {
        at = (at + 1) & (pages_room - 1);
    }
    return &pages[at];
}

static void more_pages(void) {
    struct page * before = pages;
    size_t room = pages_room;
    pages_room = room ? 2 * room : 1 << 16;
    pages = calloc(pages_room, sizeof *pages);
    if (pages == NULL) {
        give_up("no memory");
    }
    for (size_t i = 0; i < room; i++) {
        if (before[i].launch == launch) {
            *page_at(before[i].number) = before[i];
        }
    }
    free(before);
}

static void count_distinct(uint64_t sector) {
    if (2 * pages_used >= pages_room) {
        more_pages();
    }
    struct page * p = page_at(sector / 64);
    if (p->launch != launch) {
        *p = (struct page) { sector / 64, launch, 0 };
        pages_used++;
    }
    uint64_t bit = 1ull << sector % 64;
    now->distinct += (p->sectors & bit) == 0;
    p->sectors |= bit;
}

static void begin_launch(void) {
    launch++;
    pages_used = 0;
    now->launches++;
}

static void count_sectors(void) {
    qsort(device.list, device.count, sizeof *device.list, by_request);
    for (size_t i = 0; i < device.count; i++) {
        int same = i > 0 && device.list[i].request == device.list[i - 1].request;
        now->requests += !same;
        if (!same || device.list[i].place != device.list[i - 1].place) {
            now->sectors++;
            count_distinct(device.list[i].place);
        }
    }
    device.count = 0;
}

// Lanes that want the same word of a bank get it together; each other word of that bank is one pass more.
static void passes_of_list(uint64_t * requests, uint64_t * passes) {
    qsort(shared.list, shared.count, sizeof *shared.list, by_request);
    uint32_t words[BANKS], most = 0;
    for (size_t i = 0; i < shared.count; i++) {
        int same = i > 0 && shared.list[i].request == shared.list[i - 1].request;
        if (!same) {
            ++*requests;
            *passes += most;
            most = 0;
            memset(words, 0, sizeof words);
        }
        if (!same || shared.list[i].place != shared.list[i - 1].place) {
            uint32_t in_bank = ++words[shared.list[i].place % BANKS];
            most = in_bank > most ? in_bank : most;
        }
    }
    *passes += most;
}

static void count_passes(void) {
    uint64_t requests = 0;
    passes_of_list(&now->parts, &now->passes);
    for (size_t i = 0; i < shared.count; i++) {
        shared.list[i].request &= ~(uint64_t) (PARTS - 1);
    }
    passes_of_list(&requests, &now->least);
    shared.count = 0;
}

// A warp runs a basic block at least as often as that of its lanes which comes to it most often.
static void count_issued(void) {
    for (uint32_t i = 0; i < visited_count; i++) {
        const struct visits * v = &visits[visited[i]];
        uint32_t most = 0;
        for (uint32_t lane = 0; lane < QE_WARP; lane++) {
            most = v->lanes[lane] > most ? v->lanes[lane] : most;
        }
        now->issued += (uint64_t) most * v->weight;
    }
    visited_count = 0;
}

static void end_block(void) {
    if (now == NULL) {
        return;
    }
    count_sectors();
    count_passes();
    count_issued();
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
            give_up("too many kernels");
        }
        count += now == every + count;
        now->name = name;
        const uint32_t * at = t->block->ctaid;
        if (at[0] == 0 && at[1] == 0 && at[2] == 0) {
            begin_launch();
        }
    }
    begun[t->index] = 1;
    now->threads++;
}

static void count_visit(const struct qe_thread * t, uint32_t site, uint32_t weight) {
    uint32_t warp = t->warp->index, at = (site * 32 + warp) * 2654435761u % VISITS;
    while (visits[at].block == block && (visits[at].warp != warp || visits[at].site != site)) {
        at = (at + 1) % VISITS;
    }
    if (visits[at].block != block) {
        if (visited_count == VISITS - 1) {
            give_up("too many basic blocks in one block of threads");
        }
        visits[at] = (struct visits) { .block = block, .warp = warp, .site = site, .weight = weight };
        visited[visited_count++] = at;
    }
    visits[at].lanes[t->lane]++;
}

// At the start of a basic block: how many instructions of each class it has, and its number in the unit.
void qe_count_block(struct qe_thread * t, const uint32_t classes[CLASSES + 1], uint32_t site) {
    uint32_t sum = 0;
    for (int i = 0; now != NULL && i < CLASSES; i++) {
        now->instructions[i] += classes[i];
        sum += classes[i];
    }
    if (now != NULL) {
        now->tensor += classes[CLASSES];
        count_visit(t, site, sum);
    }
}

static uint32_t times_at(uint32_t thread, uint32_t site) {
    uint32_t at = (thread * 2654435761u ^ site * 2246822519u) % TIMES;
    while (times[at].block == block && (times[at].thread != thread || times[at].site != site)) {
        at = (at + 1) % TIMES;
    }
    if (times[at].block != block) {
        if (++used == TIMES) {
            give_up("too many accesses in one block of threads");
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
    uint64_t request = (uint64_t) t->warp->index << 56 | (uint64_t) (site / 4) << 30
                     | (uint64_t) times_at(t->index, site) << 3;
    if (p >= t->block->shared && p < qe_shared_end()) {
        now->shared[store]++;
        // 32 lanes of four bytes fill a pass; of eight bytes it takes the lanes of half a warp, of 16 a quarter.
        request |= (uint64_t) t->lane * (bytes > 16 ? 16 : bytes < WORD ? WORD : bytes) / PASS;
        uint64_t from = (uint64_t) (p - t->block->shared);
        for (uint64_t word = from / WORD; word <= (from + bytes - 1) / WORD; word++) {
            add_touch(&shared, request, word);
        }
        return;
    }
    now->device[store]++;
    now->bytes[store] += bytes;
    for (uint64_t sector = (uintptr_t) p / SECTOR; sector <= ((uintptr_t) p + bytes - 1) / SECTOR; sector++) {
        add_touch(&device, request, sector);
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
                                  c->bytes[0], c->bytes[1], c->requests, c->sectors,
                                  c->parts, c->passes, c->issued, c->tensor, c->distinct, c->launches,
                                  c->least };
        for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
            fprintf(out, "\t%llu", (unsigned long long) rest[i]);
        }
        fputc('\n', out);
    }
    fclose(out);
}
