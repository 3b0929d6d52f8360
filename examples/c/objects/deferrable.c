/*
 * deferrable.c - a server as an object for `talea simulate --object` and `talea execute --object`.
 *
 * The server is a deferrable one (Strosnider, Lehoczky and Sha, 1995): a refill at each period, and
 * the budget is kept until then. A test compares its schedules with the built-in `deferrable`.
 *
 *     cc -O2 -fPIC -shared -I../../../crates/talea-object/include -o deferrable.so deferrable.c
 */
#include "talea_sched.h"

#include <stdlib.h>

struct deferrable {
    uint64_t capacity_ns;
    uint64_t period_ns;
    uint64_t relative_deadline_ns;
    uint64_t remaining_ns;
    uint64_t next_ns;
    uint64_t deadline_ns;
};

static void *create(uint64_t budget_ns, uint64_t period_ns, uint64_t deadline_ns,
                    uint64_t offset_ns)
{
    struct deferrable *deferrable = malloc(sizeof *deferrable);

    if (deferrable)
        *deferrable = (struct deferrable){.capacity_ns = budget_ns,
                                  .period_ns = period_ns,
                                  .relative_deadline_ns = deadline_ns,
                                  .next_ns = offset_ns,
                                  .deadline_ns = TALEA_SCHED_NEVER};
    return deferrable;
}

static void nothing(void *self, uint64_t now_ns)
{
    (void)self;
    (void)now_ns;
}

static void charge(void *self, uint64_t now_ns, uint64_t used_ns)
{
    struct deferrable *deferrable = self;

    (void)now_ns;
    deferrable->remaining_ns -= used_ns;
}

static void refill(void *self, uint64_t now_ns)
{
    struct deferrable *deferrable = self;

    (void)now_ns;
    deferrable->remaining_ns = deferrable->capacity_ns;
    deferrable->deadline_ns = deferrable->next_ns + deferrable->relative_deadline_ns;
    deferrable->next_ns += deferrable->period_ns;
}

static uint64_t budget(const void *self, uint64_t now_ns)
{
    (void)now_ns;
    return ((const struct deferrable *)self)->remaining_ns;
}

static uint64_t next_refill(const void *self, uint64_t now_ns)
{
    (void)now_ns;
    return ((const struct deferrable *)self)->next_ns;
}

static uint64_t deadline(const void *self)
{
    return ((const struct deferrable *)self)->deadline_ns;
}

static const struct talea_sched_server deferrable = {
    .size = sizeof deferrable,
    .name = "deferrable-c",
    .create = create,
    .destroy = free,
    .wake = nothing,
    .idle = nothing,
    .charge = charge,
    .exhausted = nothing,
    .refill = refill,
    .budget = budget,
    .next_refill = next_refill,
    .deadline = deadline,
};

static const struct talea_sched_server *const servers[] = {&deferrable, NULL};

static const struct talea_sched_object object = {
    .size = sizeof object,
    .abi = TALEA_SCHED_ABI,
    .servers = servers,
};

const struct talea_sched_object *talea_sched_entry(uint32_t abi)
{
    return abi == TALEA_SCHED_ABI ? &object : NULL;
}
