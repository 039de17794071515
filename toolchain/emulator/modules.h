// Which kernel a host function's address stands for: fat binaries, units, and the library of kernels.

#pragma once

#include "kernel.h"

// A kernel that the program registered.
struct qe_function {
    const void * host;               // what cudaLaunchKernel is given
    const char * name;
    void * module;
    const struct qe_unit * unit;     // found at its first use
    const struct qe_kernel * kernel;
    int registers;                   // per thread, as ptxas assigned them; 0: not known
    int local_bytes;                 // of stack and spills per thread
    size_t dynamic_shared_limit;     // what cudaFuncSetAttribute allowed
    uint64_t launches, blocks, threads;
    double seconds;
};

void * qe_register_module(const void * fat_binary_wrapper);
void   qe_register_function(void * module, const void * host, const char * name);
// The function with its kernel found; NULL after saying why there is none.
struct qe_function * qe_function_of(const void * host);
// The library's qe_run; NULL when no library could be loaded.
int  qe_run_kernel(const struct qe_launch * launch, const struct qe_options * options);
// Notes a kernel at its first launch: a program that is killed (a server, in Wine) writes no more.
void qe_report_first(const struct qe_function * f);
// Adds how often everything ran to the file that QBUILD_EMULATOR_REPORT names.
void qe_report(void);
