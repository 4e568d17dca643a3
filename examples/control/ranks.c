/* Control events between MPI ranks: rank 0 tells what happens to the servers of a parallel file system,
 * the others hear it, each in one of the three ways, in the loop in which they work.
 *
 *   mpicc -O2 ranks.c -o ranks $(pkg-config --cflags --libs baro)
 *   mpirun -n 4 ./ranks 100
 */
#include <baro.h>
#include <mpi.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define SECOND_NS 1000000000

/* What a rank has heard. */
struct heard {
    uint64_t count, missed;
    int64_t age_ns; /* the sum of the ages */
    double servers; /* the sum of the values */
};

static int note(const baro_control_event_t *event, void *data)
{
    struct heard *heard = data;
    heard->count++;
    heard->missed += event->missed;
    heard->age_ns += event->age_ns;
    heard->servers += event->value;
    return 0;
}

static void tell(baro_t *b, int events)
{
    for (int n = 0; n < events; n++) {
        char server[16];
        snprintf(server, sizeof server, "%d", n % 16);
        baro_property_t properties[] = {{"server", server}};
        if (baro_control_event(b, n % 2 ? "server.back" : "server.slow", "/scratch", n, 0.9, properties, 1) != BARO_OK)
            fprintf(stderr, "an event is lost: %s\n", baro_error());
    }
}

/* Hears `events` events, or fewer if none comes for ten seconds. */
static struct heard hear(baro_control_subscription_t *subscription, int rank, int events)
{
    struct heard heard = {0, 0, 0, 0};
    const baro_control_event_t *event;
    double quiet = MPI_Wtime();
    if (rank % 3 == 0)
        baro_control_on(subscription, note, &heard);
    while (heard.count + heard.missed < (uint64_t)events && MPI_Wtime() - quiet < 10) {
        uint64_t before = heard.count;
        switch (rank % 3) {
        case 1: /* wait: sleeps until there is an event */
            if (baro_control_wait(subscription, SECOND_NS, &event) == BARO_OK)
                note(event, &heard);
            break;
        case 2: /* check: in a loop that has other work to do */
            if (baro_control_check(subscription, &event) == BARO_OK)
                note(event, &heard);
            break;
        default: /* callback: runs here, and nowhere else */
            baro_control_dispatch(subscription, SECOND_NS);
        }
        if (heard.count > before)
            quiet = MPI_Wtime();
    }
    return heard;
}

int main(int count, char **arguments)
{
    static const char *const ways[] = {"callback", "wait", "check"};
    int rank, events = count > 1 ? atoi(arguments[1]) : 100;
    baro_control_subscription_t *subscription = NULL;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    baro_t *b = baro_open("ranks", NULL);
    baro_node_t *node = baro_node_open(NULL);
    if (rank > 0) {
        baro_control_filter_t filter = BARO_CONTROL_FILTER_INIT;
        filter.kind = "server.*";
        filter.sources = "application=ranks,rank=0";
        subscription = baro_control_subscribe(node, &filter);
        if (subscription == NULL) {
            fprintf(stderr, "rank %d hears nothing: %s\n", rank, baro_error());
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        tell(b, events);
    } else {
        struct heard heard = hear(subscription, rank, events);
        printf("{\"rank\": %d, \"way\": \"%s\", \"events\": %" PRIu64 ", \"missed\": %" PRIu64
               ", \"servers\": %.0f, \"age_us\": %.0f}\n",
               rank, ways[rank % 3], heard.count, heard.missed, heard.servers,
               heard.count ? (double)heard.age_ns / (double)heard.count / 1e3 : 0.0);
        fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    baro_control_close(subscription);
    baro_node_close(node);
    baro_close(b);
    MPI_Finalize();
    return 0;
}
