/* SPDX-License-Identifier: Apache-2.0 */
#include "capture.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define LAYOUT 2 /* of the structures; a change of any counts it up */
#define IGNORED_NS 1000000
#define SECOND_NS 1000000000

#define EXPORTED __attribute__((visibility("default")))

static int64_t read_clock(clockid_t which)
{
    struct timespec now;
    clock_gettime(which, &now);
    return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

static int64_t system_monotonic_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

static int64_t system_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

/* Until a time, not for so long: the kernel goes on with the former where the process was stopped or frozen meanwhile
 * (restart_syscall(2)), but would begin anew with what was left when that began. */
static int64_t system_wait(const uint32_t *stop, int64_t ns)
{
    if (ns > 0 && !__atomic_load_n(stop, __ATOMIC_ACQUIRE)) {
        int64_t until_ns = system_monotonic_ns() + ns;
        struct timespec until = {.tv_sec = until_ns / SECOND_NS, .tv_nsec = until_ns % SECOND_NS};
        int flags = FUTEX_WAIT_BITSET | FUTEX_PRIVATE_FLAG;
        if (syscall(SYS_futex, stop, flags, 0, &until, NULL, FUTEX_BITSET_MATCH_ANY) && errno != ETIMEDOUT &&
            errno != EAGAIN && errno != EINTR)
            return -1;
    }
    return __atomic_load_n(stop, __ATOMIC_ACQUIRE) != 0;
}

_Static_assert(sizeof(time_t) == sizeof(long), "as SYS_futex has it");

static const struct laggard_system real_system = {system_monotonic_ns, system_wall_ns, system_wait};

/* All bytes of an open file, at most `most`. Returns how many; -1 when it cannot be read or may be longer. */
static int64_t read_open(int fd, uint8_t *to, int64_t most)
{
    int64_t size = 0;
    while (size < most) {
        ssize_t got = pread(fd, to + size, (size_t)(most - size), size);
        if (got <= 0)
            return got ? -1 : size;
        size += got;
    }
    return -1;
}

static int64_t read_file(const struct laggard_file *file, uint8_t *to, int64_t most)
{
    if (file->fd >= 0)
        return read_open((int)file->fd, to, most);
    int fd = open(file->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    int64_t size = read_open(fd, to, most);
    close(fd);
    return size;
}

static int64_t count_lines(const uint8_t *text, int64_t size)
{
    int64_t lines = 0;
    for (int64_t i = 0; i < size; i++)
        lines += text[i] == '\n';
    return lines;
}

/* Reads all files for the tick at `time_ns` into the buffer, but does not yet count it as used. Returns how many bytes
 * it takes there; -1 when a file cannot be read or there is no room. */
static int64_t read_files(struct laggard_capturing *to, const struct laggard_system *system, int64_t time_ns)
{
    uint8_t *begin = to->buffer + to->used_bytes;
    int64_t room = to->buffer_bytes - to->used_bytes;
    int64_t size = (int64_t)sizeof(struct laggard_tick) + to->file_count * (int64_t)sizeof(struct laggard_captured);
    if (size > room)
        return -1;
    struct laggard_tick *tick = (struct laggard_tick *)begin;
    struct laggard_captured *captured = (struct laggard_captured *)(tick + 1);
    int64_t began = system->monotonic_ns();
    __atomic_store_n(&to->reading_since_ns, began, __ATOMIC_RELAXED);
    *tick = (struct laggard_tick){.time_ns = time_ns};
    for (int64_t i = 0; i < to->file_count; i++) {
        captured[i].at_ns = system->monotonic_ns() + to->timeline->offset_ns;
        captured[i].size_bytes = read_file(&to->files[i], begin + size, room - size);
        if (captured[i].size_bytes < 0)
            return -1;
        size += captured[i].size_bytes;
    }
    if (to->measures_cpu)
        tick->cpu_ns = read_clock(CLOCK_PROCESS_CPUTIME_ID);
    tick->took_ns = system->monotonic_ns() - began;
    size = (size + 7) & ~(int64_t)7;
    if (size > room)
        return -1;
    const uint8_t *text = (const uint8_t *)(captured + to->file_count);
    for (int64_t i = 0; i < to->file_count; text += captured[i++].size_bytes) {
        int64_t lines = count_lines(text, captured[i].size_bytes);
        tick->is_last |= lines != to->files[i].lines;
        to->files[i].lines = lines;
    }
    return size;
}

EXPORTED int64_t laggard_capture(struct laggard_capturing *capturing)
{
    struct laggard_timeline *timeline = capturing->timeline;
    const struct laggard_system *system = capturing->system ? capturing->system : &real_system;
    const int64_t interval = timeline->interval_ns, offset = timeline->offset_ns;
    for (;;) {
        int64_t next = timeline->next_ns;
        int64_t early = next - offset - system->monotonic_ns();
        int64_t stopped = system->wait(&capturing->stop, early > 0 ? early : 0);
        if (stopped)
            return stopped > 0 ? LAGGARD_STOPPED : LAGGARD_LEFT;
        int64_t now = system->monotonic_ns();
        int64_t ahead = system->wall_ns() - now - offset;
        if (ahead < -IGNORED_NS || ahead > IGNORED_NS || now + offset >= next + interval)
            return LAGGARD_LEFT; /* a clock was set, or ticks were missed */
        if (now + offset < next) {
            timeline->corrected_ns = now;
            continue;
        }
        int64_t size = read_files(capturing, system, next);
        __atomic_store_n(&capturing->reading_since_ns, 0, __ATOMIC_RELAXED);
        if (size < 0)
            return LAGGARD_LEFT;
        int64_t is_last = ((struct laggard_tick *)(capturing->buffer + capturing->used_bytes))->is_last;
        timeline->corrected_ns = now;
        __atomic_store_n(&timeline->next_ns, next + interval, __ATOMIC_RELAXED);
        __atomic_store_n(&capturing->used_bytes, capturing->used_bytes + size, __ATOMIC_RELEASE);
        if (is_last || next >= capturing->last_ns)
            return LAGGARD_ENDED;
    }
}

EXPORTED void laggard_stop(struct laggard_capturing *capturing)
{
    __atomic_store_n(&capturing->stop, 1, __ATOMIC_RELEASE);
    syscall(SYS_futex, &capturing->stop, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, INT_MAX);
}

EXPORTED int64_t laggard_captured_bytes(const struct laggard_capturing *capturing)
{
    return __atomic_load_n(&capturing->used_bytes, __ATOMIC_ACQUIRE);
}

EXPORTED int64_t laggard_capture_layout(void)
{
    return LAYOUT;
}
