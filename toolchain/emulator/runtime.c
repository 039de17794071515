// The CUDA runtime of the emulated GPU: what ggml-cuda asks of libcudart.so.12 / cudart64_12.dll.
//
// Streams are in order and everything is done when a call returns, so streams, events and
// synchronisation have nothing left to do. Virtual memory management, cooperative launches and stream
// capture are reported absent. Written from the CUDA Runtime API documentation; NVIDIA's header gives
// the declarations only.

#include "platform.h" // first: it asks for what POSIX hides

#include "device.h"
#include "modules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cuda_runtime_api.h>

static __thread int current;
static __thread cudaError_t last_error;

static cudaError_t result(cudaError_t error) {
    if (error != cudaSuccess) {
        last_error = error;
    }
    return error;
}

static struct qe_device * device_number(int number) {
    struct qe_device * devices;
    int count = qe_devices(&devices);
    return number >= 0 && number < count ? &devices[number] : NULL;
}

// --- devices ------------------------------------------------------------------------------------------

EXPORT cudaError_t cudaGetDeviceCount(int * count) {
    struct qe_device * devices;
    *count = qe_devices(&devices);
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDevice(int device) {
    if (device_number(device) == NULL) {
        return result(cudaErrorInvalidDevice);
    }
    current = device;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDevice(int * device) {
    *device = current;
    return cudaSuccess;
}

EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags) {
    (void) flags;
    return cudaSuccess;
}

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp * p, int number) {
    const struct qe_device * d = device_number(number);
    if (d == NULL) {
        return result(cudaErrorInvalidDevice);
    }
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", d->name);
    p->totalGlobalMem              = d->memory;
    p->sharedMemPerBlock           = d->shared;
    p->sharedMemPerBlockOptin      = d->shared_optin;
    p->sharedMemPerMultiprocessor  = d->shared_per_multiprocessor;
    p->regsPerBlock                = 65536;
    p->regsPerMultiprocessor       = 65536;
    p->warpSize                    = QE_WARP;
    p->memPitch                    = 0x7fffffff;
    p->maxThreadsPerBlock          = QE_MAX_THREADS;
    p->maxThreadsDim[0]            = 1024;
    p->maxThreadsDim[1]            = 1024;
    p->maxThreadsDim[2]            = 64;
    p->maxGridSize[0]              = 0x7fffffff;
    p->maxGridSize[1]              = 65535;
    p->maxGridSize[2]              = 65535;
    p->clockRate                   = d->clock_khz;
    p->totalConstMem               = 65536;
    p->major                       = d->major;
    p->minor                       = d->minor;
    p->textureAlignment            = 512;
    p->multiProcessorCount         = d->multiprocessors;
    p->canMapHostMemory            = 1;
    p->concurrentKernels           = 1;
    p->pciBusID                    = number + 1;
    p->asyncEngineCount            = 2;
    p->unifiedAddressing           = 1;
    p->memoryClockRate             = d->memory_clock_khz;
    p->memoryBusWidth              = d->bus_bits;
    p->l2CacheSize                 = d->l2;
    p->maxThreadsPerMultiProcessor = d->threads_per_multiprocessor;
    p->maxBlocksPerMultiProcessor  = d->blocks_per_multiprocessor;
    p->managedMemory               = 1;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetAttribute(int * value, enum cudaDeviceAttr attribute, int number) {
    const struct qe_device * d = device_number(number);
    if (d == NULL) {
        return result(cudaErrorInvalidDevice);
    }
    switch (attribute) {
        case cudaDevAttrMaxThreadsPerBlock:              *value = QE_MAX_THREADS; break;
        case cudaDevAttrWarpSize:                        *value = QE_WARP; break;
        case cudaDevAttrMultiProcessorCount:             *value = d->multiprocessors; break;
        case cudaDevAttrComputeCapabilityMajor:          *value = d->major; break;
        case cudaDevAttrComputeCapabilityMinor:          *value = d->minor; break;
        case cudaDevAttrMaxSharedMemoryPerBlock:         *value = (int) d->shared; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin:    *value = (int) d->shared_optin; break;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor:*value = (int) d->shared_per_multiprocessor; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor:     *value = d->threads_per_multiprocessor; break;
        case cudaDevAttrMaxRegistersPerBlock:            *value = 65536; break;
        case cudaDevAttrMaxBlockDimX:
        case cudaDevAttrMaxBlockDimY:                    *value = QE_MAX_THREADS; break;
        case cudaDevAttrMaxBlockDimZ:                    *value = 64; break;
        case cudaDevAttrMaxGridDimX:                     *value = 0x7fffffff; break; // CUB divides its work by it
        case cudaDevAttrMaxGridDimY:
        case cudaDevAttrMaxGridDimZ:                     *value = 65535; break;
        case cudaDevAttrClockRate:                       *value = d->clock_khz; break;
        case cudaDevAttrManagedMemory:                   *value = 1; break;
        case cudaDevAttrUnifiedAddressing:               *value = 1; break;
        case cudaDevAttrCooperativeLaunch:               *value = 0; break; // absent, as graphs are
        case cudaDevAttrCanUseHostPointerForRegisteredMem: *value = 0; break;
        default:
            // A wrong answer would show as wrong numbers far from here: CUB scanned nothing at all once.
            fprintf(stderr, "emulated GPU: device attribute %d is not known\n", (int) attribute);
            return result(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char * text, int room, int number) {
    if (device_number(number) == NULL) {
        return result(cudaErrorInvalidDevice);
    }
    snprintf(text, (size_t) room, "0000:%02x:00.0", number + 1);
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int * can, int device, int peer) {
    *can = device != peer && device_number(device) && device_number(peer) && device_number(device)->major >= 7;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    (void) flags;
    return device_number(peer) ? cudaSuccess : result(cudaErrorInvalidDevice);
}

EXPORT cudaError_t cudaDeviceSynchronize(void) { return cudaSuccess; }
EXPORT cudaError_t cudaDeviceReset(void) { return cudaSuccess; }

EXPORT cudaError_t cudaRuntimeGetVersion(int * version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

EXPORT cudaError_t cudaDriverGetVersion(int * version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

// --- errors ---------------------------------------------------------------------------------------------

EXPORT cudaError_t cudaGetLastError(void) {
    cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

EXPORT cudaError_t cudaPeekAtLastError(void) { return last_error; }

EXPORT const char * cudaGetErrorString(cudaError_t error) {
    switch (error) {
        case cudaSuccess:                      return "no error";
        case cudaErrorInvalidValue:            return "invalid argument";
        case cudaErrorMemoryAllocation:        return "out of memory";
        case cudaErrorInvalidConfiguration:    return "invalid configuration argument";
        case cudaErrorInvalidDevice:           return "invalid device ordinal";
        case cudaErrorInvalidDeviceFunction:   return "invalid device function";
        case cudaErrorNoKernelImageForDevice:  return "no kernel image is available for execution on the device";
        case cudaErrorIllegalAddress:          return "an illegal memory access was encountered";
        case cudaErrorLaunchOutOfResources:    return "too many resources requested for launch";
        case cudaErrorLaunchFailure:           return "unspecified launch failure";
        case cudaErrorNotSupported:            return "operation not supported";
        default:                               return "error of the emulated GPU";
    }
}

EXPORT const char * cudaGetErrorName(cudaError_t error) { return error ? "cudaError" : "cudaSuccess"; }

// --- memory ---------------------------------------------------------------------------------------------

EXPORT cudaError_t cudaMalloc(void ** address, size_t bytes) {
    if (device_number(current) == NULL) {
        return result(cudaErrorInvalidDevice);
    }
    *address = bytes ? qe_device_alloc(current, bytes) : NULL;
    return *address || bytes == 0 ? cudaSuccess : result(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaFree(void * address) {
    return address == NULL || !qe_device_free(address) || !qe_host_free(address) ? cudaSuccess
                                                                                   : result(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaHostAlloc(void ** address, size_t bytes, unsigned flags) {
    (void) flags;
    *address = qe_host_alloc(bytes);
    return *address ? cudaSuccess : result(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaMallocHost(void ** address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }

EXPORT cudaError_t cudaMallocManaged(void ** address, size_t bytes, unsigned flags) {
    return cudaHostAlloc(address, bytes, flags);
}

EXPORT cudaError_t cudaFreeHost(void * address) {
    return address == NULL || !qe_host_free(address) ? cudaSuccess : result(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaHostRegister(void * address, size_t bytes, unsigned flags) {
    (void) address, (void) bytes, (void) flags;
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostUnregister(void * address) {
    (void) address;
    return cudaSuccess;
}

EXPORT cudaError_t cudaHostGetDevicePointer(void ** device, void * host, unsigned flags) {
    (void) flags;
    *device = host;
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemGetInfo(size_t * free_bytes, size_t * total) {
    const struct qe_device * d = device_number(current);
    if (d == NULL) {
        return result(cudaErrorInvalidDevice);
    }
    *total = d->memory;
    *free_bytes = d->memory - d->used;
    return cudaSuccess;
}

static int outside(const char * what, const void * address, size_t bytes, int write) {
    char words[256];
    if (bytes == 0 || qe_memory_check(address, bytes, write, words, sizeof words) == NULL) {
        return 0;
    }
    fprintf(stderr, "emulated GPU: %s: %s\n", what, words);
    return 1;
}

EXPORT cudaError_t cudaMemcpy(void * to, const void * from, size_t bytes, enum cudaMemcpyKind kind) {
    (void) kind;
    if (outside("cudaMemcpy", to, bytes, 1) || outside("cudaMemcpy", from, bytes, 0)) {
        return result(cudaErrorInvalidValue);
    }
    memmove(to, from, bytes);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemcpyAsync(void * to, const void * from, size_t bytes, enum cudaMemcpyKind kind,
                                   cudaStream_t stream) {
    (void) stream;
    return cudaMemcpy(to, from, bytes, kind);
}

EXPORT cudaError_t cudaMemcpyPeerAsync(void * to, int to_device, const void * from, int from_device, size_t bytes,
                                       cudaStream_t stream) {
    (void) to_device, (void) from_device, (void) stream;
    return cudaMemcpy(to, from, bytes, cudaMemcpyDefault);
}

EXPORT cudaError_t cudaMemcpy2DAsync(void * to, size_t to_pitch, const void * from, size_t from_pitch, size_t width,
                                     size_t height, enum cudaMemcpyKind kind, cudaStream_t stream) {
    (void) stream;
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < height && error == cudaSuccess; i++) {
        error = cudaMemcpy((char *) to + i * to_pitch, (const char *) from + i * from_pitch, width, kind);
    }
    return error;
}

EXPORT cudaError_t cudaMemset(void * address, int value, size_t bytes) {
    if (outside("cudaMemset", address, bytes, 1)) {
        return result(cudaErrorInvalidValue);
    }
    memset(address, value, bytes);
    return cudaSuccess;
}

EXPORT cudaError_t cudaMemsetAsync(void * address, int value, size_t bytes, cudaStream_t stream) {
    (void) stream;
    return cudaMemset(address, value, bytes);
}

// --- streams, events, graphs ---------------------------------------------------------------------------

static cudaError_t handle(void ** made) {
    *made = malloc(8);
    return *made ? cudaSuccess : result(cudaErrorMemoryAllocation);
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t * s) { return handle((void **) s); }

EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t * s, unsigned flags) {
    (void) flags;
    return handle((void **) s);
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t s) {
    free(s);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    (void) s;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned flags) {
    (void) s, (void) e, (void) flags;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t * e) { return handle((void **) e); }

EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t * e, unsigned flags) {
    (void) flags;
    return handle((void **) e);
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e) {
    free(e);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    (void) s;
    double now = qe_seconds();
    memcpy(e, &now, sizeof now);
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    (void) e;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventQuery(cudaEvent_t e) {
    (void) e;
    return cudaSuccess;
}

EXPORT cudaError_t cudaEventElapsedTime(float * milliseconds, cudaEvent_t from, cudaEvent_t to) {
    double a, b;
    memcpy(&a, from, sizeof a);
    memcpy(&b, to, sizeof b);
    *milliseconds = (float) ((b - a) * 1e3);
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus * status) {
    (void) s;
    *status = cudaStreamCaptureStatusNone;
    return cudaSuccess;
}

EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode mode) {
    (void) s, (void) mode;
    return result(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t * graph) {
    (void) s, (void) graph;
    return result(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t * made, cudaGraph_t graph, unsigned long long flags) {
    (void) made, (void) graph, (void) flags;
    return result(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaGraphExecUpdate(cudaGraphExec_t made, cudaGraph_t graph, cudaGraphExecUpdateResultInfo * info) {
    (void) made, (void) graph, (void) info;
    return result(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t made, cudaStream_t s) {
    (void) made, (void) s;
    return result(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    (void) graph;
    return result(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t made) {
    (void) made;
    return result(cudaErrorNotSupported);
}

// --- kernels --------------------------------------------------------------------------------------------

EXPORT void ** __cudaRegisterFatBinary(void * wrapper) { return qe_register_module(wrapper); }
EXPORT void __cudaRegisterFatBinaryEnd(void ** module) { (void) module; }
EXPORT void __cudaUnregisterFatBinary(void ** module) { (void) module; }

EXPORT void __cudaRegisterFunction(void ** module, const char * host, char * device, const char * name, int limit,
                                   void * tid, void * bid, void * block, void * grid, int * size) {
    (void) device, (void) limit, (void) tid, (void) bid, (void) block, (void) grid, (void) size;
    qe_register_function(module, host, name);
}

static __thread struct {
    dim3 grid, block;
    size_t shared;
    void * stream;
} pushed;

EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void * stream) {
    pushed.grid = grid;
    pushed.block = block;
    pushed.shared = shared;
    pushed.stream = stream;
    return 0;
}

EXPORT cudaError_t __cudaPopCallConfiguration(dim3 * grid, dim3 * block, size_t * shared, void * stream) {
    *grid = pushed.grid;
    *block = pushed.block;
    *shared = pushed.shared;
    memcpy(stream, &pushed.stream, sizeof pushed.stream);
    return cudaSuccess;
}

static const struct qe_options * options(void) {
    static struct qe_options made;
    static int read;
    if (!read) {
        const char * seed = getenv("QBUILD_EMULATOR_SHUFFLE"), * trace = getenv("QBUILD_EMULATOR_TRACE");
        made.shuffle = seed ? strtoull(seed, NULL, 10) : 0;
        made.trace   = trace && *trace == '1';
        made.check   = qe_memory_check;
        made.around  = qe_memory_around;
        read = 1;
    }
    return &made;
}

// Launches are checked and counted, but nothing runs: shows which kernels a program would choose.
static int dry(void) {
    static int known = -1;
    if (known < 0) {
        const char * asked = getenv("QBUILD_EMULATOR_DRY");
        known = asked && *asked == '1';
    }
    return known;
}

static cudaError_t refuse(const struct qe_function * f, cudaError_t error, const char * what, size_t has, size_t limit) {
    fprintf(stderr, "emulated GPU: kernel %s cannot be launched: %zu %s, the limit is %zu\n", f->name, has, what, limit);
    return result(error);
}

// What the real launch would refuse (CUDA C++ Programming Guide, technical specifications).
static cudaError_t check_limits(const struct qe_function * f, dim3 grid, dim3 block, size_t shared) {
    const struct qe_device * d = device_number(current);
    size_t threads = (size_t) block.x * block.y * block.z, blocks = (size_t) grid.x * grid.y * grid.z;
    size_t bound = f->kernel->max_threads ? f->kernel->max_threads : QE_MAX_THREADS;
    if (threads == 0 || blocks == 0 || block.x > 1024 || block.y > 1024 || block.z > 64 || threads > QE_MAX_THREADS) {
        return refuse(f, cudaErrorInvalidConfiguration, "threads in a block", threads, QE_MAX_THREADS);
    }
    if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
        return refuse(f, cudaErrorInvalidConfiguration, "blocks along y or z", grid.y > grid.z ? grid.y : grid.z, 65535);
    }
    if (threads > bound) {
        return refuse(f, cudaErrorLaunchOutOfResources, "threads in a block", threads, bound);
    }
    size_t limit = f->dynamic_shared_limit > d->shared ? f->dynamic_shared_limit : d->shared;
    if (shared + f->kernel->shared_size > limit) {
        return refuse(f, cudaErrorInvalidValue, "bytes of shared memory", shared + f->kernel->shared_size, limit);
    }
    if (f->registers && ((threads + 31) / 32) * 32 * (size_t) ((f->registers + 7) / 8 * 8) > 65536) {
        return refuse(f, cudaErrorLaunchOutOfResources, "registers", threads * (size_t) f->registers, 65536);
    }
    return cudaSuccess;
}

static cudaError_t run(const void * host, dim3 grid, dim3 block, void ** args, size_t shared) {
    struct qe_function * f = qe_function_of(host);
    if (f == NULL) {
        return result(cudaErrorNoKernelImageForDevice);
    }
    cudaError_t error = check_limits(f, grid, block, shared);
    if (error != cudaSuccess) {
        return error;
    }
    struct qe_launch launch = {
        .unit = f->unit, .kernel = f->kernel, .args = args,
        .grid = { grid.x, grid.y, grid.z }, .block = { block.x, block.y, block.z },
        .dynamic_shared = (uint32_t) shared, .device = (uint32_t) current,
    };
    if (options()->trace) {
        fprintf(stderr, "emulated GPU: launch %s %s grid %u,%u,%u block %u,%u,%u shared %zu\n", f->unit->name, f->name,
                grid.x, grid.y, grid.z, block.x, block.y, block.z, shared);
    }
    double start = qe_seconds();
    int failed = dry() ? 0 : qe_run_kernel(&launch, options());
    if (f->launches == 0 && !failed) {
        qe_report_first(f);
    }
    f->seconds += qe_seconds() - start;
    f->launches++;
    f->blocks += (uint64_t) grid.x * grid.y * grid.z;
    f->threads += (uint64_t) grid.x * grid.y * grid.z * block.x * block.y * block.z;
    return failed ? result(cudaErrorLaunchFailure) : cudaSuccess;
}

EXPORT cudaError_t cudaLaunchKernel(const void * host, dim3 grid, dim3 block, void ** args, size_t shared,
                                    cudaStream_t stream) {
    (void) stream;
    return run(host, grid, block, args, shared);
}

EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t * config, const void * host, void ** args) {
    return run(host, config->gridDim, config->blockDim, args, config->dynamicSmemBytes);
}

EXPORT cudaError_t cudaLaunchCooperativeKernel(const void * host, dim3 grid, dim3 block, void ** args, size_t shared,
                                               cudaStream_t stream) {
    (void) host, (void) grid, (void) block, (void) args, (void) shared, (void) stream;
    return result(cudaErrorNotSupported);
}

EXPORT cudaError_t cudaFuncSetAttribute(const void * host, enum cudaFuncAttribute attribute, int value) {
    struct qe_function * f = qe_function_of(host);
    const struct qe_device * d = device_number(current);
    if (f == NULL || d == NULL) {
        return result(cudaErrorInvalidDeviceFunction);
    }
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        size_t asked = (size_t) value + f->kernel->shared_size;
        if (asked > d->shared_optin) {
            return refuse(f, cudaErrorInvalidValue, "bytes of shared memory", asked, d->shared_optin);
        }
        f->dynamic_shared_limit = asked;
    }
    return cudaSuccess;
}

EXPORT cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes * a, const void * host) {
    const struct qe_function * f = qe_function_of(host);
    const struct qe_device * d = device_number(current);
    if (f == NULL || d == NULL) {
        return result(cudaErrorInvalidDeviceFunction);
    }
    memset(a, 0, sizeof *a);
    a->sharedSizeBytes    = f->kernel->shared_size;
    a->localSizeBytes     = (size_t) f->local_bytes;
    a->numRegs            = f->registers ? f->registers : 64;
    a->maxThreadsPerBlock = f->kernel->max_threads ? (int) f->kernel->max_threads : QE_MAX_THREADS;
    a->binaryVersion      = d->major * 10 + d->minor;
    a->ptxVersion         = a->binaryVersion;
    a->maxDynamicSharedSizeBytes = (int) ((f->dynamic_shared_limit ? f->dynamic_shared_limit : d->shared) - f->kernel->shared_size);
    return cudaSuccess;
}

EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int * blocks, const void * host, int threads,
                                                                         size_t shared, unsigned flags) {
    (void) flags;
    const struct qe_function * f = qe_function_of(host);
    const struct qe_device * d = device_number(current);
    if (f == NULL || d == NULL || threads <= 0) {
        return result(cudaErrorInvalidValue);
    }
    // Registers are given out by warps, 256 at a time; shared memory in pieces of 256 bytes.
    int warps = (threads + QE_WARP - 1) / QE_WARP;
    int per_warp = ((f->registers ? f->registers : 64) * QE_WARP + 255) / 256 * 256;
    int by_threads = d->threads_per_multiprocessor / (warps * QE_WARP), by_registers = 65536 / per_warp / warps;
    size_t bytes = (shared + f->kernel->shared_size + 255) / 256 * 256;
    int by_shared = bytes ? (int) (d->shared_per_multiprocessor / bytes) : d->blocks_per_multiprocessor;
    int most = d->blocks_per_multiprocessor;
    most = by_threads < most ? by_threads : most;
    most = by_registers < most ? by_registers : most;
    *blocks = by_shared < most ? by_shared : most;
    return cudaSuccess;
}
