// Matrix instructions of compute capability 8.0 against plain loops: prints one line per difference.
//
// Fragments are filled and read element by element with the manual's formulas (PTX ISA, "Matrix Fragments for
// mma…"), or by ldmatrix from rows in shared memory; both have to give the same product.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <mma.h>

struct tf32 { float v; };

template <typename T> static __host__ __device__ float number(T v) { return float(v); }
template <> __host__ __device__ float number(tf32 v) { return v.v; }
template <> __host__ __device__ float number(half v) { return __half2float(v); }
template <> __host__ __device__ float number(__nv_bfloat16 v) { return __bfloat162float(v); }

// Row and column of element i of A, and of B (as column and row), for elements of `bits` bits.
template <int bits, int m, int k> static __device__ void place_a(int lane, int i, int & row, int & column) {
    const int e = 32 / bits, in_register = i % e, r = i / e;
    row = lane / 4;
    if (m == 16 && r % 2 == 1) { row += 8; }
    column = (lane % 4) * e + in_register + (m == 16 ? r / 2 : r) * 4 * e;
}
template <int bits> static __device__ void place_b(int lane, int i, int & row, int & column) {
    const int e = 32 / bits;
    row = (lane % 4) * e + i % e + i / e * 4 * e;
    column = lane / 4;
}

// Sums are read and written in place; what follows the shape are registers of A and B.
#define MMA(shape, bits, registers, ...)                                                            \
    asm("mma.sync.aligned." shape " {%0, %1, %2, %3}, " registers ", {%0, %1, %2, %3};"               \
        : bits(d[0]), bits(d[1]), bits(d[2]), bits(d[3]) : __VA_ARGS__)
#define MMA_4_2(shape, bits)                                                                        \
    MMA(shape, bits, "{%4, %5, %6, %7}, {%8, %9}",                                                  \
        "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#define MMA_2_1(shape, bits) MMA(shape, bits, "{%4, %5}, {%6}", "r"(a[0]), "r"(a[1]), "r"(b[0]))

static __device__ void mma(float * d, const uint32_t * a, const uint32_t * b, half, int k) {
    if (k == 16) {
        MMA_4_2("m16n8k16.row.col.f32.f16.f16.f32", "+f");
    } else {
        MMA_2_1("m16n8k8.row.col.f32.f16.f16.f32", "+f");
    }
}
static __device__ void mma(float * d, const uint32_t * a, const uint32_t * b, __nv_bfloat16, int k) {
    if (k == 8) {
        MMA_2_1("m16n8k8.row.col.f32.bf16.bf16.f32", "+f");
        return;
    }
    // in the other form that headers use: sums go in and out by operands of their own
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};\n"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(d[0]), "f"(d[1]), "f"(d[2]), "f"(d[3]));
}
static __device__ void mma(float * f, const uint32_t * a, const uint32_t * b, tf32, int k) {
    uint32_t * d = (uint32_t *) f;
    if (k == 8) {
        MMA_4_2("m16n8k8.row.col.f32.tf32.tf32.f32", "+r");
    } else {
        MMA_2_1("m16n8k4.row.col.f32.tf32.tf32.f32", "+r");
    }
}
static __device__ void mma(int * d, const uint32_t * a, const uint32_t * b, int8_t, int k) {
    if (k == 32) {
        MMA_4_2("m16n8k32.row.col.s32.s8.s8.s32", "+r");
    } else {
        MMA_2_1("m16n8k16.row.col.s32.s8.s8.s32", "+r");
    }
}
static __device__ void mma8(int * d, const uint32_t * a, const uint32_t * b) {
    asm("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
        : "+r"(d[0]), "+r"(d[1]) : "r"(a[0]), "r"(b[0]));
}

// a: m × k by rows, b: 8 columns of k, c and d: m × 8 by rows
template <typename T, typename D, int m, int k> static __global__ void product(const T * a, const T * b, const D * c, D * d) {
    constexpr int bits = 8 * sizeof(T);
    const int lane = threadIdx.x;
    uint32_t ra[4] = {}, rb[2] = {};
    int row, column;
    for (int i = 0; i < m * k / 32; i++) {
        place_a<bits, m, k>(lane, i, row, column);
        ((T *) ra)[i] = a[row * k + column];
    }
    for (int i = 0; i < k * 8 / 32; i++) {
        place_b<bits>(lane, i, row, column);
        ((T *) rb)[i] = b[column * k + row];
    }
    D rd[4];
    for (int i = 0; i < m / 4; i++) {
        rd[i] = c[(lane / 4 + (i < 2 ? 0 : 8)) * 8 + (lane % 4) * 2 + (i & 1)];
    }
    if constexpr (m == 8) {
        mma8(rd, ra, rb);
    } else {
        mma(rd, ra, rb, T(), k);
    }
    for (int i = 0; i < m / 4; i++) {
        d[(lane / 4 + (i < 2 ? 0 : 8)) * 8 + (lane % 4) * 2 + (i & 1)] = rd[i];
    }
}

// The same by ldmatrix: A from rows, B (k rows of 8) by .trans, C and D in halves.
static __global__ void loaded(const half * a, const half * b, const half * c, half * d) {
    __shared__ __align__(128) half rows[16 * 16];
    extern __shared__ half columns[];
    const int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32) { rows[i] = a[i]; }
    for (int i = lane; i < 128; i += 32) { columns[i % 16 * 8 + i / 16] = b[i]; }
    __syncthreads();
    uint32_t ra[4], rb[2], rd[2];
    const uint32_t from = (uint32_t) __cvta_generic_to_shared(rows + (lane % 16) * 16 + (lane / 16) * 8);
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
        : "=r"(ra[0]), "=r"(ra[1]), "=r"(ra[2]), "=r"(ra[3]) : "r"(from));
    const half * generic = columns + lane % 16 * 8;
    asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.b16 {%0, %1}, [%2];" : "=r"(rb[0]), "=r"(rb[1]) : "l"(generic));
    for (int i = 0; i < 2; i++) {
        memcpy(&rd[i], c + (lane / 4 + 8 * i) * 8 + lane % 4 * 2, 4);
    }
    asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
        : "+r"(rd[0]), "+r"(rd[1]) : "r"(ra[0]), "r"(ra[1]), "r"(ra[2]), "r"(ra[3]), "r"(rb[0]), "r"(rb[1]));
    for (int i = 0; i < 2; i++) {
        memcpy(d + (lane / 4 + 8 * i) * 8 + lane % 4 * 2, &rd[i], 4);
    }
}

// wmma: 8 × 16 times 16 × 32 in shared memory whose rows are longer, twice in a row.
static __global__ void fragments(const half * a, const half * b, float * d) {
    using namespace nvcuda;
    __shared__ __align__(32) half rows[8 * 24], columns[32 * 24];
    __shared__ __align__(32) float sums[8 * 36];
    for (int i = threadIdx.x; i < 8 * 16; i += 32) { rows[i / 16 * 24 + i % 16] = a[i]; }
    for (int i = threadIdx.x; i < 32 * 16; i += 32) { columns[i / 16 * 24 + i % 16] = b[i]; }
    __syncthreads();
    wmma::fragment<wmma::matrix_a, 8, 32, 16, half, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, 8, 32, 16, half, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, 8, 32, 16, float> sum;
    wmma::fill_fragment(sum, 0.0f);
    wmma::load_matrix_sync(fa, rows, 24);
    wmma::load_matrix_sync(fb, columns, 24);
    wmma::mma_sync(sum, fa, fb, sum);
    wmma::mma_sync(sum, fa, fb, sum);
    wmma::store_matrix_sync(sums, sum, 36, wmma::mem_row_major);
    __syncthreads();
    for (int i = threadIdx.x; i < 8 * 32; i += 32) { d[i] = sums[i / 32 * 36 + i % 32]; }
}

static __global__ void transposed(const uint32_t * in, uint32_t * out) {
    uint32_t r;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(in[threadIdx.x]));
    out[threadIdx.x] = r;
}

static __global__ void reduced(const int * in, int * out) {
    const int v = in[threadIdx.x];
    const unsigned mask = threadIdx.x < 8 ? 0xffu : 0xffffff00u;
    int * own = out + 8 * threadIdx.x;
    if (threadIdx.x < 8) {
        own[0] = __reduce_add_sync(mask, v);
        own[1] = __reduce_min_sync(mask, v);
    } else {
        own[0] = __reduce_add_sync(mask, v);
        own[1] = __reduce_min_sync(mask, v);
    }
    own[2] = __reduce_max_sync(0xffffffffu, v);
    own[3] = int(__reduce_min_sync(0xffffffffu, unsigned(v)));
    own[4] = int(__reduce_max_sync(0xffffffffu, unsigned(v)));
    own[5] = int(__reduce_and_sync(0xffffffffu, unsigned(v) | 0x700u));
    own[6] = int(__reduce_or_sync(0xffffffffu, unsigned(v)));
    own[7] = int(__reduce_xor_sync(0xffffffffu, unsigned(v)));
}

// Three stages of asynchronous copies, each thread its own 16 bytes; the last copy is cut short.
template <bool wait> static __global__ void copied(const uint4 * in, uint4 * out, int n, int last) {
    __shared__ uint4 stage[3][32];
    const int lane = threadIdx.x;
    for (int i = 0; i < n + 2; i++) {
        if (i < n) {
            const uint32_t to = (uint32_t) __cvta_generic_to_shared(&stage[i % 3][lane]);
            const int bytes = i == n - 1 ? last : 16;
            if (i % 2) {
                asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], %2, %3;"
                    :: "r"(to), "l"(in + i * 32 + lane), "n"(16), "r"(bytes) : "memory");
            } else {
                asm volatile("cp.async.ca.shared.global [%0], [%1], 16, %2;" :: "r"(to), "l"(in + i * 32 + lane), "r"(bytes) : "memory");
            }
        }
        asm volatile("cp.async.commit_group;\n" ::: "memory");
        if (i >= 2) {
            if (wait) {
                asm volatile("cp.async.wait_group %0;\n" :: "n"(2) : "memory");
            }
            __syncwarp();
            out[(i - 2) * 32 + lane] = stage[(i - 2) % 3][lane];
            __syncwarp();
        }
    }
}

static __global__ void halves(const half2 * a, uint32_t * out) {
    const half2 x = a[threadIdx.x], y = a[31 - threadIdx.x];
    half2 * own = (half2 *) (out + 4 * threadIdx.x);
    own[0] = __hmax2(x, y);
    own[1] = __halves2half2(__hmin(x.x, y.x), __hmax(x.y, y.y));
    out[4 * threadIdx.x + 2] = __hgt2_mask(x, y);
    out[4 * threadIdx.x + 3] = __hle2_mask(x, y);
}

static __global__ void lane_missing(uint32_t * out) {
    uint32_t r = threadIdx.x;
    if (threadIdx.x != 5) {
        asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(r) : "r"(r));
    }
    out[threadIdx.x] = r;
}

static __global__ void row_not_aligned(uint32_t * out) {
    __shared__ __align__(16) uint32_t rows[64];
    rows[threadIdx.x] = rows[threadIdx.x + 32] = 0;
    __syncwarp();
    asm volatile("ldmatrix.sync.aligned.m8n8.x1.b16 {%0}, [%1];" : "=r"(out[threadIdx.x]) : "l"(rows + threadIdx.x));
}

// Another lane's part is read without waiting for that lane.
static __global__ void copy_raced(const uint4 * in, uint4 * out) {
    __shared__ uint4 stage[32];
    const uint32_t to = (uint32_t) __cvta_generic_to_shared(stage + threadIdx.x);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(to), "l"(in + threadIdx.x) : "memory");
    asm volatile("cp.async.wait_all;" ::: "memory");
    out[threadIdx.x] = stage[threadIdx.x ^ 1];
}

static float random_number() { return float(rand() % 4001 - 2000) / 1000; }

template <typename T> static T * on_device(const T * from, size_t n) {
    T * p;
    cudaMalloc(&p, n * sizeof(T));
    if (from) { cudaMemcpy(p, from, n * sizeof(T), cudaMemcpyHostToDevice); }
    return p;
}

static int wrong;

static void compare(const char * name, double got, double want, double bound) {
    if (!(fabs(got - want) <= bound)) {
        wrong++;
        printf("%s: %g instead of %g\n", name, got, want);
    }
}

template <typename T> static T make() { return T(random_number()); }
template <> tf32 make() {
    uint32_t bits;
    const float f = random_number();
    memcpy(&bits, &f, 4);
    bits &= 0xffffe000;
    tf32 t;
    memcpy(&t, &bits, 4);
    return t;
}
template <> int8_t make() { return int8_t(rand()); }

// One rounding of the sum to 2^-11 (halves) or 2^-24 of it; exact for integers.
template <typename T, typename D, int m, int k> static void test(const char * name, void (*kernel)(const T *, const T *, const D *, D *), double rounding) {
    T a[16 * 32], b[8 * 32];
    D c[16 * 8], d[16 * 8];
    for (T & v : a) { v = make<T>(); }
    for (T & v : b) { v = make<T>(); }
    for (D & v : c) { v = D(random_number() * 10); }
    T * da = on_device(a, m * k), * db = on_device(b, 8 * k);
    D * dc = on_device(c, m * 8), * dd = on_device<D>(nullptr, m * 8);
    kernel<<<1, 32, 256>>>(da, db, dc, dd);
    cudaMemcpy(d, dd, sizeof(D) * m * 8, cudaMemcpyDeviceToHost);
    for (int i = 0; i < m * 8; i++) {
        double want = number(c[i]), size = fabs(want);
        for (int j = 0; j < k; j++) {
            const double p = double(number(a[i / 8 * k + j])) * number(b[i % 8 * k + j]);
            want += p;
            size += fabs(p);
        }
        compare(name, number(d[i]), want, rounding * size);
    }
}

static void products_of_fragments() {
    half a[8 * 16], b[32 * 16];
    float d[8 * 32];
    for (half & v : a) { v = make<half>(); }
    for (half & v : b) { v = make<half>(); }
    half * da = on_device(a, 8 * 16), * db = on_device(b, 32 * 16);
    float * dd = on_device<float>(nullptr, 8 * 32);
    fragments<<<1, 32>>>(da, db, dd);
    cudaMemcpy(d, dd, sizeof d, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 8 * 32; i++) {
        double want = 0, size = 0;
        for (int k = 0; k < 16; k++) {
            const double p = 2 * number(a[i / 32 * 16 + k]) * number(b[i % 32 * 16 + k]);
            want += p;
            size += fabs(p);
        }
        compare("wmma m8n32k16", d[i], want, size / (1 << 23));
    }
}

template <bool wait> static int copies() {
    uint4 in[7 * 32], out[7 * 32];
    uint32_t * words = (uint32_t *) in;
    for (int i = 0; i < 7 * 32 * 4; i++) { words[i] = rand(); }
    uint4 * di = on_device(in, 7 * 32), * dd = on_device<uint4>(nullptr, 7 * 32);
    copied<wait><<<1, 32>>>(di, dd, 7, 4);
    cudaMemcpy(out, dd, sizeof out, cudaMemcpyDeviceToHost);
    int differ = 0;
    for (int i = 0; i < 7 * 32 * 4; i++) {
        differ += ((uint32_t *) out)[i] != (i >= 6 * 32 * 4 && i % 4 ? 0 : words[i]);
    }
    return differ;
}

static void reductions() {
    int in[32], out[8 * 32], want[2][8] = {};
    for (int & v : in) { v = rand() - (1 << 30); }
    int * di = on_device(in, 32), * dd = on_device<int>(nullptr, 8 * 32);
    reduced<<<1, 32>>>(di, dd);
    cudaMemcpy(out, dd, sizeof out, cudaMemcpyDeviceToHost);
    for (int part = 0; part < 2; part++) {
        int * w = want[part];
        unsigned sum = 0, low = -1u, high = 0, all = -1u;
        w[1] = INT32_MAX;
        w[2] = INT32_MIN;
        for (int i = 0; i < 32; i++) {
            if ((i < 8) == (part == 0)) {
                sum += unsigned(in[i]);
                w[1] = in[i] < w[1] ? in[i] : w[1];
            }
            w[2] = in[i] > w[2] ? in[i] : w[2];
            low = unsigned(in[i]) < low ? unsigned(in[i]) : low;
            high = unsigned(in[i]) > high ? unsigned(in[i]) : high;
            all &= unsigned(in[i]) | 0x700u;
            w[6] |= in[i];
            w[7] ^= in[i];
        }
        w[0] = int(sum), w[3] = int(low), w[4] = int(high), w[5] = int(all);
    }
    for (int i = 0; i < 8 * 32; i++) {
        compare("redux.sync", out[i], want[i / 8 >= 8][i % 8], 0);
    }
}

static void pairs_of_halves() {
    half in[64], got[2];
    uint32_t out[128];
    for (int i = 0; i < 64; i++) { in[i] = half(random_number()); }
    in[0] = half(NAN);
    half * di = on_device(in, 64);
    uint32_t * dd = on_device<uint32_t>(nullptr, 128);
    halves<<<1, 32>>>((half2 *) di, dd);
    cudaMemcpy(out, dd, sizeof out, cudaMemcpyDeviceToHost);
    for (int i = 0; i < 64; i++) {
        const int at = i / 2, place = i % 2;
        const float x = in[i], y = in[2 * (31 - at) + place];
        memcpy(got, out + 4 * at, 4);
        compare("max.f16x2", number(got[place]), fmaxf(x, y), 0);
        memcpy(got, out + 4 * at + 1, 4);
        compare("min.f16", number(got[place]), place ? fmaxf(x, y) : fminf(x, y), 0);
        compare("set.gt", out[4 * at + 2] >> 16 * place & 0xffff, x > y ? 0xffff : 0, 0);
        compare("set.le", out[4 * at + 3] >> 16 * place & 0xffff, x <= y ? 0xffff : 0, 0);
    }
}

int main(int argc, char ** argv) {
    const char * what = argc > 1 ? argv[1] : "";
    uint32_t * scratch = on_device<uint32_t>(nullptr, 64);
    if (!strcmp(what, "lane-missing")) {
        lane_missing<<<1, 32>>>(scratch);
    } else if (!strcmp(what, "warp-incomplete")) {
        transposed<<<1, 24>>>(scratch, scratch);
    } else if (!strcmp(what, "row-not-aligned")) {
        row_not_aligned<<<1, 32>>>(scratch);
    } else if (!strcmp(what, "copy-raced") || !strcmp(what, "copy-outside")) {
        uint4 * in = on_device<uint4>(nullptr, 32), * out = on_device<uint4>(nullptr, 32);
        copy_raced<<<1, 32>>>(in + (what[5] == 'o'), out);
    } else if (!strcmp(what, "not-waited")) {
        printf("%d words differ\n", copies<false>());
    } else {
        test<half, float, 16, 16>("m16n8k16 f16", product<half, float, 16, 16>, 1.0 / (1 << 23));
        test<half, float, 16, 8>("m16n8k8 f16", product<half, float, 16, 8>, 1.0 / (1 << 23));
        test<__nv_bfloat16, float, 16, 16>("m16n8k16 bf16", product<__nv_bfloat16, float, 16, 16>, 1.0 / (1 << 23));
        test<__nv_bfloat16, float, 16, 8>("m16n8k8 bf16", product<__nv_bfloat16, float, 16, 8>, 1.0 / (1 << 23));
        test<tf32, float, 16, 4>("m16n8k4 tf32", product<tf32, float, 16, 4>, 1.0 / (1 << 23));
        test<tf32, float, 16, 8>("m16n8k8 tf32", product<tf32, float, 16, 8>, 1.0 / (1 << 23));
        test<int8_t, int, 16, 32>("m16n8k32 s8", product<int8_t, int, 16, 32>, 0);
        test<int8_t, int, 16, 16>("m16n8k16 s8", product<int8_t, int, 16, 16>, 0);
        test<int8_t, int, 8, 16>("m8n8k16 s8", product<int8_t, int, 8, 16>, 0);
        test<half, half, 16, 16>("ldmatrix, m16n8k16 in halves", loaded, 1.0 / (1 << 11));
        products_of_fragments();
        uint16_t in[64], out[64];
        for (int i = 0; i < 64; i++) { in[i] = i; }
        cudaMemcpy(scratch, in, sizeof in, cudaMemcpyHostToDevice);
        transposed<<<1, 32>>>(scratch, scratch + 32);
        cudaMemcpy(out, scratch + 32, sizeof out, cudaMemcpyDeviceToHost);
        for (int i = 0; i < 64; i++) { compare("movmatrix", out[i], in[i % 8 * 8 + i / 8], 0); }
        reductions();
        pairs_of_halves();
        compare("cp.async", copies<true>(), 0, 0);
        printf("%d wrong, ", wrong);
    }
    printf("error %d\n", int(cudaGetLastError()));
    return wrong != 0;
}
