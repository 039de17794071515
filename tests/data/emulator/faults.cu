// Kernels with one fault each, and one without. `program NAME` launches that kernel and prints the error
// that the runtime reports, and two results.

#include <cstdio>
#include <cstring>
#include <cuda_runtime.h>

static __global__ void behind_the_buffer(float * x) {
    x[threadIdx.x + 33] = 1.0f; // 64 floats, 32 threads
}

static __global__ void reverse(float * x, bool barrier) {
    __shared__ float tile[64];
    tile[threadIdx.x] = threadIdx.x;
    if (barrier) {
        __syncthreads();
    }
    x[threadIdx.x] = tile[63 - threadIdx.x];
}

static __global__ void behind_the_array(float * x) {
    __shared__ float tile[32];
    tile[threadIdx.x + 1] = threadIdx.x;
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x];
}

static __global__ void divergent(float * x) {
    if (threadIdx.x < 7) {
        x[threadIdx.x] = __shfl_xor_sync(0xffffffff, x[threadIdx.x], 1);
    } else {
        __syncthreads();
    }
}

// The neighbour in the same warp reads without __syncwarp: right in lockstep only.
static __global__ void lockstep(float * x) {
    __shared__ float tile[32];
    tile[threadIdx.x] = threadIdx.x;
    x[threadIdx.x] = tile[31 - threadIdx.x];
}

static __global__ void uninitialised(float * x) {
    __shared__ float tile[32];
    if (threadIdx.x > 40) {
        tile[0] = 1;
    }
    __syncthreads();
    x[threadIdx.x] = tile[threadIdx.x];
}

extern __shared__ float dynamic[];

static __global__ void needs_shared(float * x) {
    dynamic[threadIdx.x] = 1;
    x[threadIdx.x] = dynamic[threadIdx.x];
}

int main(int argc, char ** argv) {
    const char * name = argc > 1 ? argv[1] : "";
    float * x;
    cudaMalloc(&x, 64 * sizeof(float));
    cudaMemset(x, 0, 64 * sizeof(float));
    if (!strcmp(name, "right"))             { reverse<<<1, 64>>>(x, true); }
    if (!strcmp(name, "race"))              { reverse<<<1, 64>>>(x, false); }
    if (!strcmp(name, "behind-the-buffer")) { behind_the_buffer<<<1, 32>>>(x); }
    if (!strcmp(name, "behind-the-array"))  { behind_the_array<<<1, 32>>>(x); }
    if (!strcmp(name, "divergent"))         { divergent<<<1, 32>>>(x); }
    if (!strcmp(name, "lockstep"))          { lockstep<<<1, 32>>>(x); }
    if (!strcmp(name, "uninitialised"))     { uninitialised<<<1, 32>>>(x); }
    if (!strcmp(name, "too-much-shared"))   { needs_shared<<<1, 32, 49153>>>(x); }
    if (!strcmp(name, "too-many-threads"))  { needs_shared<<<1, 1025, 8192>>>(x); }
    if (!strcmp(name, "out-of-memory")) {
        void * all;
        printf("%d\n", cudaMalloc(&all, size_t(7) << 30));
    }
    float host[64];
    const int error = cudaGetLastError();
    cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
    printf("%d %g %g\n", error, host[0], host[63]);
}
