/* SPDX-License-Identifier: Apache-2.0 */
#include "ticks.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

int ticks_of_cpu;

static uint64_t first_ticks, first_ns, per_second;

#define SHORTEST_NS 1000000u

/* Both clocks at one moment: the reading of several that was interrupted least. */
static void both(uint64_t *at_ticks, uint64_t *at_ns)
{
    uint64_t shortest = UINT64_MAX;
    for (int i = 0; i < 5; i++) {
        uint64_t before = cpu_ticks(), ns = monotonic_ns(), after = cpu_ticks();
        if (after - before < shortest) {
            shortest = after - before;
            *at_ticks = before + shortest / 2;
            *at_ns = ns;
        }
    }
}

static int is_steady(void)
{
#if defined(__x86_64__)
    unsigned int a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d >> 8 & 1); /* invariant TSC */
#elif defined(__aarch64__)
    return 1;
#else
    return 0;
#endif
}

void ticks_begin(int monotonic)
{
    ticks_of_cpu = !monotonic && is_steady();
    if (ticks_of_cpu)
        both(&first_ticks, &first_ns);
}

uint64_t ticks_per_second(void)
{
    if (per_second)
        return per_second;
    if (!ticks_of_cpu)
        return per_second = 1000000000u;
#if defined(__aarch64__)
    __asm__ volatile("mrs %0, cntfrq_el0" : "=r"(per_second));
    if (per_second)
        return per_second;
#endif
    uint64_t now_ticks = 0, now_ns = 0;
    for (both(&now_ticks, &now_ns); now_ns - first_ns < SHORTEST_NS; both(&now_ticks, &now_ns)) {
        struct timespec rest = {0, (long)(SHORTEST_NS - (now_ns - first_ns))};
        nanosleep(&rest, NULL);
    }
    return per_second = (uint64_t)((unsigned __int128)(now_ticks - first_ticks) * 1000000000u / (now_ns - first_ns));
}
