/* What one write costs a program that knows nothing of barograph: `turns FOLDER` prints the
 * nanoseconds of a write of one byte, the least of many rounds, to a device that is no storage, to a
 * file elsewhere, to a file in the folder, and to the same file within a phase of I/O. turns.sh runs
 * it without the preloaded library, with it, and with the folder as a scheduled volume. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define CALLS 2000
#define ROUNDS 500
#define MUCH (2 << 20)

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* `much` is written before each round: so there is a phase. */
static double cost(int fd, size_t much)
{
    static char bytes[MUCH];
    double least = 1e9;
    for (int round = 0; round < ROUNDS; round++) {
        if (much && pwrite(fd, bytes, much, 0) != (ssize_t)much)
            exit(1);
        double begun = now_ns();
        for (int call = 0; call < CALLS; call++)
            if (pwrite(fd, bytes, 1, 0) != 1)
                exit(1);
        double each = (now_ns() - begun) / CALLS;
        least = each < least ? each : least;
    }
    return least;
}

int main(int count, char **arguments)
{
    int null = open("/dev/null", O_WRONLY), elsewhere = memfd_create("elsewhere", 0);
    if (count < 2 || chdir(arguments[1]) != 0)
        return 1;
    int own = open("own", O_RDWR | O_CREAT, 0600);
    double device = cost(null, 0), other = cost(elsewhere, 0), little = cost(own, 0);
    printf("device %6.1f   elsewhere %6.1f   volume %6.1f   phase %6.1f ns\n", device, other, little, cost(own, MUCH));
    unlink("own");
    return 0;
}
