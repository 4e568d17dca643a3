/* slow_disk - an emulated disk with a single server: one file whose reads and writes take the time
 * that a slow disk would take.
 *
 *   slow_disk FILE MEBIBYTES MEGABYTES_PER_SECOND SEEK_MILLISECONDS
 *
 * FILE is an empty file over which the emulated disk is mounted, so that it has MEBIBYTES of
 * content, kept in memory. A loop device on FILE makes a block device of it. The program runs until
 * FILE is unmounted, or until it is told to end (SIGTERM, SIGINT); then it prints what it has served as one
 * line of JSON. Only root can mount.
 *
 * All requests share one virtual clock. A request begins when it arrives or when the request before
 * it ends, whichever is later. It takes its bytes divided by the rate, and the seek time as well if
 * it begins more than 8 MiB away from the end of the request before it. It is answered when its time
 * is over. Reads and writes therefore slow each other down as they do on one disk with one head,
 * which limits of the kernel (blk-throttle) cannot show: those count reads and writes apart.
 *
 * The program speaks the protocol of /dev/fuse itself, since one file needs a dozen of its
 * messages. The kernel's header is all that it is built with. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/fuse.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

/* Most bytes of one read or write, and its pages. */
#define TRANSFER_BYTES_MAX (1u << 20)
#define TRANSFER_PAGES_MAX (TRANSFER_BYTES_MAX / 4096)
/* Bytes of a request: those that are written, and what is before them. */
#define REQUEST_BYTES_MAX (TRANSFER_BYTES_MAX + 65536)
/* Requests that are served at once: the length of the queue of the disk. */
#define THREADS 32
/* A jump of at most this many bytes needs no seek. */
#define NEAR_BYTES (8u << 20)
#define MEBIBYTES_MAX (1u << 20)

struct slow_disk {
    int fuse;
    unsigned char *content;
    uint64_t size;
    double seconds_per_byte, seek_seconds;
    pthread_mutex_t lock;
    /* Protected by the lock: the virtual clock, and what was served. */
    double free_at;
    uint64_t head, reads, writes, read_bytes, written_bytes, seeks;
    double busy_seconds;
};

static struct slow_disk disk = {.lock = PTHREAD_MUTEX_INITIALIZER};
/* The request that each thread serves. */
static _Alignas(4096) unsigned char requests[THREADS][REQUEST_BYTES_MAX];

/* ---- Time ---- */

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static void wait_until(double when)
{
    struct timespec time = {.tv_sec = (time_t)when};
    time.tv_nsec = (long)((when - (double)time.tv_sec) * 1e9);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
}

/* Takes the next place in the queue of the disk; returns when the request is over. */
static double reserve(uint64_t offset, uint32_t bytes, bool is_write)
{
    pthread_mutex_lock(&disk.lock);
    uint64_t jump = offset > disk.head ? offset - disk.head : disk.head - offset;
    double seconds = bytes * disk.seconds_per_byte;
    if (jump > NEAR_BYTES) {
        seconds += disk.seek_seconds;
        disk.seeks++;
    }
    double arrived = now();
    double end = (arrived > disk.free_at ? arrived : disk.free_at) + seconds;
    disk.free_at = end;
    disk.head = offset + bytes;
    disk.busy_seconds += seconds;
    *(is_write ? &disk.writes : &disk.reads) += 1;
    *(is_write ? &disk.written_bytes : &disk.read_bytes) += bytes;
    pthread_mutex_unlock(&disk.lock);
    return end;
}

/* ---- Answers ---- */

/* Answers a request with bytes, or with an error if `error` is not 0. The kernel refuses an answer
 * whose asker is gone, which is no fault. */
static void answer(uint64_t unique, int error, const void *bytes, size_t length)
{
    struct fuse_out_header head = {
        .len = (uint32_t)(sizeof head + length), .error = -error, .unique = unique};
    struct iovec parts[2] = {
        {.iov_base = &head, .iov_len = sizeof head},
        {.iov_base = (void *)bytes, .iov_len = length},
    };
    ssize_t written = writev(disk.fuse, parts, length ? 2 : 1);
    (void)written;
}

static struct fuse_attr attributes(void)
{
    return (struct fuse_attr){.ino = FUSE_ROOT_ID,
                              .size = disk.size,
                              .blocks = disk.size / 512,
                              .mode = S_IFREG | 0600,
                              .nlink = 1,
                              .blksize = 4096};
}

static void answer_init(uint64_t unique, const struct fuse_init_in *asked)
{
    struct fuse_init_out out = {
        .major = FUSE_KERNEL_VERSION,
        .minor = FUSE_KERNEL_MINOR_VERSION,
        .max_readahead = asked->max_readahead,
        .flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_MAX_PAGES | FUSE_ASYNC_DIO,
        .max_background = 2 * THREADS,
        .congestion_threshold = 2 * THREADS,
        .max_write = TRANSFER_BYTES_MAX,
        .time_gran = 1,
        .max_pages = TRANSFER_PAGES_MAX,
    };
    answer(unique, asked->major == FUSE_KERNEL_VERSION ? 0 : EPROTO, &out, sizeof out);
}

static void answer_read(uint64_t unique, const struct fuse_read_in *asked)
{
    uint64_t offset = asked->offset < disk.size ? asked->offset : disk.size;
    uint64_t left = disk.size - offset;
    uint32_t bytes = asked->size < left ? asked->size : (uint32_t)left;
    wait_until(reserve(offset, bytes, false));
    answer(unique, 0, disk.content + offset, bytes);
}

static void answer_write(uint64_t unique, const struct fuse_write_in *asked, size_t length)
{
    const unsigned char *bytes = (const unsigned char *)(asked + 1);
    if (length < sizeof *asked || asked->size > length - sizeof *asked) {
        answer(unique, EINVAL, NULL, 0);
        return;
    }
    if (asked->offset > disk.size || asked->size > disk.size - asked->offset) {
        answer(unique, ENOSPC, NULL, 0);
        return;
    }
    double end = reserve(asked->offset, asked->size, true);
    memcpy(disk.content + asked->offset, bytes, asked->size);
    wait_until(end);
    struct fuse_write_out out = {.size = asked->size};
    answer(unique, 0, &out, sizeof out);
}

/* Answers one message of the kernel; false if it was the last one. */
static bool serve(const struct fuse_in_header *asked, const void *body, size_t length)
{
    struct fuse_attr_out attr = {.attr_valid = UINT32_MAX, .attr = attributes()};
    struct fuse_open_out opened = {.open_flags = 0};
    struct fuse_statfs_out room = {.st = {.blocks = disk.size / 4096, .bsize = 4096, .namelen = 255}};
    switch (asked->opcode) {
    case FUSE_INIT:
        answer_init(asked->unique, body);
        break;
    case FUSE_GETATTR:
    case FUSE_SETATTR: /* The size and the mode are what they are. */
        answer(asked->unique, 0, &attr, sizeof attr);
        break;
    case FUSE_OPEN:
        answer(asked->unique, 0, &opened, sizeof opened);
        break;
    case FUSE_READ:
        answer_read(asked->unique, body);
        break;
    case FUSE_WRITE:
        answer_write(asked->unique, body, length);
        break;
    case FUSE_STATFS:
        answer(asked->unique, 0, &room, sizeof room);
        break;
    case FUSE_FLUSH:
    case FUSE_FSYNC: /* What is written is in the memory of the disk, as far as it ever will be. */
    case FUSE_RELEASE:
    case FUSE_ACCESS:
        answer(asked->unique, 0, NULL, 0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT: /* These have no answer. */
        break;
    case FUSE_DESTROY:
        answer(asked->unique, 0, NULL, 0);
        return false;
    default:
        answer(asked->unique, ENOSYS, NULL, 0);
    }
    return true;
}

static void *serve_all(void *request)
{
    /* Sleeps end within a microsecond of their time, not within the usual fifty. */
    prctl(PR_SET_TIMERSLACK, 1000, 0, 0, 0);
    for (;;) {
        ssize_t got = read(disk.fuse, request, REQUEST_BYTES_MAX);
        if (got < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
            continue;
        if (got < (ssize_t)sizeof(struct fuse_in_header))
            return NULL; /* Unmounted. */
        const struct fuse_in_header *asked = request;
        if (!serve(asked, asked + 1, (size_t)got - sizeof *asked))
            return NULL;
    }
}

/* ---- Beginning and end ---- */

static void fail(const char *what)
{
    fprintf(stderr, "slow_disk: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double number(const char *text, const char *name, double least, double most)
{
    char *end = NULL;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= least && value <= most)) {
        fprintf(stderr, "slow_disk: %s: %s is no number from %g to %g\n", name, text, least, most);
        exit(2);
    }
    return value;
}

static void mount_over(const char *file)
{
    char options[128];
    disk.fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (disk.fuse < 0)
        fail("/dev/fuse");
    snprintf(options, sizeof options, "fd=%d,rootmode=%o,user_id=0,group_id=0,max_read=%u",
             disk.fuse, S_IFREG | 0600, TRANSFER_BYTES_MAX);
    if (mount("slow_disk", file, "fuse.slow_disk", MS_NOSUID | MS_NODEV, options) != 0)
        fail(file);
}

/* Unmounts the file when a signal says so, which ends all threads that serve it. */
static void *wait_for_signal(void *file)
{
    sigset_t awaited;
    int which;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGINT);
    sigwait(&awaited, &which);
    umount2(file, MNT_DETACH);
    return NULL;
}

static void start(pthread_t *thread, void *(*run)(void *), void *argument)
{
    errno = pthread_create(thread, NULL, run, argument);
    if (errno)
        fail("a thread");
}

int main(int count, char **words)
{
    if (count != 5) {
        fprintf(stderr, "usage: slow_disk FILE MEBIBYTES MEGABYTES_PER_SECOND SEEK_MILLISECONDS\n");
        return 2;
    }
    disk.size = (uint64_t)number(words[2], "MEBIBYTES", 1, MEBIBYTES_MAX) << 20;
    disk.seconds_per_byte = 1e-6 / number(words[3], "MEGABYTES_PER_SECOND", 1e-3, 1e6);
    disk.seek_seconds = number(words[4], "SEEK_MILLISECONDS", 0, 1e4) / 1e3;
    disk.content = mmap(NULL, disk.size, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (disk.content == MAP_FAILED)
        fail("memory for the content");
    /* Memory that this program asks for must not wait for the loop device above it. */
    prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
    sigset_t awaited;
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGTERM);
    sigaddset(&awaited, SIGINT);
    pthread_sigmask(SIG_BLOCK, &awaited, NULL);
    mount_over(words[1]);
    pthread_t threads[THREADS], watcher;
    start(&watcher, wait_for_signal, words[1]);
    for (int i = 0; i < THREADS; i++)
        start(&threads[i], serve_all, requests[i]);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    printf("{\"reads\": %" PRIu64 ", \"writes\": %" PRIu64 ", \"read_bytes\": %" PRIu64
           ", \"written_bytes\": %" PRIu64 ", \"seeks\": %" PRIu64 ", \"busy_seconds\": %.3f}\n",
           disk.reads, disk.writes, disk.read_bytes, disk.written_bytes, disk.seeks,
           disk.busy_seconds);
    return 0;
}
