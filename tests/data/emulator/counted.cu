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

int main() {
    float * x, * y;
    cudaMalloc(&x, 1024 * sizeof(float));
    cudaMalloc(&y, 1024 * sizeof(float));
    cudaMemset(x, 0, 1024 * sizeof(float));
    close_by<<<4, 64>>>(x, y);
    far_apart<<<1, 32>>>(x, y);
    dots<<<1, 64>>>((const int *) x, (const int *) x + 64, (int *) y);
    close_by<<<4, 64>>>(x, y);
    printf("error %d\n", cudaDeviceSynchronize());
    return 0;
}
