// What the device code's intrinsics and PTX instructions mean, in C. Compiled to bitcode and inlined
// into every kernel; toolchain/data/emulator.toml says which text stands for which function.
//
// Names follow PTX. Functions that need to know who runs them take the thread first. Written from the
// PTX ISA manual (8.x) and LLVM's description of its NVPTX intrinsics.

#include "kernel.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

#pragma clang attribute push(__attribute__((always_inline)), apply_to = function)

typedef struct qe_thread thread;

extern __thread thread * qe_current __attribute__((visibility("hidden")));

// In its entry block every function asks once who it is. A fiber never changes its OS thread.
__attribute__((const)) thread * qe_self(void) { return qe_current; }
__attribute__((const)) char * qe_shared(thread * t) { return t->block->shared; }

#include "halves.h"

// --- special registers ---------------------------------------------------------------------------

#define SPECIAL(name, field) __attribute__((pure)) uint32_t qe_##name(thread * t) { return field; }
SPECIAL(tid_x, t->tid[0])
SPECIAL(tid_y, t->tid[1])
SPECIAL(tid_z, t->tid[2])
SPECIAL(ctaid_x, t->block->ctaid[0])
SPECIAL(ctaid_y, t->block->ctaid[1])
SPECIAL(ctaid_z, t->block->ctaid[2])
SPECIAL(ntid_x, t->block->ntid[0])
SPECIAL(ntid_y, t->block->ntid[1])
SPECIAL(ntid_z, t->block->ntid[2])
SPECIAL(nctaid_x, t->block->nctaid[0])
SPECIAL(nctaid_y, t->block->nctaid[1])
SPECIAL(nctaid_z, t->block->nctaid[2])
SPECIAL(laneid, t->lane)
SPECIAL(lanemask_eq, 1u << t->lane)
SPECIAL(lanemask_le, 0xffffffffu >> (31 - t->lane))
SPECIAL(lanemask_lt, (1u << t->lane) - 1)
SPECIAL(lanemask_ge, 0xffffffffu << t->lane)
SPECIAL(lanemask_gt, ~(0xffffffffu >> (31 - t->lane)))
SPECIAL(dynamic_smem_size, t->block->dynamic_shared)
// Where a cooperative launch's workspace lies: there is none.
uint32_t qe_envreg(void) { return 0; }

// --- synchronisation ----------------------------------------------------------------------------

void qe_barrier(thread * t, uint32_t id) { (void) id; qe_block_barrier(t); }
_Bool qe_barrier_and(thread * t, uint32_t id, _Bool v) { (void) id; return qe_block_reduce(t, 1, v) != 0; }
_Bool qe_barrier_or(thread * t, uint32_t id, _Bool v) { (void) id; return qe_block_reduce(t, 0, v) != 0; }
void qe_warp_sync(thread * t, uint32_t mask) { qe_warp_operation(t, QE_WARP_BARRIER, mask, 0, 0, 0, 0); }
void qe_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
uint32_t qe_activemask(thread * t) { return t->warp->alive; }

#define SHUFFLE(name, operation)                                                                        \
    uint32_t qe_shfl_##name##_i32(thread * t, uint32_t mask, uint32_t v, uint32_t b, uint32_t c) {      \
        return qe_warp_operation(t, operation, mask, v, b, c, 0);                                       \
    }                                                                                                   \
    float qe_shfl_##name##_f32(thread * t, uint32_t mask, float v, uint32_t b, uint32_t c) {            \
        return as_float(qe_warp_operation(t, operation, mask, as_bits(v), b, c, 0));                    \
    }
SHUFFLE(bfly, QE_SHUFFLE_XOR)
SHUFFLE(up, QE_SHUFFLE_UP)
SHUFFLE(down, QE_SHUFFLE_DOWN)
SHUFFLE(idx, QE_SHUFFLE_INDEX)

_Bool qe_vote_all(thread * t, uint32_t mask, _Bool v) { return qe_warp_operation(t, QE_ALL, mask, v, 0, 0, 0) != 0; }
_Bool qe_vote_any(thread * t, uint32_t mask, _Bool v) { return qe_warp_operation(t, QE_ANY, mask, v, 0, 0, 0) != 0; }
uint32_t qe_vote_ballot(thread * t, uint32_t mask, _Bool v) { return qe_warp_operation(t, QE_BALLOT, mask, v, 0, 0, 0); }

#define REDUX(name, how)                                                                                \
    uint32_t qe_redux_##name(thread * t, uint32_t v, uint32_t mask) {                                   \
        return qe_warp_operation(t, QE_REDUCE, mask, v, how, 0, 0);                                     \
    }
REDUX(add, QE_ADD)
REDUX(min, QE_MIN)
REDUX(max, QE_MAX)
REDUX(umin, QE_UMIN)
REDUX(umax, QE_UMAX)
REDUX(and, QE_AND)
REDUX(or, QE_OR)
REDUX(xor, QE_XOR)

// CUB's (cub/util_ptx.cuh, warp_scan_shfl.cuh, warp_reduce_shfl.cuh): operands in the order of the text.
uint32_t qe_shfl_up_b32(thread * t, uint32_t v, uint32_t b, uint32_t c, uint32_t mask) {
    return qe_warp_operation(t, QE_SHUFFLE_UP, mask, v, b, c, 0);
}
uint32_t qe_shfl_down_b32(thread * t, uint32_t v, uint32_t b, uint32_t c, uint32_t mask) {
    return qe_warp_operation(t, QE_SHUFFLE_DOWN, mask, v, b, c, 0);
}
uint32_t qe_shfl_idx_b32(thread * t, uint32_t v, uint32_t b, uint32_t c, uint32_t mask) {
    return qe_warp_operation(t, QE_SHUFFLE_INDEX, mask, v, b, c, 0);
}
uint32_t qe_shfl_up_add_u32(thread * t, uint32_t v, uint32_t b, uint32_t c, uint32_t add, uint32_t mask) {
    uint32_t inside, r = qe_warp_operation(t, QE_SHUFFLE_UP, mask, v, b, c, &inside);
    return inside ? r + add : r;
}
// 64 bits are two shuffles of halves; that they are one step for the others is what CUB relies on.
uint64_t qe_shfl_up_add_u64(thread * t, uint64_t v, uint32_t b, uint32_t c, uint64_t add, uint32_t mask) {
    uint32_t inside, low = qe_warp_operation(t, QE_SHUFFLE_UP, mask, (uint32_t) v, b, c, &inside);
    uint32_t high = qe_warp_operation(t, QE_SHUFFLE_UP, mask, (uint32_t) (v >> 32), b, c, &inside);
    uint64_t r = (uint64_t) high << 32 | low;
    return inside ? r + add : r;
}
float qe_shfl_up_add_f32(thread * t, float v, uint32_t b, uint32_t c, float add, uint32_t mask) {
    uint32_t inside;
    float r = as_float(qe_warp_operation(t, QE_SHUFFLE_UP, mask, as_bits(v), b, c, &inside));
    return inside ? r + add : r;
}
float qe_shfl_down_add_f32(thread * t, float v, uint32_t b, uint32_t c, float add, uint32_t mask) {
    uint32_t inside;
    float r = as_float(qe_warp_operation(t, QE_SHUFFLE_DOWN, mask, as_bits(v), b, c, &inside));
    return inside ? r + add : r;
}
uint32_t qe_shfl_down_add_u32(thread * t, uint32_t v, uint32_t b, uint32_t c, uint32_t add, uint32_t mask) {
    uint32_t inside, r = qe_warp_operation(t, QE_SHUFFLE_DOWN, mask, v, b, c, &inside);
    return inside ? r + add : r;
}
// CUB's MatchAny, one bit of it: the lanes of the whole warp that agree with this one.
uint32_t qe_match_bit(thread * t, uint32_t v, uint32_t bit) {
    uint32_t p = (v & bit) != 0, set = qe_warp_operation(t, QE_BALLOT, 0xffffffffu, p, 0, 0, 0);
    return p ? set : ~set;
}

// --- integers ----------------------------------------------------------------------------------------

uint32_t qe_mulhi_u32(uint32_t a, uint32_t b) { return (uint32_t) ((uint64_t) a * b >> 32); }
int32_t qe_mulhi_s32(int32_t a, int32_t b) { return (int32_t) ((int64_t) a * b >> 32); }
uint64_t qe_mulhi_u64(uint64_t a, uint64_t b) { return (uint64_t) ((unsigned __int128) a * b >> 64); }

uint32_t qe_prmt(uint32_t a, uint32_t b, uint32_t s) {
    // Each nibble of s picks one of eight bytes; its high bit replicates that byte's sign instead.
    __m128i bytes = _mm_set_epi64x(0, (long long) ((uint64_t) b << 32 | a));
    uint32_t pick = (s & 7) | (s & 0x70) << 4 | (s & 0x700) << 8 | (s & 0x7000) << 12;
    uint32_t r = (uint32_t) _mm_cvtsi128_si32(_mm_shuffle_epi8(bytes, _mm_cvtsi32_si128((int) pick)));
    uint32_t sign = (s & 8) << 4 | (s & 0x80) << 8 | (s & 0x800) << 12 | (s & 0x8000) << 16;
    if (sign == 0) {
        return r;
    }
    uint32_t all = (sign >> 7) * 255;
    return (r & ~all) | (((r & 0x80808080u & all) >> 7) * 255);
}

int32_t qe_dp4a_s32(int32_t a, int32_t b, int32_t c) {
    // Sign-extended to 16 bits: products and their sums of two fit into 32.
    __m128i p = _mm_madd_epi16(_mm_cvtepi8_epi16(_mm_cvtsi32_si128(a)), _mm_cvtepi8_epi16(_mm_cvtsi32_si128(b)));
    p = _mm_add_epi32(p, _mm_shuffle_epi32(p, 1));
    return (int32_t) ((uint32_t) _mm_cvtsi128_si32(p) + (uint32_t) c);
}

uint32_t qe_vsub4(uint32_t a, uint32_t b, uint32_t c) {
    (void) c;
    return ((a | 0x80808080u) - (b & 0x7f7f7f7fu)) ^ ((a ^ ~b) & 0x80808080u);
}

// 1 in each byte that differs, as PTX's vset4 without an accumulator says.
uint32_t qe_vset4_ne(uint32_t a, uint32_t b, uint32_t c) {
    (void) c;
    uint32_t x = a ^ b;
    return ((x | ((x & 0x7f7f7f7fu) + 0x7f7f7f7fu)) & 0x80808080u) >> 7;
}

uint32_t qe_bfe_u32(uint32_t a, uint32_t position, uint32_t length) {
    position &= 255;
    length &= 255;
    uint32_t shifted = position > 31 ? 0 : a >> position;
    return length > 31 ? shifted : shifted & ((1u << length) - 1);
}

// --- 32-bit floating point -------------------------------------------------------------------------
// Kernels run with denormals flushed, so the .ftz variants need nothing of their own. The .approx
// functions are exact here; the GPU's have errors of a few units in the last place.

float qe_rcp_approx(float x) { return 1.0f / x; }
float qe_rsqrt_approx(float x) { return 1.0f / sqrtf(x); }
float qe_sqrt_approx(float x) { return sqrtf(x); }
float qe_lg2_approx(float x) { return log2f(x); }
float qe_ex2_approx(float x) { return exp2f(x); }
float qe_sin_approx(float x) { return sinf(x); }
float qe_cos_approx(float x) { return cosf(x); }
float qe_saturate(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; } // NaN becomes 0
float qe_fabs(float x) { return fabsf(x); }
float qe_trunc(float x) { return truncf(x); }
float qe_round(float x) { return rintf(x); } // cvt.rni
int32_t qe_f2i_rn(float x) {
    // cvt.rni.s32.f32 clamps, and turns NaN into 0.
    return x != x ? 0 : x >= 2147483648.0f ? INT32_MAX : x < -2147483648.0f ? INT32_MIN : (int32_t) rintf(x);
}
float qe_add_rn(float a, float b) { return a + b; }
float qe_mul_rn(float a, float b) { return a * b; }
float qe_fma_rn(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
float qe_div_approx(float a, float b) { return a / b; }

// The product is exact in double; the sum's own rounding is corrected by its error term.
float qe_fma_rm(float a, float b, float c) {
    double p = (double) a * b, s = p + c, bb = s - p, error = (p - (s - bb)) + (c - bb);
    float r = (float) s;
    if ((double) r > s || ((double) r == s && error < 0)) {
        r = nextafterf(r, -INFINITY);
    }
    return r;
}

float qe_add_rz(float a, float b) {
    double s = (double) a + b, bb = s - a, error = (a - (s - bb)) + (b - bb);
    float r = (float) s;
    double over = ((double) r - s) - error; // > 0: rounded up
    if (s > 0 && over > 0) {
        return nextafterf(r, 0.0f);
    }
    if (s < 0 && over < 0) {
        return nextafterf(r, 0.0f);
    }
    return r;
}

// --- 16-bit floating point -------------------------------------------------------------------------

float qe_half_to_float(uint16_t h) { return half(h); }
float qe_low_half_to_float(uint32_t h) { return half((uint16_t) h); }
float qe_high_half_to_float(uint32_t h) { return half((uint16_t) (h >> 16)); }
uint16_t qe_float_to_half(float f) { return to_half(f); }
uint16_t qe_int_to_half(int32_t i) { return rounded(i); } // 65520 and more are infinite
int32_t qe_half_to_int_rz(uint16_t h) {
    float f = half(h);
    return f != f ? 0 : f >= 2147483648.0f ? INT32_MAX : f <= -2147483648.0f ? INT32_MIN : (int32_t) f;
}
uint32_t qe_pack_low_zero(uint16_t h) { return (uint32_t) h << 16; }
float qe_bfloat_to_float(uint16_t h) { return as_float((uint32_t) h << 16); }
uint32_t qe_pack_halves(uint16_t low, uint16_t high) { return low | (uint32_t) high << 16; }
uint32_t qe_pack_same(uint16_t h) { return h * 0x10001u; }
uint16_t qe_low_half(uint32_t v) { return (uint16_t) v; }
uint16_t qe_high_half(uint32_t v) { return (uint16_t) (v >> 16); }
uint32_t qe_floats_to_halves(float low, float high) { return to_half(low) | (uint32_t) to_half(high) << 16; }
uint32_t qe_float_to_two_halves(float f) { return to_half(f) * 0x10001u; }

// A sum or product of two halves is exact in double, and so is a product plus a half as far as its
// rounding to half can tell; float would round twice.
uint16_t qe_add_f16(uint16_t a, uint16_t b) { return rounded((double) half(a) + half(b)); }
uint16_t qe_sub_f16(uint16_t a, uint16_t b) { return rounded((double) half(a) - half(b)); }
uint16_t qe_mul_f16(uint16_t a, uint16_t b) { return to_half(half(a) * half(b)); }
uint16_t qe_fma_f16(uint16_t a, uint16_t b, uint16_t c) { return rounded((double) half(a) * half(b) + half(c)); }
uint16_t qe_neg_f16(uint16_t a) { return a ^ 0x8000; }
uint32_t qe_neg_f16x2(uint32_t a) { return a ^ 0x80008000u; }

#define PAIRS(name)                                                                                     \
    uint32_t qe_##name##_f16x2(uint32_t a, uint32_t b) {                                                \
        return qe_##name##_f16((uint16_t) a, (uint16_t) b) |                                            \
               (uint32_t) qe_##name##_f16((uint16_t) (a >> 16), (uint16_t) (b >> 16)) << 16;            \
    }
PAIRS(add)
PAIRS(sub)
PAIRS(mul)
uint32_t qe_fma_f16x2(uint32_t a, uint32_t b, uint32_t c) {
    return qe_fma_f16((uint16_t) a, (uint16_t) b, (uint16_t) c) |
           (uint32_t) qe_fma_f16((uint16_t) (a >> 16), (uint16_t) (b >> 16), (uint16_t) (c >> 16)) << 16;
}

// PTX: of a number and NaN, max and min give the number; -0 is less than +0.
#define LARGER(name, better)                                                                            \
    uint16_t qe_##name##_f16(uint16_t a, uint16_t b) {                                                  \
        float x = half(a), y = half(b);                                                                 \
        if (x != x || y != y) {                                                                         \
            return x == x ? a : y == y ? b : 0x7fff;                                                    \
        }                                                                                               \
        return x == y ? ((a & 0x8000) != 0) == better ? b : a : (x > y) == better ? a : b;              \
    }                                                                                                   \
    PAIRS(name)
LARGER(max, 1)
LARGER(min, 0)

#define COMPARE(name, is)                                                                               \
    uint32_t qe_set_##name##_f16x2(uint32_t a, uint32_t b) {                                            \
        float x = half((uint16_t) a), y = half((uint16_t) b);                                           \
        float u = half((uint16_t) (a >> 16)), v = half((uint16_t) (b >> 16));                           \
        return (x is y ? 0xffffu : 0) | (u is v ? 0xffff0000u : 0);                                     \
    }
COMPARE(eq, ==)
COMPARE(ne, !=)
COMPARE(lt, <)
COMPARE(le, <=)
COMPARE(gt, >)
COMPARE(ge, >=)

// bfloat16 rounds to nearest even on bits alone; every NaN is 0x7fff, as PTX's cvt makes it.
uint16_t qe_float_to_bfloat(float f) {
    uint32_t bits = as_bits(f);
    return (bits & 0x7fffffffu) > 0x7f800000u ? 0x7fff : (uint16_t) ((bits + 0x7fffu + (bits >> 16 & 1)) >> 16);
}
uint32_t qe_floats_to_bfloats(float low, float high) {
    return qe_float_to_bfloat(low) | (uint32_t) qe_float_to_bfloat(high) << 16;
}

// --- memory ---------------------------------------------------------------------------------------------

uint32_t qe_load_u32(const uint32_t * p) { return *p; }

// PTX takes a shared address in 32 bits as well. Here those are the low half of an address, and a block's
// shared memory is no larger than half of what they can tell.
char * qe_shared_pointer(thread * t, uint32_t low) {
    char * base = t->block->shared;
    return base + (int32_t) (low - (uint32_t) (uintptr_t) base);
}
void qe_prefetch(const void * p) { (void) p; }
uint64_t qe_same_u64(uint64_t v) { return v; }
uint32_t qe_low_u32(uint64_t v) { return (uint32_t) v; }

#pragma clang attribute pop
