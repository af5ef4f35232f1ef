/* SPDX-License-Identifier: Apache-2.0
 *
 * ioclient THREADS THINK_MS BYTES PORT...: striped I/O on all servers at once, in a closed loop.
 *
 * Each thread asks every server for its strip of the same stripe (6 of 10 times to read, 3 to write, 1 to look a
 * name up), waits for the slowest, checks what it got, pauses, and goes on. Every second a line: seconds since the
 * epoch, stripes, and the mean milliseconds that they took.
 */
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "wire.h"

#define MOST_SERVERS 64
static const uint32_t strip_bytes[] = {16 << 10, 32 << 10, 64 << 10};

static int servers;
static uint16_t ports[MOST_SERVERS];
static unsigned think_us;
static uint64_t file_bytes;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t stripes, spent_ns;

static uint64_t now_ns(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void lost(uint16_t port, const char *why)
{
    fprintf(stderr, "ioclient: server at port %u: %s\n", port, why);
    exit(1);
}

static int connected(uint16_t port)
{
    struct sockaddr_in there = {.sin_family = AF_INET, .sin_port = htons(port)};
    there.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&there, sizeof there))
        lost(port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static struct request next_request(uint64_t *state)
{
    struct request wanted = {.kind = LOOK_UP, .offset = next_random(state)};
    unsigned die = next_random(state) % 10;
    if (die > 0) {
        wanted.kind = die > 3 ? READ_STRIP : WRITE_STRIP;
        wanted.bytes = strip_bytes[next_random(state) % (sizeof strip_bytes / sizeof *strip_bytes)];
        wanted.offset = next_random(state) % ((file_bytes - wanted.bytes) / BLOCK) * BLOCK;
    }
    return wanted;
}

static void one_stripe(const int *sockets, struct request *wanted, void *data, void *received)
{
    for (int i = 0; i < servers; i++)
        if (!transfer(sockets[i], wanted, sizeof *wanted, 1) ||
            (wanted->kind == WRITE_STRIP && !transfer(sockets[i], data, wanted->bytes, 1)))
            lost(ports[i], "it has gone");
    for (int i = 0; i < servers; i++) {
        struct reply reply;
        if (!transfer(sockets[i], &reply, sizeof reply, 0) || reply.bytes > MOST_BYTES ||
            !transfer(sockets[i], received, reply.bytes, 0))
            lost(ports[i], "it has gone");
        const void *meant = wanted->kind == WRITE_STRIP ? data : received;
        if (reply.failed || (wanted->kind != LOOK_UP && reply.checksum != fnv(meant, wanted->bytes)))
            lost(ports[i], "a wrong reply");
    }
}

static void *application(void *number)
{
    uint64_t state = 0x9e3779b97f4a7c15u * ((uintptr_t)number + 1);
    int sockets[MOST_SERVERS];
    unsigned char *data = malloc(MOST_BYTES), *received = malloc(MOST_BYTES);
    if (!data || !received)
        exit(1);
    memset(data, (int)(uintptr_t)number + 1, MOST_BYTES);
    for (int i = 0; i < servers; i++)
        sockets[i] = connected(ports[i]);
    for (;;) {
        struct request wanted = next_request(&state);
        uint64_t begun = now_ns(CLOCK_MONOTONIC);
        one_stripe(sockets, &wanted, data, received);
        uint64_t took = now_ns(CLOCK_MONOTONIC) - begun;
        pthread_mutex_lock(&lock);
        stripes++;
        spent_ns += took;
        pthread_mutex_unlock(&lock);
        usleep(think_us / 2 + next_random(&state) % think_us);
    }
}

int main(int count, char **arguments)
{
    servers = count - 4;
    int threads = count > 4 ? atoi(arguments[1]) : 0;
    think_us = count > 4 ? (unsigned)atoi(arguments[2]) * 1000 : 0;
    file_bytes = count > 4 ? strtoull(arguments[3], NULL, 10) : 0;
    if (servers < 1 || servers > MOST_SERVERS || threads < 1 || !think_us || file_bytes <= MOST_BYTES) {
        fprintf(stderr, "usage: ioclient THREADS THINK_MS BYTES PORT...\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < servers; i++)
        ports[i] = (uint16_t)atoi(arguments[4 + i]);
    for (intptr_t i = 0; i < threads; i++) {
        pthread_t thread;
        if (pthread_create(&thread, NULL, application, (void *)i))
            return 1;
    }
    for (;;) {
        sleep(1);
        pthread_mutex_lock(&lock);
        uint64_t done = stripes, took = spent_ns;
        stripes = spent_ns = 0;
        pthread_mutex_unlock(&lock);
        printf("%.3f %lu %.3f\n", now_ns(CLOCK_REALTIME) / 1e9, (unsigned long)done, done ? took / 1e6 / done : 0.0);
        fflush(stdout);
    }
}
