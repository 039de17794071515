/* qbuild's overlay for CUDA's crt/math_functions.hpp, found before it on the include path.
 *
 * Why: NVIDIA's header takes _WIN32 to mean "the Microsoft C runtime". Compiled by clang for
 * MinGW (also _WIN32, but with a C runtime of GNU manners) it then defines exp10, sincos, log2,
 * copysign and their like a second time, as host functions that MinGW's <math.h> already has.
 * Hiding _WIN32 while the header is read takes the branch for every other system.
 */
/* No #pragma once: clang's wrapper reads this header twice, with other macros each time. */

#if defined(_WIN32)

/* The host's __isinf: on the branch for other systems NVIDIA's header calls it and counts on the
 * C library (glibc has one). MinGW has none, so it is supplied here, by the compiler's builtin.
 * The guard makes the second reading find it done. */
#ifndef QBUILD_CUDA_HOST_ISINF
#define QBUILD_CUDA_HOST_ISINF
static inline __attribute__((host)) int __isinf(const double value) {
    return __builtin_isinf(value);
}
#endif

/* push_macro keeps the compiler's own value (1) and gives it back unchanged afterwards. */
#pragma push_macro("_WIN32")
#undef _WIN32
#include_next "crt/math_functions.hpp"
#pragma pop_macro("_WIN32")

#else

/* Not Windows: NVIDIA's header as it is. */
#include_next "crt/math_functions.hpp"

#endif
