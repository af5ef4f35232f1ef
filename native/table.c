/* SPDX-License-Identifier: Apache-2.0 */
#include "table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "file.h"
#include "images.h"
#include "text.h"
#include "ticks.h"

#define DEFAULT_DIRECTORY "/dev/shm/laggard"

struct place place_cache[CACHE_SIZE];
uint32_t place_of_unknown = UNDECIDED;
static uint32_t cache_used;

static struct gate closed;
struct gate *gate = &closed;

/* Large buffers are static, here and elsewhere: the first call may be a signal handler's, on a stack of 2 KiB. */
static char directory[2048];
static int is_asked, is_limited, is_off = 1;
static uint32_t function_capacity, slot_capacity;

static struct header *table; /* of this process, or of the parent until there is one */
static uint32_t functions, modules;

static struct mapping known[MODULE_CAPACITY]; /* whose functions have places; stands for the module of its number */
static uint8_t is_mapped[MODULE_CAPACITY];

static struct module *module_at(struct header *of, uint32_t i)
{
    return (struct module *)((char *)of + HEADER_BYTES) + i;
}

static struct function *function_at(struct header *of, uint32_t i)
{
    return (struct function *)module_at(of, MODULE_CAPACITY) + i;
}

static size_t slots_offset(void)
{
    return (HEADER_BYTES + MODULE_CAPACITY * sizeof(struct module) + function_capacity * sizeof(struct function) +
            63) & ~(size_t)63;
}

static size_t slot_bytes(void)
{
    return sizeof(struct slot) + function_capacity * sizeof(struct counter);
}

static struct slot *slot_at(uint32_t i)
{
    return (struct slot *)((char *)table + slots_offset() + i * slot_bytes());
}

uint32_t slot_count(void)
{
    return slot_capacity;
}

int slot_number(const struct slot *slot)
{
    return (int)((size_t)((const char *)slot - (const char *)table - slots_offset()) / slot_bytes());
}

/* Only to those who asked for tracing: others run the program without an agent. */
static void say(const char *what, const char *why, const char *so)
{
    static char line[2400];
    line[0] = 0;
    append(line, sizeof line, "liblaggardtrace: ");
    append(line, sizeof line, what);
    append(line, sizeof line, ": ");
    append(line, sizeof line, why);
    append(line, sizeof line, so);
    if (is_asked && write(STDERR_FILENO, line, strlen(line)) < 0)
        is_asked = 0;
}

static void give_up(const char *what, const char *why)
{
    is_off = 1;
    say(what, why, "; not traced\n");
}

static uint32_t size_of(const char *name, uint32_t usual, uint32_t least, uint32_t most)
{
    const char *text = secure_getenv(name);
    if (!text)
        return usual;
    uint64_t number = take_number(&text, 10);
    if (!*text && number >= least && number <= most)
        return (uint32_t)number;
    char range[64] = "expected ";
    append_number(range, sizeof range, least);
    append(range, sizeof range, "-");
    append_number(range, sizeof range, most);
    append(range, sizeof range, ", took ");
    append_number(range, sizeof range, usual);
    say(name, range, "\n");
    return usual;
}

void table_begin(void)
{
    const char *where = secure_getenv("LAGGARD_TRACE_DIR"), *list = secure_getenv("LAGGARD_TRACE_ALLOW");
    is_asked = (where && *where) || (list && *list);
    append(directory, sizeof directory, where && *where ? where : DEFAULT_DIRECTORY);
    function_capacity = size_of("LAGGARD_TRACE_FUNCTIONS", 2048, 2, 32768);
    slot_capacity = size_of("LAGGARD_TRACE_THREADS", 128, 1, 1024);
    is_limited = list && *list;
    is_off = 0;
    if (is_limited && allow_read(list)) {
        give_up(list, "cannot be read, or has no names");
        return;
    }
    struct gate *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) {
        is_off = 1;
        return;
    }
    madvise(page, 4096, MADV_WIPEONFORK); /* from Linux 4.14 on; else pthread_atfork does it */
    gate = page;
}

int table_lock(void)
{
    for (int tries = 0; tries < 1000; tries++) {
        uint32_t free = 0;
        if (__atomic_compare_exchange_n(&gate->lock, &free, 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return 1;
        struct timespec rest = {0, tries < 100 ? 10000 : 1000000};
        nanosleep(&rest, NULL);
    }
    return 0;
}

void table_unlock(void)
{
    __atomic_store_n(&gate->lock, 0, __ATOMIC_RELEASE);
}

static void fill(struct header *new)
{
    static char link[4096];
    memset(link, 0, sizeof link);
    memcpy(new->magic, LAYOUT_MAGIC, sizeof new->magic);
    new->version = LAYOUT_VERSION;
    new->pid = (uint32_t)getpid();
    new->module_capacity = MODULE_CAPACITY;
    new->function_capacity = function_capacity;
    new->slot_capacity = slot_capacity;
    new->start_ticks = start_ticks();
    new->ticks_per_second = ticks_per_second();
    if (readlink("/proc/self/ns/pid", link, sizeof link - 1) > 0) {
        const char *at = link + strcspn(link, "[");
        at += *at == '[';
        new->pid_namespace = take_number(&at, 10);
    }
    memset(link, 0, sizeof link);
    if (readlink("/proc/self/exe", link, sizeof link - 1) > 0) {
        char *gone = strstr(link, " (deleted)");
        if (gone && !gone[10])
            *gone = 0;
        const char *base = strrchr(link, '/');
        append(new->program, sizeof new->program, base ? base + 1 : link);
    }
}

int table_make(void)
{
    if (is_off)
        return -1;
    size_t size = slots_offset() + slot_capacity * slot_bytes();
    int fd = file_create(directory, size);
    if (fd < 0) {
        give_up(directory, file_reason(errno));
        return -1;
    }
    struct header *new = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (new == MAP_FAILED) {
        give_up(directory, "cannot be mapped");
        return -1;
    }
    fill(new);
    if (table) { /* a child goes on with the places that its parent had when it forked */
        memcpy(module_at(new, 0), module_at(table, 0), modules * sizeof(struct module));
        memcpy(function_at(new, 0), function_at(table, 0), functions * sizeof(struct function));
        munmap(table, size);
    } else {
        function_at(new, OTHER)->module = NO_MODULE;
        functions = 1;
    }
    new->modules = modules;
    new->functions = functions;
    __atomic_store_n(&new->complete, 1, __ATOMIC_RELEASE);
    table = new;
    __atomic_store_n(&gate->live, 1, __ATOMIC_RELEASE);
    return 0;
}

static int take_slot(uint32_t i, uint32_t tid)
{
    uint32_t *holder = &slot_at(i)->tid, held = __atomic_load_n(holder, __ATOMIC_ACQUIRE);
    if (held && held != tid && !(syscall(SYS_tgkill, getpid(), held, 0) < 0 && errno == ESRCH))
        return 0;
    return __atomic_compare_exchange_n(holder, &held, tid, 0, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

struct slot *slot_claim(uint32_t tid, int first)
{
    uint32_t i = 0;
    if (first >= 0 && take_slot((uint32_t)first, tid))
        i = (uint32_t)first;
    else
        while (i < slot_capacity && !take_slot(i, tid))
            i++;
    if (i == slot_capacity) {
        __atomic_fetch_add(&table->threads_without_slot, 1, __ATOMIC_RELAXED);
        return NULL;
    }
    if (table->slots <= i)
        __atomic_store_n(&table->slots, i + 1, __ATOMIC_RELEASE); /* the lock is held */
    return slot_at(i);
}

/* Where an address is or belongs in the cache; NULL when the cache is full. */
static struct place *cache_place(uintptr_t address)
{
    struct place *gone = NULL;
    for (uint32_t i = place_hash(address);; i = (i + 1) & (CACHE_SIZE - 1)) {
        struct place *place = place_cache + i;
        if (place->address == address)
            return place;
        if (place->address == GONE && !gone)
            gone = place;
        if (!place->address)
            return gone ? gone : cache_used < CACHE_SIZE / 4 * 3 ? place : NULL;
    }
}

uint32_t place_otherwise(void)
{
    return is_limited ? SKIP : OTHER;
}

static uint32_t remember(uintptr_t address, uint32_t index)
{
    struct place *place = cache_place(address);
    if (!place) {
        place_of_unknown = place_otherwise();
        return index;
    }
    cache_used += !place->address;
    __atomic_store_n(&place->index, index, __ATOMIC_RELAXED);
    __atomic_store_n(&place->address, address, __ATOMIC_RELEASE);
    return index;
}

static void remember_allowed(uint64_t offset, void *with)
{
    const struct mapping *mapping = with;
    if (offset >= mapping->offset && offset - mapping->offset < mapping->end - mapping->start)
        remember(mapping->start + (offset - mapping->offset), ALLOWED);
}

/* The module that this was before it was unmapped, else the next that is free, else MODULE_CAPACITY. */
static uint32_t module_for(const struct mapping *found)
{
    for (uint32_t i = 0; i < modules; i++)
        if (!is_mapped[i] && known[i].inode == found->inode && known[i].offset == found->offset &&
            !strcmp(known[i].path, found->path))
            return i;
    if (modules == MODULE_CAPACITY)
        return MODULE_CAPACITY;
    describe(found, module_at(table, modules));
    __atomic_store_n(&table->modules, modules + 1, __ATOMIC_RELEASE);
    return modules++;
}

/* The module of an address, MODULE_CAPACITY when there is no room for it or it is of no file. */
static uint32_t module_of(uintptr_t address)
{
    for (uint32_t i = 0; i < modules; i++)
        if (is_mapped[i] && address >= known[i].start && address < known[i].end)
            return i;
    static struct mapping found;
    uint32_t module = find_mapping(address, &found) ? module_for(&found) : MODULE_CAPACITY;
    if (module == MODULE_CAPACITY)
        return MODULE_CAPACITY;
    known[module] = found;
    is_mapped[module] = 1;
    if (is_limited)
        for_allowed(found.path, remember_allowed, &known[module]);
    return module;
}

/* The place of a function; OTHER when there is none left. */
static uint32_t function_for(uint32_t module, uint64_t offset)
{
    for (uint32_t i = 1; i < functions; i++) /* an image that was mapped before has places already */
        if (function_at(table, i)->offset == offset && function_at(table, i)->module == module)
            return i;
    if (functions == function_capacity)
        return OTHER;
    function_at(table, functions)->offset = offset;
    function_at(table, functions)->module = module;
    __atomic_store_n(&table->functions, functions + 1, __ATOMIC_RELEASE);
    return functions++;
}

uint32_t place_find(uintptr_t address)
{
    uint32_t module = module_of(address);
    struct place *place = cache_place(address);
    int is_known = place && place->address == address;
    if (is_known && place->index != ALLOWED)
        return place->index; /* another thread was faster */
    if (is_limited && !is_known)
        return remember(address, SKIP);
    uint32_t index = OTHER;
    if (module != MODULE_CAPACITY)
        index = function_for(module, address - known[module].start + known[module].offset);
    if (index == OTHER)
        __atomic_fetch_add(&table->functions_left_out, 1, __ATOMIC_RELAXED);
    return remember(address, index);
}

void places_forget(void)
{
    for (uint32_t i = 0; i < modules; i++) {
        struct mapping now;
        if (!is_mapped[i] || (find_mapping(known[i].start, &now) && now.inode == known[i].inode &&
                              now.start == known[i].start && now.offset == known[i].offset))
            continue;
        is_mapped[i] = 0;
        for (uint32_t j = 0; j < CACHE_SIZE; j++)
            if (place_cache[j].address >= known[i].start && place_cache[j].address < known[i].end)
                __atomic_store_n(&place_cache[j].address, GONE, __ATOMIC_RELEASE);
    }
}
