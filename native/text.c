/* SPDX-License-Identifier: Apache-2.0 */
#include "text.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

char *append(char *to, size_t size, const char *from)
{
    size_t at = strlen(to);
    while (*from && at + 1 < size)
        to[at++] = *from++;
    to[at] = 0;
    return to;
}

char *append_number(char *to, size_t size, uint64_t number)
{
    char digits[21];
    char *first = digits + sizeof digits - 1;
    *first = 0;
    do
        *--first = (char)('0' + number % 10);
    while (number /= 10);
    return append(to, size, first);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : 16;
}

uint64_t take_number(const char **at, unsigned int base)
{
    uint64_t number = 0;
    for (; digit(**at) < (int)base; ++*at)
        number = number * base + (unsigned int)digit(**at);
    return number;
}

long read_text(const char *path, char *to, size_t size)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return -1;
    size_t length = 0;
    long got;
    while (length + 1 < size && (got = read(fd, to + length, size - 1 - length)) > 0)
        length += (size_t)got;
    close(fd);
    to[length] = 0;
    return (long)length;
}

int matches(const char *pattern, const char *name)
{
    const char *star = NULL, *from = NULL;
    while (*name) {
        if (*pattern == '*') {
            star = pattern++;
            from = name;
        } else if (*pattern == '?' || *pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star + 1;
            name = ++from;
        } else {
            return 0;
        }
    }
    while (*pattern == '*')
        pattern++;
    return !*pattern;
}
