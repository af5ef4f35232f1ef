/* SPDX-License-Identifier: Apache-2.0
 *
 * ioserver PORT FILE BYTES: an I/O server that keeps its share of striped files, as those of PVFS do.
 *
 * A thread a connection takes requests and sends replies; storage threads of their own make the blocking calls
 * on FILE, around the page cache. To be compiled with -finstrument-functions.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "wire.h"

#define STORAGE_THREADS 4
#define NAMES 4096
#define FILL_BYTES (1u << 20)

struct job {
    struct request request;
    struct reply reply;
    void *data; /* MOST_BYTES, whole blocks */
    int done;
    struct job *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t there_is_work = PTHREAD_COND_INITIALIZER, something_is_done = PTHREAD_COND_INITIALIZER;
static struct job *first, **last = &first;

static int file;
static uint64_t file_bytes;
static char names[NAMES][32]; /* sorted */

static void fail(const char *what)
{
    perror(what);
    exit(1);
}

static void *allocate(size_t bytes)
{
    void *data;
    if (posix_memalign(&data, BLOCK, bytes))
        fail("ioserver: memory");
    return data;
}

static uint64_t checksum_strip(const void *data, size_t bytes)
{
    return fnv(data, bytes);
}

static int storage_read(void *data, size_t bytes, uint64_t offset)
{
    return pread(file, data, bytes, (off_t)offset) == (ssize_t)bytes;
}

static int storage_write(const void *data, size_t bytes, uint64_t offset)
{
    return pwrite(file, data, bytes, (off_t)offset) == (ssize_t)bytes;
}

static int compare_names(const void *one, const void *other)
{
    return strcmp(one, other);
}

/* What a metadata call costs: a search among names, and the attributes of the file. */
static int look_up(uint64_t number)
{
    char name[32];
    struct stat attributes;
    snprintf(name, sizeof name, "name-%06u", (unsigned)(number % NAMES));
    return bsearch(name, names, NAMES, sizeof *names, compare_names) && !fstat(file, &attributes);
}

static void serve(struct job *job)
{
    const struct request *asked = &job->request;
    int done;
    switch (asked->kind) {
    case READ_STRIP:
        done = storage_read(job->data, asked->bytes, asked->offset);
        break;
    case WRITE_STRIP:
        done = storage_write(job->data, asked->bytes, asked->offset);
        break;
    default:
        done = look_up(asked->offset);
    }
    job->reply.failed = !done;
    job->reply.bytes = asked->kind == READ_STRIP && done ? asked->bytes : 0;
    job->reply.checksum = done && asked->kind != LOOK_UP ? checksum_strip(job->data, asked->bytes) : 0;
}

static struct job *take_job(void)
{
    pthread_mutex_lock(&lock);
    while (!first)
        pthread_cond_wait(&there_is_work, &lock);
    struct job *job = first;
    first = job->next;
    if (!first)
        last = &first;
    pthread_mutex_unlock(&lock);
    return job;
}

static void finish_job(struct job *job)
{
    pthread_mutex_lock(&lock);
    job->done = 1;
    pthread_cond_broadcast(&something_is_done);
    pthread_mutex_unlock(&lock);
}

static void *storage_thread(void *unused)
{
    for (;;) {
        struct job *job = take_job();
        serve(job);
        finish_job(job);
    }
    return unused;
}

static void submit_job(struct job *job)
{
    job->done = 0;
    job->next = NULL;
    pthread_mutex_lock(&lock);
    *last = job;
    last = &job->next;
    pthread_cond_signal(&there_is_work);
    pthread_mutex_unlock(&lock);
}

static void await_job(const struct job *job)
{
    pthread_mutex_lock(&lock);
    while (!job->done)
        pthread_cond_wait(&something_is_done, &lock);
    pthread_mutex_unlock(&lock);
}

static int is_sound(const struct request *asked)
{
    if (asked->kind == LOOK_UP)
        return asked->bytes == 0;
    return (asked->kind == READ_STRIP || asked->kind == WRITE_STRIP) && asked->bytes && asked->bytes <= MOST_BYTES &&
           asked->bytes % BLOCK == 0 && asked->offset % BLOCK == 0 && asked->bytes <= file_bytes &&
           asked->offset <= file_bytes - asked->bytes;
}

static int receive_request(int fd, struct job *job)
{
    if (!transfer(fd, &job->request, sizeof job->request, 0) || !is_sound(&job->request))
        return 0;
    return job->request.kind != WRITE_STRIP || transfer(fd, job->data, job->request.bytes, 0);
}

static int send_reply(int fd, struct job *job)
{
    return transfer(fd, &job->reply, sizeof job->reply, 1) && transfer(fd, job->data, job->reply.bytes, 1);
}

static void *connection_thread(void *argument)
{
    int fd = (int)(intptr_t)argument;
    struct job job = {.data = allocate(MOST_BYTES)};
    while (receive_request(fd, &job)) {
        submit_job(&job);
        await_job(&job);
        if (!send_reply(fd, &job))
            break;
    }
    free(job.data);
    close(fd);
    return NULL;
}

static void start_thread(void *(*run)(void *), void *argument)
{
    pthread_t thread;
    errno = pthread_create(&thread, NULL, run, argument);
    if (errno)
        fail("ioserver: pthread_create");
    pthread_detach(thread);
}

/* Blocks that were never written would be read without the disk. */
static void fill_file(const char *path)
{
    file = open(path, O_RDWR | O_CREAT | O_DIRECT | O_CLOEXEC, 0600);
    if (file < 0)
        fail(path);
    unsigned char *data = allocate(FILL_BYTES);
    for (size_t i = 0; i < FILL_BYTES; i++)
        data[i] = (unsigned char)(i * 31);
    for (uint64_t at = 0; at < file_bytes; at += FILL_BYTES)
        if (pwrite(file, data, FILL_BYTES, (off_t)at) != (ssize_t)FILL_BYTES)
            fail(path);
    free(data);
    for (unsigned i = 0; i < NAMES; i++)
        snprintf(names[i], sizeof names[i], "name-%06u", i);
}

static int listen_on(uint16_t port)
{
    struct sockaddr_in here = {.sin_family = AF_INET, .sin_port = htons(port)};
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) ||
        bind(fd, (struct sockaddr *)&here, sizeof here) || listen(fd, 64))
        fail("ioserver: listen");
    return fd;
}

int main(int count, char **arguments)
{
    if (count != 4) {
        fprintf(stderr, "usage: ioserver PORT FILE BYTES\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    file_bytes = strtoull(arguments[3], NULL, 10) / FILL_BYTES * FILL_BYTES;
    fill_file(arguments[2]);
    int fd = listen_on((uint16_t)atoi(arguments[1])), on = 1;
    for (int i = 0; i < STORAGE_THREADS; i++)
        start_thread(storage_thread, NULL);
    for (;;) {
        int connection = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
        if (connection < 0)
            continue;
        setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
        start_thread(connection_thread, (void *)(intptr_t)connection);
    }
}
