// What a warp does together on tensor cores: products of small matrices, and loading their parts.
//
// Which lane holds which element is written in the PTX ISA manual, "Warp Level Matrix Instructions"
// (mma.m8n8k16 … m16n8k32, ldmatrix, movmatrix). In all of the shapes here, with `group` for lane / 4, `place`
// for lane % 4 and `e` for the number of elements in 32 bits:
//
//     A, register r:  row group + 8 * (r % 2), columns (r / 2) * 4e + place * e + 0 … e - 1  (8 rows: r for r / 2)
//     B, register r:  rows r * 4e + place * e + 0 … e - 1, column group
//     C and D of 32 bits, register r:  row group + 8 * (r / 2), column 2 * place + r % 2
//     C and D of 16 bits, register r:  row group + 8 * r, columns 2 * place and 2 * place + 1

#include "halves.h"
#include "tensor.h"

#include <string.h>

// Element `at` of a register, as the type that the instruction names.
static float element(uint32_t bits, uint32_t at, int type) {
    switch (type) {
        case QE_F16:  return half((uint16_t) (bits >> 16 * at));
        case QE_BF16: return as_float(bits >> 16 * at << 16);
        default:      return as_float(bits & 0xffffe000u); // tf32: 10 bits of fraction, the rest is ignored
    }
}

// The registers of one lane: A, B and C behind one another, then D.
struct registers {
    uint32_t * a, * b, * c, * d;
};

static struct registers of_lane(const struct qe_warp * w, uint32_t lane, const struct qe_shape * s) {
    uint32_t per_step = s->m / 8, steps = s->k / (4 * s->per_register);
    struct registers r;
    r.a = w->data[lane];
    r.b = r.a + per_step * steps;
    r.c = r.b + steps;
    r.d = r.c + s->m / 8 * (s->result == QE_F16 ? 1 : 2);
    return r;
}

static void multiply_integers(const struct qe_warp * w, const struct qe_shape * s,
                              int8_t a[16][32], int8_t b[8][32]) {
    for (uint32_t lane = 0; lane < QE_WARP; lane++) {
        struct registers own = of_lane(w, lane, s);
        for (uint32_t r = 0; r < s->m / 8 * 2; r++) {
            uint32_t row = lane / 4 + 8 * (r / 2), column = 2 * (lane % 4) + r % 2, sum = own.c[r];
            for (uint32_t k = 0; k < s->k; k++) {
                sum += (uint32_t) (a[row][k] * b[column][k]);
            }
            own.d[r] = sum;
        }
    }
}

// Products are exact, their sum is rounded once: a GPU's tensor core rounds (or cuts) somewhere on the way,
// which nobody has written down.
static void multiply_floats(const struct qe_warp * w, const struct qe_shape * s, float a[16][32], float b[8][32]) {
    double sums[16][8];
    for (uint32_t row = 0; row < s->m; row++) {
        for (uint32_t column = 0; column < 8; column++) {
            double sum = 0;
            for (uint32_t k = 0; k < s->k; k++) {
                sum += (double) a[row][k] * b[column][k];
            }
            sums[row][column] = sum;
        }
    }
    for (uint32_t lane = 0; lane < QE_WARP; lane++) {
        struct registers own = of_lane(w, lane, s);
        for (uint32_t r = 0; r < s->m / 8 * 2; r++) {
            double sum = sums[lane / 4 + 8 * (r / 2)][2 * (lane % 4) + r % 2];
            if (s->result == QE_F16) {
                uint32_t shift = 16 * (r % 2), c = own.c[r / 2] >> shift & 0xffff;
                uint32_t d = rounded(sum + half((uint16_t) c));
                own.d[r / 2] = (own.d[r / 2] & ~(0xffffu << shift)) | d << shift;
            } else {
                own.d[r] = as_bits((float) (sum + as_float(own.c[r])));
            }
        }
    }
}

static void multiply(const struct qe_warp * w, const struct qe_shape * s) {
    int8_t ints[2][16][32];
    float floats[2][16][32];
    uint32_t e = s->per_register, steps = s->k / (4 * e);
    for (uint32_t lane = 0; lane < QE_WARP; lane++) {
        struct registers own = of_lane(w, lane, s);
        for (uint32_t r = 0; r < steps * (s->m / 8 + 1); r++) {
            int second = r >= steps * (s->m / 8);
            uint32_t n = second ? r - steps * (s->m / 8) : r, rows = second ? 1 : s->m / 8;
            uint32_t row = lane / 4 + 8 * (n % rows), column = n / rows * 4 * e + lane % 4 * e;
            for (uint32_t i = 0; i < e; i++) {
                if (s->factor == QE_S8) {
                    ints[second][row][column + i] = (int8_t) (own.a[r] >> 8 * i);
                } else {
                    floats[second][row][column + i] = element(own.a[r], i, s->factor);
                }
            }
        }
    }
    if (s->factor == QE_S8) {
        multiply_integers(w, s, ints[0], ints[1]);
    } else {
        multiply_floats(w, s, floats[0], floats[1]);
    }
}

// Eight lanes each name one row of 16 bytes: lanes 0 to 7 of the first matrix, 8 to 15 of the second …
static void load(const struct qe_warp * w, const struct qe_matrices * m) {
    for (uint32_t lane = 0; lane < QE_WARP; lane++) {
        uint32_t * result = ((struct qe_matrices *) w->data[lane])->registers;
        for (uint32_t i = 0; i < m->count; i++) {
            if (m->transposed) {
                uint16_t pair[2];
                for (uint32_t j = 0; j < 2; j++) {
                    const struct qe_matrices * of = w->data[8 * i + 2 * (lane % 4) + j];
                    memcpy(&pair[j], of->row + 2 * (lane / 4), 2);
                }
                result[i] = pair[0] | (uint32_t) pair[1] << 16;
            } else {
                const struct qe_matrices * of = w->data[8 * i + lane / 4];
                memcpy(&result[i], of->row + 4 * (lane % 4), 4);
            }
        }
    }
}

static void transpose(const struct qe_warp * w) {
    uint32_t before[QE_WARP];
    for (uint32_t lane = 0; lane < QE_WARP; lane++) {
        before[lane] = *(uint32_t *) w->data[lane];
    }
    for (uint32_t lane = 0; lane < QE_WARP; lane++) {
        uint32_t result = 0;
        for (uint32_t j = 0; j < 2; j++) { // row 2 * place + j, column group of what was there
            uint32_t bits = before[(2 * (lane % 4) + j) * 4 + lane / 8] >> 16 * (lane / 4 % 2) & 0xffff;
            result |= bits << 16 * j;
        }
        *(uint32_t *) w->data[lane] = result;
    }
}

void qe_tensor_operation(const struct qe_warp * w, int operation) {
    const void * first = w->data[0];
    switch (operation) {
        case QE_MULTIPLY:  multiply(w, w->shape); break;
        case QE_LOAD:      load(w, first); break;
        case QE_TRANSPOSE: transpose(w); break;
    }
}

// --- called by kernels (qbuild.emulator.tensor writes the calls) ---------------------------------------

#ifdef QE_COUNTS // the units count what they do (counters/counters.c), instead of checks
void qe_count_access(struct qe_thread * thread, const void * address, uint32_t bytes, uint32_t site);

static void access(struct qe_thread * t, const char * p, uint32_t bytes, uint32_t site, uint32_t store) {
    if (bytes != 0) {
        qe_count_access(t, p, bytes, site * 4 + store);
    }
}
#else
static void access(struct qe_thread * t, const char * p, uint32_t bytes, uint32_t site, uint32_t store) {
    if (site != (uint32_t) QE_UNCHECKED && bytes != 0) {
        qe_access(t, p, bytes, site * 4 + store);
        if (store) {
            qe_stored(t, p, bytes, site * 4 + store); // from now on nobody else may touch it
        }
    }
}
#endif

void qe_mma(struct qe_thread * t, uint32_t m, uint32_t k, uint32_t factor, uint32_t result, uint32_t * registers) {
    struct qe_shape shape = {m, k, factor, result, factor == QE_S8 ? 4 : factor == QE_TF32 ? 1 : 2};
    t->warp->data[t->lane] = registers;
    t->warp->shape = &shape;
    qe_warp_operation(t, QE_MULTIPLY, 0xffffffffu, 0, m << 16 | k << 8 | factor << 4 | result, 0, 0);
}

void qe_ldmatrix(struct qe_thread * t, uint32_t count, uint32_t transposed, const char * row, uint32_t * registers,
                 uint32_t site) {
    struct qe_matrices own = {row, count, transposed, {0}};
    if (t->lane < 8 * count) { // what the others name is not read
        if ((uintptr_t) row & 15) {
            qe_wrong(t, "the row of a matrix that ldmatrix loads is not aligned to 16 bytes");
        }
        access(t, row, 16, site, 0);
    }
    t->warp->data[t->lane] = &own;
    qe_warp_operation(t, QE_LOAD, 0xffffffffu, 0, count << 1 | transposed, 0, 0);
    memcpy(registers, own.registers, 4 * count);
}

uint32_t qe_movmatrix(struct qe_thread * t, uint32_t registers) {
    t->warp->data[t->lane] = &registers;
    qe_warp_operation(t, QE_TRANSPOSE, 0xffffffffu, 0, 0, 0, 0);
    return registers;
}

// --- fragments (wmma) ----------------------------------------------------------------------------------------

// A product of 8 × 16 and 16 × 32 elements, A by rows and B by columns. Which lane holds which element is
// left open, so here it is two of the products above, turned: D' = B' A'. A's fragment is the second factor of
// both, B's are the first factors behind one another.

static void load_pair(struct qe_thread * t, const char * p, uint32_t stride, uint32_t row, uint32_t step,
                      uint32_t * result, uint32_t site) {
    const char * pair = p + 2 * (row * (size_t) stride + 8 * step + 2 * (t->lane % 4));
    access(t, pair, 4, site, 0);
    memcpy(result, pair, 4);
}

void qe_wmma_load_a(struct qe_thread * t, const char * p, uint32_t stride, uint32_t * registers, uint32_t site) {
    memset(registers, 0, 8 * sizeof *registers); // of eight words two are enough
    for (uint32_t r = 0; r < 2; r++) {
        load_pair(t, p, stride, t->lane / 4, r, &registers[r], site);
    }
}

void qe_wmma_load_b(struct qe_thread * t, const char * p, uint32_t stride, uint32_t * registers, uint32_t site) {
    for (uint32_t r = 0; r < 8; r++) {
        load_pair(t, p, stride, 16 * (r / 4) + t->lane / 4 + 8 * (r % 2), r / 2 % 2, &registers[r], site);
    }
}

void qe_wmma_mma(struct qe_thread * t, uint32_t * registers) {
    const uint32_t * a = registers, * b = a + 8, * c = b + 8;
    for (uint32_t half = 0; half < 2; half++) {
        uint32_t turned[14]; // B', A', C', and D'
        memcpy(turned, b + 4 * half, 16);
        memcpy(turned + 4, a, 8);
        memcpy(turned + 6, c + 4 * half, 16);
        qe_mma(t, 16, 16, QE_F16, QE_F32, turned);
        memcpy(registers + 24 + 4 * half, turned + 10, 16);
    }
}

void qe_wmma_store(struct qe_thread * t, char * p, uint32_t stride, const uint32_t * registers, uint32_t site) {
    for (uint32_t r = 0; r < 8; r++) {
        uint32_t row = 2 * (t->lane % 4) + r % 2, column = 16 * (r / 4) + t->lane / 4 + 8 * (r / 2 % 2);
        char * place = p + 4 * (row * (size_t) stride + column);
        access(t, place, 4, site, 1);
        memcpy(place, &registers[r], 4);
    }
}

// --- asynchronous copies -----------------------------------------------------------------------------------

// A copy happens when its thread waits for it, so that a kernel that forgets to wait reads what was there
// before; with --shuffle some happen at once, so that one that overwrites too early is found as well. Both
// are allowed: PTX says nothing of the order of copies.
static void copy(const struct qe_copy * c) {
    memcpy(c->to, c->from, c->taken);
    memset(c->to + c->taken, 0, c->size - c->taken);
}

static void finish_oldest(struct qe_thread * t) {
    copy(&t->copies[t->copies_done++ % QE_COPIES]);
}

void qe_cp_async(struct qe_thread * t, char * to, const char * from, uint32_t size, uint32_t taken, uint32_t site) {
    if (((uintptr_t) to | (uintptr_t) from) & (size - 1)) {
        qe_wrong(t, "an address of cp.async is not aligned to the size of the copy");
    }
    if (taken > size) {
        qe_wrong(t, "cp.async takes more bytes than it writes");
    }
    access(t, from, taken, site, 0);
    access(t, to, size, site, 1);
    struct qe_copy c = {to, from, (uint16_t) size, (uint16_t) taken, t->copy_group};
    if (qe_early()) {
        copy(&c);
        return;
    }
    if (t->copies_begun - t->copies_done == QE_COPIES) {
        finish_oldest(t);
    }
    t->copies[t->copies_begun++ % QE_COPIES] = c;
}

void qe_cp_async_commit(struct qe_thread * t) { t->copy_group++; }

void qe_cp_async_wait(struct qe_thread * t, uint32_t groups) {
    while (t->copies_done != t->copies_begun &&
           t->copies[t->copies_done % QE_COPIES].group + groups < t->copy_group) {
        finish_oldest(t);
    }
}

void qe_cp_async_wait_all(struct qe_thread * t) {
    while (t->copies_done != t->copies_begun) {
        finish_oldest(t);
    }
}
