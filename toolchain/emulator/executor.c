// Runs the blocks of a launch: fibers for threads, a rendezvous for every warp operation and barrier.
//
// Memory model: what one lane wrote before a rendezvous is seen by all after it. Between two of them
// lanes run one after another, in ascending order, or in an order drawn from a seed: a kernel that is
// right only because the GPU's lanes run in lockstep then gives other results from seed to seed.

#include "kernel.h"
#include "checks.h"
#include "tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xmmintrin.h>

#ifdef _WIN32
#    include <windows.h>
#    define SWITCH_ABI __attribute__((sysv_abi)) // its callers save what Windows' convention keeps
#else
#    include <sys/mman.h>
#    define SWITCH_ABI
#endif

enum {
    STACK = 128 * 1024,       // bytes per fiber, the guard page included; see docs/emulator.md
    GUARD = 4096,
    NAPS = 1 << 16,           // of one thread, before it is said to wait for nothing
    FLUSH_DENORMALS = 0x8040, // MXCSR: flush to zero, denormals are zero
};

// What one OS thread needs to run blocks.
struct worker {
    struct qe_block block;
    struct qe_thread threads[QE_MAX_THREADS];
    struct qe_warp warps[QE_MAX_WARPS];
    uint32_t warp_count;
    uint32_t runnable;        // warps with a runnable lane
    uint32_t alive;           // threads that have not returned
    uint32_t at_barrier;
    int reduce_and, reduce_or, reduced_and, reduced_or;
    void * home;              // stack pointer of qe_run
    char * stacks;
    char * shared;
    size_t shared_size;
    const struct qe_launch * launch;
    const struct qe_options * options;
    uint64_t random;
    int failed;
    uint32_t epoch;           // checks: block barriers so far, over all blocks
    const char * known_from, * known_to; // checks: the allocation of the last access
};

static struct worker worker;

__thread struct qe_thread * qe_current __attribute__((visibility("hidden")));

SWITCH_ABI void qe_switch(void ** save, void * to);
__asm__(".text\n"
        ".globl qe_switch\n"
        "qe_switch:\n"
        "    push %rbp\n    push %rbx\n    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n    pop %rbx\n    pop %rbp\n"
        "    ret\n");

// --- saying what went wrong -------------------------------------------------------------------------

static void say_where(const struct qe_thread * t) {
    const struct qe_block * b = t->block;
    fprintf(stderr, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", worker.launch->kernel->name,
            b->ctaid[0], b->ctaid[1], b->ctaid[2], t->tid[0], t->tid[1], t->tid[2]);
}

static void __attribute__((noreturn)) fail(struct qe_thread * t) {
    worker.failed = 1;
    fflush(stderr);
    qe_switch(&t->stack_pointer, worker.home);
    __builtin_unreachable();
}

void qe_wrong(struct qe_thread * t, const char * words) {
    fprintf(stderr, "emulated GPU: %s, in ", words);
    say_where(t);
    fprintf(stderr, "\n");
    fail(t);
}

void qe_trap(struct qe_thread * t) { qe_wrong(t, "trap"); }

static void __attribute__((noreturn)) deadlock(struct qe_thread * t) {
    fprintf(stderr, "emulated GPU: deadlock in kernel %s, block (%u,%u,%u): no thread can go on\n",
            worker.launch->kernel->name, t->block->ctaid[0], t->block->ctaid[1], t->block->ctaid[2]);
    static const char * const names[] = {
        "shfl.bfly", "shfl.up", "shfl.down", "shfl.idx", "vote.ballot", "vote.any", "vote.all", "redux", "bar.warp.sync",
        "mma", "ldmatrix", "movmatrix",
    };
    for (uint32_t i = 0; i < worker.warp_count; i++) {
        const struct qe_warp * w = &worker.warps[i];
        if (w->at_barrier) {
            fprintf(stderr, "  warp %u: lanes %08x wait at a block barrier\n", i, w->at_barrier);
        }
        for (uint32_t left = w->waiting; left;) {
            uint32_t first = (uint32_t) __builtin_ctz(left), same = 0;
            for (uint32_t l = first; l < QE_WARP; l++) {
                if (left >> l & 1 && w->operation[l] == w->operation[first] && w->mask[l] == w->mask[first]) {
                    same |= 1u << l;
                }
            }
            fprintf(stderr, "  warp %u: lanes %08x wait in %s for lanes %08x\n", i, same,
                    names[w->operation[first]],
                    w->operation[first] >= QE_MULTIPLY ? w->mask[first] : w->mask[first] & w->alive);
            left &= ~same;
        }
        if (w->alive != 0xffffffffu) {
            fprintf(stderr, "  warp %u: lanes %08x have not returned\n", i, w->alive);
        }
    }
    fail(t);
}

// --- who runs next ----------------------------------------------------------------------------------

static uint64_t draw(void) { // xorshift64*
    uint64_t x = worker.random;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    worker.random = x;
    return x * 0x2545f4914f6cdd1dull >> 32;
}

static uint32_t choose(uint32_t bits) {
    if (worker.random == 0) {
        return (uint32_t) __builtin_ctz(bits);
    }
    for (uint32_t skip = (uint32_t) (draw() % (uint32_t) __builtin_popcount(bits)); skip > 0; skip--) {
        bits &= bits - 1;
    }
    return (uint32_t) __builtin_ctz(bits);
}

const char * qe_shared_end(void) { return worker.shared + worker.shared_size; }

int qe_early(void) { return worker.random != 0 && (draw() & 1); }

static struct qe_thread * next_thread(struct qe_warp * w) {
    if (w->runnable == 0 || worker.random != 0) {
        if (worker.runnable == 0) {
            return NULL;
        }
        w = &worker.warps[choose(worker.runnable)];
    }
    return &worker.threads[w->index * QE_WARP + choose(w->runnable)];
}

static void make_runnable(struct qe_warp * w, uint32_t lanes) {
    w->runnable |= lanes;
    worker.runnable |= 1u << w->index;
}

static void not_runnable(struct qe_warp * w, uint32_t lane) {
    w->runnable &= ~(1u << lane);
    if (w->runnable == 0) {
        worker.runnable &= ~(1u << w->index);
    }
}

static void switch_to(void ** save, struct qe_thread * to) {
    qe_current = to;
    qe_switch(save, to->stack_pointer);
}

// The thread is not runnable any more: run others until it is, and has its turn.
static void wait_turn(struct qe_thread * t) {
    struct qe_thread * next = next_thread(t->warp);
    if (next == NULL) {
        deadlock(t);
    }
    if (next != t) {
        switch_to(&t->stack_pointer, next);
    }
}

// --- warp operations --------------------------------------------------------------------------------

static void shuffle(struct qe_warp * w, uint32_t lanes) {
    for (uint32_t left = lanes; left; left &= left - 1) {
        uint32_t lane = (uint32_t) __builtin_ctz(left);
        // PTX ISA, shfl.sync: c holds the clamp in bits 0-4 and the segment mask in bits 8-12.
        uint32_t b = w->operand[lane] & 31, clamp = w->clamp[lane] & 31, segment = w->clamp[lane] >> 8 & 31;
        uint32_t max = (lane & segment) | (clamp & ~segment & 31), min = lane & segment, from = lane;
        int inside = 1;
        switch (w->operation[lane]) {
            case QE_SHUFFLE_UP:    from = lane - b; inside = (int32_t) from >= (int32_t) max; break;
            case QE_SHUFFLE_DOWN:  from = lane + b; inside = from <= max; break;
            case QE_SHUFFLE_XOR:   from = lane ^ b; inside = from <= max; break;
            case QE_SHUFFLE_INDEX: from = min | (b & ~segment & 31); inside = from <= max; break;
        }
        if (!inside) {
            from = lane;
        }
        w->predicate[lane] = (uint32_t) inside;
        // A lane that takes from one that is not there gets an undefined value: make it visible.
        w->result[lane] = lanes >> from & 1 ? w->value[from] : 0xffffffffu;
    }
}

static void vote(struct qe_warp * w, uint32_t lanes, int operation) {
    uint32_t ballot = 0;
    for (uint32_t left = lanes; left; left &= left - 1) {
        uint32_t lane = (uint32_t) __builtin_ctz(left);
        ballot |= (uint32_t) (w->value[lane] != 0) << lane;
    }
    uint32_t result = operation == QE_BALLOT ? ballot : operation == QE_ANY ? ballot != 0 : ballot == lanes;
    for (uint32_t left = lanes; left; left &= left - 1) {
        w->result[__builtin_ctz(left)] = result;
    }
}

// redux.sync
static void reduce(struct qe_warp * w, uint32_t lanes, uint32_t how) {
    uint32_t r = w->value[__builtin_ctz(lanes)];
    for (uint32_t left = lanes & (lanes - 1); left; left &= left - 1) {
        uint32_t v = w->value[__builtin_ctz(left)];
        switch (how) {
            case QE_ADD:  r += v; break;
            case QE_MIN:  r = (int32_t) v < (int32_t) r ? v : r; break;
            case QE_MAX:  r = (int32_t) v > (int32_t) r ? v : r; break;
            case QE_UMIN: r = v < r ? v : r; break;
            case QE_UMAX: r = v > r ? v : r; break;
            case QE_AND:  r &= v; break;
            case QE_OR:   r |= v; break;
            case QE_XOR:  r ^= v; break;
        }
    }
    for (uint32_t left = lanes; left; left &= left - 1) {
        w->result[__builtin_ctz(left)] = r;
    }
}

// The most frequent case, a reduction over the whole warp, without a branch per lane.
static int whole_xor(struct qe_warp * w) {
    uint32_t b = w->operand[0];
    uint32_t differs = 0;
    for (int i = 0; i < QE_WARP; i++) {
        differs |= (w->operand[i] ^ b) | (w->clamp[i] ^ 31u) | (uint32_t) (w->operation[i] ^ QE_SHUFFLE_XOR);
    }
    if (differs || b > 31) {
        return 0;
    }
    for (uint32_t i = 0; i < QE_WARP; i++) {
        w->result[i]    = w->value[i ^ b];
        w->predicate[i] = 1;
    }
    return 1;
}

// Completes the operation that `lane` waits for when all its lanes are there; returns them, or 0.
static uint32_t complete(struct qe_warp * w, uint32_t lane) {
    uint32_t need = w->mask[lane] & w->alive;
    if ((w->waiting & need) != need) {
        return 0;
    }
    int kind = w->operation[lane];
    if (kind >= QE_MULTIPLY && need != 0xffffffffu) {
        return 0; // a lane is gone: for shuffles that is allowed
    }
    for (uint32_t left = need; left; left &= left - 1) {
        uint32_t other = (uint32_t) __builtin_ctz(left);
        if (w->operation[other] != kind || w->mask[other] != w->mask[lane] ||
            (kind >= QE_MULTIPLY && w->operand[other] != w->operand[lane])) {
            return 0; // they wait for something else: nothing will come of it, which deadlock() says
        }
    }
    if (kind <= QE_SHUFFLE_INDEX) {
        if (need != 0xffffffffu || !whole_xor(w)) {
            shuffle(w, need);
        }
    } else if (kind == QE_REDUCE) {
        reduce(w, need, w->operand[lane]);
    } else if (kind < QE_WARP_BARRIER) {
        vote(w, need, kind);
    } else if (kind > QE_WARP_BARRIER) {
        qe_tensor_operation(w, kind);
    } else {
        w->epoch++;
    }
    w->waiting &= ~need;
    make_runnable(w, need);
    return need;
}

uint32_t qe_warp_operation(struct qe_thread * t, int operation, uint32_t mask, uint32_t value,
                           uint32_t operand, uint32_t clamp, uint32_t * predicate) {
    struct qe_warp * w = t->warp;
    uint32_t lane = t->lane, bit = 1u << lane;
    w->value[lane]     = value;
    w->mask[lane]      = mask | bit;
    w->operand[lane]   = operand;
    w->clamp[lane]     = clamp;
    w->operation[lane] = (uint8_t) operation;
    w->waiting |= bit;
    if ((w->waiting & mask & w->alive) != (mask & w->alive) || !complete(w, lane)) {
        not_runnable(w, lane);
        wait_turn(t);
    } else if (worker.random) {
        wait_turn(t);
    }
    if (predicate) {
        *predicate = w->predicate[lane];
    }
    return w->result[lane];
}

void qe_nanosleep(struct qe_thread * t, uint32_t nanoseconds) {
    (void) nanoseconds;
    if (++t->naps == NAPS) {
        qe_wrong(t, "it sleeps and sleeps: what it waits for comes from a launch that runs after this one");
    }
}

// --- block barriers -------------------------------------------------------------------------------------

static void release_barrier(void) {
    worker.epoch++;
    for (uint32_t i = 0; i < worker.warp_count; i++) {
        struct qe_warp * w = &worker.warps[i];
        if (w->at_barrier) {
            make_runnable(w, w->at_barrier);
            w->at_barrier = 0;
        }
    }
    worker.at_barrier  = 0;
    worker.reduced_and = worker.reduce_and;
    worker.reduced_or  = worker.reduce_or;
    worker.reduce_and  = 1;
    worker.reduce_or   = 0;
}

void qe_block_barrier(struct qe_thread * t) {
    struct qe_warp * w = t->warp;
    not_runnable(w, t->lane);
    w->at_barrier |= 1u << t->lane;
    if (++worker.at_barrier == worker.alive) {
        release_barrier();
    }
    wait_turn(t);
}

int qe_block_reduce(struct qe_thread * t, int all, int value) {
    worker.reduce_and &= value != 0;
    worker.reduce_or  |= value != 0;
    qe_block_barrier(t);
    return all ? worker.reduced_and : worker.reduced_or;
}

// --- a thread's life ---------------------------------------------------------------------------------------

void qe_exit(struct qe_thread * t) {
    struct qe_warp * w = t->warp;
    not_runnable(w, t->lane);
    w->alive &= ~(1u << t->lane);
    worker.alive--;
    if (worker.alive == 0) {
        qe_switch(&t->stack_pointer, worker.home);
    }
    for (uint32_t left = w->waiting; left; left &= left - 1) { // others may have waited for this one
        if (complete(w, (uint32_t) __builtin_ctz(left))) {
            break;
        }
    }
    if (worker.at_barrier == worker.alive) {
        release_barrier();
    }
    wait_turn(t);
    __builtin_unreachable();
}

static void first(void) {
    worker.launch->kernel->entry(worker.launch->args);
    qe_exit(qe_current);
}

static void start_block(uint32_t threads) {
    const struct qe_launch * launch = worker.launch;
    worker.warp_count = (threads + QE_WARP - 1) / QE_WARP;
    worker.alive      = threads;
    worker.at_barrier = 0;
    worker.reduce_and = 1;
    worker.reduce_or  = 0;
    worker.epoch++;
    worker.runnable   = worker.warp_count == 32 ? 0xffffffffu : (1u << worker.warp_count) - 1;
    for (uint32_t i = 0; i < worker.warp_count; i++) {
        uint32_t lanes = threads - i * QE_WARP < QE_WARP ? (1u << (threads - i * QE_WARP)) - 1 : 0xffffffffu;
        struct qe_warp * w = &worker.warps[i];
        w->alive = w->runnable = lanes;
        w->waiting = w->at_barrier = 0;
    }
    uint32_t x = 0, y = 0, z = 0;
    for (uint32_t i = 0; i < threads; i++) {
        struct qe_thread * t = &worker.threads[i];
        t->tid[0] = x;
        t->tid[1] = y;
        t->tid[2] = z;
        t->naps = 0;
        t->copies_begun = t->copies_done = t->copy_group = 0;
        if (++x == launch->block[0]) {
            x = 0;
            if (++y == launch->block[1]) {
                y = 0;
                z++;
            }
        }
        // Six registers that qe_switch pops, the address it returns to, and one word so that the
        // stack is aligned as after a call.
        void ** top = (void **) t->stack_top - 8;
        memset(top, 0, 8 * sizeof(void *));
        top[6] = (void *) first;
        t->stack_pointer = top;
    }
    // Uninitialised shared memory holds NaN, whatever type it is read as.
    memset(worker.shared, 0xff, launch->dynamic_shared);
    for (uint32_t i = 0; i < launch->kernel->region_count; i++) {
        memset(worker.shared + launch->kernel->regions[i].offset, 0xff, launch->kernel->regions[i].size);
    }
}

static int prepare(const struct qe_launch * launch) {
    if (worker.stacks == NULL) {
        size_t size = (size_t) STACK * QE_MAX_THREADS;
#ifdef _WIN32
        worker.stacks = VirtualAlloc(NULL, size, MEM_RESERVE | MEM_COMMIT, PAGE_READWRITE);
        DWORD old;
        for (int i = 0; worker.stacks && i < QE_MAX_THREADS; i++) {
            VirtualProtect(worker.stacks + (size_t) i * STACK, GUARD, PAGE_NOACCESS, &old);
        }
#else
        worker.stacks = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (worker.stacks == MAP_FAILED) {
            worker.stacks = NULL;
        }
        for (int i = 0; worker.stacks && i < QE_MAX_THREADS; i++) {
            mprotect(worker.stacks + (size_t) i * STACK, GUARD, PROT_NONE);
        }
#endif
        if (worker.stacks == NULL) {
            fprintf(stderr, "emulated GPU: no memory for %d stacks\n", QE_MAX_THREADS);
            return 1;
        }
        for (uint32_t i = 0; i < QE_MAX_THREADS; i++) {
            struct qe_thread * t = &worker.threads[i];
            t->index = i;
            t->lane  = i % QE_WARP;
            t->warp  = &worker.warps[i / QE_WARP];
            t->block = &worker.block;
            t->warp->index = i / QE_WARP;
            // Different cache sets for the hot ends of neighbouring stacks.
            t->stack_top = worker.stacks + (size_t) (i + 1) * STACK - (i % 61) * 192 - 64;
            t->stack_top = (char *) ((uintptr_t) t->stack_top & ~(uintptr_t) 63);
        }
    }
    size_t shared = launch->unit->shared_end > QE_DYNAMIC_SHARED ? launch->unit->shared_end : QE_DYNAMIC_SHARED;
    if (worker.shared_size < shared) {
        free(worker.shared == NULL ? NULL : ((void **) worker.shared)[-1]);
        char * raw = malloc(shared + 4096);
        if (raw == NULL) {
            fprintf(stderr, "emulated GPU: no memory for %zu bytes of shared memory\n", shared);
            return 1;
        }
        worker.shared = (char *) (((uintptr_t) raw + 2048) & ~(uintptr_t) 1023);
        ((void **) worker.shared)[-1] = raw;
        worker.shared_size = shared;
    }
    return 0;
}

int qe_run(const struct qe_launch * launch, const struct qe_options * options) {
    if (prepare(launch)) {
        return 1;
    }
    uint32_t threads = launch->block[0] * launch->block[1] * launch->block[2];
    struct qe_block * b = &worker.block;
    worker.launch  = launch;
    worker.options = options;
    worker.failed  = 0;
    worker.known_from = worker.known_to = NULL;
    worker.random  = options->shuffle ? options->shuffle * 0x9e3779b97f4a7c15ull | 1 : 0;
    memcpy(b->ntid, launch->block, sizeof b->ntid);
    memcpy(b->nctaid, launch->grid, sizeof b->nctaid);
    b->shared         = worker.shared;
    b->dynamic_shared = launch->dynamic_shared;
    b->device         = launch->device;
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH_DENORMALS);
#ifdef _WIN32
    NT_TIB * tib = (NT_TIB *) NtCurrentTeb();
    void * base = tib->StackBase, * limit = tib->StackLimit;
    tib->StackBase  = worker.stacks + (size_t) STACK * QE_MAX_THREADS;
    tib->StackLimit = worker.stacks;
#endif
    for (b->ctaid[2] = 0; b->ctaid[2] < launch->grid[2] && !worker.failed; b->ctaid[2]++) {
        for (b->ctaid[1] = 0; b->ctaid[1] < launch->grid[1] && !worker.failed; b->ctaid[1]++) {
            for (b->ctaid[0] = 0; b->ctaid[0] < launch->grid[0] && !worker.failed; b->ctaid[0]++) {
                start_block(threads);
                switch_to(&worker.home, next_thread(&worker.warps[0]));
            }
        }
    }
#ifdef _WIN32
    tib->StackBase  = base;
    tib->StackLimit = limit;
#endif
    _mm_setcsr(mode);
    return worker.failed;
}

// --- checks of memory accesses ---------------------------------------------------------------------------

// checks.h knows addresses and epochs; what it needs of the worker, and how it speaks, is here.

static void __attribute__((noreturn)) wrong_access(struct qe_thread * t, const char * words, uint32_t site) {
    fprintf(stderr, "emulated GPU: %s (access %u of the unit) in ", words, site / 4);
    say_where(t);
    fprintf(stderr, "\n");
    fail(t);
}

static void say_race(struct qe_thread * t, const struct qe_conflict * c, uint32_t site) {
    static uint32_t said[512], count; // once for each pair of places
    uint32_t pair = c->site * 2654435761u ^ site;
    for (uint32_t i = 0; i < count; i++) {
        if (said[i] == pair) {
            return;
        }
    }
    if (count < sizeof said / sizeof *said) {
        said[count++] = pair;
    }
    fprintf(stderr, "emulated GPU: %s: shared memory at %u, %s of thread %u (access %u) and %s of thread %u (access %u), in kernel %s\n",
            c->same_warp ? "lockstep" : "race", c->offset, c->was_write ? "store" : "load", c->thread, c->site / 4,
            (site & 3) ? "store" : "load", t->index, site / 4, worker.launch->kernel->name);
}

void qe_access(struct qe_thread * t, const void * address, uint32_t bytes, uint32_t site) {
    const char * p = address;
    if (p >= t->stack_top - STACK && p < t->stack_top + 64) {
        return; // the thread's own
    }
    char words[320];
    if (p >= worker.shared && p < worker.shared + worker.shared_size) {
        uint32_t offset = (uint32_t) (p - worker.shared);
        if (qe_shared_problem(worker.launch, offset, bytes, (site & 3) != 0, words, sizeof words)) {
            wrong_access(t, words, site);
        }
        struct qe_conflict c;
        t->pending_race = 0;
        if (qe_shared_conflict(t, worker.epoch, offset, bytes, site, &c)) {
            if ((site & 3) == 1 && c.was_write && bytes <= sizeof t->before) {
                t->pending_race = 1; // equal values from many lanes are no fault: see qe_stored
            } else {
                say_race(t, &c, site);
            }
        }
        if ((site & 3) == 1 && bytes <= sizeof t->before) {
            memcpy(t->before, address, bytes);
        }
        return;
    }
    if (p >= worker.known_from && p + bytes <= worker.known_to) {
        return;
    }
    if (worker.options->check && worker.options->check(address, bytes, (site & 3) != 0, words, sizeof words)) {
        wrong_access(t, words, site);
    }
    if (worker.options->around) {
        worker.options->around(address, &worker.known_from, &worker.known_to);
    }
}

void qe_stored(struct qe_thread * t, const void * address, uint32_t bytes, uint32_t site) {
    const char * p = address;
    if (p < worker.shared || p >= worker.shared + worker.shared_size) {
        return;
    }
    uint32_t offset = (uint32_t) (p - worker.shared);
    if (t->pending_race && memcmp(t->before, address, bytes)) {
        struct qe_conflict c;
        if (qe_shared_conflict(t, worker.epoch, offset, bytes, site, &c)) {
            say_race(t, &c, site);
        }
    }
    t->pending_race = 0;
    qe_shared_store(t, worker.epoch, offset, bytes, site);
}

// --- printf -----------------------------------------------------------------------------------------------

int qe_vprintf(struct qe_thread * t, const char * format, const char * arguments) {
    (void) t;
    size_t at = 0;
    for (const char * p = format; *p; p++) {
        if (*p != '%' || p[1] == '%') {
            putchar(*p);
            p += *p == '%';
            continue;
        }
        char spec[64];
        size_t n = 0;
        int wide = 0;
        for (spec[n++] = *p++; *p && n < sizeof spec - 1; p++) {
            spec[n++] = *p;
            wide += *p == 'l' || *p == 'z' || *p == 'j' || *p == 't';
            if (strchr("diouxXeEfFgGaAcsp", *p)) {
                break;
            }
        }
        spec[n] = 0;
        if (*p == 0) {
            fputs(spec, stdout);
            break;
        }
        int eight = wide || strchr("eEfFgGaAsp", *p) != NULL; // floats come as double, as in C
        at = eight ? (at + 7) & ~(size_t) 7 : at;
        if (strchr("eEfFgGaA", *p)) {
            double v;
            memcpy(&v, arguments + at, 8);
            printf(spec, v);
        } else if (eight) {
            unsigned long long v;
            memcpy(&v, arguments + at, 8);
            printf(spec, v);
        } else {
            unsigned v;
            memcpy(&v, arguments + at, 4);
            printf(spec, v);
        }
        at += eight ? 8 : 4;
    }
    return 0;
}
