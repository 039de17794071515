// Graphs with tensors that ggml.c does not make and the CUDA backend takes.

#include "tests.h"

static test repeated(ggml_type type, bool many) {
    const auto build = [=](graph & g) {
        const int64_t planes = many ? MANY : 14;
        ggml_tensor * from = many ? with_gaps(g, GGML_TYPE_F32, 7) : g.input(GGML_TYPE_F32, { 33, 2, 7 });
        ggml_tensor * like = ggml_new_tensor_3d(g.ctx, GGML_TYPE_F32, many ? 1 : 66, many ? 1 : 2, planes);
        ggml_tensor * made = ggml_repeat(g.ctx, from, like);
        g.result(g.plain ? made : retyped(made, type));
    };
    return { named("REPEAT", is("type", GGML_TYPE_F32), is("to", type), is("many", int64_t(many))), build, rounding(type), true };
}

static test rows_as(ggml_type type, ggml_type to, int64_t width, int64_t count) {
    const bool whole = to == GGML_TYPE_I32; // fractions are dropped
    const auto build = [=](graph & g) {
        const fill    with = type == GGML_TYPE_I32 ? distinct(width + 1) : whole ? fill{ fill::UNIFORM, -99.0f, 99.0f } : fill{};
        ggml_tensor * from = g.input(type, { width, count }, with);
        ggml_tensor * made = ggml_get_rows(g.ctx, from, g.input(GGML_TYPE_I32, { count }, distinct(count)));
        if (g.plain && whole && type != GGML_TYPE_I32) {
            made = ggml_trunc(g.ctx, made);
        }
        g.result(g.plain ? made : retyped(made, to));
    };
    return { named("GET_ROWS", is("type", type), is("to", to), is("n", width), is("rows", count)),
             build, whole ? 1e-4 : rounding(to), true };
}

static test triangle(ggml_type type, ggml_tri_type kind) {
    const auto build = [=](graph & g) {
        ggml_tensor * from = g.input(GGML_TYPE_F32, { 40, 40, 3 });
        ggml_tensor * made = ggml_tri(g.ctx, from, kind);
        g.leaves.back().type = type;
        if (!g.plain) {
            retyped(from, type);
            retyped(made, type);
        }
        g.result(made);
    };
    return { named("TRI", is("type", type), is("kind", int64_t(kind))), build, rounding(type), true };
}

static test turned_back(int mode, const char * name, bool factors) {
    const auto build = [=](graph & g) {
        ggml_tensor * made = ggml_rope_ext_back(g.ctx, g.input(GGML_TYPE_F32, { 64, 2, 3 }), g.input(GGML_TYPE_I32, { 3 }, distinct(64)),
            factors ? g.input(GGML_TYPE_F32, { 32 }, POSITIVE) : nullptr, 64, mode, 0, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
        g.result(g.plain ? made : retyped(made, GGML_TYPE_F16));
    };
    return { named("ROPE_BACK", is("type", GGML_TYPE_F32), is("to", GGML_TYPE_F16), is("mode", name), is("factors", int64_t(factors))),
             build, rounding(GGML_TYPE_F16), true };
}

void by_hand(tests & add) {
    for (ggml_type type : { GGML_TYPE_F16, GGML_TYPE_BF16 }) {
        for (bool many : { false, true }) {
            add.push_back(repeated(type, many));
        }
        for (ggml_tri_type kind : { GGML_TRI_TYPE_UPPER_DIAG, GGML_TRI_TYPE_UPPER, GGML_TRI_TYPE_LOWER_DIAG, GGML_TRI_TYPE_LOWER }) {
            add.push_back(triangle(type, kind));
        }
        add.push_back(rows_as(type, type, 1024, 200)); // so many that 16 bytes are copied at once
    }
    for (ggml_type to : { GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_I32 }) {
        for (ggml_type type : QUANTS) {
            if (type != GGML_TYPE_NVFP4) {
                add.push_back(rows_as(type, to, 256, 5));
            }
        }
        for (ggml_type type : FLOATS) {
            add.push_back(rows_as(type, to, 256, 5));
        }
    }
    for (ggml_type to : FLOATS) {
        add.push_back(rows_as(GGML_TYPE_I32, to, 256, 5));
    }
    for (bool factors : { false, true }) {
        add.push_back(turned_back(GGML_ROPE_TYPE_NEOX, "neox", factors));
        add.push_back(turned_back(GGML_ROPE_TYPE_NORMAL, "normal", factors));
    }
}
