// The graphs. Beside each group: what in ggml-cuda has to see it for the kernel that it is there for.

#include "tests.h"

#include <cmath>

// --- binbcast.cu: chains, and grids that are too large for their second and third dimension -------

struct pair_of_types {
    ggml_type a, b, result;
};

static const pair_of_types BROADCASTS[] = {
    { GGML_TYPE_F32, GGML_TYPE_F32, GGML_TYPE_F32 },    { GGML_TYPE_F16, GGML_TYPE_F16, GGML_TYPE_F16 },
    { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_F16 },    { GGML_TYPE_F16, GGML_TYPE_F32, GGML_TYPE_F32 },
    { GGML_TYPE_BF16, GGML_TYPE_BF16, GGML_TYPE_BF16 }, { GGML_TYPE_BF16, GGML_TYPE_F32, GGML_TYPE_BF16 },
};

static ggml_tensor * apply(graph & g, ggml_op op, ggml_tensor * a, ggml_tensor * b, ggml_type result) {
    switch (op) {
        case GGML_OP_ADD:
            return a->type == result || g.plain ? ggml_add(g.ctx, a, b) : ggml_add_cast(g.ctx, a, b, result);
        // ggml has no product, difference or quotient of two types: those are by hand.
        case GGML_OP_SUB: return retyped(ggml_sub(g.ctx, a, b), result);
        case GGML_OP_MUL: return retyped(ggml_mul(g.ctx, a, b), result);
        default:          return retyped(ggml_div(g.ctx, a, b), result);
    }
}

static test chain(ggml_op op, const pair_of_types & types, int length, bool many) {
    const auto build = [=](graph & g) {
        ggml_tensor * at = many ? with_gaps(g, types.a, MANY) : g.input(types.a, { 48, 5, 3, 2 }, POSITIVE);
        for (int i = 0; i < length; i++) {
            ggml_tensor * next = many ? g.input(types.b, { 1, 1, 7 }, POSITIVE) : g.input(types.b, { 48, 1, 3, 1 }, POSITIVE);
            at = apply(g, op, at, next, types.result);
        }
        g.result(at);
    };
    return { named("CHAIN", is("op", ggml_op_name(op)), is("type", types.a), is("with", types.b), is("to", types.result),
                   is("n", int64_t(length)), is("many", int64_t(many))),
             build, rounding(types.result) };
}

static void broadcasts(tests & add) {
    for (const pair_of_types & types : BROADCASTS) {
        for (bool many : { false, true }) {
            for (int length = 1; length <= 8; length++) {
                add.push_back(chain(GGML_OP_ADD, types, length, many));
                add.push_back(chain(GGML_OP_MUL, types, length, many));
            }
            add.push_back(chain(GGML_OP_SUB, types, 1, many));
            add.push_back(chain(GGML_OP_DIV, types, 1, many));
        }
    }
    for (int length : { 2, 4 }) { // the last result of another type: series cuda-fixes
        add.push_back({ named("CHAIN_CAST", is("n", int64_t(length))), [=](graph & g) {
            ggml_tensor * at = g.input(GGML_TYPE_F16, { 48, 5, 3, 2 }, POSITIVE);
            for (int i = 0; i < length; i++) {
                ggml_tensor * next = g.input(GGML_TYPE_F32, { 48, 1, 3, 1 }, POSITIVE);
                at = i + 1 < length ? ggml_add(g.ctx, at, next) : ggml_add_cast(g.ctx, at, next, GGML_TYPE_F32);
            }
            g.result(at);
        }, rounding(GGML_TYPE_F16) });
    }
    for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16 }) {
        add.push_back({ named("REPEAT", is("type", type), is("many", int64_t(1))), [=](graph & g) {
            g.result(ggml_repeat(g.ctx, with_gaps(g, type, 7), g.input(type, { 1, 1, MANY })));
        } });
    }
}

// --- mmvf.cu, mmvq.cu: two products with one vector and the gate over them in one kernel -----------

static ggml_tensor * biased(graph & g, ggml_tensor * product, ggml_tensor * ids, int64_t rows, int64_t experts) {
    return ids == nullptr ? ggml_add(g.ctx, product, g.input(GGML_TYPE_F32, { rows }))
                          : ggml_add_id(g.ctx, product, g.input(GGML_TYPE_F32, { rows, experts }), ids);
}

static test gated(ggml_type type, int64_t inner, int64_t tokens, bool experts, bool bias, ggml_glu_op op) {
    const int64_t rows = 6, count = 4, used = 2;
    const auto    build = [=](graph & g) {
        ggml_tensor * weights[2], * ids = nullptr, * x;
        if (experts) {
            x = g.input(GGML_TYPE_F32, { inner, 1, tokens });
            ids = g.input(GGML_TYPE_I32, { used, tokens }, distinct(count));
        } else {
            x = g.input(GGML_TYPE_F32, { inner, tokens });
        }
        ggml_tensor * half[2];
        for (int i = 0; i < 2; i++) {
            weights[i] = experts ? g.input(type, { inner, rows, count }) : g.input(type, { inner, rows });
            half[i] = experts ? ggml_mul_mat_id(g.ctx, weights[i], x, ids) : ggml_mul_mat(g.ctx, weights[i], x);
            if (bias) {
                half[i] = biased(g, half[i], ids, rows, count);
            }
        }
        g.result(ggml_glu_split(g.ctx, half[0], half[1], op));
    };
    return { named(experts ? "GATED_ID" : "GATED", is("type", type), is("k", inner), is("tokens", tokens),
                   is("bias", int64_t(bias)), is("op", ggml_glu_op_name(op))),
             build, PRODUCTS };
}

static void gates(tests & add) {
    for (ggml_type type : FLOATS) {
        int turn = 0;
        for (int64_t inner : { 64, 128, 192, 256, 320, 384, 448, 512 }) { // blocks of 32 to 256 threads
            add.push_back(gated(type, inner, 1, false, turn % 2 != 0, turn % 3 ? GGML_GLU_OP_SWIGLU : GGML_GLU_OP_GEGLU));
            turn++;
        }
    }
    for (ggml_type type : QUANTS) {
        for (int64_t inner : { 256, 4096 }) { // a row that keeps few threads busy, and a longer one
            add.push_back(gated(type, inner, 1, false, inner == 256, GGML_GLU_OP_SWIGLU));
        }
        add.push_back(gated(type, 256, 1, true, true, GGML_GLU_OP_SWIGLU));
        add.push_back(gated(type, 256, 2, true, false, GGML_GLU_OP_GEGLU));
    }
}

// --- mmq.cu, mmid.cu: few tokens of many experts ----------------------------------------------------

static void experts(tests & add) {
    for (ggml_type type : QUANTS) {
        for (int64_t tokens : { 7, 8 }) { // more than a vector kernel takes, few enough for the narrowest tile
            add.push_back({ named("EXPERTS", is("type", type), is("m", int64_t(128)), is("tokens", tokens)), [=](graph & g) {
                g.result(ggml_mul_mat_id(g.ctx, g.input(type, { 256, 128, 2 }), g.input(GGML_TYPE_F32, { 256, 1, tokens }),
                    g.input(GGML_TYPE_I32, { 1, tokens }, distinct(2))));
            }, PRODUCTS });
        }
    }
    for (int64_t used : { 1, 2, 4, 6, 8, 10, 16, 32 }) {
        add.push_back({ named("EXPERTS", is("type", GGML_TYPE_Q4_0), is("used", used), is("tokens", int64_t(17))), [=](graph & g) {
            g.result(ggml_mul_mat_id(g.ctx, g.input(GGML_TYPE_Q4_0, { 64, 8, 32 }), g.input(GGML_TYPE_F32, { 64, used, 17 }),
                g.input(GGML_TYPE_I32, { used, 17 }, distinct(32))));
        }, PRODUCTS });
    }
}

// --- convert.cu: weights that are views of intermediate results go to BLAS, in the type asked for ----

static test converted(ggml_type type, ggml_type other, const char * to, bool rows, int64_t height, int64_t tokens) {
    const auto build = [=](graph & g) {
        // A view of all is converted as one piece, a view of the first halves of rows by its strides.
        const int64_t inner = 256;
        ggml_tensor * whole = g.input(type, { rows ? 2 * inner : inner, height });
        ggml_tensor * a = ggml_view_2d(g.ctx, whole, inner, height, whole->nb[1], 0);
        ggml_tensor * b = g.input(other, { rows ? 2 * inner : inner, tokens });
        g.result(ggml_mul_mat(g.ctx, a, ggml_view_2d(g.ctx, b, inner, tokens, b->nb[1], 0)));
    };
    return { named("CONVERTED", is("type", type), is("with", other), is("to", to), is("rows", int64_t(rows)),
                   is("m", height), is("n", tokens)),
             build, PRODUCTS, false, true, to };
}

static void conversions(tests & add) {
    for (const char * to : { "f32", "f16", "bf16" }) {
        for (ggml_type type : QUANTS) {
            add.push_back(converted(type, GGML_TYPE_F32, to, false, 16, 3));
        }
        add.push_back(converted(GGML_TYPE_Q8_0, GGML_TYPE_F32, to, false, 17, 3)); // no multiple of 2048 elements
        for (ggml_type type : { GGML_TYPE_Q1_0, GGML_TYPE_Q2_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                                GGML_TYPE_Q5_1, GGML_TYPE_Q8_0 }) {
            add.push_back(converted(type, GGML_TYPE_F32, to, true, 16, 3));
        }
        for (ggml_type type : FLOATS) {
            for (bool rows : { false, true }) {
                add.push_back(converted(type, GGML_TYPE_F32, to, rows, 16, 17));
            }
        }
        add.push_back(converted(GGML_TYPE_F16, GGML_TYPE_F16, to, true, 16, 17));
    }
    for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0,
                            GGML_TYPE_Q5_1, GGML_TYPE_Q8_0, GGML_TYPE_IQ4_NL }) {
        add.push_back({ named("SET_ROWS", is("type", type), is("index", GGML_TYPE_I32)), [=](graph & g) {
            g.result(ggml_set_rows(g.ctx, g.input(type, { 64, 9 }), g.input(GGML_TYPE_F32, { 64, 5 }),
                g.input(GGML_TYPE_I32, { 5 }, distinct(9))));
        }, PRODUCTS });
    }
}

// --- own-blas: each tile, each way to lie ---------------------------------------------------------

static void products(tests & add) {
    for (const char * to : { "f32", "f16", "bf16" }) {
        const ggml_type type = to[0] == 'b' ? GGML_TYPE_BF16 : to[1] == '1' ? GGML_TYPE_F16 : GGML_TYPE_F32;
        for (int64_t size : { 24, 160, 640 }) {
            add.push_back({ named("PRODUCT", is("type", type), is("to", to), is("m", size), is("n", size)), [=](graph & g) {
                g.result(ggml_mul_mat(g.ctx, g.input(type, { 32, size }), g.input(GGML_TYPE_F32, { 32, size })));
            }, PRODUCTS, false, false, to });
        }
        add.push_back({ named("PRODUCT", is("type", type), is("to", to), is("k", int64_t(4096))), [=](graph & g) {
            g.result(ggml_mul_mat(g.ctx, g.input(type, { 4096, 24 }), g.input(GGML_TYPE_F32, { 4096, 24 })));
        }, PRODUCTS, false, false, to });
        add.push_back({ named("PRODUCT", is("type", type), is("to", to), is("batch", int64_t(2))), [=](graph & g) {
            g.result(ggml_mul_mat(g.ctx, g.input(type, { 32, 16, 2 }), g.input(GGML_TYPE_F32, { 32, 24, 6 })));
        }, PRODUCTS, false, false, to });
    }
    for (bool transposed : { false, true }) {
        for (int64_t size : { 24, 160, 640 }) {
            add.push_back({ named("OUT_PROD", is("m", size), is("transposed", int64_t(transposed))), [=](graph & g) {
                ggml_tensor * a = g.input(GGML_TYPE_F32, { size, 32 });
                ggml_tensor * b = transposed ? ggml_transpose(g.ctx, g.input(GGML_TYPE_F32, { 32, size }))
                                             : g.input(GGML_TYPE_F32, { size, 32 });
                g.result(ggml_out_prod(g.ctx, a, b));
            } });
        }
    }
}

// --- softmax.cu, topk-moe.cu, rope.cu, norm.cu ------------------------------------------------------

static test routed(int64_t count, bool bias, bool scaled) {
    const int64_t used = count < 4 ? 1 : 2, tokens = 5;
    const auto    build = [=](graph & g) {
        ggml_tensor * chances = ggml_soft_max(g.ctx, g.input(GGML_TYPE_F32, { count, tokens }, { fill::UNIFORM, -4, 4 }));
        ggml_tensor * rated = bias ? ggml_add(g.ctx, chances, g.input(GGML_TYPE_F32, { count }, POSITIVE)) : chances;
        ggml_tensor * chosen = ggml_argsort_top_k(g.ctx, rated, (int) used);
        ggml_tensor * weights = ggml_get_rows(g.ctx, ggml_reshape_3d(g.ctx, chances, 1, count, tokens), chosen);
        weights = ggml_reshape_2d(g.ctx, weights, used, tokens);
        ggml_tensor * sum = ggml_clamp(g.ctx, ggml_sum_rows(g.ctx, weights), 6.1e-5f, INFINITY);
        weights = ggml_reshape_3d(g.ctx, ggml_div(g.ctx, weights, sum), 1, used, tokens);
        if (scaled) {
            g.result(ggml_scale(g.ctx, weights, 2.5f));
            g.result(ggml_cont(g.ctx, chosen));
        } else {
            g.result(weights); // the graph's last node: series cuda-fixes
        }
    };
    return { named("ROUTED", is("experts", count), is("bias", int64_t(bias)), is("scaled", int64_t(scaled))), build, 1e-6 };
}

static test turned(ggml_type type, int mode, const char * name, int64_t size, bool normed) {
    const int64_t heads = 2, tokens = 3;
    const auto    build = [=](graph & g) {
        ggml_tensor * at = g.input(GGML_TYPE_F32, { size, heads, tokens });
        if (normed) {
            at = ggml_mul(g.ctx, ggml_rms_norm(g.ctx, at, 1e-6f), g.input(GGML_TYPE_F32, { size }));
        }
        ggml_tensor * places = g.input(GGML_TYPE_I32, { tokens }, distinct(64));
        ggml_tensor * factors = g.input(GGML_TYPE_F32, { size / 2 }, POSITIVE);
        at = ggml_rope_ext(g.ctx, at, places, factors, (int) size, mode, 0, 10000.0f, 1.0f, 0.0f, 1.0f, 32.0f, 1.0f);
        at = ggml_view_2d(g.ctx, at, size * heads, tokens, at->nb[2], 0);
        g.result(ggml_set_rows(g.ctx, g.input(type, { size * heads, 8 }), at, g.input(GGML_TYPE_I64, { tokens }, distinct(8))));
    };
    return { named(normed ? "NORM_ROPE_SET_ROWS" : "ROPE_SET_ROWS", is("type", type), is("mode", name), is("n", size),
                   is("factors", int64_t(1))),
             build, rounding(type) };
}

static void attention(tests & add) {
    for (int64_t count : { 1, 2, 4, 8, 16, 32, 64, 128, 256, 288, 512, 576 }) {
        for (bool bias : { false, true }) {
            add.push_back(routed(count, bias, true));
        }
    }
    add.push_back(routed(8, false, false));
    for (int64_t width : { 32, 64, 128, 256, 512, 1024, 2048, 4096, 100 }) {
        for (ggml_type mask : { GGML_TYPE_F32, GGML_TYPE_F16 }) {
            add.push_back({ named("SOFT_MAX", is("n", width), is("mask", mask)), [=](graph & g) {
                g.result(ggml_soft_max_ext(g.ctx, g.input(GGML_TYPE_F32, { width, 3, 2 }), g.input(mask, { width, 3 }), 0.5f, 0.0f));
            } });
        }
    }
    for (ggml_type type : { GGML_TYPE_F32, GGML_TYPE_F16 }) {
        for (int64_t size : { 128, 2048 }) {
            add.push_back(turned(type, GGML_ROPE_TYPE_NEOX, "neox", size, true));
        }
        add.push_back(turned(type, GGML_ROPE_TYPE_NORMAL, "normal", 128, true));
        add.push_back(turned(type, GGML_ROPE_TYPE_NEOX, "neox", 128, false));
        add.push_back(turned(type, GGML_ROPE_TYPE_NORMAL, "normal", 128, false));
    }
    for (bool factors : { false, true }) {
        add.push_back({ named("ROPE_BACK", is("type", GGML_TYPE_F16), is("mode", "vision"), is("factors", int64_t(factors))),
            [=](graph & g) {
            int sections[4] = { 16, 16, 0, 0 };
            g.result(ggml_rope_multi_back(g.ctx, g.input(GGML_TYPE_F16, { 64, 2, 3 }), g.input(GGML_TYPE_I32, { 12 }, distinct(64)),
                factors ? g.input(GGML_TYPE_F32, { 32 }, POSITIVE) : nullptr, 32, sections, GGML_ROPE_TYPE_VISION, 0, 10000.0f,
                1.0f, 0.0f, 1.0f, 32.0f, 1.0f));
        }, rounding(GGML_TYPE_F16) });
    }
    for (int64_t width : { 512, 1025 }) {
        add.push_back({ named("RMS_NORM_SCALE", is("n", width)), [=](graph & g) {
            g.result(ggml_scale(g.ctx, ggml_rms_norm(g.ctx, g.input(GGML_TYPE_F32, { width, 3 }), 1e-6f), 0.5f));
        } });
    }
    for (int64_t size : { 64, 128, 256 }) { // a pair of types that no kernel was compiled for: both become F16
        for (float cap : { 0.0f, 10.0f }) {
            if (cap == 0.0f || size != 64) {
                add.push_back({ named("ATTENTION", is("type", GGML_TYPE_Q4_0), is("with", GGML_TYPE_Q8_0), is("n", size), is("tokens", int64_t(2)),
                                      is("cap", int64_t(cap))), [=](graph & g) {
                    g.result(ggml_flash_attn_ext(g.ctx, g.input(GGML_TYPE_F32, { size, 2, 2 }), g.input(GGML_TYPE_Q4_0, { size, 256, 2 }),
                        g.input(GGML_TYPE_Q8_0, { size, 256, 2 }), g.input(GGML_TYPE_F16, { 256, 2 }), 0.125f, 0.0f, cap));
                }, PRODUCTS });
            }
        }
    }
    for (ggml_type type : { GGML_TYPE_F16, GGML_TYPE_Q4_0, GGML_TYPE_Q8_0 }) { // as encoders of pictures: series cuda-fixes
        add.push_back({ named("ATTENTION", is("type", type), is("n", int64_t(64)), is("mask", int64_t(0))), [=](graph & g) {
            g.result(ggml_flash_attn_ext(g.ctx, g.input(GGML_TYPE_F32, { 64, 1, 2 }), g.input(type, { 64, 256, 2 }),
                g.input(type, { 64, 256, 2 }), nullptr, 0.125f, 0.0f, 0.0f));
        }, PRODUCTS });
    }
    for (ggml_type type : { GGML_TYPE_Q8_0, GGML_TYPE_F16 }) { // the mask is looked through for several sequences alone
        for (int64_t tokens : { 1, 2 }) {
            add.push_back({ named("ATTENTION", is("type", type), is("tokens", tokens), is("sequences", int64_t(2))), [=](graph & g) {
                g.result(ggml_flash_attn_ext(g.ctx, g.input(GGML_TYPE_F32, { 64, tokens, 1, 2 }), g.input(type, { 64, 256, 1, 2 }),
                    g.input(type, { 64, 256, 1, 2 }), g.input(GGML_TYPE_F16, { 256, tokens, 1, 2 }), 0.125f, 0.0f, 0.0f));
            }, PRODUCTS });
        }
    }
}

// --- sequence: recurrent layers -----------------------------------------------------------------------

static void recurrent(tests & add) {
    for (int64_t tokens = 1; tokens <= 9; tokens++) {
        add.push_back({ named("SSM_SCAN", is("tokens", tokens)), [=](graph & g) {
            const ggml_type f32 = GGML_TYPE_F32;
            g.result(ggml_ssm_scan(g.ctx, g.input(f32, { 16, 1, 128, 2 }), g.input(f32, { 1, 128, tokens, 2 }),
                g.input(f32, { 128, tokens, 2 }), g.input(f32, { 16, 128 }, NEGATIVE), g.input(f32, { 16, 1, tokens, 2 }),
                g.input(f32, { 16, 1, tokens, 2 }), g.input(GGML_TYPE_I32, { 2 }, distinct(2)), 1));
        } });
    }
    for (int64_t width : { 3, 4, 5, 9, 15 }) {
        for (int64_t tokens : { 1, 40 }) { // above 32 tokens another kernel
            for (bool silu : { false, true }) {
                add.push_back({ named("SSM_CONV", is("width", width), is("tokens", tokens), is("silu", int64_t(silu))), [=](graph & g) {
                    ggml_tensor * at = ggml_ssm_conv(g.ctx, g.input(GGML_TYPE_F32, { width - 1 + tokens, 128, 2 }),
                        g.input(GGML_TYPE_F32, { width, 128 }));
                    g.result(silu ? ggml_silu(g.ctx, at) : at);
                } });
            }
        }
    }
    for (int64_t columns : { 1, 2, 4, 6, 8, 10, 12, 14, 16, 32 }) {
        add.push_back({ named("SOLVE_TRI", is("n", int64_t(64)), is("k", columns)), [=](graph & g) {
            g.result(ggml_solve_tri(g.ctx, g.input(GGML_TYPE_F32, { 64, 64, 2 }, { fill::LOWER_TRIANGLE, -0.1f, 0.1f }),
                g.input(GGML_TYPE_F32, { columns, 64, 2 }), true, true, false));
        } });
    }
    for (int64_t size : { 64, 128 }) {
        const int64_t heads = 2, tokens = 3;
        const auto    each = [=](graph & g, fill with = {}) { return g.input(GGML_TYPE_F32, { size, heads, tokens }, with); };
        add.push_back({ named("RWKV_WKV6", is("n", size)), [=](graph & g) {
            ggml_tensor * k = each(g), * v = each(g), * r = each(g), * first = g.input(GGML_TYPE_F32, { size, heads });
            ggml_tensor * decay = each(g);
            g.result(ggml_rwkv_wkv6(g.ctx, k, v, r, first, decay, g.input(GGML_TYPE_F32, { size * size * heads, 1 })));
        } });
        add.push_back({ named("RWKV_WKV7", is("n", size)), [=](graph & g) {
            ggml_tensor * r = each(g), * w = each(g), * k = each(g), * v = each(g);
            ggml_tensor * a = ggml_l2_norm(g.ctx, each(g), 1e-7f), * b = ggml_l2_norm(g.ctx, each(g), 1e-7f);
            g.result(ggml_rwkv_wkv7(g.ctx, r, w, k, v, a, b, g.input(GGML_TYPE_F32, { size * size * heads, 1 })));
        } });
        add.push_back({ named("GATED_LINEAR_ATTN", is("n", size)), [=](graph & g) {
            ggml_tensor * k = each(g), * v = each(g), * q = each(g), * gate = each(g);
            g.result(ggml_gated_linear_attn(g.ctx, k, v, q, gate, g.input(GGML_TYPE_F32, { size * size * heads, 1 }), 0.125f));
        } });
    }
    for (int64_t size : { 16, 32, 64, 128 }) {
        for (bool each : { false, true }) { // a decay for each channel, or one for all
            for (int64_t kept : { 1, 2 }) { // states that are handed back
                add.push_back({ named("GATED_DELTA_NET", is("n", size), is("each", int64_t(each)), is("kept", kept)), [=](graph & g) {
                    const int64_t   heads = 2, tokens = 2;
                    const ggml_type f32 = GGML_TYPE_F32;
                    ggml_tensor *   q = ggml_l2_norm(g.ctx, g.input(f32, { size, heads, tokens }), 1e-6f);
                    ggml_tensor *   k = ggml_l2_norm(g.ctx, g.input(f32, { size, heads, tokens }), 1e-6f);
                    g.result(ggml_gated_delta_net(g.ctx, q, k, g.input(f32, { size, heads, tokens }),
                        g.input(f32, { each ? size : 1, heads, tokens }, NEGATIVE), g.input(f32, { 1, heads, tokens }, POSITIVE),
                        g.input(f32, { size, size, heads }), kept));
                } });
            }
        }
    }
}

// --- elementwise, rows, copy, reduce, argsort ---------------------------------------------------------

static void others(tests & add) {
    using one = ggml_tensor * (*) (ggml_context *, ggml_tensor *);
    for (ggml_type type : FLOATS) {
        const double bound = rounding(type);
        for (const auto & gate : { std::pair<const char *, one>{ "silu", ggml_silu }, { "sigmoid", ggml_sigmoid },
                                   { "softplus", ggml_softplus } }) {
            const one function = gate.second;
            add.push_back({ named("UNARY_MUL", is("type", type), is("op", gate.first)), [=](graph & g) {
                g.result(ggml_mul(g.ctx, function(g.ctx, g.input(type, { 64, 3 })), g.input(type, { 64, 3 })));
            }, bound, true });
        }
        if (type != GGML_TYPE_BF16) {
            add.push_back({ named("FILL", is("type", type)), [=](graph & g) {
                g.result(ggml_fill(g.ctx, g.input(type, { 33, 3 }), 0.25f));
            }, bound, true });
            add.push_back({ named("DIAG", is("type", type)), [=](graph & g) {
                g.result(ggml_diag(g.ctx, g.input(type, { 33, 1, 2 })));
            }, bound, true });
        }
        for (const auto & each : { std::pair<const char *, one>{ "cos", ggml_cos }, { "sin", ggml_sin }, { "log", ggml_log },
                                   { "sqrt", ggml_sqrt }, { "sqr", ggml_sqr } }) {
            const one function = each.second;
            add.push_back({ named("UNARY", is("type", type), is("op", each.first)), [=](graph & g) {
                g.result(function(g.ctx, g.input(type, { 64, 3 }, POSITIVE)));
            }, bound, true });
        }
        add.push_back({ named("TRANSPOSED", is("type", type)), [=](graph & g) {
            g.result(ggml_cont(g.ctx, ggml_transpose(g.ctx, g.input(type, { 70, 40, 3 }))));
        } });
    }
    add.push_back({ named("TRANSPOSED", is("type", GGML_TYPE_I16)), [](graph & g) {
        g.result(ggml_cont(g.ctx, ggml_transpose(g.ctx, g.input(GGML_TYPE_I16, { 70, 40, 3 }, distinct(70)))));
    } });
    add.push_back({ named("GET_ROWS", is("type", GGML_TYPE_I32), is("rows", int64_t(200))), [](graph & g) {
        g.result(ggml_get_rows(g.ctx, g.input(GGML_TYPE_I32, { 1024, 200 }, distinct(2000)), g.input(GGML_TYPE_I32, { 200 }, distinct(200))));
    } });
    add.push_back({ named("GROUP_NORM", is("group", int64_t(512))), [](graph & g) {
        g.result(ggml_group_norm(g.ctx, g.input(GGML_TYPE_F32, { 16, 8, 8 }), 2, 1e-6f));
    } });
    add.push_back({ named("MEAN", is("n", int64_t(65537))), [](graph & g) {
        g.result(ggml_mean(g.ctx, g.input(GGML_TYPE_F32, { 65537 }, POSITIVE)));
    } });
    for (bool descending : { false, true }) { // segments that CUB sorts by one warp, or one block
        for (int64_t width : { 5, 100, 1500 }) {
            add.push_back({ named("ARGSORT", is("n", width), is("rows", int64_t(700)), is("down", int64_t(descending))), [=](graph & g) {
                ggml_tensor * order = ggml_argsort(g.ctx, g.input(GGML_TYPE_F32, { width, 700 }, distinct(width)),
                    descending ? GGML_SORT_ORDER_DESC : GGML_SORT_ORDER_ASC);
                g.result(order);
            } });
        }
    }
}

std::vector<test> all_tests() {
    tests made;
    broadcasts(made);
    by_hand(made);
    gates(made);
    experts(made);
    conversions(made);
    products(made);
    attention(made);
    recurrent(made);
    others(made);
    return made;
}
