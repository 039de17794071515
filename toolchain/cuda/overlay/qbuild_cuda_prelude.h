/* qbuild's prelude, forced in before anything else (-include) when .cu files are compiled for
 * windows-gnu.
 *
 * Why: libc++ calls ::aligned_alloc from <cstdlib> when _LIBCPP_HAS_ALIGNED_ALLOCATION says so
 * and the target is not the Microsoft C runtime. zig's MinGW headers leave the declaration out
 * (the Universal CRT has no aligned_alloc), and in a CUDA compilation the lookup happens although
 * the inline function that holds it is never used. A declaration without a definition satisfies
 * the compiler; if code ever called it the link would fail by name, not misbehave.
 */
#pragma once

#if defined(_WIN32) && defined(__cplusplus)
extern "C" void * aligned_alloc(decltype(sizeof(0)) alignment, decltype(sizeof(0)) size);
#endif
