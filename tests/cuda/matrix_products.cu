// Compares the functions of the series own-blas with naive ones in double precision, on many shapes.
//
//     matrix_products SEED COUNT
//
// Runs on a GPU, or on the emulated one (tests/support/emulated.py). Exit code 1 and a line that says
// which call was wrong; otherwise one line with the worst error, as a share of its bound.
//
// What is not part of a matrix is NaN: rows between m and lda, what lies between two matrices of a
// batch, C before a call with beta = 0. A kernel that reads any of it makes NaN of its result, one
// that writes any of it is found by comparing it afterwards.

#include "own-blas/cublas_v2.h"
#include "own-blas/library.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

// own-blas-library.cu needs ggml; here nothing is looked for
const own_blas::library * own_blas::find_library() { return nullptr; }
void own_blas::give_up(const char *, cublasStatus_t) {}

namespace {

struct random_numbers {
    uint64_t state;

    uint64_t next() {  // splitmix64
        uint64_t z = (state += 0x9e3779b97f4a7c15u);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        return z ^ (z >> 31);
    }

    int below(int n) { return int(next() % uint64_t(n)); }

    double value() { return double(int64_t(next())) / 4611686018427387904.0; }  // -2 ... 2

    template <typename T, size_t n> T of(const T (&list)[n]) { return list[below(int(n))]; }
};

void check(bool good, const char * what) {
    if (!good) {
        printf("%s failed\n", what);
        exit(1);
    }
}

int size_of(cudaDataType type) {
    return type == CUDA_R_32F ? 4 : 2;
}

double decode(const void * p, size_t i, cudaDataType type) {
    if (type == CUDA_R_32F) {
        return static_cast<const float *>(p)[i];
    }
    const uint16_t bits = static_cast<const uint16_t *>(p)[i];
    if (type == CUDA_R_16BF) {
        const uint32_t wide = uint32_t(bits) << 16;
        float          f;
        memcpy(&f, &wide, 4);
        return f;
    }
    const int sign = bits >> 15, exponent = bits >> 10 & 31, fraction = bits & 1023;
    const double size = exponent == 31 ? (fraction ? NAN : INFINITY)
                      : exponent == 0  ? std::ldexp(fraction, -24)
                                       : std::ldexp(1024 + fraction, exponent - 25);
    return sign ? -size : size;
}

// Values need not be rounded right: the reference reads back what was stored.
void encode(void * p, size_t i, cudaDataType type, double value) {
    if (type == CUDA_R_32F) {
        static_cast<float *>(p)[i] = float(value);
        return;
    }
    uint16_t & bits = static_cast<uint16_t *>(p)[i];
    const float f    = float(value);
    uint32_t    wide;
    memcpy(&wide, &f, 4);
    if (type == CUDA_R_16BF) {
        bits = uint16_t(wide >> 16);
        return;
    }
    const uint16_t sign = uint16_t(wide >> 31 << 15);
    if (std::isnan(f)) {
        bits = 0x7e00;
    } else if (std::fabs(f) >= 65504.0f) {
        bits = sign | (std::isinf(f) ? 0x7c00 : 0x7bff);
    } else if (std::fabs(f) < 6.103515625e-05f) {
        bits = sign | uint16_t(std::fabs(f) * 16777216.0f);
    } else {
        bits = sign | uint16_t((wide >> 13 & 0x3ff) | (((wide >> 23 & 0xff) - 112) << 10));
    }
}

// Numbers on the device, and what was written to them last.
struct memory {
    std::vector<unsigned char> bytes;
    char *                     device = nullptr;
    cudaDataType               type;
    int                        offset;  // elements that the first one lies behind an aligned address

    memory(size_t count, cudaDataType type, int offset) : type(type), offset(offset) {
        bytes.resize(std::max<size_t>(count, 1) * size_of(type));
        for (size_t i = 0; i < count; i++) {
            set(i, NAN);
        }
        check(cudaMalloc(reinterpret_cast<void **>(&device), bytes.size() + 64) == cudaSuccess, "cudaMalloc");
    }

    ~memory() { cudaFree(device); }

    memory(memory && other) : bytes(std::move(other.bytes)), device(other.device), type(other.type), offset(other.offset) {
        other.device = nullptr;
    }

    char * data() const { return device + offset * size_of(type); }
    void set(size_t i, double value) { encode(bytes.data(), i, type, value); }
    double get(size_t i) const { return decode(bytes.data(), i, type); }

    void send() const {
        check(cudaMemcpy(data(), bytes.data(), bytes.size(), cudaMemcpyHostToDevice) == cudaSuccess, "copy to the device");
    }

    memory receive() const {
        memory now(bytes.size() / size_of(type), type, offset);
        check(cudaMemcpy(now.bytes.data(), data(), bytes.size(), cudaMemcpyDeviceToHost) == cudaSuccess, "copy from the device");
        return now;
    }
};

// Addresses of a batch's matrices, in device memory.
struct addresses {
    void ** device = nullptr;

    addresses(const memory & of, size_t stride, int batch) {
        std::vector<void *> list(std::max(batch, 1));
        for (int i = 0; i < batch; i++) {
            list[i] = of.data() + i * stride * size_of(of.type);
        }
        check(cudaMalloc(reinterpret_cast<void **>(&device), list.size() * sizeof(void *)) == cudaSuccess, "cudaMalloc");
        check(cudaMemcpy(device, list.data(), list.size() * sizeof(void *), cudaMemcpyHostToDevice) == cudaSuccess, "copy of addresses");
    }

    ~addresses() { cudaFree(device); }
};

cublasHandle_t handle;
double         worst;
double         looser = 1.0;  // of a sum of 16-bit products: tensor cores cut where others round

const int shapes[] = {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 32, 33, 37, 61, 64, 65, 97, 101, 127, 128, 129,
    191, 200, 251, 256, 257, 383, 509, 512, 513};

int size(random_numbers & r) {
    return r.below(40) == 0 ? 0 : r.below(3) == 0 ? 1 + r.below(80) : r.of(shapes);
}

// A value, or sometimes none.
double special(random_numbers & r, bool wild) {
    if (wild && r.below(50) == 0) {
        return r.of({double(INFINITY), -double(INFINITY), double(NAN)});
    }
    return r.value();
}

struct product {
    int               m, n, k, batch;
    cublasOperation_t op_a, op_b;
    cudaDataType      type, type_c;
    bool              half_sum;
    int               how;  // 0: one, 1: strided, 2: addresses; +3: by the Ex functions
    double            alpha, beta;
    bool              wild;
    int               lda, ldb, ldc;
    size_t            stride_a, stride_b, stride_c;

    std::string text() const {
        char line[300];
        snprintf(line, sizeof(line), "m %d n %d k %d batch %d op %d %d type %d to %d half %d how %d alpha %g beta %g lda %d %d %d",
            m, n, k, batch, op_a, op_b, type, type_c, half_sum, how, alpha, beta, lda, ldb, ldc);
        return line;
    }
};

product draw(random_numbers & r) {
    product p = {};
    do {
        p.m = size(r);
        p.n = size(r);
        p.k = size(r);
        p.how = r.below(3);
        p.batch = p.how == 0 ? 1 : r.of({0, 1, 2, 3});
    } while (int64_t(p.m) * p.n * p.k * std::max(p.batch, 1) > 3000000);
    p.op_a = r.of({CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C});
    p.op_b = r.of({CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C});
    p.type = r.of({CUDA_R_32F, CUDA_R_32F, CUDA_R_16F, CUDA_R_16BF});
    p.half_sum = p.type == CUDA_R_16F && r.below(3) == 0;
    p.type_c = p.half_sum || r.below(2) == 0 ? p.type : CUDA_R_32F;
    if (p.type != CUDA_R_32F || r.below(3) == 0) {
        p.how += 3;
    }
    p.alpha = r.of({1.0, 1.0, 0.0, -1.0, 0.5, 2.75});
    p.beta  = r.of({0.0, 0.0, 1.0, -1.0, 0.5});
    p.wild  = r.below(8) == 0;
    const int pads[] = {0, 0, 0, 1, 3, 4, 8, 29};
    const bool ta = p.op_a != CUBLAS_OP_N, tb = p.op_b != CUBLAS_OP_N;
    p.lda = std::max(1, (ta ? p.k : p.m) + r.of(pads));
    p.ldb = std::max(1, (tb ? p.n : p.k) + r.of(pads));
    p.ldc = std::max(1, p.m + r.of(pads));
    p.stride_a = size_t(p.lda) * (ta ? p.m : p.k) + r.of(pads);
    p.stride_b = size_t(p.ldb) * (tb ? p.k : p.n) + r.of(pads);
    p.stride_c = size_t(p.ldc) * p.n + r.of(pads);
    return p;
}

void fill(memory & into, random_numbers & r, int rows, int cols, int ld, size_t stride, int batch, bool wild) {
    for (int b = 0; b < batch; b++) {
        for (int j = 0; j < cols; j++) {
            for (int i = 0; i < rows; i++) {
                into.set(b * stride + size_t(j) * ld + i, special(r, wild));
            }
        }
    }
    into.send();
}

cublasStatus_t call(const product & p, const memory & a, const memory & b, const memory & c) {
    float    alpha = float(p.alpha), beta = float(p.beta);
    uint16_t half_alpha, half_beta;
    encode(&half_alpha, 0, CUDA_R_16F, p.alpha);
    encode(&half_beta, 0, CUDA_R_16F, p.beta);
    const void * x = p.half_sum ? static_cast<void *>(&half_alpha) : &alpha;
    const void * y = p.half_sum ? static_cast<void *>(&half_beta) : &beta;
    const cublasComputeType_t compute = p.half_sum ? CUBLAS_COMPUTE_16F : CUBLAS_COMPUTE_32F;
    const addresses pa(a, p.stride_a, p.batch), pb(b, p.stride_b, p.batch), pc(c, p.stride_c, p.batch);
    const auto fa = reinterpret_cast<const float *>(a.data()), fb = reinterpret_cast<const float *>(b.data());
    const auto fc = reinterpret_cast<float *>(c.data());
    switch (p.how) {
        case 0:
            return cublasSgemm(handle, p.op_a, p.op_b, p.m, p.n, p.k, &alpha, fa, p.lda, fb, p.ldb, &beta, fc, p.ldc);
        case 1:
            return cublasSgemmStridedBatched(handle, p.op_a, p.op_b, p.m, p.n, p.k, &alpha, fa, p.lda, p.stride_a, fb, p.ldb,
                p.stride_b, &beta, fc, p.ldc, p.stride_c, p.batch);
        case 2:
            return cublasSgemmBatched(handle, p.op_a, p.op_b, p.m, p.n, p.k, &alpha, reinterpret_cast<float **>(pa.device), p.lda,
                reinterpret_cast<float **>(pb.device), p.ldb, &beta, reinterpret_cast<float **>(pc.device), p.ldc, p.batch);
        case 3:
            return cublasGemmEx(handle, p.op_a, p.op_b, p.m, p.n, p.k, x, a.data(), p.type, p.lda, b.data(), p.type, p.ldb,
                y, c.data(), p.type_c, p.ldc, compute, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
        case 4:
            return cublasGemmStridedBatchedEx(handle, p.op_a, p.op_b, p.m, p.n, p.k, x, a.data(), p.type, p.lda, p.stride_a,
                b.data(), p.type, p.ldb, p.stride_b, y, c.data(), p.type_c, p.ldc, p.stride_c, p.batch, compute, CUBLAS_GEMM_DEFAULT);
        default:
            return cublasGemmBatchedEx(handle, p.op_a, p.op_b, p.m, p.n, p.k, x, pa.device, p.type, p.lda, pb.device, p.type, p.ldb,
                y, pc.device, p.type_c, p.ldc, p.batch, compute, CUBLAS_GEMM_DEFAULT);
    }
}

// Rounding of one float operation, and of storing a result, relative to its size.
const double unit = std::ldexp(1.0, -24);

double rounding(cudaDataType type) {
    return type == CUDA_R_32F ? unit : std::ldexp(1.0, type == CUDA_R_16F ? -11 : -8);
}

void fail(const std::string & text, const char * what, int i, int j, double got, double expected) {
    printf("wrong: %s: %s at (%d, %d): %.9g instead of %.9g\n", text.c_str(), what, i, j, got, expected);
    exit(1);
}

// The bound: every product and sum may be off by one rounding of what was added so far in absolute
// values; then come the rounding of alpha, beta and of the result. Denormals may become zero.
void compare(const product & p, const memory & a, const memory & b, const memory & before, const memory & after, std::vector<bool> & seen) {
    const double tiny = p.type_c == CUDA_R_16F ? std::ldexp(1.0, -24) : std::ldexp(1.0, -120);
    for (int q = 0; q < p.batch; q++) {
        for (int j = 0; j < p.n; j++) {
            for (int i = 0; i < p.m; i++) {
                double sum = 0.0, size = 0.0;
                for (int l = 0; l < p.k && p.alpha != 0.0; l++) {
                    const double x = a.get(q * p.stride_a + (p.op_a == CUBLAS_OP_N ? size_t(l) * p.lda + i : size_t(i) * p.lda + l));
                    const double y = b.get(q * p.stride_b + (p.op_b == CUBLAS_OP_N ? size_t(j) * p.ldb + l : size_t(l) * p.ldb + j));
                    sum += x * y;
                    size += std::fabs(x * y);
                }
                const size_t at    = q * p.stride_c + size_t(j) * p.ldc + i;
                const double kept  = p.beta != 0.0 ? p.beta * before.get(at) : 0.0;
                const double exact = p.alpha * sum + kept;
                const double got   = after.get(at);
                seen[at] = true;
                if (!std::isfinite(exact)) {
                    if (std::isnan(exact) ? !std::isnan(got) : got != exact) {
                        fail(p.text(), "NaN or infinity", i, j, got, exact);
                    }
                    continue;
                }
                size = std::fabs(p.alpha) * size + std::fabs(kept);
                const double sums  = p.type == CUDA_R_32F ? 1.0 : looser;
                const double bound = (p.k + 4) * sums * unit * size + 1.001 * rounding(p.type_c) * std::fabs(exact) + tiny;
                const double error = std::fabs(got - exact) / bound;
                if (!(error <= 1.0)) {
                    fail(p.text(), "value", i, j, got, exact);
                }
                worst = std::max(worst, error);
            }
        }
    }
}

void test_product(random_numbers & r) {
    const product p  = draw(r);
    const bool    ta = p.op_a != CUBLAS_OP_N, tb = p.op_b != CUBLAS_OP_N;
    memory a(p.stride_a * p.batch, p.type, r.below(4)), b(p.stride_b * p.batch, p.type, r.below(4));
    memory c(p.stride_c * p.batch, p.type_c, r.below(4));
    fill(a, r, ta ? p.k : p.m, ta ? p.m : p.k, p.lda, p.stride_a, p.batch, p.wild);
    fill(b, r, tb ? p.n : p.k, tb ? p.k : p.n, p.ldb, p.stride_b, p.batch, false);
    if (p.beta != 0.0) {
        fill(c, r, p.m, p.n, p.ldc, p.stride_c, p.batch, p.wild);
    } else {
        c.send();
    }
    const cublasStatus_t status = call(p, a, b, c);
    check(status == CUBLAS_STATUS_SUCCESS, (p.text() + ": " + cublasGetStatusString(status)).c_str());
    const memory after = c.receive();
    std::vector<bool> seen(c.bytes.size() / size_of(c.type));
    compare(p, a, b, c, after, seen);
    for (size_t i = 0; i < seen.size(); i++) {
        if (!seen[i] && memcmp(&after.bytes[i * size_of(c.type)], &c.bytes[i * size_of(c.type)], size_of(c.type)) != 0) {
            fail(p.text(), "written outside of the matrix", int(i), 0, after.get(i), NAN);
        }
    }
    c.send();
    check(call(p, a, b, c) == CUBLAS_STATUS_SUCCESS, "second call");
    check(c.receive().bytes == after.bytes, (p.text() + ": the same call with the same bits").c_str());
}

// The residual of a solution found by substitution is small whatever the matrix is:
// |op(A) X - alpha B| <= (n + 1) u |op(A)| |X|, and as much for alpha.
void test_system(random_numbers & r) {
    const int m = std::min(size(r), 140), n = std::min(size(r), 140), batch = r.of({0, 1, 2, 3});
    const cublasSideMode_t  side  = r.of({CUBLAS_SIDE_LEFT, CUBLAS_SIDE_RIGHT});
    const cublasFillMode_t  fill  = r.of({CUBLAS_FILL_MODE_LOWER, CUBLAS_FILL_MODE_UPPER});
    const cublasOperation_t op    = r.of({CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_OP_C});
    const cublasDiagType_t  diag  = r.of({CUBLAS_DIAG_NON_UNIT, CUBLAS_DIAG_UNIT});
    const float             alpha = r.of({1.0f, 1.0f, 0.0f, -0.5f});
    const int    k   = side == CUBLAS_SIDE_LEFT ? m : n;
    const int    lda = std::max(1, k + r.of({0, 1, 5})), ldb = std::max(1, m + r.of({0, 1, 5}));
    const size_t stride_a = size_t(lda) * k + 3, stride_b = size_t(ldb) * n + 1;
    memory a(stride_a * batch, CUDA_R_32F, 0), b(stride_b * batch, CUDA_R_32F, r.below(4));
    const auto inside = [&](int i, int j) { return fill == CUBLAS_FILL_MODE_LOWER ? i > j : i < j; };
    for (int q = 0; q < batch; q++) {
        for (int j = 0; j < k; j++) {
            for (int i = 0; i < k; i++) {  // the other triangle stays NaN, and a diagonal that is one
                if (inside(i, j)) {
                    a.set(q * stride_a + size_t(j) * lda + i, r.value() / (2 * std::max(k, 4)));
                } else if (i == j && diag == CUBLAS_DIAG_NON_UNIT) {
                    a.set(q * stride_a + size_t(j) * lda + i, 1.5 + r.value() / 4);
                }
            }
        }
        for (int j = 0; j < n; j++) {
            for (int i = 0; i < m; i++) {
                b.set(q * stride_b + size_t(j) * ldb + i, r.value());
            }
        }
    }
    a.send();
    b.send();
    const addresses pa(a, stride_a, batch), pb(b, stride_b, batch);
    const cublasStatus_t status = cublasStrsmBatched(handle, side, fill, op, diag, m, n, &alpha,
        reinterpret_cast<float **>(pa.device), lda, reinterpret_cast<float **>(pb.device), ldb, batch);
    char text[200];
    snprintf(text, sizeof(text), "trsm m %d n %d side %d fill %d op %d diag %d alpha %g batch %d", m, n, side, fill, op, diag, alpha, batch);
    check(status == CUBLAS_STATUS_SUCCESS, text);
    const memory x = b.receive();
    const auto element = [&](int q, int i, int j) {  // of op(A)
        if (op != CUBLAS_OP_N) {
            std::swap(i, j);
        }
        return i == j && diag == CUBLAS_DIAG_UNIT ? 1.0 : i == j || inside(i, j) ? a.get(q * stride_a + size_t(j) * lda + i) : 0.0;
    };
    for (int q = 0; q < batch; q++) {
        for (int j = 0; j < n; j++) {
            for (int i = 0; i < m; i++) {
                double sum = 0.0, size = 0.0;
                for (int l = 0; l < k; l++) {
                    const double t = side == CUBLAS_SIDE_LEFT ? element(q, i, l) : element(q, l, j);
                    const double v = x.get(q * stride_b + (side == CUBLAS_SIDE_LEFT ? size_t(j) * ldb + l : size_t(l) * ldb + i));
                    sum += t * v;
                    size += std::fabs(t * v);
                }
                const double right = alpha * b.get(q * stride_b + size_t(j) * ldb + i);
                const double error = std::fabs(sum - right) / ((k + 2) * unit * size + 2 * unit * std::fabs(right) + 1e-30);
                if (!(error <= 1.0)) {
                    fail(text, "residual", i, j, sum, right);
                }
                worst = std::max(worst, error);
            }
        }
    }
}

// What is refused, and what does nothing.
void test_refusals() {
    const float one = 1.0f, zero = 0.0f;
    memory x(64, CUDA_R_32F, 0);
    const auto f = reinterpret_cast<float *>(x.data());
    const auto gemm = [&](int m, int n, int k, int lda) {
        return cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, &one, f, lda, f, 8, &zero, f, 8);
    };
    check(gemm(-1, 1, 1, 8) == CUBLAS_STATUS_INVALID_VALUE, "negative m");
    check(gemm(8, 1, 1, 7) == CUBLAS_STATUS_INVALID_VALUE, "lda below m");
    check(gemm(0, 4, 4, 8) == CUBLAS_STATUS_SUCCESS, "no rows");
    check(cublasSgemm(nullptr, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, f, 1, f, 1, &zero, f, 1) == CUBLAS_STATUS_NOT_INITIALIZED, "no handle");
    check(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &one, f, CUDA_R_64F, 1, f, CUDA_R_64F, 1, &zero, f, CUDA_R_64F, 1,
              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT) == CUBLAS_STATUS_NOT_SUPPORTED, "double");
    check(cublasSetWorkspace(handle, x.data() + 4, 64) == CUBLAS_STATUS_INVALID_VALUE, "a workspace at an odd address");
}

}  // namespace

int main(int argc, char ** argv) {
    random_numbers r = {argc > 1 ? strtoull(argv[1], nullptr, 10) : 1};
    const int      count = argc > 2 ? atoi(argv[2]) : 100;

    int major;
    check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) == cudaSuccess, "compute capability");
    looser = major >= 8 ? 2.0 : 1.0;

    check(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "cublasCreate");
    test_refusals();
    void *       workspace;
    const size_t bytes = 4 << 20;
    check(cudaMalloc(&workspace, bytes) == cudaSuccess, "cudaMalloc");
    for (int i = 0; i < count; i++) {
        // with a workspace for split-K, with a small one, with none
        const int kind = r.below(4);
        check(cublasSetWorkspace(handle, workspace, kind == 0 ? 0 : kind == 1 ? 100000 : bytes) == CUBLAS_STATUS_SUCCESS, "workspace");
        test_product(r);
        if (i % 4 == 0) {
            test_system(r);
        }
    }
    check(cudaDeviceSynchronize() == cudaSuccess, "the device");
    check(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS, "cublasDestroy");
    printf("%d products, %d triangular systems: worst error %.3f of its bound\n", count, (count + 3) / 4, worst);
    return 0;
}
