// What kernels of ggml-cuda are made of, each against plain host code: prints one line per difference.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

static __global__ void integers(const int * a, const int * b, int * out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[5 * i + 0] = __dp4a(a[i], b[i], 7);
        out[5 * i + 1] = __vsub4(a[i], b[i]);
        out[5 * i + 2] = __vsetne4(a[i], b[i]);
        out[5 * i + 3] = __byte_perm(a[i], b[i], b[i] & 0x7777);
        out[5 * i + 4] = __umulhi(a[i], b[i]);
    }
}

static int dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++) {
        c += int8_t(a >> 8 * i) * int8_t(b >> 8 * i);
    }
    return c;
}

static uint32_t bytes(uint32_t a, uint32_t b, bool set) {
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        const uint8_t x = a >> 8 * i, y = b >> 8 * i;
        r |= uint32_t(set ? (x != y) * 0xff : uint8_t(x - y)) << 8 * i;
    }
    return r;
}

static uint32_t permute(uint32_t a, uint32_t b, uint32_t s) {
    const uint64_t both = uint64_t(b) << 32 | a;
    uint32_t r = 0;
    for (int i = 0; i < 4; i++) {
        r |= uint32_t(uint8_t(both >> 8 * (s >> 4 * i & 7))) << 8 * i;
    }
    return r;
}

static __global__ void halves(const float * x, float * out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        const half2 h = __floats2half2_rn(x[i], -x[i]);
        const half2 p = __hmul2(h, __floats2half2_rn(0.5f, 3.0f));
        out[2 * i + 0] = __low2float(p);
        out[2 * i + 1] = __high2float(__hadd2(p, h));
    }
}

// Every lane tells the sum of its warp, what lane 3 holds, and which lanes are odd and above 9.
static __global__ void warps(const float * x, float * out) {
    const int lane = threadIdx.x % 32;
    float sum = x[threadIdx.x];
    for (int offset = 16; offset > 0; offset >>= 1) {
        sum += __shfl_xor_sync(0xffffffff, sum, offset, 32);
    }
    float pair = x[threadIdx.x]; // sums of 8 lanes
    for (int offset = 4; offset > 0; offset >>= 1) {
        pair += __shfl_xor_sync(0xffffffff, pair, offset, 8);
    }
    out[5 * threadIdx.x + 0] = sum;
    out[5 * threadIdx.x + 1] = __shfl_sync(0xffffffff, x[threadIdx.x], 3);
    out[5 * threadIdx.x + 2] = float(__ballot_sync(0xffffffff, lane % 2 && lane > 9) >> 8);
    out[5 * threadIdx.x + 3] = pair;
    out[5 * threadIdx.x + 4] = __shfl_up_sync(0xffffffff, x[threadIdx.x], 2);
}

static __global__ void count(int * bins, int n) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        atomicAdd(&bins[i % 7], 1);
    }
    if (__syncthreads_or(threadIdx.x == 77) && threadIdx.x == 0) {
        atomicMax(&bins[7], 123);
    }
}

// As ggml's flash attention loads a tile: rows that are not there count as zeros. Reads half2 as int, which
// a compiler that goes by strict aliasing takes for two different objects.
static __global__ void padded(const half2 * x, float * out, int rows) {
    for (int row = threadIdx.x; row < 128; row += blockDim.x) {
        const half2 zero[2] = {{0.0f, 0.0f}};
        int copy[2];
        for (int i = 0; i < 2; i++) {
            copy[i] = ((const int *) (row < rows ? x + 2 * row : zero))[i];
        }
        const half2 * loaded = (const half2 *) copy;
        out[2 * row + 0] = __low2float(loaded[0]);
        out[2 * row + 1] = __high2float(loaded[1]);
    }
}

static int wrong;

static void check(const char * what, int i, double got, double want) {
    if (!(std::fabs(got - want) <= 1e-6 * std::fabs(want))) {
        wrong++;
        printf("%s %d: %.9g, not %.9g\n", what, i, got, want);
    }
}

int main() {
    const int n = 1000;
    int a[n], b[n];
    int *da, *db, *di;
    float x[n];
    float *dx, *df;
    srand(1);
    for (int i = 0; i < n; i++) {
        a[i] = rand() * 2 + rand() % 2;
        b[i] = i % 5 ? rand() * 2 + rand() % 2 : a[i];
        x[i] = (rand() % 2001 - 1000) / 64.0f;
    }
    static int ints[5 * n];
    static float floats[5 * n];
    cudaMalloc(&da, sizeof a);
    cudaMalloc(&db, sizeof b);
    cudaMalloc(&di, sizeof ints);
    cudaMalloc(&dx, sizeof x);
    cudaMalloc(&df, sizeof floats);
    cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice);
    cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice);
    cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice);

    integers<<<(n + 127) / 128, 128>>>(da, db, di, n);
    cudaMemcpy(ints, di, sizeof ints, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) {
        check("dp4a", i, ints[5 * i], dp4a(a[i], b[i], 7));
        check("vsub4", i, uint32_t(ints[5 * i + 1]), bytes(a[i], b[i], false));
        check("vsetne4", i, uint32_t(ints[5 * i + 2]), bytes(a[i], b[i], true) & 0x01010101);
        check("prmt", i, uint32_t(ints[5 * i + 3]), permute(a[i], b[i], b[i] & 0x7777));
        check("umulhi", i, uint32_t(ints[5 * i + 4]), uint64_t(uint32_t(a[i])) * uint32_t(b[i]) >> 32);
    }
    halves<<<(n + 127) / 128, 128>>>(dx, df, n);
    cudaMemcpy(floats, df, sizeof floats, cudaMemcpyDeviceToHost);
    for (int i = 0; i < n; i++) { // all exact in half
        check("hmul2", i, floats[2 * i], __half2float(__float2half(x[i] * 0.5f)));
        check("hadd2", i, floats[2 * i + 1], __half2float(__float2half(__half2float(__float2half(-3.0f * x[i])) - x[i])));
    }
    warps<<<1, 64>>>(dx, df);
    cudaMemcpy(floats, df, sizeof floats, cudaMemcpyDeviceToHost);
    for (int t = 0; t < 64; t++) {
        const int first = t / 32 * 32, eight = t / 8 * 8;
        double sum = 0, pair = 0;
        for (int i = 0; i < 32; i++) {
            sum += x[first + i];
        }
        for (int i = 0; i < 8; i++) {
            pair += x[eight + i];
        }
        check("warp sum", t, floats[5 * t], sum);
        check("shfl", t, floats[5 * t + 1], x[first + 3]);
        check("ballot", t, floats[5 * t + 2], 0xaaaaa8 >> 0);
        check("sum of eight", t, floats[5 * t + 3], pair);
        check("shfl up", t, floats[5 * t + 4], t % 32 < 2 ? x[t] : x[t - 2]);
    }
    cudaMemset(dx, 0x3c, sizeof x); // halves of 1.05859375
    padded<<<1, 32>>>((const half2 *) dx, df, 100);
    cudaMemcpy(floats, df, 256 * sizeof(float), cudaMemcpyDeviceToHost);
    for (int i = 0; i < 256; i++) {
        check("padded", i, floats[i], i < 200 ? 1.05859375 : 0);
    }
    cudaMemset(di, 0, 8 * sizeof(int));
    count<<<1, 256>>>(di, n);
    cudaMemcpy(ints, di, 8 * sizeof(int), cudaMemcpyDeviceToHost);
    for (int i = 0; i < 7; i++) {
        check("atomicAdd", i, ints[i], n / 7 + (i < n % 7));
    }
    check("atomicMax", 0, ints[7], 123);
    printf("%d wrong, error %d\n", wrong, cudaGetLastError());
    return wrong != 0;
}
