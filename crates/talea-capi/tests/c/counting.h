/* What jobs count, and waiting for it: whoever counts wakes who waits. A program that counts begins with begin_counting(). */
#ifndef COUNTING_H
#define COUNTING_H

/* Before anything else is included. */
#ifndef _POSIX_C_SOURCE
#define _POSIX_C_SOURCE 200809L
#endif
#include "check.h"
#include <semaphore.h>
#include <stdint.h>
#include <time.h>

static sem_t counted_anew;

static inline void begin_counting(void)
{
    CHECK(sem_init(&counted_anew, 0, 0) == 0);
}

/* A job, or the end of one: one more. */
static inline void counts(void *count)
{
    __atomic_add_fetch((uint64_t *)count, 1, __ATOMIC_ACQ_REL);
    sem_post(&counted_anew);
}

/* Half a minute at most. */
static inline void waits(const uint64_t *count, uint64_t least)
{
    struct timespec end;
    CHECK(clock_gettime(CLOCK_REALTIME, &end) == 0);
    end.tv_sec += 30;
    while (__atomic_load_n(count, __ATOMIC_ACQUIRE) < least)
        CHECK(sem_timedwait(&counted_anew, &end) == 0 || errno == EINTR);
}

#endif
