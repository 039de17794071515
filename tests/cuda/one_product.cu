// One matrix product of the series own-blas, as ggml asks for it (A transposed): something to count.
//
//     one_product f32|f16|bf16 ROWS COLUMNS LENGTH

#include "own-blas/cublas_v2.h"
#include "own-blas/library.h"

#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

// own-blas-library.cu needs ggml; here nothing is looked for
const own_blas::library * own_blas::find_library() { return nullptr; }
void own_blas::give_up(const char *, cublasStatus_t) {}

int main(int argc, char ** argv) {
    if (argc != 5) {
        printf("one_product f32|f16|bf16 ROWS COLUMNS LENGTH\n");
        return 2;
    }
    const cudaDataType type = !strcmp(argv[1], "f16") ? CUDA_R_16F : !strcmp(argv[1], "bf16") ? CUDA_R_16BF : CUDA_R_32F;
    const int m = atoi(argv[2]), n = atoi(argv[3]), k = atoi(argv[4]);
    const size_t size = type == CUDA_R_32F ? 4 : 2;
    void *a, *b, *c;
    cudaMalloc(&a, size * m * k);
    cudaMalloc(&b, size * n * k);
    cudaMalloc(&c, 4ull * m * n);
    cudaMemset(a, 0, size * m * k);
    cudaMemset(b, 0, size * n * k);
    cublasHandle_t handle;
    cublasCreate(&handle);
    const float one = 1.0f, zero = 0.0f;
    const cublasStatus_t status = cublasGemmEx(handle, CUBLAS_OP_T, CUBLAS_OP_N, m, n, k, &one, a, type, k, b, type, k,
        &zero, c, CUDA_R_32F, m, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
    cudaDeviceSynchronize();
    printf("status %d, error %d\n", int(status), int(cudaGetLastError()));
    return 0;
}
