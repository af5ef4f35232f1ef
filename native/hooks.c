/* SPDX-License-Identifier: Apache-2.0
 *
 * What GCC calls on entry to and exit from every function that was compiled with -finstrument-functions.
 *
 * As the HotDep '10 paper's module ("Instrumentation"): a stack a thread, calls and the time in the function itself.
 * Time is added at every entry and exit to the function that ran since the one before, which comes to the same as
 * subtracting children, and shows the time of functions that never return.
 *
 * The stack grows down, so a frame that lies below a function that enters or exits has been left without an exit
 * (longjmp); handlers on a stack of their own are told apart by asking the kernel.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "table.h"
#include "ticks.h"

#define DEEPEST 1024
#define likely(what) __builtin_expect(!!(what), 1)
#define unlikely(what) __builtin_expect(!!(what), 0)
#define keep_order() __atomic_signal_fence(__ATOMIC_SEQ_CST)

struct frame {
    void *function, *call_site;
    uintptr_t stack; /* where the hook's own frame was */
    uint32_t index;
};

struct thread {
    struct counter *counters; /* of the slot; NULL in a child that has no table so far */
    struct slot *slot;
    uintptr_t busy; /* where the hook is that changes what is below; 0 when none does */
    uint64_t last;  /* ticks at the latest entry or exit */
    uint32_t depth;
    uint32_t deeper; /* entries past DEEPEST */
    uintptr_t alternate;
    size_t alternate_size; /* of the signal stack that frames are on, 0 when none is */
    struct frame frames[DEEPEST];
};

static struct thread *threads; /* as many as slots */

/* Initial-exec: one load, and no allocation at a thread's first use. */
static __thread struct thread *self __attribute__((tls_model("initial-exec")));
static __thread int is_lost __attribute__((tls_model("initial-exec"))); /* no slot for this thread */

static int is_failed; /* no table for this process, and so for none of its children */

static int (*real_dlclose)(void *);

/* From here to `resume` no signal handler runs on this thread, so none waits for a lock that it holds, and system
 * calls are no points where a thread that was cancelled ends. */
struct pause {
    sigset_t mask;
    int error, cancel;
};

static void pause_signals(struct pause *before)
{
    sigset_t all;
    before->error = errno;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before->cancel);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before->mask);
}

static void resume(const struct pause *before)
{
    pthread_sigmask(SIG_SETMASK, &before->mask, NULL);
    pthread_setcancelstate(before->cancel, NULL);
    errno = before->error;
}

/* A child of fork has its parent's frames and no counters: those of the parent are not its own. */
static void make_table(void)
{
    if (table_make())
        return;
    if (threads) {
        for (uint32_t i = 0; i < slot_count(); i++)
            if (threads[i].counters)
                threads[i].counters = NULL;
    } else {
        void *room = mmap(NULL, slot_count() * sizeof *threads, PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        threads = room == MAP_FAILED ? NULL : room;
    }
}

/* This thread with a slot; NULL when it cannot have one. */
static struct thread *attach(void)
{
    if (is_lost || is_failed)
        return NULL;
    uint32_t pid = (uint32_t)getpid();
    if (gate->pid != pid) {
        if (gate->pid)
            return NULL; /* a child of vfork: what it made would be its parent's, and end with it */
        gate->pid = pid;
    }
    struct pause before;
    pause_signals(&before);
    if (table_lock()) {
        if (!gate->live)
            make_table();
        is_failed = !gate->live || !threads;
        if (!is_failed && !(self && self->counters)) {
            struct slot *slot = slot_claim((uint32_t)syscall(SYS_gettid), self ? (int)(self - threads) : -1);
            struct thread *thread = slot ? threads + slot_number(slot) : NULL;
            if (thread && thread != self)
                thread->depth = 0;
            if (thread) {
                thread->busy = 0;
                thread->deeper = 0;
                thread->alternate_size = 0;
                thread->last = ticks();
                thread->slot = slot;
                thread->counters = slot_counters(slot);
            }
            self = thread;
            is_lost = !thread;
        }
        table_unlock();
    }
    resume(&before);
    return gate->live && self && self->counters ? self : NULL; /* in a child they may be its parent's */
}

static __attribute__((noinline)) uint32_t find(void *function)
{
    uint32_t index = place_of_unknown;
    if (index != UNDECIDED)
        return index;
    struct pause before;
    pause_signals(&before);
    index = place_otherwise();
    if (table_lock()) {
        index = place_find((uintptr_t)function);
        table_unlock();
    }
    resume(&before);
    return index;
}

static inline uint32_t index_of(void *function)
{
    for (uint32_t i = place_hash((uintptr_t)function);; i = (i + 1) & (CACHE_SIZE - 1)) {
        uint64_t address = __atomic_load_n(&place_cache[i].address, __ATOMIC_ACQUIRE);
        if (likely(address == (uintptr_t)function)) {
            uint32_t index = __atomic_load_n(&place_cache[i].index, __ATOMIC_RELAXED);
            return likely(index != ALLOWED) ? index : find(function);
        }
        if (!address)
            return find(function);
    }
}

static inline int on_alternate(const struct thread *thread, uintptr_t stack)
{
    return stack - thread->alternate < thread->alternate_size;
}

/* Learns of the signal stack that this thread is on now. */
static void learn_alternate(struct thread *thread)
{
    stack_t now;
    if (!sigaltstack(NULL, &now) && (now.ss_flags & SS_ONSTACK)) {
        thread->alternate = (uintptr_t)now.ss_sp;
        thread->alternate_size = now.ss_size;
    }
}

/* Whether what was at `then` cannot be running any more when something runs at `now`. */
static inline int is_left(const struct thread *thread, uintptr_t then, uintptr_t now)
{
    if (unlikely(thread->alternate_size) && on_alternate(thread, then) != on_alternate(thread, now))
        return on_alternate(thread, then);
    return then < now;
}

/* Whether this hook runs in a signal handler that interrupted another one, which no handler left for good. */
static __attribute__((noinline)) int is_inside(struct thread *thread, uintptr_t stack)
{
    if (thread->busy < stack)
        learn_alternate(thread);
    return thread->busy != stack && !is_left(thread, thread->busy, stack);
}

static inline void account(struct thread *thread, uint32_t index, uint64_t now)
{
    int64_t passed = (int64_t)(now - thread->last);
    if (likely(passed > 0))
        add(&thread->counters[index].ticks, (uint64_t)passed);
}

/* Drops the frames that are left when a function enters; returns how many remain. */
static __attribute__((noinline)) uint32_t left_behind(struct thread *thread, void *function, void *call_site,
                                                      uintptr_t stack)
{
    uint32_t depth = thread->depth;
    if (thread->frames[depth - 1].stack < stack || thread->alternate_size)
        learn_alternate(thread);
    while (depth && is_left(thread, thread->frames[depth - 1].stack, stack))
        depth--;
    /* At the very same place: what is expanded inline has the call site of what it is in, and another name. */
    uint32_t inline_depth = depth;
    while (inline_depth && thread->frames[inline_depth - 1].stack == stack) {
        const struct frame *frame = &thread->frames[--inline_depth];
        if (frame->call_site != call_site || frame->function == function)
            depth = inline_depth;
    }
    if (thread->alternate_size && !on_alternate(thread, stack))
        thread->alternate_size = 0;
    if (depth < thread->depth)
        thread->deeper = 0;
    add(&thread->slot->abandoned, thread->depth - depth);
    return depth;
}

__attribute__((visibility("default"))) void __cyg_profile_func_enter(void *function, void *call_site)
{
    struct thread *thread = self;
    if (unlikely(!thread || !gate->live || !thread->counters)) {
        thread = attach();
        if (!thread)
            return;
    }
    uint32_t index = index_of(function);
    if (index == SKIP)
        return;
    add(&thread->counters[index].calls, 1);
    uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
    if (unlikely(thread->busy) && is_inside(thread, stack)) {
        add(&thread->slot->untimed, 1);
        return;
    }
    thread->busy = stack;
    keep_order();
    uint64_t now = ticks();
    uint32_t depth = thread->depth;
    if (likely(depth)) {
        if (unlikely(stack >= thread->frames[depth - 1].stack || thread->alternate_size)) {
            depth = left_behind(thread, function, call_site, stack);
            thread->depth = depth;
        }
        if (likely(depth))
            account(thread, thread->frames[depth - 1].index, now);
    }
    thread->last = now;
    if (likely(depth < DEEPEST)) {
        thread->frames[depth] = (struct frame){function, call_site, stack, index};
        keep_order();
        thread->depth = depth + 1;
    } else {
        thread->deeper++;
        add(&thread->slot->deep, 1);
    }
    keep_order();
    thread->busy = 0;
}

/* The depth below the frame that exits, when it is not the top one; `depth` itself when no frame exits. */
static __attribute__((noinline)) uint32_t unwound(struct thread *thread, void *function, void *call_site,
                                                  uintptr_t stack)
{
    uint32_t depth = thread->depth;
    if (thread->deeper && !is_left(thread, thread->frames[depth - 1].stack, stack)) {
        thread->deeper--;
        return depth;
    }
    for (uint32_t i = depth; i; i--) {
        const struct frame *frame = &thread->frames[i - 1];
        if (frame->function == function && frame->call_site == call_site) {
            thread->deeper = 0;
            if (thread->counters)
                add(&thread->slot->abandoned, depth - i);
            return i - 1;
        }
        /* GCC may jump to this hook after the function has given its own frame back: equal is not left. */
        if (frame->stack != stack && !is_left(thread, frame->stack, stack))
            break;
    }
    if (thread->counters)
        add(&thread->slot->unmatched, 1);
    return depth;
}

__attribute__((visibility("default"))) void __cyg_profile_func_exit(void *function, void *call_site)
{
    struct thread *thread = self;
    if (unlikely(!thread))
        return;
    if (unlikely(!gate->live))
        thread->counters = NULL; /* a child of fork before its first entry */
    uintptr_t stack = (uintptr_t)__builtin_frame_address(0);
    if (unlikely(thread->busy) && is_inside(thread, stack))
        return;
    thread->busy = stack;
    keep_order();
    uint32_t depth = thread->depth, to = depth;
    if (likely(depth)) {
        const struct frame *top = &thread->frames[depth - 1];
        if (likely(top->function == function && top->call_site == call_site && !thread->deeper))
            to = depth - 1;
        else if (!thread->counters || index_of(function) != SKIP)
            to = unwound(thread, function, call_site, stack);
    }
    if (to < depth) {
        uint32_t index = thread->frames[to].index;
        thread->depth = to;
        keep_order();
        uint64_t now = ticks();
        if (likely(thread->counters != NULL))
            account(thread, index, now);
        thread->last = now;
    }
    keep_order();
    thread->busy = 0;
}

static void learn_dlclose(void)
{
    *(void **)&real_dlclose = dlsym(RTLD_NEXT, "dlclose");
}

/* Addresses of an image that was closed may become another image's. */
__attribute__((visibility("default"))) int dlclose(void *handle)
{
    if (!real_dlclose)
        learn_dlclose(); /* another library's constructor was faster than ours */
    int result = real_dlclose(handle);
    if (!result && gate->live) {
        struct pause before;
        pause_signals(&before);
        if (table_lock()) {
            places_forget();
            table_unlock();
        }
        resume(&before);
    }
    return result;
}

static void close_gate(void)
{
    gate->live = 0;
    gate->lock = 0;
    gate->pid = 0;
    is_lost = 0;
}

static __attribute__((constructor)) void begin(void)
{
    learn_dlclose();
    const char *clock = secure_getenv("LAGGARD_TRACE_CLOCK");
    ticks_begin(clock && !strcmp(clock, "monotonic"));
    table_begin();
    gate->pid = (uint32_t)getpid();
    pthread_atfork(NULL, NULL, close_gate);
    is_failed = 0; /* calls of faster constructors found nothing ready */
}
