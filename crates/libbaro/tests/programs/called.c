/* Prints each call that it gets; ends when a call asks for it. With an argument it listens instead
 * of polling. */
#include <baro.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(what)                                                                    \
    do {                                                                               \
        if (!(what)) {                                                                 \
            fprintf(stderr, "%s:%d: %s (%s)\n", __FILE__, __LINE__, #what, baro_error()); \
            exit(1);                                                                   \
        }                                                                              \
    } while (0)

static int released;

static void release(void *data)
{
    CHECK(data == &released);
    released++;
}

static int say(const baro_call_t *call, void *data)
{
    CHECK(call->id > 0 && call->expires_ns > call->issued_ns && strcmp(call->name, "say") == 0);
    CHECK(data == &released);
    printf("%d %zu ", call->type, call->bytes);
    switch (call->type) {
    case BARO_NULL:
        return puts("null") < 0;
    case BARO_FLOAT:
        return printf("%g\n", call->as.f) < 0;
    case BARO_TEXT:
    case BARO_JSON:
        CHECK(strlen(call->as.text) == call->bytes);
        return puts(call->as.text) < 0;
    case BARO_BYTES:
        return printf("%d %d\n", call->as.data[0], call->as.data[1]) < 0;
    case BARO_FLOATS:
        return printf("%g %g\n", call->as.floats[0], call->as.floats[1]) < 0;
    default:
        return printf("%" PRId64 "\n", call->as.i) < 0;
    }
}

static int fail(const baro_call_t *call, void *data)
{
    (void)call;
    (void)data;
    return 3;
}

static int also(const baro_call_t *call, void *data)
{
    CHECK(strcmp(call->name, "fail") == 0 && data == &released);
    return puts("also") < 0;
}

static int end(const baro_call_t *call, void *data)
{
    (void)call;
    __atomic_store_n((int *)data, 1, __ATOMIC_RELEASE);
    return 0;
}

int main(int argc, char **argv)
{
    const struct timespec nap = {0, 1000000};
    int is_over = 0, called = 0;
    (void)argv;
    baro_t *b = baro_open("called", NULL);
    baro_publication_t p = baro_publication(b, "called", BARO_READERS_OWNER);
    const baro_knob_t *f = baro_knob_f64(p, "f", 0.5, 0, 1, "1", "a float");
    const baro_knob_t *i = baro_knob_i64(p, "i", 5, 0, 9, NULL, NULL);
    const baro_knob_t *t = baro_knob_bool(p, "t", 0, NULL);
    CHECK(f && i && t && f == baro_knob_f64(p, "f", 0.5, 0, 1, "1", "a float"));
    CHECK(baro_knob_f64(p, "f", 0.5, 0, 2, "1", NULL) == NULL && baro_knob_i64(p, "n", 5, 6, 9, "", "") == NULL);
    CHECK(strstr(baro_error(), "called.n") != NULL);
    CHECK(baro_knob_get_f64(f) == 0.5 && baro_knob_get_i64(i) == 5 && !baro_knob_get_bool(t));
    CHECK(baro_on_owned(b, "say", "says it", say, &released, release) == BARO_OK && released == 0);
    CHECK(baro_on_owned(b, "say", "says it", say, &released, release) == BARO_OK && released == 1);
    CHECK(baro_on_owned(b, "No", "", say, &released, release) == BARO_E_REFUSED && released == 2);
    CHECK(baro_on_owned(b, "no", "", NULL, &released, release) == BARO_E_ARGUMENT && released == 3);
    CHECK(baro_on(b, "fail", NULL, fail, NULL) == BARO_OK);
    CHECK(baro_publication_on(b, p, "fail", NULL, say, &released, release) == BARO_OK && released == 3);
    CHECK(baro_publication_on(b, p, "fail", NULL, also, &released, release) == BARO_OK && released == 4);
    CHECK(baro_publication_on(b, p, "No", "", also, &released, release) == BARO_E_REFUSED && released == 5);
    CHECK(baro_publication_on(b, p, "no", "", NULL, &released, release) == BARO_E_ARGUMENT && released == 6);
    CHECK(baro_publication_on(b, p + 1, "no", "", also, &released, release) < 0 && released == 7);
    CHECK(baro_publication_on(b, 0, "no", "", also, &released, release) == BARO_OK && released == 8);
    if (argc > 1)
        CHECK(baro_listen(b) == BARO_OK);
    CHECK(baro_on(b, "end", NULL, end, &is_over) == BARO_OK);
    for (uint64_t n = 0; !__atomic_load_n(&is_over, __ATOMIC_ACQUIRE); n++) {
        nanosleep(&nap, NULL);
        if (argc > 1)
            baro_frame(p, n);
        else
            called += baro_poll(b);
    }
    printf("%d %g %" PRId64 " %d\n", called, baro_knob_get_f64(f), baro_knob_get_i64(i), baro_knob_get_bool(t));
    baro_close(b);
    CHECK(released == 10);
    return 0;
}
