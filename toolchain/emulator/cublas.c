// cuBLAS for the emulated GPU: the thirteen functions that ggml-cuda calls, as plain loops that sum in
// double precision. Slow and right: what the kernels' results are compared with.

#include "platform.h" // first: it asks for what POSIX hides

#include <immintrin.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cublas_v2.h>

static float as_float(uint32_t u) {
    float f;
    memcpy(&f, &u, 4);
    return f;
}

static double get(const void * p, cudaDataType type, size_t i) {
    switch (type) {
        case CUDA_R_16F:  return _cvtsh_ss(((const uint16_t *) p)[i]);
        case CUDA_R_16BF: return as_float((uint32_t) ((const uint16_t *) p)[i] << 16);
        case CUDA_R_32F:  return ((const float *) p)[i];
        case CUDA_R_64F:  return ((const double *) p)[i];
        case CUDA_R_8I:   return ((const int8_t *) p)[i];
        default:          return NAN;
    }
}

static void put(void * p, cudaDataType type, size_t i, double value) {
    float f = (float) value;
    uint32_t u;
    memcpy(&u, &f, 4);
    switch (type) {
        case CUDA_R_16F:  ((uint16_t *) p)[i] = _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); break;
        case CUDA_R_16BF: // round to nearest, ties to even; NaN stays NaN
            ((uint16_t *) p)[i] = isnan(f) ? 0x7fff : (uint16_t) ((u + 0x7fff + (u >> 16 & 1)) >> 16);
            break;
        case CUDA_R_32F:  ((float *) p)[i] = f; break;
        case CUDA_R_64F:  ((double *) p)[i] = value; break;
        default:          break;
    }
}

static int known(cudaDataType type) {
    return type == CUDA_R_16F || type == CUDA_R_16BF || type == CUDA_R_32F || type == CUDA_R_64F || type == CUDA_R_8I;
}

// What alpha and beta point to.
static double scalar(const void * p, cublasComputeType_t compute) {
    if (compute == CUBLAS_COMPUTE_16F || compute == CUBLAS_COMPUTE_16F_PEDANTIC) {
        return _cvtsh_ss(*(const uint16_t *) p);
    }
    if (compute == CUBLAS_COMPUTE_64F) {
        return *(const double *) p;
    }
    return *(const float *) p;
}

struct matrix {
    const void * data;
    cudaDataType type;
    int ld;
};

// C = alpha op(A) op(B) + beta C, column-major. One column of op(B) and all of op(A)'s rows at a time,
// widened to double first, so that the inner loop is a plain dot product.
static cublasStatus_t gemm(cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k, double alpha,
                           struct matrix a, struct matrix b, double beta, void * c, cudaDataType c_type, int ldc) {
    if (m < 0 || n < 0 || k < 0 || ldc < (m > 1 ? m : 1)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!known(a.type) || !known(b.type) || !known(c_type)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    double * rows = malloc(((size_t) m * k + k + 1) * sizeof *rows);
    if (rows == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    double * column = rows + (size_t) m * k;
    for (int l = 0; l < k; l++) {
        for (int i = 0; i < m; i++) {
            rows[(size_t) i * k + l] = get(a.data, a.type, ta == CUBLAS_OP_N ? (size_t) l * a.ld + i : (size_t) i * a.ld + l);
        }
    }
    for (int j = 0; j < n; j++) {
        for (int l = 0; l < k; l++) {
            column[l] = get(b.data, b.type, tb == CUBLAS_OP_N ? (size_t) j * b.ld + l : (size_t) l * b.ld + j);
        }
        for (int i = 0; i < m; i++) {
            const double * row = rows + (size_t) i * k;
            double s[4] = { 0 };
            int l = 0;
            for (; l + 4 <= k; l += 4) {
                for (int v = 0; v < 4; v++) {
                    s[v] += row[l + v] * column[l + v];
                }
            }
            for (; l < k; l++) {
                s[0] += row[l] * column[l];
            }
            size_t at = (size_t) j * ldc + i;
            double sum = alpha * (s[0] + s[1] + s[2] + s[3]);
            put(c, c_type, at, beta == 0 ? sum : sum + beta * get(c, c_type, at));
        }
    }
    free(rows);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasCreate_v2(cublasHandle_t * handle) {
    *handle = malloc(8);
    return *handle ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_ALLOC_FAILED;
}

EXPORT cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    (void) handle, (void) stream;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    (void) handle, (void) mode;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void * workspace, size_t bytes) {
    (void) handle, (void) workspace, (void) bytes;
    return CUBLAS_STATUS_SUCCESS;
}

EXPORT const char * cublasGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "error of the emulated cuBLAS";
}

EXPORT cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                     int k, const float * alpha, const float * a, int lda, const float * b, int ldb,
                                     const float * beta, float * c, int ldc) {
    (void) handle;
    return gemm(ta, tb, m, n, k, *alpha, (struct matrix) { a, CUDA_R_32F, lda }, (struct matrix) { b, CUDA_R_32F, ldb },
                *beta, c, CUDA_R_32F, ldc);
}

EXPORT cublasStatus_t cublasSgemmBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                                         int n, int k, const float * alpha, const float * const a[], int lda,
                                         const float * const b[], int ldb, const float * beta, float * const c[],
                                         int ldc, int count) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++) {
        status = cublasSgemm_v2(handle, ta, tb, m, n, k, alpha, a[i], lda, b[i], ldb, beta, c[i], ldc);
    }
    return status;
}

EXPORT cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                                                int m, int n, int k, const float * alpha, const float * a, int lda,
                                                long long stride_a, const float * b, int ldb, long long stride_b,
                                                const float * beta, float * c, int ldc, long long stride_c,
                                                int count) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++) {
        status = cublasSgemm_v2(handle, ta, tb, m, n, k, alpha, a + i * stride_a, lda, b + i * stride_b, ldb, beta,
                                c + i * stride_c, ldc);
    }
    return status;
}

EXPORT cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                                   int k, const void * alpha, const void * a, cudaDataType at, int lda, const void * b,
                                   cudaDataType bt, int ldb, const void * beta, void * c, cudaDataType ct, int ldc,
                                   cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    (void) handle, (void) algorithm;
    return gemm(ta, tb, m, n, k, scalar(alpha, compute), (struct matrix) { a, at, lda }, (struct matrix) { b, bt, ldb },
                scalar(beta, compute), c, ct, ldc);
}

EXPORT cublasStatus_t cublasGemmBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb, int m,
                                          int n, int k, const void * alpha, const void * const a[], cudaDataType at,
                                          int lda, const void * const b[], cudaDataType bt, int ldb, const void * beta,
                                          void * const c[], cudaDataType ct, int ldc, int count,
                                          cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (int i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++) {
        status = cublasGemmEx(handle, ta, tb, m, n, k, alpha, a[i], at, lda, b[i], bt, ldb, beta, c[i], ct, ldc,
                              compute, algorithm);
    }
    return status;
}

static size_t width(cudaDataType type) {
    return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : type == CUDA_R_8I ? 1 : 2;
}

EXPORT cublasStatus_t cublasGemmStridedBatchedEx(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                                                 int m, int n, int k, const void * alpha, const void * a,
                                                 cudaDataType at, int lda, long long stride_a, const void * b,
                                                 cudaDataType bt, int ldb, long long stride_b, const void * beta,
                                                 void * c, cudaDataType ct, int ldc, long long stride_c, int count,
                                                 cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (long long i = 0; i < count && status == CUBLAS_STATUS_SUCCESS; i++) {
        status = cublasGemmEx(handle, ta, tb, m, n, k, alpha, (const char *) a + i * stride_a * (long long) width(at), at,
                              lda, (const char *) b + i * stride_b * (long long) width(bt), bt, ldb, beta,
                              (char *) c + i * stride_c * (long long) width(ct), ct, ldc, compute, algorithm);
    }
    return status;
}

// X op(A) = alpha B or op(A) X = alpha B, X in B's place, for each of a batch.
EXPORT cublasStatus_t cublasStrsmBatched(cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t fill,
                                         cublasOperation_t trans, cublasDiagType_t diagonal, int m, int n,
                                         const float * alpha, const float * const a[], int lda, float * const b[],
                                         int ldb, int count) {
    (void) handle;
    int order = side == CUBLAS_SIDE_LEFT ? m : n, systems = side == CUBLAS_SIDE_LEFT ? n : m;
    // From the right, X op(A) = B is op(A)^T X^T = B^T.
    int transposed = (trans != CUBLAS_OP_N) != (side == CUBLAS_SIDE_RIGHT);
    int forward = (fill == CUBLAS_FILL_MODE_LOWER) != transposed;
    double * x = malloc((size_t) (order + 1) * sizeof *x);
    if (x == NULL) {
        return CUBLAS_STATUS_ALLOC_FAILED;
    }
    for (int s = 0; s < count; s++) {
        for (int v = 0; v < systems; v++) {
            for (int step = 0; step < order; step++) {
                int i = forward ? step : order - 1 - step;
                size_t at = side == CUBLAS_SIDE_LEFT ? (size_t) v * ldb + i : (size_t) i * ldb + v;
                double sum = (double) *alpha * b[s][at];
                for (int done = 0; done < step; done++) {
                    int j = forward ? done : order - 1 - done;
                    sum -= x[j] * a[s][transposed ? (size_t) i * lda + j : (size_t) j * lda + i];
                }
                x[i] = diagonal == CUBLAS_DIAG_UNIT ? sum : sum / a[s][(size_t) i * lda + i];
                b[s][at] = (float) x[i];
            }
        }
    }
    free(x);
    return CUBLAS_STATUS_SUCCESS;
}
