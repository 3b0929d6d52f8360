/* Counters of jobs: each increment wakes the waiting thread. Call begin_counting() first. */
#ifndef COUNTING_H
#define COUNTING_H

/* Must precede all other includes. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "check.h"
#include <semaphore.h>
#include <stdint.h>
#include <time.h>

static sem_t incremented;

static inline void begin_counting(void)
{
    CHECK(sem_init(&incremented, 0, 0) == 0);
}

/* Increments a counter. A function of a version, or the last call of one. */
static inline void counts(void *count)
{
    __atomic_add_fetch((uint64_t *)count, 1, __ATOMIC_ACQ_REL);
    sem_post(&incremented);
}

/* Waits, for half a minute at most, until a counter has reached `minimum`. */
static inline void waits(const uint64_t *count, uint64_t minimum)
{
    struct timespec end;
    CHECK(clock_gettime(CLOCK_REALTIME, &end) == 0);
    end.tv_sec += 30;
    while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < minimum)
        CHECK(sem_timedwait(&incremented, &end) == 0 || errno == EINTR);
}

#endif
