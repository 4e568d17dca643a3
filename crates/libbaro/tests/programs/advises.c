/* Asks where blocks go; the agent that answers is a test, and then there is none. */
#include <baro.h>

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

int main(int argc, char **argv)
{
    const char *targets[] = {"/a", "/b/"};
    const double weights[] = {1, 0};
    const char *keys[] = {"x", "y", "z"};
    int places[3] = {7, 7, 7};
    baro_advice_t advice;
    CHECK(argc == 3);
    /* An agent. */
    CHECK(baro_advise(argv[1], targets, NULL, 2, keys, 3, 4096, BARO_READ, "step", places, &advice) == BARO_OK);
    CHECK(places[0] == 1 && places[1] == 0 && places[2] == -1);
    CHECK(advice.decision == 9 && advice.expected_s == 0.5);
    CHECK(baro_advise_report(argv[1], advice.decision, 12288, 0.25) == BARO_OK);
    /* None: hashing by the weights. */
    CHECK(baro_advise(argv[2], targets, weights, 2, keys, 3, 4096, BARO_WRITE, NULL, places, &advice) == BARO_OK);
    CHECK(places[0] == 0 && places[1] == 0 && places[2] == 0);
    CHECK(advice.decision == 0 && advice.expected_s == -1 && strstr(baro_error(), "hashing alone") != NULL);
    CHECK(baro_advise(argv[2], targets, NULL, 2, NULL, 0, 1, BARO_WRITE, "one", places, NULL) == BARO_OK);
    CHECK(places[0] == 0 || places[0] == 1);
    CHECK(baro_advise_report(argv[2], 9, 1, 1) == BARO_E_NO_AGENT);
    /* What makes no sense. */
    CHECK(baro_advise(argv[2], NULL, NULL, 2, NULL, 0, 1, BARO_WRITE, "", places, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_advise(argv[2], targets, NULL, 2, NULL, 3, 1, BARO_WRITE, "", places, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_advise(argv[2], targets, NULL, 33, NULL, 0, 1, BARO_WRITE, "", places, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_advise(argv[2], targets, NULL, 2, NULL, 0, 1, 2, "", places, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_advise(argv[2], targets, NULL, 2, NULL, 0, 1, BARO_WRITE, "", NULL, NULL) == BARO_E_ARGUMENT);
    targets[1] = "/a/";
    CHECK(baro_advise(argv[2], targets, NULL, 2, NULL, 0, 1, BARO_WRITE, "", places, NULL) == BARO_E_ARGUMENT);
    CHECK(strstr(baro_error(), "listed twice") != NULL);
    CHECK(baro_advise_report(argv[2], 9, 1, -1) == BARO_E_ARGUMENT);
    return 0;
}
