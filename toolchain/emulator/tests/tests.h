// What the files that hold graphs have in common.

#pragma once

#include "graphs.h"

#include <utility>

using tests = std::vector<test>;

inline std::string text(ggml_type type) {
    return ggml_type_name(type);
}

inline std::string text(int64_t number) {
    return std::to_string(number);
}

inline std::string text(const char * word) {
    return word;
}

// NAME(key=value,…)
template <typename... Pairs> inline std::string named(const char * operation, const Pairs &... pairs) {
    std::string made;
    ((made += (made.empty() ? "" : ",") + std::string(pairs.first) + "=" + text(pairs.second)), ...);
    return std::string(operation) + "(" + made + ")";
}

template <typename T> inline std::pair<const char *, T> is(const char * key, T value) {
    return { key, value };
}

inline const ggml_type QUANTS[] = {
    GGML_TYPE_Q1_0, GGML_TYPE_Q2_0, GGML_TYPE_Q4_0, GGML_TYPE_Q4_1, GGML_TYPE_Q5_0, GGML_TYPE_Q5_1,
    GGML_TYPE_Q8_0, GGML_TYPE_Q2_K, GGML_TYPE_Q3_K, GGML_TYPE_Q4_K, GGML_TYPE_Q5_K, GGML_TYPE_Q6_K,
    GGML_TYPE_IQ1_S, GGML_TYPE_IQ1_M, GGML_TYPE_IQ2_XXS, GGML_TYPE_IQ2_XS, GGML_TYPE_IQ2_S,
    GGML_TYPE_IQ3_XXS, GGML_TYPE_IQ3_S, GGML_TYPE_IQ4_NL, GGML_TYPE_IQ4_XS, GGML_TYPE_MXFP4, GGML_TYPE_NVFP4,
};
inline const ggml_type FLOATS[] = { GGML_TYPE_F32, GGML_TYPE_F16, GGML_TYPE_BF16 };

constexpr double PRODUCTS = 5e-4; // what test-backend-ops allows where activations are quantised

// Rounding of one element, squared: what a result in this type may be off by.
inline double rounding(ggml_type type) {
    return type == GGML_TYPE_BF16 ? 1e-4 : type == GGML_TYPE_F16 ? 1e-6 : 1e-7;
}

// A tensor by hand: one that ggml.c does not make, of another type than its operation gives. The CUDA backend
// says that it has the operation all the same; graphs that another program sends hold such tensors.
inline ggml_tensor * retyped(ggml_tensor * made, ggml_type type) {
    const size_t old = ggml_type_size(made->type), size = ggml_type_size(type);
    for (size_t & stride : made->nb) {
        stride = stride / old * size;
    }
    made->type = type;
    return made;
}

constexpr int64_t MANY = 7 * 599178; // planes: more than 64 * 65535, which is what a grid can number

// Every second element: a tensor that cannot be seen as one long row.
inline ggml_tensor * with_gaps(graph & g, ggml_type type, int64_t planes) {
    ggml_tensor * whole = g.input(type, { 2, 1, planes }, POSITIVE);
    return ggml_view_3d(g.ctx, whole, 1, 1, planes, whole->nb[1], whole->nb[2], 0);
}

void by_hand(tests & add); // by_hand.cpp
