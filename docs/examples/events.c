/* Prints the files below a directory as soon as they are whole, until there is none for a minute; the
 * next run goes on where this one has ended: cc events.c -lbaro; ./a.out /data place.txt */
#include <baro.h>

#include <stdio.h>

#define MINUTE_NS 60000000000

static void keep(const char *file, const char *position)
{
    FILE *to = fopen(file, "w");
    if (to != NULL) {
        fputs(position, to);
        fclose(to);
    }
}

int main(int argc, char **argv)
{
    static char place[65536];
    if (argc != 3) {
        fprintf(stderr, "usage: events DIRECTORY PLACE\n");
        return 2;
    }
    FILE *kept = fopen(argv[2], "r");
    if (kept != NULL) {
        place[fread(place, 1, sizeof place - 1, kept)] = 0;
        fclose(kept);
    }
    baro_event_filter_t filter = BARO_EVENT_FILTER_INIT;
    filter.kinds = "close_write";
    filter.path = argv[1];
    filter.after = place; /* empty at the first time: new events only */
    baro_node_t *node = baro_node_open(NULL);
    baro_event_feed_t *feed = baro_event_open(node, &filter);
    baro_node_close(node);
    if (feed == NULL) {
        fprintf(stderr, "%s\n", baro_error());
        return 1;
    }
    keep(argv[2], baro_event_position(feed));
    const baro_event_t *event;
    while (baro_event_next(feed, MINUTE_NS, &event) == BARO_OK) {
        if (event->gap != NULL)
            fprintf(stderr, "events of %s are missing: %s\n", event->source, event->gap);
        else
            printf("%s\n", event->path);
        fflush(stdout);
        keep(argv[2], baro_event_position(feed));
    }
    baro_event_close(feed);
    return 0;
}
