/* Server maps in a program whose agent is played by the test, or that has none: what hosts do in
 * between must not harm. */
#include <baro.h>

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

static baro_server_map_t *map;
static baro_map_server_t *server;

static void on_signal(int number)
{
    (void)number;
}

static void *operate(void *unused)
{
    for (int n = 0; n < 2000; n++) {
        baro_map_operation_t op;
        baro_map_request_t request;
        CHECK(baro_map_begin(map, 0, &op) == BARO_OK && op.servers_count == 3);
        CHECK(op.start == BARO_MAP_OFF && op.epoch == 0 && op.servers[2] == 1023);
        CHECK(baro_map_serve_begin(server, op.epoch, &request) == BARO_MAP_SERVED);
        CHECK(baro_map_serve_end(server, &request, 4096) == BARO_OK);
        CHECK(baro_map_end(map, &op) == BARO_OK && baro_map_end(map, &op) == BARO_OK);
    }
    return unused;
}

static void refusals(baro_t *b, const uint32_t *servers)
{
    const uint32_t odd[2] = {1, 1024};
    CHECK(baro_server_map(b, NULL, servers, 3) == NULL);
    CHECK(baro_server_map(b, "odd", odd, 2) == NULL && strstr(baro_error(), "1,023") != NULL);
    CHECK(baro_server_map(b, "odd", NULL, 1) == NULL && baro_server_map(b, "odd", servers, 0) == NULL);
    CHECK(baro_server_map(b, "io", odd, 1) == NULL && strstr(baro_error(), "other servers") != NULL);
    CHECK(baro_map_server(b, "io", 1024) == NULL && baro_map_server(b, NULL, 1) == NULL);
    CHECK(baro_map_begin(map, 0, NULL) < 0 && baro_map_end(map, NULL) < 0);
    CHECK(baro_map_serve_begin(server, 0, NULL) < 0 && baro_map_serve_end(server, NULL, 0) < 0);
    /* Two are in use. */
    for (int n = 0; n < 6; n++) {
        char name[8];
        snprintf(name, sizeof(name), "map%d", n);
        CHECK(baro_server_map(b, name, servers, 3) != NULL);
    }
    CHECK(baro_server_map(b, "more", servers, 3) == NULL && strstr(baro_error(), "as many") != NULL);
}

int main(void)
{
    const uint32_t servers[3] = {5, 0, 1023};
    baro_map_operation_t op, second;
    baro_map_request_t request;
    baro_t *b = baro_open("maps", NULL);
    CHECK(baro_is_enabled(b));
    CHECK((map = baro_server_map(b, "io", servers, 3)) != NULL);
    CHECK((server = baro_map_server(b, "io", 5)) != NULL);
    CHECK(baro_server_map(b, "io", servers, 3) != NULL);
    refusals(b, servers);
    /* Nobody keeps the map: operations go to the servers that were declared. */
    CHECK(baro_map_begin(map, 0, &op) == BARO_OK && op.start == BARO_MAP_OFF && op.number != 0);
    CHECK(op.servers[0] == 0 && op.servers[1] == 5);
    /* This server knows no epoch. */
    CHECK(baro_map_serve_begin(server, 7, &request) == BARO_MAP_FENCED && request.fence == 7);
    CHECK(baro_map_serve_end(server, &request, 1) == BARO_OK);
    /* A server that knows of a later epoch is believed, for as long as the caller wants to wait. */
    CHECK(baro_map_refused(map, &op, 9) == BARO_OK && op.number == 0);
    CHECK(baro_map_begin(map, 30, &op) == BARO_OK && op.start == BARO_MAP_LATE && op.epoch == 0);
    CHECK(baro_map_begin(map, 0, &second) == BARO_OK && second.start == BARO_MAP_OFF);
    CHECK(baro_map_end(map, &op) == BARO_OK && baro_map_end(map, &second) == BARO_OK);
    /* Signals, closed descriptors, many threads. */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval often = {{0, 1000}, {0, 1000}};
    setitimer(ITIMER_REAL, &often, NULL);
    for (int fd = 3; fd < 64; fd++)
        close(fd);
    pthread_t threads[20];
    for (int n = 0; n < 20; n++)
        CHECK(pthread_create(&threads[n], NULL, operate, NULL) == 0);
    for (int n = 0; n < 20; n++)
        pthread_join(threads[n], NULL);
    struct itimerval never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &never, NULL);
    /* A child has none of its parent's operations, and its own. */
    CHECK(baro_map_begin(map, 0, &op) == BARO_OK);
    CHECK(baro_map_serve_begin(server, 0, &request) == BARO_MAP_SERVED);
    pid_t child = fork();
    if (child == 0) {
        baro_map_operation_t own;
        baro_map_request_t served;
        CHECK(baro_map_begin(map, 0, &own) == BARO_OK && own.start == BARO_MAP_OFF && own.number != op.number);
        CHECK(baro_map_serve_begin(server, 0, &served) == BARO_MAP_SERVED);
        baro_map_end(map, &op);
        baro_map_serve_end(server, &request, 1);
        /* Its own operation still runs, and its own request has ended: the test counts them. */
        baro_map_serve_end(server, &served, 1);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    /* The parent's request runs, and its operation has ended. */
    CHECK(baro_map_end(map, &op) == BARO_OK);
    baro_server_map_close(map);
    CHECK(baro_map_begin(map, 0, &op) < 0 && op.number == 0 && op.servers_count == 0);
    _exit(0);
}
