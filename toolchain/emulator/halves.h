// Halves and the bits of floats: for intrinsics (inlined into kernels) and for tensor.c.

#pragma once

#include <immintrin.h>
#include <stdint.h>
#include <string.h>

static inline float as_float(uint32_t u) { float f; memcpy(&f, &u, 4); return f; }
static inline uint32_t as_bits(float f) { uint32_t u; memcpy(&u, &f, 4); return u; }
static inline float half(uint16_t h) { return _cvtsh_ss(h); }
static inline uint16_t to_half(float f) { return _cvtss_sh(f, _MM_FROUND_TO_NEAREST_INT); }

// To the nearest half, in one rounding.
static inline uint16_t rounded(double exact) {
    float f = (float) exact;
    if ((double) f != exact && exact == exact) { // round to odd, so that the second rounding is right
        uint32_t u = as_bits(f);
        if ((f > 0 && (double) f > exact) || (f < 0 && (double) f < exact)) {
            u--;
        }
        f = as_float(u | 1);
    }
    return to_half(f);
}
