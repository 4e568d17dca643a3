/* A member and a server of a map whose agent is played by the test: each line on standard input is a
 * command, each result a line on standard output. */
#include <baro.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static baro_map_operation_t ops[8];
static baro_map_request_t requests[8];

int main(void)
{
    const uint32_t servers[2] = {0, 1};
    char what[16];
    unsigned at;
    uint64_t number;
    baro_t *b = baro_open("epochs", NULL);
    baro_server_map_t *map = baro_server_map(b, "io", servers, 2);
    baro_map_server_t *server = baro_map_server(b, "io", 1);
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (scanf("%15s %u %" SCNu64, what, &at, &number) == 3) {
        baro_map_operation_t *op = &ops[at % 8];
        baro_map_request_t *request = &requests[at % 8];
        if (strcmp(what, "begin") == 0) {
            baro_map_begin(map, number, op);
            printf("%d %" PRIu64, op->start, op->epoch);
            for (uint32_t n = 0; n < op->servers_count; n++)
                printf(" %u", op->servers[n]);
            printf("\n");
        } else if (strcmp(what, "end") == 0) {
            printf("%d\n", baro_map_end(map, op));
        } else if (strcmp(what, "refused") == 0) {
            printf("%d\n", baro_map_refused(map, op, number));
        } else if (strcmp(what, "serve") == 0) {
            int answer = baro_map_serve_begin(server, number, request);
            printf("%d %" PRIu64 "\n", answer, request->fence);
        } else if (strcmp(what, "served") == 0) {
            printf("%d\n", baro_map_serve_end(server, request, number));
        } else if (strcmp(what, "close") == 0) {
            baro_map_server_close(server);
            baro_server_map_close(map);
            baro_close(b);
            printf("closed\n");
        }
    }
    return 0;
}
