// NCCL without GPUs, for tests: ranks are threads or processes of one machine, and exchange numbers through a file that
// they all map. Sums are taken in the order of the ranks, those of bf16 are rounded after each addition. As with NCCL, a
// communicator is made when all ranks ask for it, a sum is work of a stream of the driver (a mock too, which it is linked
// with), the sums of a group are ordered when it ends, and a rank that does not come is waited for without end, until the
// communicator is aborted.
//
//   FEEDLINE_MOCK_NCCL_FOLDER  folder of those files
//   FEEDLINE_MOCK_NCCL_DELAY   longest delay before each part of the work, in microseconds
//   FEEDLINE_MOCK_NCCL_SEED    number of the first schedule of delays; each new id has the next one
//   FEEDLINE_MOCK_NCCL_FAIL    NAME:N:CODE, the N-th call of NAME returns CODE, or waits without end if that is 0, or sends
//                              signal -CODE to the process; `kernel` is the work of a sum in a stream

#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_RANKS = 8, MOST_IN_GROUP = 16, CHUNK = 4096, PATH_BYTES = 120 };
enum { SUCCESS = 0, UNHANDLED_CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };
enum { FLOAT32 = 7, BFLOAT16 = 9, SUM = 0 };

typedef int Result;

typedef struct Id {
    char path[PATH_BYTES];
    uint64_t schedule;
} Id;

_Static_assert(sizeof(Id) == 128, "NCCL_UNIQUE_ID_BYTES");

typedef struct Shared {
    atomic_int came[MOST_RANKS];
    // Chunks that a rank has put into its slot, and those that it has read of all slots.
    atomic_ullong given[MOST_RANKS], taken[MOST_RANKS];
    // Numbers, as long as they are at most.
    unsigned char slots[MOST_RANKS][CHUNK * sizeof(float)];
} Shared;

typedef struct Comm {
    Shared *shared;
    int rank, world;
    unsigned long long chunks;
    uint64_t random;
    atomic_int aborted, jobs;
} Comm;

typedef struct Job {
    enum { ALL_REDUCE, REDUCE, ALL_GATHER } kind;
    Comm *comm;
    const unsigned char *from;
    unsigned char *to;
    // Numbers that each rank gives, and those of a rank's share.
    size_t count, share;
    // Rank that gets the sums of REDUCE.
    int root;
    int type;
    void *stream;
} Job;

int cuLaunchHostFunc(void *stream, void (*call)(void *), void *data);

static atomic_int live;

// What is asked for of this call; SUCCESS for the rest of them.
static Result enter(const char *name) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static long calls;
    char wanted[64];
    long at, code;
    const char *text = getenv("FEEDLINE_MOCK_NCCL_FAIL");
    if (!text)
        return SUCCESS;
    if (sscanf(text, "%63[^:]:%ld:%ld", wanted, &at, &code) != 3)
        abort();
    if (strcmp(name, wanted) != 0)
        return SUCCESS;
    pthread_mutex_lock(&lock);
    int is_it = ++calls == at;
    pthread_mutex_unlock(&lock);
    if (!is_it)
        return SUCCESS;
    if (code < 0)
        raise((int)-code);
    return code > 0 ? (Result)code : -1;
}

// The result for a caller; -1 waits without end.
#define ENTER()                                                                                                        \
    do {                                                                                                               \
        Result entered = enter(__func__);                                                                              \
        while (entered < 0)                                                                                            \
            usleep(1000);                                                                                              \
        if (entered)                                                                                                   \
            return entered;                                                                                            \
    } while (0)

static void delay(Comm *comm) {
    const char *text = getenv("FEEDLINE_MOCK_NCCL_DELAY");
    long most = text ? atol(text) : 0;
    if (most <= 0)
        return;
    comm->random = comm->random * 6364136223846793005u + 1442695040888963407u;
    // A third of them is none at all.
    uint64_t drawn = comm->random >> 33;
    if (drawn % 3)
        usleep((unsigned)(drawn / 3 % (uint64_t)most));
}

Result ncclGetVersion(int *version) {
    *version = 22803;
    return SUCCESS;
}

const char *ncclGetErrorString(Result result) {
    (void)result;
    return "an error of the mock";
}

Result ncclGetUniqueId(Id *id) {
    static atomic_ullong made;
    ENTER();
    const char *seed = getenv("FEEDLINE_MOCK_NCCL_SEED");
    memset(id, 0, sizeof *id);
    if (snprintf(id->path, sizeof id->path, "%s/group-XXXXXX", getenv("FEEDLINE_MOCK_NCCL_FOLDER")) >= PATH_BYTES)
        return SYSTEM_ERROR;
    id->schedule = (seed ? strtoull(seed, NULL, 10) : 0) + made++;
    int file = mkstemp(id->path);
    int is_made = file >= 0 && ftruncate(file, sizeof(Shared)) == 0;
    close(file);
    return is_made ? SUCCESS : SYSTEM_ERROR;
}

Result ncclCommInitRank(Comm **made, int world, Id id, int rank) {
    ENTER();
    if (world < 1 || world > MOST_RANKS || rank < 0 || rank >= world)
        return INVALID_ARGUMENT;
    int file = open(id.path, O_RDWR);
    if (file < 0)
        return SYSTEM_ERROR;
    Shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shared == MAP_FAILED)
        return SYSTEM_ERROR;
    Comm *comm = calloc(1, sizeof *comm);
    *comm = (Comm){.shared = shared, .rank = rank, .world = world};
    comm->random = (id.schedule * MOST_RANKS + (uint64_t)rank + 1) * 0x9E3779B97F4A7C15u;
    delay(comm);
    if (atomic_exchange(&shared->came[rank], 1))
        return INVALID_USAGE;
    for (int other = 0; other < world; other++)
        while (!shared->came[other])
            usleep(50);
    unlink(id.path);
    live++;
    *made = comm;
    return SUCCESS;
}

// Waits until all ranks have come so far; 0 when the communicator was aborted.
static int await(Comm *comm, atomic_ullong *counts, unsigned long long least) {
    for (int rank = 0; rank < comm->world; rank++)
        while (counts[rank] < least) {
            if (comm->aborted)
                return 0;
            usleep(20);
        }
    return 1;
}

static size_t width(int type) {
    return type == BFLOAT16 ? sizeof(uint16_t) : sizeof(float);
}

static float read_number(const unsigned char *numbers, size_t i, int type) {
    float value;
    if (type == FLOAT32) {
        memcpy(&value, numbers + i * sizeof value, sizeof value);
        return value;
    }
    uint16_t high;
    memcpy(&high, numbers + i * sizeof high, sizeof high);
    uint32_t bits = (uint32_t)high << 16;
    memcpy(&value, &bits, sizeof value);
    return value;
}

// The value as the type has it: bf16 to the nearest, halves to even.
static float rounded(float value, int type) {
    uint32_t bits;
    if (type == FLOAT32 || value != value)
        return value;
    memcpy(&bits, &value, sizeof bits);
    bits += 0x7fff + (bits >> 16 & 1);
    bits &= 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void write_number(unsigned char *numbers, size_t i, int type, float value) {
    if (type == FLOAT32) {
        memcpy(numbers + i * sizeof value, &value, sizeof value);
        return;
    }
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint16_t high = (uint16_t)(bits >> 16);
    memcpy(numbers + i * sizeof high, &high, sizeof high);
}

static void sum_chunk(Job *job, size_t begin, size_t count) {
    Comm *comm = job->comm;
    if (job->kind == REDUCE && job->root != comm->rank)
        return;
    for (size_t i = 0; i < count; i++) {
        float sum = read_number(comm->shared->slots[0], i, job->type);
        for (int rank = 1; rank < comm->world; rank++)
            sum = rounded(sum + read_number(comm->shared->slots[rank], i, job->type), job->type);
        write_number(job->to, begin + i, job->type, sum);
    }
}

static int exchange_chunk(Job *job, size_t begin, size_t count) {
    Comm *comm = job->comm;
    Shared *shared = comm->shared;
    delay(comm);
    if (!await(comm, shared->taken, comm->chunks))
        return 0;
    size_t bytes = width(job->type);
    memcpy(shared->slots[comm->rank], job->from + begin * bytes, count * bytes);
    delay(comm);
    shared->given[comm->rank] = ++comm->chunks;
    if (!await(comm, shared->given, comm->chunks))
        return 0;
    if (job->kind == ALL_GATHER)
        for (int rank = 0; rank < comm->world; rank++)
            memcpy(job->to + (job->share * (size_t)rank + begin) * bytes, shared->slots[rank], count * bytes);
    else
        sum_chunk(job, begin, count);
    delay(comm);
    shared->taken[comm->rank] = comm->chunks;
    return 1;
}

static void work(void *given) {
    Job *job = given;
    Comm *comm = job->comm;
    int goes_on = 1;
    if (enter("kernel") < 0)
        for (goes_on = 0; !comm->aborted;)
            usleep(1000);
    for (size_t begin = 0; goes_on && begin < job->count; begin += CHUNK) {
        size_t left = job->count - begin;
        goes_on = exchange_chunk(job, begin, left < CHUNK ? left : CHUNK);
    }
    free(job);
    comm->jobs--;
}

static _Thread_local int groups, grouped;
static _Thread_local Job group[MOST_IN_GROUP];

static Result order(Job wanted) {
    Comm *comm = wanted.comm;
    Job *job = malloc(sizeof *job);
    *job = wanted;
    comm->jobs++;
    if (cuLaunchHostFunc(job->stream, work, job) == 0)
        return SUCCESS;
    comm->jobs--;
    free(job);
    return UNHANDLED_CUDA_ERROR;
}

Result ncclGroupStart(void) {
    ENTER();
    groups++;
    return SUCCESS;
}

Result ncclGroupEnd(void) {
    ENTER();
    if (groups < 1)
        return INVALID_USAGE;
    if (--groups > 0)
        return SUCCESS;
    Result result = SUCCESS;
    for (int i = 0; i < grouped; i++)
        result = result ? result : order(group[i]);
    grouped = 0;
    return result;
}

// Orders now, or when the group ends.
static Result order_in_group(Job job, int operation) {
    if ((job.type != FLOAT32 && job.type != BFLOAT16) || operation != SUM)
        return INVALID_ARGUMENT;
    if (groups == 0)
        return order(job);
    if (grouped == MOST_IN_GROUP)
        return INVALID_USAGE;
    group[grouped++] = job;
    return SUCCESS;
}

Result ncclAllReduce(const void *from, void *to, size_t count, int type, int operation, Comm *comm, void *stream) {
    ENTER();
    return order_in_group((Job){ALL_REDUCE, comm, from, to, count, 0, 0, type, stream}, operation);
}

Result ncclReduce(const void *from, void *to, size_t count, int type, int operation, int root, Comm *comm, void *stream) {
    ENTER();
    if (root < 0 || root >= comm->world)
        return INVALID_ARGUMENT;
    return order_in_group((Job){REDUCE, comm, from, to, count, 0, root, type, stream}, operation);
}

Result ncclAllGather(const void *from, void *to, size_t share, int type, Comm *comm, void *stream) {
    ENTER();
    return order_in_group((Job){ALL_GATHER, comm, from, to, share, share, 0, type, stream}, SUM);
}

// Ends the work on the GPU first, as NCCL does. Work that is not begun by then belongs to a stream that has failed.
Result ncclCommAbort(Comm *comm) {
    ENTER();
    comm->aborted = 1;
    for (int tries = 0; comm->jobs > 0 && tries < 2000; tries++)
        usleep(1000);
    if (comm->jobs == 0) {
        munmap(comm->shared, sizeof *comm->shared);
        free(comm);
        live--;
    }
    return SUCCESS;
}

__attribute__((destructor)) static void report(void) {
    if (live > 0)
        fprintf(stderr, "mock NCCL: %d communicators were not ended\n", live);
}
