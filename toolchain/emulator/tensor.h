// What the executor and the warp-wide matrix instructions (tensor.c) agree on.

#pragma once

#include "kernel.h"

// Types of elements; qbuild.emulator.tensor writes their numbers into calls.
enum { QE_F16, QE_BF16, QE_TF32, QE_S8, QE_F32, QE_S32 };

// A product of m × k and k × 8 elements.
struct qe_shape {
    uint32_t m, k;
    uint32_t factor, result;    // types
    uint32_t per_register;      // factors in 32 bits
};

// What one lane hands to ldmatrix, and what it gets.
struct qe_matrices {
    const char * row;
    uint32_t count, transposed;
    uint32_t registers[4];
};

// Does what all 32 lanes of a warp wait for; `data` holds what each handed in.
void qe_tensor_operation(const struct qe_warp * warp, int operation);

// Of the executor: names the thread and ends the launch.
void qe_wrong(struct qe_thread * thread, const char * words) __attribute__((noreturn));
// Whether something that may happen now or later happens now: drawn from --shuffle's seed, else never.
int  qe_early(void);
// Where the running block's shared memory ends.
const char * qe_shared_end(void);
