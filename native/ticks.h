/* SPDX-License-Identifier: Apache-2.0
 *
 * The cheapest clock that runs evenly on all cores, and counters that a signal cannot tear.
 */
#ifndef LAGGARD_TICKS_H
#define LAGGARD_TICKS_H

#include <stdint.h>
#include <time.h>

extern int ticks_of_cpu; /* whether ticks() reads the CPU's own counter */

/* Chooses the clock; `monotonic` forces CLOCK_MONOTONIC. */
void ticks_begin(int monotonic);

/* Ticks in a second. The first call may sleep a millisecond, to measure it. */
uint64_t ticks_per_second(void);

static inline uint64_t monotonic_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline uint64_t cpu_ticks(void)
{
#if defined(__x86_64__)
    uint32_t low, high;
    __asm__ volatile("rdtsc" : "=a"(low), "=d"(high));
    return (uint64_t)high << 32 | low;
#elif defined(__aarch64__)
    uint64_t value;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
    return value;
#else
    return monotonic_ns();
#endif
}

static inline uint64_t ticks(void)
{
    return __builtin_expect(ticks_of_cpu, 1) ? cpu_ticks() : monotonic_ns();
}

/* Adds in one step as far as this thread's own signal handlers can tell; no other thread writes here. */
static inline void add(uint64_t *counter, uint64_t value)
{
#if defined(__x86_64__)
    __asm__ volatile("addq %1, %0" : "+m"(*counter) : "er"(value) : "cc");
#else
    __atomic_fetch_add(counter, value, __ATOMIC_RELAXED);
#endif
}

#endif
