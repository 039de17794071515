// The few things that Linux and Windows name differently.

#pragma once

#ifndef _GNU_SOURCE
#    define _GNU_SOURCE // dladdr
#endif

#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
#    define WIN32_LEAN_AND_MEAN
#    include <windows.h>
#    define EXPORT __declspec(dllexport)
#    define KERNELS_FILE "qbuild-kernels.dll"
typedef SRWLOCK qe_mutex;
#    define QE_MUTEX SRWLOCK_INIT
static inline void qe_lock(qe_mutex * m) { AcquireSRWLockExclusive(m); }
static inline void qe_unlock(qe_mutex * m) { ReleaseSRWLockExclusive(m); }
static inline void * qe_open(const char * path) { return (void *) LoadLibraryA(path); }
static inline void * qe_symbol(void * library, const char * name) {
    return (void *) GetProcAddress((HMODULE) library, name);
}
static inline char * qe_reserve(size_t bytes) { return VirtualAlloc(NULL, bytes, MEM_RESERVE, PAGE_READWRITE); }
static inline int qe_commit(char * at, size_t bytes) { return VirtualAlloc(at, bytes, MEM_COMMIT, PAGE_READWRITE) != NULL; }
static inline void qe_release(char * at, size_t bytes) { (void) at; (void) bytes; } // its page may be shared
static inline void qe_own_folder(char * path, size_t room, const void * here) {
    HMODULE self = NULL;
    GetModuleHandleExA(GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS | GET_MODULE_HANDLE_EX_FLAG_UNCHANGED_REFCOUNT,
                       (const char *) here, &self);
    path[GetModuleFileNameA(self, path, (DWORD) room - 1)] = 0;
}
static inline double qe_seconds(void) {
    LARGE_INTEGER now, rate;
    QueryPerformanceCounter(&now);
    QueryPerformanceFrequency(&rate);
    return (double) now.QuadPart / (double) rate.QuadPart;
}
#else
#    include <dlfcn.h>
#    include <pthread.h>
#    include <stdio.h>
#    include <sys/mman.h>
#    include <time.h>
#    define EXPORT __attribute__((visibility("default")))
#    define KERNELS_FILE "qbuild-kernels.so"
typedef pthread_mutex_t qe_mutex;
#    define QE_MUTEX PTHREAD_MUTEX_INITIALIZER
static inline void qe_lock(qe_mutex * m) { pthread_mutex_lock(m); }
static inline void qe_unlock(qe_mutex * m) { pthread_mutex_unlock(m); }
static inline void * qe_open(const char * path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static inline void * qe_symbol(void * library, const char * name) { return dlsym(library, name); }
static inline char * qe_reserve(size_t bytes) {
    char * at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}
static inline int qe_commit(char * at, size_t bytes) { (void) at; (void) bytes; return 1; }
static inline void qe_release(char * at, size_t bytes) {
    uintptr_t first = ((uintptr_t) at + 4095) & ~(uintptr_t) 4095, end = ((uintptr_t) at + bytes) & ~(uintptr_t) 4095;
    if (first < end) {
        madvise((void *) first, end - first, MADV_DONTNEED);
    }
}
static inline void qe_own_folder(char * path, size_t room, const void * here) {
    Dl_info info;
    snprintf(path, room, "%s", dladdr(here, &info) ? info.dli_fname : "");
}
static inline double qe_seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double) now.tv_sec + (double) now.tv_nsec * 1e-9;
}
#endif
