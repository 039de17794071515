// The one thing that a library of kernels exports. qbuild generates units.h: the units' names, each in
// UNIT(name).

#include "kernel.h"

#define UNIT(name) extern const struct qe_unit qe_unit_##name;
#include "units.h"
#undef UNIT

#define UNIT(name) &qe_unit_##name,
static const struct qe_unit * const units[] = {
#include "units.h"
};

#ifdef _WIN32
__declspec(dllexport)
#else
__attribute__((visibility("default")))
#endif
const struct qe_library qe_library = { QE_FORMAT, units, sizeof units / sizeof *units, qe_run };
