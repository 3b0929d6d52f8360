/*
 * share.h - exact sums of shares of a CPU, for the example plugins.
 *
 * A share Q/S is counted in units of 2^-64 and rounded up, so that a sum never promises too much.
 * Where a sum exceeds its limit by no more than the rounding, share_fits() decides exactly: ten
 * tasks of 10 % fill a CPU.
 */
#ifndef SHARE_H
#define SHARE_H

#include <stddef.h>
#include <stdint.h>

__extension__ typedef unsigned __int128 u128;

/* A whole CPU. */
#define SHARE_ONE ((u128)1 << 64)

/* One summand: `work` ns in each `span` ns. */
struct share {
    uint64_t work, span;
};

/* Q/S, rounded up. */
static inline u128 share_up(uint64_t work, uint64_t span)
{
    return (((u128)work << 64) + span - 1) / span;
}

/* The most work within `span` ns that a share allows, rounded down. */
static inline uint64_t share_of(u128 share, uint64_t span)
{
    u128 work = (share >> 64) * span + ((share & UINT64_MAX) * span >> 64);
    return work > UINT64_MAX ? UINT64_MAX : (uint64_t)work;
}

/*
 * Whether the sum of the shares is at most `limit`, exactly. `rest` has room for `count` numbers.
 *
 * Each round compares the next 64 bits after the point. The sum is a fraction whose denominator is
 * at most the product of all spans: it equals the limit if `count` + 1 rounds find no difference.
 * Costs O(count^2), and O(count) unless the sum is very close to the limit.
 */
static inline int share_fits(const struct share *shares, size_t count, u128 limit, uint64_t *rest)
{
    u128 left = limit;
    for (size_t i = 0; i < count; i++) {
        u128 whole = ((u128)shares[i].work << 64) / shares[i].span;
        if (whole > left)
            return 0;
        left -= whole;
        rest[i] = (uint64_t)(((u128)shares[i].work << 64) % shares[i].span);
    }
    for (size_t round = 0; round <= count && left < count; round++) {
        left <<= 64;
        for (size_t i = 0; i < count; i++) {
            u128 digit = ((u128)rest[i] << 64) / shares[i].span;
            if (digit > left)
                return 0;
            left -= digit;
            rest[i] = (uint64_t)(((u128)rest[i] << 64) % shares[i].span);
        }
    }
    return 1;
}

#endif
