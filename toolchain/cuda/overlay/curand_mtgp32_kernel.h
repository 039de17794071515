/* qbuild's overlay for cuRAND's curand_mtgp32_kernel.h: empty on purpose.
 *
 * Why: clang's __clang_cuda_runtime_wrapper.h includes this header in every CUDA compilation, to
 * undo what it does to blockDim and threadIdx when a program includes it later. ggml does not use
 * cuRAND, and its wheel would be one more download only to undo something that never happens.
 */
#pragma once
