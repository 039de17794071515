// What a retargeted kernel, the executor that runs it and the CUDA runtime in front of both agree on.
//
// A GPU thread is a fiber: it runs until it has to wait for others (a barrier, a shuffle, a vote) and
// then hands over to the next one. One OS thread runs one block at a time.

#pragma once

#include <stddef.h>
#include <stdint.h>

enum { QE_WARP = 32, QE_MAX_THREADS = 1024, QE_MAX_WARPS = QE_MAX_THREADS / QE_WARP };

// Bytes at the start of a block's shared memory that `extern __shared__` arrays share; static arrays
// lie behind them, each at its own place (qbuild.emulator.retarget gives it one).
enum { QE_DYNAMIC_SHARED = 256 * 1024 };

// One piece of static shared memory: where in the block's shared memory, and how large.
struct qe_region {
    uint32_t offset;
    uint32_t size;
};

// A kernel of a unit, as the retargeter's tables describe it.
struct qe_kernel {
    const char * name;
    void (*entry)(void ** args);        // reads each argument from args[i] and calls the kernel
    const struct qe_region * regions;   // static shared memory
    uint32_t region_count;
    uint32_t shared_size;               // sum of the regions' sizes, aligned as on the GPU
    uint32_t max_threads;               // of a block, as __launch_bounds__ says; 0: not said
    uint32_t parameters;
};

// All kernels of one compiled unit: what one fat binary holds.
struct qe_unit {
    const char * name;
    const struct qe_kernel * kernels;
    uint32_t count;
    uint32_t shared_end;                // where its last static array ends
};

struct qe_warp;
struct qe_block;
struct qe_shape;

// An asynchronous copy into shared memory that has not happened yet (tensor.c).
struct qe_copy {
    char * to;
    const char * from;
    uint16_t size, taken;               // bytes written, and of those read; the rest are zeros
    uint32_t group;
};
enum { QE_COPIES = 64 };                // of one thread; beyond that the oldest one happens

// One GPU thread. The first fields are read by intrinsics.c, inside the kernels.
struct qe_thread {
    uint32_t tid[3];
    uint32_t lane;
    struct qe_block * block;
    struct qe_warp * warp;
    void * stack_pointer;               // while it does not run
    char * stack_top;
    uint32_t index;                     // in the block
    uint32_t pending_race;              // checks: a store that races if it changes something
    unsigned char before[64];           // checks: what was there
    uint32_t naps;
    uint32_t copies_begun, copies_done, copy_group;
    struct qe_copy copies[QE_COPIES];
};

// Lanes of a warp, as bit masks, and what they handed in for the operation that they wait for.
struct qe_warp {
    uint32_t alive, runnable, waiting, at_barrier;
    uint32_t index;
    uint32_t value[QE_WARP], mask[QE_WARP], operand[QE_WARP], clamp[QE_WARP];
    uint32_t result[QE_WARP], predicate[QE_WARP];
    uint8_t operation[QE_WARP];
    void * data[QE_WARP];               // matrix instructions: what each lane handed in
    const struct qe_shape * shape;
    uint32_t epoch;                     // checks: __syncwarp counts one up
};

struct qe_block {
    uint32_t ctaid[3], ntid[3], nctaid[3];
    char * shared;
    uint32_t dynamic_shared;            // bytes of `extern __shared__` memory
    uint32_t device;
};

enum qe_operation {
    QE_SHUFFLE_XOR, QE_SHUFFLE_UP, QE_SHUFFLE_DOWN, QE_SHUFFLE_INDEX,
    QE_BALLOT, QE_ANY, QE_ALL, QE_REDUCE, QE_WARP_BARRIER,
    QE_MULTIPLY, QE_LOAD, QE_TRANSPOSE, // matrix instructions: all 32 lanes, or it is a fault
};

// What QE_REDUCE makes of the lanes' values; its operand.
enum qe_reduction { QE_ADD, QE_MIN, QE_MAX, QE_UMIN, QE_UMAX, QE_AND, QE_OR, QE_XOR };

// Called by kernels (intrinsics.c); all wait until the lanes of `mask` are there.
uint32_t qe_warp_operation(struct qe_thread * thread, int operation, uint32_t mask, uint32_t value,
                           uint32_t operand, uint32_t clamp, uint32_t * predicate);
// A kernel sleeps while it waits for another GPU; here launches run one after another.
void     qe_nanosleep(struct qe_thread * thread, uint32_t nanoseconds);
void     qe_block_barrier(struct qe_thread * thread);
int      qe_block_reduce(struct qe_thread * thread, int all, int value);
// Here `site` is the number alone; QE_UNCHECKED: the unit was made without checks.
enum { QE_UNCHECKED = -1 };
void     qe_mma(struct qe_thread * thread, uint32_t m, uint32_t k, uint32_t factor, uint32_t result,
                uint32_t * registers);
void     qe_ldmatrix(struct qe_thread * thread, uint32_t count, uint32_t transposed, const char * row,
                     uint32_t * registers, uint32_t site);
uint32_t qe_movmatrix(struct qe_thread * thread, uint32_t registers);
void     qe_cp_async(struct qe_thread * thread, char * to, const char * from, uint32_t size, uint32_t taken,
                     uint32_t site);
void     qe_cp_async_commit(struct qe_thread * thread);
void     qe_cp_async_wait(struct qe_thread * thread, uint32_t groups);
void     qe_cp_async_wait_all(struct qe_thread * thread);
void     qe_exit(struct qe_thread * thread) __attribute__((noreturn));
void     qe_trap(struct qe_thread * thread) __attribute__((noreturn));
int      qe_vprintf(struct qe_thread * thread, const char * format, const char * arguments);
// In front of every access and behind every store of a unit that was made with checks. `site`: four times
// the access's number in the unit, plus its kind (qbuild.emulator.checked).
void     qe_access(struct qe_thread * thread, const void * address, uint32_t bytes, uint32_t site);
void     qe_stored(struct qe_thread * thread, const void * address, uint32_t bytes, uint32_t site);

// What the CUDA runtime asks the executor for.
struct qe_launch {
    const struct qe_unit * unit;
    const struct qe_kernel * kernel;
    void ** args;
    uint32_t grid[3], block[3];
    uint32_t dynamic_shared;
    uint32_t device;
};

// How kernels are run. Set once, from the environment.
struct qe_options {
    uint64_t shuffle;                   // seed for the order of lanes and warps; 0: ascending
    int trace;                          // say every launch
    // NULL when [address, address + bytes) may be used by kernels, else why not, in words.
    const char * (*check)(const void * address, size_t bytes, int write, char * words, size_t room);
    // The allocation around an address that check() accepted; 0: it is not a device's memory.
    int (*around)(const void * address, const char ** from, const char ** to);
};

// Runs all blocks; returns 0, or 1 after saying on stderr what went wrong in which kernel and thread.
int qe_run(const struct qe_launch * launch, const struct qe_options * options);

// What a library of kernels exports.
struct qe_library {
    uint32_t format;
    const struct qe_unit * const * units;
    uint32_t count;
    int (*run)(const struct qe_launch * launch, const struct qe_options * options);
};
enum { QE_FORMAT = 1 };
