// The CUDA driver's functions that ggml-cuda looks up. Virtual memory management is absent: the attribute
// that asks for it is 0, and every function of it says "not supported".

#include "platform.h" // first: it asks for what POSIX hides

#include <cuda.h>

EXPORT CUresult CUDAAPI cuInit(unsigned flags) { (void) flags; return CUDA_SUCCESS; }

EXPORT CUresult CUDAAPI cuDriverGetVersion(int * version) {
    *version = CUDA_VERSION;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGet(CUdevice * device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDeviceGetAttribute(int * value, CUdevice_attribute attribute, CUdevice device) {
    (void) attribute, (void) device;
    *value = 0;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuGetErrorString(CUresult error, const char ** text) {
    *text = error == CUDA_SUCCESS ? "no error" : "operation not supported by the emulated GPU";
    return CUDA_SUCCESS;
}

#define ABSENT(name, ...) EXPORT CUresult CUDAAPI name(__VA_ARGS__) { return CUDA_ERROR_NOT_SUPPORTED; }
#pragma clang diagnostic ignored "-Wunused-parameter"
ABSENT(cuMemAddressFree, CUdeviceptr at, size_t size)
ABSENT(cuMemAddressReserve, CUdeviceptr * at, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags)
ABSENT(cuMemCreate, CUmemGenericAllocationHandle * made, size_t size, const CUmemAllocationProp * prop, unsigned long long flags)
ABSENT(cuMemGetAllocationGranularity, size_t * size, const CUmemAllocationProp * prop, CUmemAllocationGranularity_flags option)
ABSENT(cuMemMap, CUdeviceptr at, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
ABSENT(cuMemRelease, CUmemGenericAllocationHandle handle)
ABSENT(cuMemSetAccess, CUdeviceptr at, size_t size, const CUmemAccessDesc * access, size_t count)
ABSENT(cuMemUnmap, CUdeviceptr at, size_t size)
