/* Prints the events of a feed, one per line; goes on when it gets a command. */
#include <baro.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

#define MINUTE_NS 60000000000

static void show(const char *who, baro_event_feed_t *feed)
{
    const baro_event_t *event;
    CHECK(baro_event_next(feed, MINUTE_NS, &event) == BARO_OK);
    CHECK(strlen(event->path) == event->path_bytes && strlen(event->old_path) == event->old_path_bytes);
    if (event->gap == NULL) {
        CHECK(event->uid == -1 && event->gid == -1 && *event->job == 0 && event->is_complete);
        printf("%s%s %s %" PRIu64 " %s %s %" PRId64 "\n", who, event->source, event->kind, event->index, event->path,
               event->old_path, event->size);
    } else {
        CHECK(event->ts == 0 && *event->gap != 0);
        printf("%s%s gap %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", who, event->source, event->index, event->before,
               event->missing);
    }
    fflush(stdout);
}

static void refused(const baro_node_t *node, const char *kinds, const char *after, const char *reason)
{
    baro_event_filter_t filter = BARO_EVENT_FILTER_INIT;
    filter.kinds = kinds;
    filter.after = after;
    CHECK(baro_event_open(node, &filter) == NULL && strstr(baro_error(), reason) != NULL);
}

int main(void)
{
    const baro_event_t *event;
    char line[64], place[256];
    int fd, status;
    baro_node_t *node = baro_node_open(NULL);
    CHECK(node != NULL);
    CHECK(baro_event_open(NULL, NULL) == NULL && strstr(baro_error(), "node") != NULL);
    refused(node, "made", NULL, "no kind of events");
    refused(node, NULL, "tree", "no position of events");
    refused(node, "\xff", NULL, "UTF-8");
    baro_event_filter_t filter = BARO_EVENT_FILTER_INIT;
    filter.size = 0;
    CHECK(baro_event_open(node, &filter) == NULL && strstr(baro_error(), "size") != NULL);
    CHECK(baro_event_next(NULL, 0, &event) == BARO_E_ARGUMENT && event == NULL);
    CHECK(baro_event_position(NULL) == NULL);
    baro_event_close(NULL);

    filter = (baro_event_filter_t)BARO_EVENT_FILTER_INIT;
    filter.kinds = "create,rename";
    filter.path = "/data/\xff";
    filter.glob = "*.dat";
    baro_event_feed_t *feed = baro_event_open(node, &filter);
    CHECK(feed != NULL && baro_event_next(feed, 0, &event) == BARO_NOTHING && event == NULL);
    CHECK(baro_event_next(feed, -1, NULL) == BARO_NOTHING);
    /* A feed owns no descriptor that its program could close. */
    for (fd = 3; fd < 1024; fd++)
        close(fd);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "fork\n") == 0) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                show("child ", feed);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        } else if (strcmp(line, "again\n") == 0) {
            CHECK(snprintf(place, sizeof place, "%s", baro_event_position(feed)) < (int)sizeof place);
            baro_event_close(feed);
            CHECK(baro_event_next(feed, 0, &event) == BARO_E_ARGUMENT);
            filter.after = place;
            feed = baro_event_open(node, &filter);
            CHECK(feed != NULL);
        }
        show("", feed);
    }
    baro_event_close(feed);
    baro_node_close(node);
    return 0;
}
