/* SPDX-License-Identifier: Apache-2.0
 *
 * The file that a table is in: PID.START.N in a directory that others may write to as well.
 */
#ifndef LAGGARD_FILE_H
#define LAGGARD_FILE_H

#include <stddef.h>
#include <stdint.h>

/* A new file of `size` bytes, all of them allocated, open for writing; -1 and errno when there is none. */
int file_create(const char *directory, size_t size);

/* What an errno of file_create means. */
const char *file_reason(int error);

/* When this process started: field 22 of /proc/PID/stat. */
uint64_t start_ticks(void);

#endif
