// The emulated devices: what they are, and their memory.

#pragma once

#include <stddef.h>
#include <stdint.h>

enum { QE_MAX_DEVICES = 16 };

struct qe_device {
    char name[64];
    int major, minor;
    int multiprocessors;
    int threads_per_multiprocessor;
    int blocks_per_multiprocessor;
    size_t memory;                     // bytes of the card
    size_t shared, shared_optin;       // bytes a block may use: always, and on request
    size_t shared_per_multiprocessor;
    int clock_khz, memory_clock_khz, bus_bits, l2;

    char * arena;                      // address range of its memory
    size_t used;
};

// The devices that QBUILD_EMULATED_GPU names; read once. Returns their number.
int qe_devices(struct qe_device ** devices);

// Memory with unused red zones before and behind; NULL when the card is full.
void * qe_device_alloc(int device, size_t bytes);
// 0, or 1 when that is no allocation.
int qe_device_free(void * address);
// Pinned host memory: kernels may use it too.
void * qe_host_alloc(size_t bytes);
int qe_host_free(void * address);

// The device whose memory an address lies in, or -1.
int qe_device_of(const void * address);

// NULL when [address, address + bytes) lies in one allocation or in no device's memory at all;
// else what is wrong, written to `words`.
const char * qe_memory_check(const void * address, size_t bytes, int write, char * words, size_t room);

// The allocation that an address lies in; 0 when there is none.
int qe_memory_around(const void * address, const char ** from, const char ** to);
