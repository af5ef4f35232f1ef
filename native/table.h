/* SPDX-License-Identifier: Apache-2.0
 *
 * The shared table of this process: its file, its slots, and which function has which place in it.
 */
#ifndef LAGGARD_TABLE_H
#define LAGGARD_TABLE_H

#include <stdint.h>

#include "layout.h"

#define SKIP 0xffffffffu    /* not on the list of names that are traced */
#define ALLOWED 0xfffffffeu /* on the list, and not called so far */

/* Places of functions, by address: open addressing, written under the lock, read without one. */
#define CACHE_BITS 16
#define CACHE_SIZE (1u << CACHE_BITS)

#define GONE 1u

struct place {
    uint64_t address; /* 0: free, GONE: of an image that is */
    uint32_t index;
};

extern struct place place_cache[CACHE_SIZE];

/* What a function that is not in the cache is once there is no room for it; UNDECIDED while there is. */
#define UNDECIDED 0xfffffffdu
extern uint32_t place_of_unknown;

/* All zero in the child of a fork, until that has a table of its own. */
struct gate {
    uint32_t live;
    uint32_t lock;
    uint32_t pid; /* whose memory this is; a child of vfork is another one */
};

extern struct gate *gate;

/* Reads the environment; without a directory to write to nothing is ever traced. Opens no file yet. */
void table_begin(void);

/* Waits for the lock, a second at most; 0 when it was not had. Signals must be blocked. */
int table_lock(void);
void table_unlock(void);

/* Makes the file of this process, or of a child after fork. Returns 0, or -1: then never again. Needs the lock. */
int table_make(void);

/* A slot that no living thread holds, now the caller's; NULL when there is none. `first` is tried first. */
struct slot *slot_claim(uint32_t tid, int first);

/* The slots' number, and where one of them is. */
uint32_t slot_count(void);
int slot_number(const struct slot *slot);

/* The place of a function of which nothing can be known. */
uint32_t place_otherwise(void);

/* The place of a function that the cache does not have. */
uint32_t place_find(uintptr_t address);

/* Forgets the functions of images that are not mapped any more. */
void places_forget(void);

static inline uint32_t place_hash(uintptr_t address)
{
    return (uint32_t)(((uint64_t)address * 0x9e3779b97f4a7c15u) >> (64 - CACHE_BITS));
}

static inline struct counter *slot_counters(struct slot *slot)
{
    return (struct counter *)(slot + 1);
}

#endif
