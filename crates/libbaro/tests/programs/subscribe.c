/* Prints the samples of a subscription, one per line; goes on when it gets a command. */
#include <baro.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

#define MINUTE_NS 60000000000

static void show_value(const baro_update_t *update)
{
    size_t at;
    switch (update->type) {
    case BARO_INT:
    case BARO_BOOL:
        printf("%" PRId64, update->as.i);
        break;
    case BARO_FLOAT:
        printf("%.2f", update->as.f);
        break;
    case BARO_FLOATS:
        for (at = 0; at < update->bytes / 8; at++)
            printf("%.2f;", update->as.floats[at]);
        break;
    case BARO_BYTES:
        for (at = 0; at < update->bytes; at++)
            putchar(update->as.data[at]);
        break;
    default:
        CHECK(strlen(update->as.text) == update->bytes);
        fputs(update->as.text, stdout);
    }
}

int main(void)
{
    const baro_update_t *update;
    char line[8];
    baro_node_t *node = baro_node_open(NULL);
    CHECK(node != NULL);
    CHECK(baro_subscribe(NULL, "*") == NULL && strstr(baro_error(), "node") != NULL);
    CHECK(baro_subscribe(node, NULL) == NULL);
    CHECK(baro_subscribe(node, "{") == NULL && *baro_error() != 0);
    CHECK(baro_subscription_next(NULL, 0, &update) == BARO_E_ARGUMENT && update == NULL);
    baro_subscription_close(NULL);

    baro_subscription_t *nothing = baro_subscribe(node, "no.such.stream");
    CHECK(nothing != NULL && baro_subscription_next(nothing, 0, &update) == BARO_NOTHING && update == NULL);
    CHECK(baro_subscription_next(nothing, -1, NULL) == BARO_NOTHING);
    baro_subscription_close(nothing);

    baro_subscription_t *values = baro_subscribe(node, "value.*");
    CHECK(values != NULL);
    baro_node_close(node);
    do {
        CHECK(baro_subscription_next(values, MINUTE_NS, &update) == BARO_OK);
        CHECK(update->ts > 0 && update->quality == BARO_MEASURED && update->error == 0);
        printf("%s{%s} ", update->name, update->labels);
        show_value(update);
        printf(" %" PRIu64 "\n", update->missed);
        fflush(stdout);
    } while (fgets(line, sizeof line, stdin) != NULL);
    baro_subscription_close(values);
    return 0;
}
