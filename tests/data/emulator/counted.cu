// Kernels of which it is known what the counters have to say.

#include <cuda_runtime.h>

#include <cstdio>

static __global__ void close_by(const float * x, float * y) {
    const int i = blockIdx.x * 64 + threadIdx.x;
    y[i] = x[i] * 2.0f + 1.0f;
}

static __global__ void far_apart(const float * x, float * y) {
    y[threadIdx.x] = x[threadIdx.x * 8];
}

static __global__ void dots(const int * a, const int * b, int * c) {
    __shared__ int sums[64];
    const int t = threadIdx.x;
    sums[t] = __dp4a(a[t], b[t], 0);
    __syncthreads();
    if (t < 32) {
        c[t] = sums[t] + sums[t + 32];
    }
}

static __global__ void banks(int * y) {
    __shared__ __align__(16) int tile[32 * 32];
    const int t = threadIdx.x;
    for (int row = 0; row < 32; row++) {
        tile[row * 32 + t] = row + t;
    }
    __syncthreads();
    const long long two = ((const long long *) tile)[t];
    y[t] = tile[t * 32] + tile[t * 4] + tile[7] + (int) (two >> 32 ^ two);
}

// Four words at a time: one access, though the device IR has four.
static __global__ void fours(const int4 * x, int4 * y) {
    __shared__ int4 tile[32];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = tile[31 - threadIdx.x];
}

static __global__ void parting(const float * x, float * y) {
    if (threadIdx.x < 8) {
        float sum = 0.0f;
        for (int i = 0; i < (int) x[0] + 100; i++) {
            sum = sum * 0.5f + x[i];
        }
        y[threadIdx.x] = sum;
    }
}

int main() {
    float * x, * y;
    cudaMalloc(&x, 1024 * sizeof(float));
    cudaMalloc(&y, 1024 * sizeof(float));
    cudaMemset(x, 0, 1024 * sizeof(float));
    close_by<<<4, 64>>>(x, y);
    far_apart<<<1, 32>>>(x, y);
    dots<<<1, 64>>>((const int *) x, (const int *) x + 64, (int *) y);
    close_by<<<4, 64>>>(x, y);
    banks<<<1, 32>>>((int *) y);
    parting<<<1, 32>>>(x, y);
    fours<<<1, 32>>>((const int4 *) x, (int4 *) y);
    printf("error %d\n", cudaDeviceSynchronize());
    return 0;
}
