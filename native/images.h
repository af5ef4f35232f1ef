/* SPDX-License-Identifier: Apache-2.0
 *
 * What lies at an address: the mapped file, and where in it. Everything here is system calls alone, so that a
 * signal handler may be the first to ask; one thread at a time.
 */
#ifndef LAGGARD_IMAGES_H
#define LAGGARD_IMAGES_H

#include <stdint.h>

#include "layout.h"

/* A stretch of a file that is mapped to be executed. */
struct mapping {
    uintptr_t start, end;
    uint64_t offset; /* in the file, of `start` */
    uint64_t inode;
    char path[sizeof ((struct module *)0)->path];
};

/* Finds the mapping of `address`. Returns 0 when there is none, or it has no file. */
int find_mapping(uintptr_t address, struct mapping *found);

/* Fills in what names the image for the agent. */
void describe(const struct mapping *mapping, struct module *module);

/* Calls `take` with the file offset of every function whose name is on the list. Returns -1 where the file
 * has no symbols or cannot be read. */
int for_allowed(const char *path, void (*take)(uint64_t offset, void *with), void *with);

/* Reads the list of names that are traced. Returns -1 when it cannot be read or names nothing. */
int allow_read(const char *path);

#endif
