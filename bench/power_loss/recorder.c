/* Records what a program does to the files below a folder, in order, for `bench.power_loss`.
 *
 * gcc -shared -fPIC -O2 -o recorder.so recorder.c -ldl -pthread
 * LD_PRELOAD=recorder.so RECORDED_FOLDER=/abs/folder RECORDED_LOG=/abs/log program
 *
 * Little-endian records: u8 type, then by type
 *   'O' u32 handle, u8 truncated, text path      'W' u32 handle, u64 offset, data   'T' u32 handle, u64 size
 *   'S' u32 handle                               'R' text old, text new             'U' text path
 *   'L' text old, text new (hard link)
 *   'M' text path (mkdir)                        'D' text path (rmdir)
 * where text and data are u32 length and bytes. A handle stands for one open(); an operation and its record are
 * done under one lock.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MOST_FDS 65536
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static uint32_t handles[MOST_FDS], next_handle = 1;
static char folder[PATH_MAX];
static int out = -1;

__attribute__((constructor)) static void begin(void) {
    const char *root = getenv("RECORDED_FOLDER"), *log = getenv("RECORDED_LOG");
    if (root && log && realpath(root, folder))
        out = syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

#define REAL(name) __typeof__(&name) real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)
#define GUARDED(call)                                                                                              \
    int error;                                                                                                     \
    pthread_mutex_lock(&lock);                                                                                     \
    __typeof__(call) done = (call);                                                                                \
    error = errno
#define RETURN                                                                                                     \
    do {                                                                                                           \
        pthread_mutex_unlock(&lock);                                                                               \
        errno = error;                                                                                             \
        return done;                                                                                               \
    } while (0)

static void put(const void *data, size_t size) {
    while (size) {
        ssize_t n = syscall(SYS_write, out, data, size);
        if (n <= 0)
            abort();
        data = (const char *)data + n;
        size -= n;
    }
}

static void put_text(const char *text) {
    uint32_t size = strlen(text);
    put(&size, 4);
    put(text, size);
}

/* The path of `name` at `at` where it is below the folder, else NULL. The last part need not exist. */
static const char *inside(int at, const char *name, char *buffer) {
    char base[PATH_MAX], whole[PATH_MAX], parent[PATH_MAX], link[64];
    if (out < 0)
        return NULL;
    if (name[0] == '/') {
        snprintf(whole, sizeof whole, "%s", name);
    } else {
        if (at == AT_FDCWD) {
            if (!getcwd(base, sizeof base))
                return NULL;
        } else {
            snprintf(link, sizeof link, "/proc/self/fd/%d", at);
            ssize_t n = readlink(link, base, sizeof base - 1);
            if (n < 0)
                return NULL;
            base[n] = 0;
        }
        if (snprintf(whole, sizeof whole, "%s/%s", base, name) >= (int)sizeof whole)
            return NULL;
    }
    size_t size = strlen(whole);
    while (size > 1 && whole[size - 1] == '/')
        whole[--size] = 0;
    char *slash = strrchr(whole, '/');
    if (!slash)
        return NULL;
    *slash = 0;
    if (!realpath(whole[0] ? whole : "/", parent))
        return NULL;
    if (snprintf(buffer, PATH_MAX, "%s/%s", parent, slash + 1) >= PATH_MAX)
        return NULL;
    size = strlen(folder);
    return strncmp(buffer, folder, size) == 0 && (buffer[size] == '/' || !buffer[size]) ? buffer : NULL;
}

static void opened(int fd, int at, const char *name, int flags) {
    char buffer[PATH_MAX];
    if (fd < 0 || fd >= MOST_FDS)
        return;
    handles[fd] = 0;
    const char *path = inside(at, name, buffer);
    if (!path)
        return;
    uint8_t truncated = (flags & O_TRUNC) != 0;
    handles[fd] = next_handle++;
    put("O", 1);
    put(&handles[fd], 4);
    put(&truncated, 1);
    put_text(path);
}

static void changed(char type, const char *path) {
    if (path) {
        put(&type, 1);
        put_text(path);
    }
}

static uint32_t handle_of(int fd) { return fd >= 0 && fd < MOST_FDS ? handles[fd] : 0; }

static void wrote(int fd, int64_t offset, const void *data, ssize_t size) {
    uint32_t handle = handle_of(fd), length = size;
    if (!handle || size <= 0)
        return;
    if (offset < 0)
        offset = lseek(fd, 0, SEEK_CUR) - size;
    put("W", 1);
    put(&handle, 4);
    put(&offset, 8);
    put(&length, 4);
    put(data, size);
}

#define OPEN(name)                                                                                                 \
    int name(const char *path, int flags, ...) {                                                                   \
        va_list rest;                                                                                              \
        va_start(rest, flags);                                                                                     \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                  \
        va_end(rest);                                                                                              \
        REAL(name);                                                                                                \
        GUARDED(real(path, flags, mode));                                                                          \
        opened(done, AT_FDCWD, path, flags);                                                                       \
        RETURN;                                                                                                    \
    }
OPEN(open)
OPEN(open64)
#define OPENAT(name)                                                                                               \
    int name(int at, const char *path, int flags, ...) {                                                           \
        va_list rest;                                                                                              \
        va_start(rest, flags);                                                                                     \
        mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                  \
        va_end(rest);                                                                                              \
        REAL(name);                                                                                                \
        GUARDED(real(at, path, flags, mode));                                                                      \
        opened(done, at, path, flags);                                                                             \
        RETURN;                                                                                                    \
    }
OPENAT(openat)
OPENAT(openat64)

int close(int fd) {
    REAL(close);
    pthread_mutex_lock(&lock);
    if (fd >= 0 && fd < MOST_FDS)
        handles[fd] = 0;
    int done = real(fd), error = errno;
    RETURN;
}

ssize_t write(int fd, const void *data, size_t size) {
    REAL(write);
    GUARDED(real(fd, data, size));
    wrote(fd, -1, data, done);
    RETURN;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    REAL(writev);
    GUARDED(real(fd, parts, count));
    int64_t at = handle_of(fd) && done > 0 ? lseek(fd, 0, SEEK_CUR) - done : 0;
    ssize_t left = done;
    for (int i = 0; i < count && left > 0; i++) {
        ssize_t size = (ssize_t)parts[i].iov_len < left ? (ssize_t)parts[i].iov_len : left;
        wrote(fd, at, parts[i].iov_base, size);
        at += size;
        left -= size;
    }
    RETURN;
}

#define PWRITE(name)                                                                                               \
    ssize_t name(int fd, const void *data, size_t size, off64_t offset) {                                          \
        REAL(name);                                                                                                \
        GUARDED(real(fd, data, size, offset));                                                                     \
        wrote(fd, offset, data, done);                                                                             \
        RETURN;                                                                                                    \
    }
PWRITE(pwrite)
PWRITE(pwrite64)

#define TRUNCATE(name)                                                                                             \
    int name(int fd, off64_t size) {                                                                               \
        REAL(name);                                                                                                \
        GUARDED(real(fd, size));                                                                                   \
        uint32_t handle = handle_of(fd);                                                                           \
        if (!done && handle) {                                                                                     \
            put("T", 1);                                                                                           \
            put(&handle, 4);                                                                                       \
            put(&size, 8);                                                                                         \
        }                                                                                                          \
        RETURN;                                                                                                    \
    }
TRUNCATE(ftruncate)
TRUNCATE(ftruncate64)

#define TRUNCATE_PATH(name)                                                                                        \
    int name(const char *path, off64_t size) {                                                                     \
        int fd = open(path, O_WRONLY | O_CLOEXEC);                                                                 \
        if (fd < 0)                                                                                                \
            return -1;                                                                                             \
        int done = ftruncate(fd, size), error = errno;                                                             \
        close(fd);                                                                                                 \
        errno = error;                                                                                             \
        return done;                                                                                               \
    }
TRUNCATE_PATH(truncate)
TRUNCATE_PATH(truncate64)

#define SYNC(name)                                                                                                 \
    int name(int fd) {                                                                                             \
        REAL(name);                                                                                                \
        GUARDED(real(fd));                                                                                         \
        uint32_t handle = handle_of(fd);                                                                           \
        if (!done && handle) {                                                                                     \
            put("S", 1);                                                                                           \
            put(&handle, 4);                                                                                       \
        }                                                                                                          \
        RETURN;                                                                                                    \
    }
SYNC(fsync)
SYNC(fdatasync)

int renameat(int from, const char *old, int to, const char *new) {
    char first[PATH_MAX], second[PATH_MAX];
    REAL(renameat);
    GUARDED(real(from, old, to, new));
    const char *a = done ? NULL : inside(from, old, first), *b = done ? NULL : inside(to, new, second);
    changed('R', a && b ? a : NULL);
    if (a && b)
        put_text(b);
    RETURN;
}

int rename(const char *old, const char *new) { return renameat(AT_FDCWD, old, AT_FDCWD, new); }

int linkat(int from, const char *old, int to, const char *new, int flags) {
    char first[PATH_MAX], second[PATH_MAX];
    REAL(linkat);
    GUARDED(real(from, old, to, new, flags));
    const char *a = done ? NULL : inside(from, old, first), *b = done ? NULL : inside(to, new, second);
    changed('L', a && b ? a : NULL);
    if (a && b)
        put_text(b);
    RETURN;
}

int link(const char *old, const char *new) { return linkat(AT_FDCWD, old, AT_FDCWD, new, 0); }

int unlinkat(int at, const char *path, int flags) {
    char buffer[PATH_MAX];
    REAL(unlinkat);
    GUARDED(real(at, path, flags));
    changed(flags & AT_REMOVEDIR ? 'D' : 'U', done ? NULL : inside(at, path, buffer));
    RETURN;
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }

int mkdirat(int at, const char *path, mode_t mode) {
    char buffer[PATH_MAX];
    REAL(mkdirat);
    GUARDED(real(at, path, mode));
    changed('M', done ? NULL : inside(at, path, buffer));
    RETURN;
}

int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
