/* SPDX-License-Identifier: Apache-2.0
 *
 * The table that a traced process shares with the agent: one file a process, native byte order, 64 bits.
 * agent/laggard_agent/collectors/fntrace/README.md is the contract; a change of anything here raises LAYOUT_VERSION.
 *
 *   struct header, padded to HEADER_BYTES
 *   struct module   [module_capacity]
 *   struct function [function_capacity]    padded to 64 bytes
 *   slot            [slot_capacity]         struct slot, then struct counter [function_capacity]
 */
#ifndef LAGGARD_LAYOUT_H
#define LAGGARD_LAYOUT_H

#include <stdint.h>

#define LAYOUT_MAGIC "LAGTRACE"
#define LAYOUT_VERSION 1u
#define HEADER_BYTES 4096u
#define MODULE_CAPACITY 128u
#define NO_MODULE 0xffffffffu
#define OTHER 0u /* the function that stands for all that have no place of their own */

struct header {
    char magic[8];
    uint32_t version;
    uint32_t complete; /* 1 once everything above the counts is written */
    uint32_t pid;      /* in the process's own PID namespace */
    uint32_t module_capacity;
    uint32_t function_capacity;
    uint32_t slot_capacity;
    uint64_t start_ticks;   /* field 22 of /proc/PID/stat */
    uint64_t pid_namespace; /* inode of /proc/self/ns/pid */
    uint64_t ticks_per_second;
    char program[128]; /* base name of the executable */
    uint32_t modules;  /* entries in use; an entry is written before it is counted */
    uint32_t functions;
    uint32_t slots;
    uint32_t unused;
    uint64_t threads_without_slot;
    uint64_t functions_left_out; /* functions that are counted as OTHER */
};

struct module {
    uint64_t inode;
    uint32_t build_id_bytes;
    uint32_t path_bytes;
    uint8_t build_id[32];
    char path[464];
};

struct function {
    uint64_t offset; /* of its first instruction in the module's file */
    uint32_t module;
    uint32_t unused;
};

struct counter {
    uint64_t calls;
    uint64_t ticks; /* in the function itself, less what it called */
};

/* One writer at a time: the thread that holds it. The next holder counts on from where the last one stopped. */
struct slot {
    uint32_t tid;
    uint32_t unused;
    uint64_t deep;      /* calls past the deepest frame: counted, their time is the deepest frame's */
    uint64_t untimed;   /* calls by a signal handler that came in the midst of an update: the same */
    uint64_t abandoned; /* frames left by longjmp */
    uint64_t unmatched; /* exits without an entry */
    uint64_t padding[3];
};

_Static_assert(sizeof(struct header) == 216 && sizeof(struct header) <= HEADER_BYTES, "layout");
_Static_assert(sizeof(struct module) == 512 && sizeof(struct function) == 16, "layout");
_Static_assert(sizeof(struct slot) == 64 && sizeof(struct counter) == 16, "layout");

#endif
