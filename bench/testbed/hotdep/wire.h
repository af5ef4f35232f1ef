/* SPDX-License-Identifier: Apache-2.0
 *
 * What the I/O servers of the testbed and their client say to each other. Both ends are of the same machine.
 */
#ifndef WIRE_H
#define WIRE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#define BLOCK 4096u          /* everything on a disk is whole blocks (O_DIRECT) */
#define MOST_BYTES (1u << 20) /* of a strip */

enum kind { READ_STRIP = 1, WRITE_STRIP, LOOK_UP };

/* The data of a write follow it; `offset` of a look-up is the number of the name. */
struct request {
    uint32_t kind;
    uint32_t bytes;
    uint64_t offset;
};

/* The data of a read follow it. */
struct reply {
    uint64_t checksum;
    uint32_t bytes;
    uint32_t failed;
};

/* FNV-1a by words of 8 bytes. */
static inline uint64_t fnv(const void *data, size_t bytes)
{
    const uint64_t *words = data;
    uint64_t sum = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes / 8; i++)
        sum = (sum ^ words[i]) * 0x100000001b3u;
    return sum;
}

/* All of it, or 0: the other end has gone. */
static inline int transfer(int fd, void *data, size_t bytes, int out)
{
    char *at = data;
    while (bytes) {
        ssize_t done = out ? write(fd, at, bytes) : read(fd, at, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return 0;
        at += done;
        bytes -= (size_t)done;
    }
    return 1;
}

#endif
