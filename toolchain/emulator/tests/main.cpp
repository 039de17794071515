// test-graphs list
// test-graphs test -b BACKEND [-o NAME,NAME…]
//
// The second runs the graphs of tests.cpp and prints a line for each, in the words of test-backend-ops.

#include "graphs.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <set>

using context = std::unique_ptr<ggml_context, decltype(&ggml_free)>;
using backend = std::unique_ptr<ggml_backend, decltype(&ggml_backend_free)>;
using buffer  = std::unique_ptr<ggml_backend_buffer, decltype(&ggml_backend_buffer_free)>;

ggml_tensor * graph::input(ggml_type type, std::initializer_list<int64_t> shape, fill with) {
    const bool    rounded = plain && (type == GGML_TYPE_F16 || type == GGML_TYPE_BF16);
    ggml_tensor * made    = ggml_new_tensor(ctx, rounded ? GGML_TYPE_F32 : type, (int) shape.size(), shape.begin());
    leaves.push_back({ made, type, with });
    return made;
}

// --- inputs --------------------------------------------------------------------------------------

static std::vector<float> values(const graph::leaf & leaf, std::mt19937 & random) {
    std::vector<float> made(ggml_nelements(leaf.tensor));
    const int64_t      width = leaf.tensor->ne[0], height = leaf.tensor->ne[1];
    std::uniform_real_distribution<float> uniform(leaf.with.low, leaf.with.high);
    for (size_t at = 0; at < made.size(); at += width) {
        if (leaf.with.kind == fill::DISTINCT) {
            std::vector<int> numbers((size_t) leaf.with.high);
            for (size_t i = 0; i < numbers.size(); i++) {
                numbers[i] = (int) i;
            }
            std::shuffle(numbers.begin(), numbers.end(), random);
            std::copy_n(numbers.begin(), width, made.begin() + at);
            continue;
        }
        const int64_t row = (int64_t) (at / width) % height;
        for (int64_t i = 0; i < width; i++) {
            const float value = uniform(random);
            made[at + i] = leaf.with.kind != fill::LOWER_TRIANGLE ? value :
                           i < row ? value : i == row ? 1.5f + value / 2 : 0.0f;
        }
    }
    return made;
}

static std::vector<char> encoded(const std::vector<float> & from, ggml_type type, int64_t width) {
    std::vector<char> made(ggml_row_size(type, width) * (from.size() / width));
    if (type == GGML_TYPE_I16 || type == GGML_TYPE_I32 || type == GGML_TYPE_I64) {
        for (size_t i = 0; i < from.size(); i++) {
            const int64_t value = (int64_t) from[i]; // its first bytes are those of the shorter types
            memcpy(made.data() + i * ggml_type_size(type), &value, ggml_type_size(type));
        }
    } else if (type == GGML_TYPE_F32) {
        memcpy(made.data(), from.data(), made.size());
    } else {
        const std::vector<float> importance(width, 1.0f);
        ggml_quantize_chunk(type, from.data(), made.data(), 0, (int64_t) (from.size() / width), width, importance.data());
    }
    return made;
}

static std::vector<float> decoded(const std::vector<char> & from, ggml_type type, size_t count) {
    std::vector<float> made(count);
    if (type == GGML_TYPE_F32) {
        memcpy(made.data(), from.data(), count * sizeof(float));
    } else if (type == GGML_TYPE_I32 || type == GGML_TYPE_I16) {
        const auto * words = reinterpret_cast<const int32_t *>(from.data());
        const auto * halves = reinterpret_cast<const int16_t *>(from.data());
        for (size_t i = 0; i < count; i++) {
            made[i] = (float) (type == GGML_TYPE_I32 ? words[i] : halves[i]);
        }
    } else {
        ggml_get_type_traits(type)->to_float(from.data(), made.data(), (int64_t) count);
    }
    return made;
}

static void fill_in(const graph & to) {
    std::mt19937 random(20261130);
    for (const graph::leaf & leaf : to.leaves) {
        const int64_t     width = leaf.tensor->ne[0];
        std::vector<char> bytes = encoded(values(leaf, random), leaf.type, width);
        if (leaf.tensor->type != leaf.type) {
            bytes = encoded(decoded(bytes, leaf.type, ggml_nelements(leaf.tensor)), leaf.tensor->type, width);
        }
        ggml_backend_tensor_set(leaf.tensor, bytes.data(), 0, bytes.size());
    }
}

// --- one case ------------------------------------------------------------------------------------

struct outcome {
    std::string                     lacking; // an operation that the backend does not have
    std::vector<std::vector<float>> results;
};

static outcome compute(const test & what, ggml_backend_t on, bool plain) {
    constexpr size_t nodes = 256;
    context ctx(ggml_init({ ggml_tensor_overhead() * nodes + ggml_graph_overhead_custom(nodes, false), nullptr, true }),
        ggml_free);
    graph made = { ctx.get(), plain, {}, {} };
    what.build(made);
    ggml_cgraph * order = ggml_new_graph_custom(ctx.get(), nodes, false);
    for (ggml_tensor * result : made.results) { // not marked as output: that would keep some from being fused
        ggml_build_forward_expand(order, result);
    }
    for (int i = 0; i < ggml_graph_n_nodes(order); i++) {
        ggml_tensor * node = ggml_graph_node(order, i);
        if (!ggml_backend_supports_op(on, node)) {
            return { ggml_op_desc(node), {} };
        }
    }
    buffer memory(ggml_backend_alloc_ctx_tensors(ctx.get(), on), ggml_backend_buffer_free);
    if (memory == nullptr) {
        return { "memory", {} };
    }
    if (what.compute) {
        ggml_backend_buffer_set_usage(memory.get(), GGML_BACKEND_BUFFER_USAGE_COMPUTE);
    }
    fill_in(made);
    if (ggml_backend_graph_compute(on, order) != GGML_STATUS_SUCCESS) {
        return { "graph_compute", {} };
    }
    outcome seen;
    for (ggml_tensor * result : made.results) {
        std::vector<char> bytes(ggml_nbytes(result));
        ggml_backend_tensor_get(result, bytes.data(), 0, bytes.size());
        seen.results.push_back(decoded(bytes, result->type, ggml_nelements(result)));
    }
    return seen;
}

// Mean squared error, normalised by the reference; infinity where one has no number and the other has.
static double error(const std::vector<float> & reference, const std::vector<float> & other) {
    double difference = 0.0, square = 0.0;
    for (size_t i = 0; i < reference.size(); i++) {
        const double a = reference[i], b = other[i];
        if (std::isfinite(a) && std::isfinite(b)) {
            difference += (a - b) * (a - b);
            square += a * a;
        } else if (!(a == b)) {
            return INFINITY;
        }
    }
    return difference == 0.0 ? 0.0 : difference / square;
}

static bool run(const test & what, ggml_backend_t gpu, ggml_backend_t cpu) {
    setenv("GGML_CUDA_CUBLAS_COMPUTE_TYPE", what.blas_type.empty() ? "auto" : what.blas_type.c_str(), 1);
    const outcome other = compute(what, gpu, false);
    if (!other.lacking.empty()) {
        printf("  %s: not supported [%s: %s]\n", what.name.c_str(), ggml_backend_name(gpu), other.lacking.c_str());
        return true;
    }
    const outcome reference = compute(what, cpu, what.plain);
    if (!reference.lacking.empty()) {
        printf("  the reference has no %s  %s: FAIL\n", reference.lacking.c_str(), what.name.c_str());
        return false;
    }
    double worst = 0.0;
    for (size_t i = 0; i < reference.results.size(); i++) {
        worst = std::max(worst, error(reference.results[i], other.results[i]));
    }
    if (worst > what.bound) {
        printf("  ERR = %.9f > %.9f  %s: FAIL\n", worst, what.bound, what.name.c_str());
        return false;
    }
    printf("  %s: OK\n", what.name.c_str());
    return true;
}

// --- the program ---------------------------------------------------------------------------------

// Commas within brackets belong to a name.
static std::set<std::string> split(const char * text) {
    std::set<std::string> found;
    std::string           name;
    int                   depth = 0;
    for (const char * c = text; ; c++) {
        depth += *c == '(' ? 1 : *c == ')' ? -1 : 0;
        if (*c == '\0' || (*c == ',' && depth == 0)) {
            found.insert(name);
            name.clear();
            if (*c == '\0') {
                return found;
            }
        } else {
            name += *c;
        }
    }
}

int main(int argc, char ** argv) {
    setvbuf(stdout, nullptr, _IOLBF, 0);
    const std::vector<test> tests = all_tests();
    if (argc == 2 && strcmp(argv[1], "list") == 0) {
        for (const test & each : tests) {
            puts(each.name.c_str());
        }
        return 0;
    }
    const char *          name = nullptr;
    std::set<std::string> chosen;
    for (int i = 2; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "-b") == 0) {
            name = argv[i + 1];
        } else if (strcmp(argv[i], "-o") == 0) {
            chosen = split(argv[i + 1]);
        }
    }
    if (argc < 2 || strcmp(argv[1], "test") != 0 || name == nullptr) {
        fprintf(stderr, "usage: %s list | test -b BACKEND [-o NAME,NAME...]\n", argv[0]);
        return 2;
    }
    ggml_backend_load_all();
    const backend gpu(ggml_backend_init_by_name(name, nullptr), ggml_backend_free);
    const backend cpu(ggml_backend_init_by_type(GGML_BACKEND_DEVICE_TYPE_CPU, nullptr), ggml_backend_free);
    if (gpu != nullptr && cpu != nullptr) {
        // The graphs are small: threads that wait for each other would cost more than the work.
        auto set_threads = (ggml_backend_set_n_threads_t) ggml_backend_reg_get_proc_address(
            ggml_backend_dev_backend_reg(ggml_backend_get_device(cpu.get())), "ggml_backend_set_n_threads");
        if (set_threads != nullptr) {
            set_threads(cpu.get(), 1);
        }
    } else {
        fprintf(stderr, "there is no backend %s\n", name);
        return 2;
    }
    int wrong = 0;
    for (const test & each : tests) {
        if (chosen.empty() || chosen.count(each.name) != 0) {
            wrong += !run(each, gpu.get(), cpu.get());
        }
    }
    return wrong == 0 ? 0 : 1;
}
