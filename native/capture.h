/* SPDX-License-Identifier: Apache-2.0
 *
 * liblaggardcapture.so: waits for the agent's ticks and reads files at each, without waking the interpreter.
 *
 * It does what is ordinary, and leaves everything else to the interpreter, which then does that tick itself. Times are
 * nanoseconds. The twin of what is below, and of what it does, is in agent/laggard_agent: compiled.py, ticks.py and
 * collectors/captures.py.
 */
#ifndef LAGGARD_CAPTURE_H
#define LAGGARD_CAPTURE_H

#include <stdint.h>

/* The agent's time: that of the monotonic clock, plus an offset. */
struct laggard_timeline {
    int64_t interval_ns;
    int64_t next_ns; /* nominal time of the next tick */
    int64_t offset_ns;
    int64_t corrected_ns; /* on the monotonic clock: when the wall clock agreed last */
};

struct laggard_file {
    const char *path;
    int64_t fd;    /* kept open; negative: it is opened for each reading */
    int64_t lines; /* at the last reading */
};

/* What stands between this and time, for tests; NULL: the system's own. */
struct laggard_system {
    int64_t (*monotonic_ns)(void);
    int64_t (*wall_ns)(void);
    int64_t (*wait)(const uint32_t *stop, int64_t ns); /* 1 when it is to stop, 0 after so long or sooner, else -1 */
};

struct laggard_capturing {
    struct laggard_timeline *timeline;
    struct laggard_file *files;
    uint8_t *buffer; /* aligned to 8 bytes */
    const struct laggard_system *system;
    int64_t file_count;
    int64_t buffer_bytes;
    int64_t last_ns;          /* the tick after which to return */
    int64_t measures_cpu;     /* whether the CPU time of this process is wanted */
    int64_t used_bytes;       /* of the buffer; what lies below is whole, and stays as it is */
    int64_t reading_since_ns; /* on the monotonic clock; 0: it does not read */
    uint32_t stop;            /* not 0: it is to stop */
};

/* In the buffer for each tick: this, a laggard_captured for each file, their bytes one after the other, padding. */
struct laggard_tick {
    int64_t time_ns;
    int64_t took_ns;
    int64_t cpu_ns;
    int64_t is_last; /* the files' lines became more or fewer */
};

struct laggard_captured {
    int64_t at_ns; /* on the timeline */
    int64_t size_bytes;
};

enum {
    LAGGARD_STOPPED,
    LAGGARD_ENDED, /* the last tick was taken, or one whose lines are others */
    LAGGARD_LEFT,  /* there is something to be done at the next tick that is not done here */
};

/* Takes ticks until one of these. */
int64_t laggard_capture(struct laggard_capturing *capturing);

/* Lets laggard_capture return, now and from now on; from any thread. */
void laggard_stop(struct laggard_capturing *capturing);

/* How much of the buffer is used; for other threads, while it goes on. */
int64_t laggard_captured_bytes(const struct laggard_capturing *capturing);

/* Of which version the structures are. */
int64_t laggard_capture_layout(void);

#endif
