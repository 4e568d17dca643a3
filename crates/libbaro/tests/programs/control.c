/* Control events: publishes some, and consumes them in the three ways. With "publish", it publishes the
 * events that it is told, one per line. */
#include <baro.h>

#include <inttypes.h>
#include <math.h>
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

static void show(const char *how, const baro_control_event_t *event)
{
    const char *policy = baro_control_property(event, "policy");
    CHECK(baro_control_property(event, "none") == NULL && event->age_ns >= 0 && event->ts > 0);
    printf("%s %s %s %g %g %" PRIu64 " %" PRIu64 " %s %s %s\n", how, event->kind, event->subject, event->value,
           event->confidence, event->sequence, event->missed, event->application, event->node, policy ? policy : "-");
    fflush(stdout);
}

static int handle(const baro_control_event_t *event, void *data)
{
    int *handled = data;
    show("callback", event);
    return ++*handled == 2;
}

static void publish_refused(baro_t *b)
{
    baro_property_t same[] = {{"a", "1"}, {"a", "2"}}, many[17] = {{"a", "1"}};
    char longest[1100];
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    CHECK(baro_control_event(b, NULL, NULL, NAN, 1, NULL, 0) == BARO_E_ARGUMENT);
    CHECK(baro_control_event(b, "", NULL, NAN, 1, NULL, 0) == BARO_E_ARGUMENT);
    CHECK(baro_control_event(b, "a b", NULL, NAN, 1, NULL, 0) == BARO_E_ARGUMENT);
    CHECK(strstr(baro_error(), "letters") != NULL);
    CHECK(baro_control_event(b, "a", longest, NAN, 1, NULL, 0) == BARO_E_ARGUMENT);
    CHECK(baro_control_event(b, "a", "\xff", NAN, 1, NULL, 0) == BARO_E_ARGUMENT);
    CHECK(baro_control_event(b, "a", NULL, NAN, 1.5, NULL, 0) == BARO_E_ARGUMENT);
    CHECK(baro_control_event(b, "a", NULL, NAN, NAN, NULL, 0) == BARO_E_ARGUMENT);
    CHECK(baro_control_event(b, "a", NULL, NAN, 1, same, 2) == BARO_E_ARGUMENT);
    CHECK(baro_control_event(b, "a", NULL, NAN, 1, many, 17) == BARO_E_ARGUMENT);
    CHECK(baro_control_event(NULL, "a", NULL, NAN, 1, NULL, 0) == BARO_E_ARGUMENT);
    CHECK(baro_control_readers(b, 7) == BARO_E_ARGUMENT);
}

static int publish(void)
{
    int fd, status;
    baro_property_t properties[] = {{"policy", "set10"}, {"volume", "scratch"}};
    baro_t *b = baro_open("teller", NULL);
    CHECK(b != NULL && baro_is_enabled(b));
    publish_refused(b);
    CHECK(baro_control_readers(b, BARO_READERS_ALL) == BARO_OK);
    CHECK(baro_control_event(b, "io.starved", "/scratch", 2.5, 0.75, properties, 2) == BARO_OK);
    CHECK(baro_control_readers(b, BARO_READERS_OWNER) == BARO_E_REFUSED);
    /* It keeps no descriptor that its program could close. */
    for (fd = 3; fd < 1024; fd++)
        close(fd);
    CHECK(baro_control_event(b, "io.late", NULL, NAN, 1, NULL, 0) == BARO_OK);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(baro_control_event(b, "child.begun", NULL, 1, 1, NULL, 0) == BARO_OK);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(baro_control_event(b, "io.ended", NULL, INFINITY, 0, NULL, 0) == BARO_OK);
    CHECK(baro_lost(b) == 0);
    baro_close(b);
    return 0;
}

static void refused(const baro_node_t *node)
{
    const baro_control_event_t *event;
    baro_control_filter_t filter = BARO_CONTROL_FILTER_INIT;
    CHECK(baro_control_subscribe(NULL, NULL) == NULL && strstr(baro_error(), "node") != NULL);
    filter.sources = "job";
    CHECK(baro_control_subscribe(node, &filter) == NULL && strstr(baro_error(), "name=pattern") != NULL);
    filter.sources = NULL;
    filter.confidence_min = 2;
    CHECK(baro_control_subscribe(node, &filter) == NULL && strstr(baro_error(), "confidence") != NULL);
    filter.size = 0;
    CHECK(baro_control_subscribe(node, &filter) == NULL && strstr(baro_error(), "size") != NULL);
    CHECK(baro_control_wait(NULL, 0, &event) == BARO_E_ARGUMENT && event == NULL);
    CHECK(baro_control_property(NULL, "a") == NULL && baro_control_missed(NULL) == 0);
    baro_control_close(NULL);
}

int main(int count, char **arguments)
{
    const baro_control_event_t *event;
    char line[64];
    int fd, status, handled = 0;
    if (count > 1 && strcmp(arguments[1], "publish") == 0)
        return publish();
    baro_node_t *node = baro_node_open(NULL);
    CHECK(node != NULL);
    refused(node);
    baro_control_filter_t filter = BARO_CONTROL_FILTER_INIT;
    filter.kind = "io.*";
    filter.sources = "application=solver";
    filter.properties = "policy=set*";
    filter.confidence_min = 0.5;
    baro_control_subscription_t *events = baro_control_subscribe(node, &filter);
    CHECK(events != NULL && baro_control_check(events, &event) == BARO_NOTHING && event == NULL);
    CHECK(baro_control_check(events, NULL) == BARO_NOTHING);
    CHECK(baro_control_dispatch(events, 0) == BARO_E_ARGUMENT && strstr(baro_error(), "handler") != NULL);
    CHECK(baro_control_on(events, handle, &handled) == BARO_OK && baro_control_dispatch(events, 0) == 0);
    for (fd = 3; fd < 1024; fd++)
        close(fd);
    puts("ready");
    fflush(stdout);
    while (fgets(line, sizeof line, stdin) != NULL) {
        if (strcmp(line, "check\n") == 0) {
            CHECK(baro_control_check(events, &event) == BARO_OK);
            show("check", event);
        } else if (strcmp(line, "dispatch\n") == 0) {
            handled = 0;
            printf("%d\n", baro_control_dispatch(events, MINUTE_NS));
            fflush(stdout);
        } else if (strcmp(line, "fork\n") == 0) {
            pid_t child = fork();
            CHECK(child >= 0);
            if (child == 0) {
                CHECK(baro_control_wait(events, MINUTE_NS, &event) == BARO_OK);
                show("child", event);
                _exit(0);
            }
            CHECK(waitpid(child, &status, 0) == child && status == 0);
        } else if (strcmp(line, "missed\n") == 0) {
            printf("%" PRIu64 "\n", baro_control_missed(events));
            fflush(stdout);
        } else {
            CHECK(baro_control_wait(events, MINUTE_NS, &event) == BARO_OK);
            CHECK(event->is_own == 0 && event->properties_count == 1 && *event->rank == 0);
            show("wait", event);
        }
    }
    baro_control_close(events);
    CHECK(baro_control_wait(events, 0, &event) == BARO_E_ARGUMENT);
    baro_node_close(node);
    return 0;
}
