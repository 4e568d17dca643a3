/* An application that computes and does I/O in turn, on a storage that several such processes share.
 * The storage is emulated: a file of words, one for each process, not 0 while it does I/O; bytes flow
 * as time goes, at the bandwidth divided by the processes that do I/O, and less if they cost each
 * other. scripts/schedule_evaluation.py runs it.
 *
 * storage FILE SLOT SLOTS BANDWIDTH INTERFERENCE VOLUME NAME COMPUTE_S BYTES [COMPUTE_S BYTES ...]
 *
 * Prints a line for each phase: seconds that it took, of these waited, and that it takes alone. */
#include <baro.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + now.tv_nsec / 1e9;
}

static void sleep_s(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    nanosleep(&time, NULL);
}

int main(int count, char **arguments)
{
    if (count < 10)
        return 2;
    int slot = atoi(arguments[2]), slots = atoi(arguments[3]);
    double bandwidth = atof(arguments[4]), interference = atof(arguments[5]);
    int file = open(arguments[1], O_RDWR);
    volatile int *busy = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (busy == MAP_FAILED)
        return 2;
    baro_t *b = baro_open(arguments[7], NULL);
    baro_io_volume_t *volume = baro_io_volume(b, arguments[6]);
    double due = now_s();
    for (int at = 8; at + 1 < count; at += 2) {
        double left = atof(arguments[at + 1]), bytes = left;
        sleep_s(atof(arguments[at]));
        double begun = now_s();
        int grant;
        uint64_t phase = baro_io_begin(volume, (int64_t)bytes, 0, 0, &grant);
        double granted = now_s(), last = granted;
        busy[slot] = 1;
        while (left > 0) {
            sleep_s(0.002);
            int others = -1;
            for (int n = 0; n < slots; n++)
                others += busy[n];
            double now = now_s();
            left -= (now - last) * bandwidth / (others + 1) / (1 + interference * others);
            last = now;
            if (left > 0) {
                /* Where the grant may be taken away, the storage is free while it waits. */
                double share;
                if (grant == BARO_IO_GRANTED && baro_io_share(volume, phase, &share) < 0)
                    busy[slot] = 0;
                baro_io_step(volume, phase, (uint64_t)(bytes - left), 0);
                busy[slot] = 1;
                if (now_s() - last > 0.001)
                    last = now_s();
            }
        }
        busy[slot] = 0;
        baro_io_end(volume, phase, (uint64_t)bytes);
        printf("%.6f %.6f %.6f\n", now_s() - begun, granted - begun, bytes / bandwidth);
        fflush(stdout);
    }
    fprintf(stderr, "%.3f s\n", now_s() - due);
    baro_io_volume_close(volume);
    baro_close(b);
    return 0;
}
