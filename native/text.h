/* SPDX-License-Identifier: Apache-2.0
 *
 * Text without the C library's formatting, which a signal handler may not use.
 */
#ifndef LAGGARD_TEXT_H
#define LAGGARD_TEXT_H

#include <stddef.h>
#include <stdint.h>

/* Appends `from` to `to`, which holds `size` bytes; cuts what does not fit. Returns `to`. */
char *append(char *to, size_t size, const char *from);
char *append_number(char *to, size_t size, uint64_t number);

/* The number in base 10 or 16 at `*at`, which moves behind it. */
uint64_t take_number(const char **at, unsigned int base);

/* Reads a file of at most `size - 1` bytes and ends it with 0. Returns its length, -1 for an error. */
long read_text(const char *path, char *to, size_t size);

/* Whether `name` is what the pattern says: `*` any characters, `?` one. */
int matches(const char *pattern, const char *name);

#endif
