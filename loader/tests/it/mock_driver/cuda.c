// A CUDA driver without a GPU, for tests: device memory is host memory, and each stream is a thread that runs its work in
// order, each piece after a delay of its own, so streams overtake each other as they may on a GPU.
//
// It is stricter than a GPU where a program must not rely on more: page-locked memory is read when a copy runs and not when
// it is queued, a call on a thread without a context is refused, and work on freed or unlocked memory fails for good.
//
//   FEEDLINE_MOCK_DRIVER_DEVICES number of GPUs, 1 without it; they share one memory
//   FEEDLINE_MOCK_DRIVER_DELAY   longest delay of a piece of work, in microseconds
//   FEEDLINE_MOCK_DRIVER_FAIL    NAME:N:CODE, the N-th call of NAME returns CODE; `copy` fails when it runs
//   FEEDLINE_MOCK_DRIVER_LOG     file for the counters, written when the process ends

#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_DEVICES = 8 };

enum {
    SUCCESS = 0,
    INVALID_VALUE = 1,
    INVALID_CONTEXT = 201,
    NOT_READY = 600,
    ILLEGAL_ADDRESS = 700,
    ALREADY_REGISTERED = 712,
    NOT_REGISTERED = 713,
};

typedef int Result;
typedef uint64_t Pointer;

typedef struct Event {
    uint64_t recorded, done;
} Event;

typedef struct Work {
    enum { COPY, RECORD, WAIT, CALL } kind;
    Pointer to;
    const void *from;
    void *staged;
    size_t bytes;
    Event *event;
    uint64_t number;
    void (*call)(void *);
    void *data;
    struct Work *next;
} Work;

typedef struct Stream {
    Work *first, *last;
    int busy, closing;
    uint64_t random;
    void *context;
    pthread_t thread;
    struct Stream *next;
} Stream;

typedef struct Range {
    uintptr_t begin;
    size_t bytes;
    struct Range *next;
} Range;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static Stream *streams;
static Range *allocations, *registrations;
static Result broken;
static _Thread_local void *current;
static int contexts[MOST_DEVICES];

static long copies_locked, copies_pageable, bytes_copied, live_events, live_streams, most_registered;

// The range of a list that has all of some bytes; of those that only have some, `*partly` is set.
static Range *find(Range *list, uintptr_t begin, size_t bytes, int *partly) {
    for (Range *range = list; range; range = range->next) {
        uintptr_t end = range->begin + range->bytes;
        if (begin >= range->begin && begin + bytes <= end)
            return range;
        if (partly && begin < end && begin + bytes > range->begin)
            *partly = 1;
    }
    return NULL;
}

static void add(Range **list, uintptr_t begin, size_t bytes) {
    Range *range = malloc(sizeof *range);
    *range = (Range){begin, bytes, *list};
    *list = range;
}

static int take(Range **list, uintptr_t begin) {
    for (Range **at = list; *at; at = &(*at)->next) {
        if ((*at)->begin == begin) {
            Range *range = *at;
            *at = range->next;
            free(range);
            return 1;
        }
    }
    return 0;
}

static long count(const Range *list) {
    long found = 0;
    for (; list; list = list->next)
        found++;
    return found;
}

// The result that is asked for of this call, or what broke the context before.
static Result enter(const char *name, int needs_context) {
    static char wanted[64];
    static long at, code, calls;
    static int read;
    Result result = SUCCESS;
    pthread_mutex_lock(&lock);
    if (!read) {
        const char *text = getenv("FEEDLINE_MOCK_DRIVER_FAIL");
        if (text && sscanf(text, "%63[^:]:%ld:%ld", wanted, &at, &code) != 3)
            abort();
        read = 1;
    }
    if (strcmp(name, wanted) == 0 && ++calls == at)
        result = (Result)code;
    else if (broken)
        result = broken;
    else if (needs_context && !current)
        result = INVALID_CONTEXT;
    pthread_mutex_unlock(&lock);
    return result;
}

static void delay(Stream *stream) {
    const char *text = getenv("FEEDLINE_MOCK_DRIVER_DELAY");
    long most = text ? atol(text) : 0;
    if (most <= 0)
        return;
    stream->random = stream->random * 6364136223846793005u + 1442695040888963407u;
    usleep((stream->random >> 33) % (uint64_t)most);
}

static void run(Work *work) {
    if (work->kind == COPY) {
        Result wanted = enter("copy", 0);
        pthread_mutex_lock(&lock);
        int is_held = find(allocations, (uintptr_t)work->to, work->bytes, NULL) != NULL;
        if (!work->staged)
            is_held &= find(registrations, (uintptr_t)work->from, work->bytes, NULL) != NULL;
        if (wanted || !is_held)
            broken = broken ? broken : wanted ? wanted : ILLEGAL_ADDRESS;
        else
            memcpy((void *)(uintptr_t)work->to, work->staged ? work->staged : work->from, work->bytes);
        free(work->staged);
    } else if (work->kind == CALL) {
        Result wanted = enter("call", 0);
        if (!wanted)
            work->call(work->data);
        pthread_mutex_lock(&lock);
        broken = broken ? broken : wanted;
    } else {
        pthread_mutex_lock(&lock);
        if (work->kind == RECORD && work->event->done < work->number)
            work->event->done = work->number;
        while (work->kind == WAIT && work->event->done < work->number)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void *work_off(void *given) {
    Stream *stream = given;
    pthread_mutex_lock(&lock);
    for (;;) {
        while (!stream->first && !stream->closing)
            pthread_cond_wait(&changed, &lock);
        Work *work = stream->first;
        if (!work)
            break;
        stream->first = work->next;
        if (!stream->first)
            stream->last = NULL;
        stream->busy = 1;
        pthread_mutex_unlock(&lock);
        delay(stream);
        run(work);
        free(work);
        pthread_mutex_lock(&lock);
        stream->busy = 0;
        pthread_cond_broadcast(&changed);
    }
    pthread_mutex_unlock(&lock);
    return NULL;
}

// With the lock held.
static void queue(Stream *stream, Work work) {
    Work *new = malloc(sizeof *new);
    *new = work;
    if (stream->last)
        stream->last->next = new;
    else
        stream->first = new;
    stream->last = new;
    pthread_cond_broadcast(&changed);
}

// With the lock held.
static void drain(Stream *stream) {
    while (stream->first || stream->busy)
        pthread_cond_wait(&changed, &lock);
}

// The streams of the current context, with the lock held.
static void drain_all(void) {
    for (Stream *stream = streams; stream; stream = stream->next)
        if (stream->context == current)
            drain(stream);
}

#define ENTER(needs_context)                                                                                           \
    do {                                                                                                               \
        Result entered = enter(__func__, needs_context);                                                               \
        if (entered)                                                                                                   \
            return entered;                                                                                            \
    } while (0)

static int device_count(void) {
    const char *text = getenv("FEEDLINE_MOCK_DRIVER_DEVICES");
    int count = text ? atoi(text) : 1;
    return count < MOST_DEVICES ? count : MOST_DEVICES;
}

Result cuInit(unsigned flags) {
    (void)flags;
    ENTER(0);
    return SUCCESS;
}

Result cuDeviceGetCount(int *devices) {
    ENTER(0);
    *devices = device_count();
    return SUCCESS;
}

Result cuDeviceGet(int *device, int ordinal) {
    ENTER(0);
    if (ordinal < 0 || ordinal >= device_count())
        return 101;
    *device = ordinal;
    return SUCCESS;
}

Result cuDeviceGetName(char *name, int bytes, int device) {
    (void)device;
    ENTER(0);
    snprintf(name, (size_t)bytes, "mock");
    return SUCCESS;
}

// Bus, device and domain of the PCI address have numbers of their own; all else is 0.
Result cuDeviceGetAttribute(int *value, int attribute, int device) {
    ENTER(0);
    *value = attribute == 33 ? 0x3b + device : attribute == 34 ? 5 : attribute == 50 ? 2 : 0;
    return SUCCESS;
}

// The bytes count from 0xA0, but for the last, which is the number of the device.
Result cuDeviceGetUuid(unsigned char uuid[16], int device) {
    ENTER(0);
    for (int i = 0; i < 16; i++)
        uuid[i] = (unsigned char)(0xA0 + i);
    uuid[15] = (unsigned char)device;
    return SUCCESS;
}

Result cuDevicePrimaryCtxRetain(void **found, int device) {
    ENTER(0);
    *found = &contexts[device];
    return SUCCESS;
}

Result cuDevicePrimaryCtxRelease_v2(int device) {
    (void)device;
    return SUCCESS;
}

Result cuCtxSetCurrent(void *given) {
    current = given;
    return SUCCESS;
}

Result cuCtxGetCurrent(void **found) {
    *found = current;
    return SUCCESS;
}

Result cuCtxSynchronize(void) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    drain_all();
    Result result = broken;
    pthread_mutex_unlock(&lock);
    return result;
}

Result cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    ENTER(1);
    *least = 0;
    *greatest = -5;
    return SUCCESS;
}

Result cuMemGetInfo_v2(size_t *unused, size_t *all) {
    ENTER(1);
    *unused = *all = (size_t)1 << 30;
    return SUCCESS;
}

Result cuMemAlloc_v2(Pointer *pointer, size_t bytes) {
    ENTER(1);
    void *memory = malloc(bytes);
    memset(memory, 0xEE, bytes);
    pthread_mutex_lock(&lock);
    add(&allocations, (uintptr_t)memory, bytes);
    pthread_mutex_unlock(&lock);
    *pointer = (uintptr_t)memory;
    return SUCCESS;
}

Result cuMemFree_v2(Pointer pointer) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    drain_all();
    int found = take(&allocations, (uintptr_t)pointer);
    pthread_mutex_unlock(&lock);
    if (found)
        free((void *)(uintptr_t)pointer);
    return found ? SUCCESS : INVALID_VALUE;
}

Result cuMemHostRegister_v2(void *start, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER(1);
    int partly = 0;
    pthread_mutex_lock(&lock);
    int known = find(registrations, (uintptr_t)start, bytes, &partly) || partly;
    if (!known)
        add(&registrations, (uintptr_t)start, bytes);
    long now = count(registrations);
    most_registered = now > most_registered ? now : most_registered;
    pthread_mutex_unlock(&lock);
    return known ? ALREADY_REGISTERED : SUCCESS;
}

Result cuMemHostUnregister(void *start) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    int found = take(&registrations, (uintptr_t)start);
    pthread_mutex_unlock(&lock);
    return found ? SUCCESS : NOT_REGISTERED;
}

static Result copy_now(void *to, const void *from, size_t bytes, Pointer device) {
    pthread_mutex_lock(&lock);
    int found = find(allocations, (uintptr_t)device, bytes, NULL) != NULL;
    if (found)
        memcpy(to, from, bytes);
    pthread_mutex_unlock(&lock);
    return found ? SUCCESS : INVALID_VALUE;
}

Result cuMemcpyHtoD_v2(Pointer to, const void *from, size_t bytes) {
    ENTER(1);
    return copy_now((void *)(uintptr_t)to, from, bytes, to);
}

Result cuMemcpyDtoH_v2(void *to, Pointer from, size_t bytes) {
    ENTER(1);
    return copy_now(to, (const void *)(uintptr_t)from, bytes, from);
}

Result cuMemcpyHtoDAsync_v2(Pointer to, const void *from, size_t bytes, Stream *stream) {
    ENTER(1);
    Work work = {.kind = COPY, .to = to, .from = from, .bytes = bytes};
    Result result = SUCCESS;
    int partly = 0;
    pthread_mutex_lock(&lock);
    int is_locked = find(registrations, (uintptr_t)from, bytes, &partly) != NULL;
    if (!find(allocations, (uintptr_t)to, bytes, NULL) || (!is_locked && partly)) {
        // No copy may cross the edge of page-locked memory.
        result = INVALID_VALUE;
    } else {
        if (!is_locked) {
            work.staged = malloc(bytes);
            memcpy(work.staged, from, bytes);
        }
        *(is_locked ? &copies_locked : &copies_pageable) += 1;
        bytes_copied += (long)bytes;
        queue(stream, work);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

// As a GPU does for memory that is not page-locked, it waits for the stream.
Result cuMemcpyDtoHAsync_v2(void *to, Pointer from, size_t bytes, Stream *stream) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    drain(stream);
    Result result = broken;
    pthread_mutex_unlock(&lock);
    return result ? result : copy_now(to, (const void *)(uintptr_t)from, bytes, from);
}

Result cuMemsetD8Async(Pointer to, unsigned char value, size_t bytes, Stream *stream) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    drain(stream);
    int found = find(allocations, (uintptr_t)to, bytes, NULL) != NULL;
    if (found)
        memset((void *)(uintptr_t)to, value, bytes);
    pthread_mutex_unlock(&lock);
    return found ? SUCCESS : INVALID_VALUE;
}

Result cuLaunchHostFunc(Stream *stream, void (*call)(void *), void *data) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    queue(stream, (Work){.kind = CALL, .call = call, .data = data});
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

static Result new_stream(Stream **made) {
    static uint64_t made_so_far;
    Stream *stream = calloc(1, sizeof *stream);
    pthread_mutex_lock(&lock);
    live_streams++;
    stream->random = ++made_so_far;
    stream->context = current;
    stream->next = streams;
    streams = stream;
    pthread_mutex_unlock(&lock);
    pthread_create(&stream->thread, NULL, work_off, stream);
    pthread_detach(stream->thread);
    *made = stream;
    return SUCCESS;
}

Result cuStreamCreate(Stream **made, unsigned flags) {
    (void)flags;
    ENTER(1);
    return new_stream(made);
}

Result cuStreamCreateWithPriority(Stream **made, unsigned flags, int priority) {
    (void)flags, (void)priority;
    ENTER(1);
    return new_stream(made);
}

Result cuStreamDestroy_v2(Stream *stream) {
    pthread_mutex_lock(&lock);
    stream->closing = 1;
    live_streams--;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

Result cuStreamSynchronize(Stream *stream) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    if (stream)
        drain(stream);
    else
        drain_all();
    Result result = broken;
    pthread_mutex_unlock(&lock);
    return result;
}

Result cuStreamWaitEvent(Stream *stream, Event *event, unsigned flags) {
    (void)flags;
    ENTER(1);
    pthread_mutex_lock(&lock);
    queue(stream, (Work){.kind = WAIT, .event = event, .number = event->recorded});
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

Result cuEventCreate(Event **made, unsigned flags) {
    (void)flags;
    ENTER(1);
    *made = calloc(1, sizeof **made);
    pthread_mutex_lock(&lock);
    live_events++;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

// Work that waits for it may still be queued, so its memory stays.
Result cuEventDestroy_v2(Event *event) {
    (void)event;
    pthread_mutex_lock(&lock);
    live_events--;
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

Result cuEventRecord(Event *event, Stream *stream) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    queue(stream, (Work){.kind = RECORD, .event = event, .number = ++event->recorded});
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}

Result cuEventQuery(Event *event) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    Result result = broken ? broken : event->done < event->recorded ? NOT_READY : SUCCESS;
    pthread_mutex_unlock(&lock);
    return result;
}

Result cuEventSynchronize(Event *event) {
    ENTER(1);
    pthread_mutex_lock(&lock);
    while (event->done < event->recorded)
        pthread_cond_wait(&changed, &lock);
    Result result = broken;
    pthread_mutex_unlock(&lock);
    return result;
}

Result cuGetErrorName(Result error, const char **text) {
    *text = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == ILLEGAL_ADDRESS ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR";
    return SUCCESS;
}

Result cuGetErrorString(Result error, const char **text) {
    (void)error;
    *text = "an error of the mock driver";
    return SUCCESS;
}

__attribute__((destructor)) static void write_counters(void) {
    const char *path = getenv("FEEDLINE_MOCK_DRIVER_LOG");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    fprintf(file, "copies_locked %ld\ncopies_pageable %ld\nbytes_copied %ld\n", copies_locked, copies_pageable, bytes_copied);
    fprintf(file, "allocations %ld\nregistrations %ld\nmost_registered %ld\n", count(allocations), count(registrations),
            most_registered);
    fprintf(file, "events %ld\nstreams %ld\nbroken %d\n", live_events, live_streams, broken);
    fclose(file);
}
