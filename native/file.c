/* SPDX-License-Identifier: Apache-2.0 */
#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "text.h"

#define MOST_TABLES 512
#define MOST_FILES 100 /* of one process: it makes one with every exec */
#define MOST_NUMBER 999999998

uint64_t start_ticks(void)
{
    static char text[1024];
    if (read_text("/proc/self/stat", text, sizeof text) < 0)
        return 0;
    const char *at = strrchr(text, ')'); /* the name may hold anything */
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    return at ? (at++, take_number(&at, 10)) : 0;
}

/* The directory, when no one can have put it or a link there to mislead us; -1 and errno otherwise. */
static int open_directory(const char *directory)
{
    int folder = open(directory, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    struct stat found;
    if (folder >= 0 && !fstat(folder, &found) && (found.st_mode & S_IWOTH) && !(found.st_mode & S_ISVTX)) {
        close(folder);
        folder = -1;
        errno = EPERM; /* anyone could take our file away */
    }
    return folder;
}

/* The number for the next table whose name begins with `stem`: behind all there are, as the agent takes the one
 * with the highest for the one in use. -1 and errno where there are so many that no one can be reading them: they
 * must not fill the memory. */
static int64_t next_number(int folder, const char *stem)
{
    static struct {
        char bytes[4096] __attribute__((aligned(8)));
    } room;
    struct entry {
        uint64_t inode, offset;
        uint16_t length;
        uint8_t type;
        char name[];
    };
    size_t length = strlen(stem);
    int tables = 0, own = 0;
    int64_t next = 0;
    long got;
    while (tables < MOST_TABLES && (got = syscall(SYS_getdents64, folder, room.bytes, sizeof room.bytes)) > 0)
        for (long at = 0; at < got; at += ((struct entry *)(room.bytes + at))->length) {
            const char *name = ((struct entry *)(room.bytes + at))->name;
            tables += name[0] != '.';
            if (strncmp(name, stem, length))
                continue;
            own++;
            name += length;
            uint64_t number = take_number(&name, 10);
            if (!*name && number < MOST_NUMBER && (int64_t)number >= next)
                next = (int64_t)number + 1;
        }
    if (tables < MOST_TABLES && own < MOST_FILES)
        return next;
    errno = tables < MOST_TABLES ? EEXIST : EUSERS;
    return -1;
}

int file_create(const char *directory, size_t size)
{
    struct rlimit most;
    if (!getrlimit(RLIMIT_FSIZE, &most) && most.rlim_cur != RLIM_INFINITY && most.rlim_cur < size) {
        errno = EFBIG; /* to try would be SIGXFSZ */
        return -1;
    }
    int folder = open_directory(directory);
    if (folder < 0)
        return -1;
    char stem[64] = "", name[80] = "";
    append_number(stem, sizeof stem, (uint64_t)getpid());
    append(stem, sizeof stem, ".");
    append_number(stem, sizeof stem, start_ticks());
    append(stem, sizeof stem, ".");
    int fd = -1;
    int64_t number = next_number(folder, stem);
    for (int tries = 0; number >= 0 && fd < 0 && tries < MOST_FILES; tries++, number++) {
        name[0] = 0;
        append(name, sizeof name, stem);
        append_number(name, sizeof name, (uint64_t)number);
        fd = openat(folder, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0640);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    /* All of it at once: a page that is missing when the file system is full would be SIGBUS later. */
    int error = fd < 0 ? errno : posix_fallocate(fd, 0, (off_t)size);
    if (fd >= 0 && error) {
        unlinkat(folder, name, 0);
        close(fd);
        fd = -1;
    }
    close(folder);
    errno = error;
    return fd;
}

const char *file_reason(int error)
{
    switch (error) {
    case ENOENT: return "no such directory";
    case EACCES: return "permission denied";
    case EPERM: return "writable by all, and not sticky";
    case ENOSPC: return "no space left";
    case EFBIG: return "limited file size (ulimit -f)";
    case EEXIST: return "100 tables of this process already, is there no agent?";
    case EUSERS: return "512 tables already, is there no agent?";
    default: return "cannot be used";
    }
}
