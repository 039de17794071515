// Graphs of ggml that are computed on the emulated GPU and on the CPU, and compared.
//
// test-backend-ops tries operations one by one. The kernels that the CUDA backend puts in the place of
// several operations, and those it takes for odd layouts, need graphs of their own: these.

#pragma once

#include "ggml.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// What the elements of an input are.
struct fill {
    enum kind { UNIFORM, DISTINCT, LOWER_TRIANGLE } kind = UNIFORM;
    float low = -1.0f, high = 1.0f; // UNIFORM: the range; DISTINCT: in each row, numbers below `high`
};

constexpr fill POSITIVE = { fill::UNIFORM, 0.5f, 1.5f };
constexpr fill NEGATIVE = { fill::UNIFORM, -1.5f, -0.5f };

inline fill distinct(int64_t below) {
    return { fill::DISTINCT, 0.0f, (float) below };
}

// One graph while it is built: twice for a case, once for each backend.
struct graph {
    struct leaf {
        ggml_tensor * tensor;
        ggml_type     type; // that its values are rounded to
        fill          with;
    };

    ggml_context *             ctx;
    bool                       plain; // the reference computes in F32 what the GPU has as F16 or BF16
    std::vector<leaf>          leaves;
    std::vector<ggml_tensor *> results;

    ggml_tensor * input(ggml_type type, std::initializer_list<int64_t> shape, fill with = {});

    void result(ggml_tensor * tensor) { results.push_back(tensor); }
};

struct test {
    std::string                  name; // OPERATION(key=value,…)
    std::function<void(graph &)> build;
    double                       bound = 1e-6; // largest normalised mean squared error

    bool        plain   = false; // the CPU backend lacks the operation for this type: F32 is the reference
    bool        compute = false; // inputs lie in a buffer of intermediate results, where views may not be padded
    std::string blas_type = ""; // GGML_CUDA_CUBLAS_COMPUTE_TYPE
};

std::vector<test> all_tests();
