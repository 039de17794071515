// Shared memory of a block that runs with checks: bounds, and accesses that nothing orders.
//
// Two accesses to one byte by different threads, one of them a store, need a barrier between them: of the
// block, or, within a warp, __syncwarp. Without one a GPU whose lanes run in lockstep may still get it
// right: such pairs in one warp are called "lockstep", others "race".

#pragma once

#include "kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct qe_conflict {
    uint32_t offset, thread, site;
    int was_write, same_warp;
};

// Who touched a byte last. Epochs make clearing between blocks unnecessary.
struct qe_touch {
    uint32_t epoch, warp_epoch, site;
    uint16_t thread;
};

struct qe_touched {
    struct qe_touch write, read;
};

static struct qe_touched * qe_touched_bytes;
static size_t qe_touched_count;

static int qe_shared_problem(const struct qe_launch * launch, uint32_t offset, uint32_t bytes, int write, char * words,
                             size_t room) {
    const char * verb = write ? "store" : "load";
    if (offset < QE_DYNAMIC_SHARED) {
        if (offset + bytes <= launch->dynamic_shared) {
            return 0;
        }
        snprintf(words, room, "%s of %u bytes at %u of %u bytes of dynamic shared memory", verb, bytes, offset,
                 launch->dynamic_shared);
        return 1;
    }
    const struct qe_region * near = NULL;
    for (uint32_t i = 0; i < launch->kernel->region_count; i++) {
        const struct qe_region * r = &launch->kernel->regions[i];
        if (offset >= r->offset && offset + bytes <= r->offset + r->size) {
            return 0;
        }
        if (r->offset <= offset && (near == NULL || r->offset > near->offset)) {
            near = r;
        }
    }
    if (near == NULL) {
        snprintf(words, room, "%s of %u bytes in front of the first shared array", verb, bytes);
    } else {
        snprintf(words, room, "%s of %u bytes at %u of a shared array of %u bytes", verb, bytes, offset - near->offset,
                 near->size);
    }
    return 1;
}

static struct qe_touched * qe_touched_at(uint32_t offset, uint32_t bytes) {
    if (offset + bytes > qe_touched_count) {
        size_t more = ((size_t) offset + bytes) * 3 / 2;
        struct qe_touched * bigger = realloc(qe_touched_bytes, more * sizeof *bigger);
        if (bigger == NULL) {
            abort();
        }
        memset(bigger + qe_touched_count, 0, (more - qe_touched_count) * sizeof *bigger);
        qe_touched_bytes = bigger;
        qe_touched_count = more;
    }
    return &qe_touched_bytes[offset];
}

static int qe_unordered(const struct qe_thread * t, uint32_t epoch, const struct qe_touch * touch, int was_write,
                        struct qe_conflict * c) {
    if (touch->epoch != epoch || touch->thread == t->index) {
        return 0;
    }
    int same = touch->thread / QE_WARP == t->index / QE_WARP;
    if (same && touch->warp_epoch != t->warp->epoch) {
        return 0;
    }
    c->thread = touch->thread;
    c->site = touch->site;
    c->was_write = was_write;
    c->same_warp = same;
    return 1;
}

// Whether the access needs an order that it does not have; loads are remembered at once.
static int qe_shared_conflict(struct qe_thread * t, uint32_t epoch, uint32_t offset, uint32_t bytes, uint32_t site,
                              struct qe_conflict * c) {
    struct qe_touched * touched = qe_touched_at(offset, bytes);
    int kind = (int) (site & 3), found = 0;
    for (uint32_t i = 0; i < bytes; i++) {
        int conflict = kind != 2 && qe_unordered(t, epoch, &touched[i].write, 1, c);
        conflict = conflict || (kind == 1 && qe_unordered(t, epoch, &touched[i].read, 0, c));
        if (conflict && !found) {
            c->offset = offset + i;
            found = 1;
        }
        if (kind == 0) {
            touched[i].read = (struct qe_touch) { epoch, t->warp->epoch, site, (uint16_t) t->index };
        }
    }
    return found;
}

static void qe_shared_store(struct qe_thread * t, uint32_t epoch, uint32_t offset, uint32_t bytes, uint32_t site) {
    struct qe_touched * touched = qe_touched_at(offset, bytes);
    for (uint32_t i = 0; i < bytes; i++) {
        touched[i].write = (struct qe_touch) { epoch, t->warp->epoch, site, (uint16_t) t->index };
    }
}
