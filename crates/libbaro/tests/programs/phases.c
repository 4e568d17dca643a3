/* Phases of I/O in a program whose agent is played by the test, or that has none: what hosts do in
 * between must not harm. */
#include <baro.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

static baro_io_volume_t *scratch;

static void on_signal(int number)
{
    (void)number;
}

static void *begin_and_end(void *unused)
{
    for (int n = 0; n < 50; n++) {
        uint64_t phase = baro_io_begin(scratch, 1000, 5, 50, NULL);
        CHECK(phase != 0 && baro_io_end(scratch, phase, 1000) == BARO_OK);
    }
    return unused;
}

int main(void)
{
    int grant = -1;
    double share;
    baro_t *b = baro_open("phases", NULL);
    CHECK(baro_is_enabled(b));
    CHECK(baro_io_volume(b, NULL) == NULL);
    CHECK((scratch = baro_io_volume(b, "/scratch")) != NULL);
    /* Nobody answers: a phase goes on, and so do the next ones, at once. */
    uint64_t first = baro_io_begin(scratch, 4096, 0, 0, &grant);
    CHECK(first == 1 && grant == BARO_IO_NO_AGENT);
    CHECK(baro_io_step(scratch, first, 10, 0) == BARO_IO_OFF);
    CHECK(baro_io_share(scratch, first, &share) < 0);
    CHECK(baro_io_end(scratch, first, 4096) == BARO_OK && baro_io_end(scratch, first, 4096) == BARO_OK);
    CHECK(baro_io_begin(scratch, -1, 99, 1, NULL) == 2);
    CHECK(baro_io_end(scratch, 2, 0) == BARO_OK);
    /* Signals, closed descriptors, many threads. */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    pthread_t threads[20];
    for (int n = 0; n < 20; n++)
        CHECK(pthread_create(&threads[n], NULL, begin_and_end, NULL) == 0);
    for (int n = 0; n < 20; n++)
        pthread_join(threads[n], NULL);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    /* A child has none of its parent's phases, and its own. */
    uint64_t of_parent = baro_io_begin(scratch, 1, 0, 0, NULL);
    pid_t child = fork();
    if (child == 0) {
        baro_io_end(scratch, of_parent, 1);
        uint64_t own = baro_io_begin(scratch, 2, 0, 0, NULL);
        baro_io_end(scratch, own, 2);
        baro_io_end(scratch, of_parent, 1);
        baro_close(b);
        _exit(own > of_parent ? 0 : 1);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(baro_io_end(scratch, of_parent, 1) == BARO_OK);
    baro_io_volume_close(scratch);
    CHECK(baro_io_begin(scratch, 1, 0, 0, &grant) == 0 && grant == 0);
    CHECK(baro_io_end(scratch, 1, 0) < 0);
    baro_close(b);
    return 0;
}
