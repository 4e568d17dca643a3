/* What a phase of I/O costs the program: against an agent that schedules the volume, one that does
 * not, and none; beside the same messages between two bare processes: a datagram, and a store of 8
 * bytes into a file with a wake of a thread that sleeps on it. Run by phases.sh. */
#include <baro.h>

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 1000

static double times[ROUNDS];

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *what, int rounds)
{
    qsort(times, (size_t)rounds, sizeof(times[0]), by_size);
    printf("%-44s p50 %8.2f us  p90 %8.2f us  p99 %8.2f us\n", what, times[rounds / 2], times[rounds * 9 / 10],
           times[rounds * 99 / 100]);
    fflush(stdout);
}

/* A bare round trip: a datagram from a socket that is made for it, answered by a store into a file
 * and a wake of the sender, which sleeps on a word of it. */
static void round_trips(const char *directory)
{
    char file_path[PATH_MAX];
    struct sockaddr_un door = {.sun_family = AF_UNIX};
    snprintf(file_path, sizeof(file_path), "%s/answer", directory);
    snprintf(door.sun_path, sizeof(door.sun_path), "%s/door", directory);
    int file = open(file_path, O_CREAT | O_RDWR | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, 4096) != 0)
        exit(1);
    int receiver = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (bind(receiver, (struct sockaddr *)&door, sizeof(door)) != 0)
        exit(1);
    pid_t other = fork();
    if (other == 0) {
        char message[16];
        uint32_t *word = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
        for (uint32_t n = 1; n <= ROUNDS; n++) {
            if (recv(receiver, message, sizeof(message), 0) != 16)
                _exit(1);
            uint64_t answer[2] = {n, n};
            if (pwrite(file, &answer[1], 8, 8) != 8 || pwrite(file, &n, 4, 0) != 4)
                _exit(1);
            syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
        }
        _exit(0);
    }
    volatile uint32_t *word = mmap(NULL, 4096, PROT_READ, MAP_SHARED, file, 0);
    for (uint32_t n = 0; n < ROUNDS; n++) {
        double begun = now_us();
        int sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        while (sendto(sender, "0123456789abcdef", 16, 0, (struct sockaddr *)&door, sizeof(door)) != 16)
            usleep(1);
        close(sender);
        while (*word == n)
            syscall(SYS_futex, word, FUTEX_WAIT, n, NULL, NULL, 0);
        times[n] = now_us() - begun;
        usleep(2000);
    }
    waitpid(other, NULL, 0);
    report("bare round trip", ROUNDS);
}

static void phases(baro_t *b, const char *volume, const char *what, int rounds, useconds_t pause_us)
{
    baro_io_volume_t *on = baro_io_volume(b, volume);
    int grants[4] = {0};
    for (int n = 0; n < rounds + 10; n++) {
        int grant = 0;
        double begun = now_us();
        uint64_t phase = baro_io_begin(on, 1 << 20, 0, 0, &grant);
        if (n >= 10)
            times[n - 10] = now_us() - begun;
        if (grant >= 0 && grant < 4)
            grants[grant]++;
        baro_io_end(on, phase, 1 << 20);
        usleep(pause_us);
    }
    report(what, rounds);
    printf("  %d off, %d granted, %d late, %d without an agent\n", grants[0], grants[1], grants[2], grants[3]);
    for (int n = 0; n < rounds; n++) {
        uint64_t phase = baro_io_begin(on, 1 << 20, 0, 0, NULL);
        double begun = now_us();
        baro_io_end(on, phase, 1 << 20);
        times[n] = now_us() - begun;
        usleep(pause_us);
    }
    report("  and its end", rounds);
    baro_io_volume_close(on);
}

int main(int count, char **arguments)
{
    if (count < 2)
        return 2;
    round_trips(arguments[1]);
    baro_t *b = baro_open("phases", NULL);
    phases(b, "scheduled", "begin where I/O is scheduled", ROUNDS / 4, 2000);
    phases(b, "/elsewhere", "begin on another volume", ROUNDS / 4, 2000);
    phases(b, "scheduled", "begin, one after the other", ROUNDS, 0);
    baro_close(b);
    setenv("BAROGRAPH", "off", 1);
    b = baro_open("phases", NULL);
    phases(b, "scheduled", "begin with BAROGRAPH=off", ROUNDS, 0);
    baro_close(b);
    return 0;
}
