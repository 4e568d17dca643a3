/* Calls every function with nulls and nonsense, switched off: no crash, and a reason for each
 * refusal. */
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

static void nulls(void)
{
    int64_t ts, age;
    double value;
    baro_table_t *table = NULL;
    CHECK(strcmp(baro_error(), "") == 0);
    baro_close(NULL);
    CHECK(baro_is_enabled(NULL) == 0 && baro_lost(NULL) == 0);
    CHECK(baro_label(NULL, "a", "b") == BARO_E_ARGUMENT);
    CHECK(strstr(baro_error(), "null") != NULL);
    CHECK(baro_publication(NULL, "a", 0) == 0);
    CHECK(baro_value(0, NULL, BARO_FLOAT, NULL, BARO_GAUGE, NULL) == 0);
    CHECK(baro_put_text(1, NULL) == BARO_E_ARGUMENT && baro_put_json(1, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_put_text(0, NULL) == BARO_OK);
    CHECK(baro_put_bytes(1, NULL, 9) == BARO_E_TYPE && baro_put_floats(1, NULL, 9) == BARO_E_TYPE);
    CHECK(baro_refused(0) == 0 && baro_refused(1) == 0 && baro_refused_count(NULL) == 0);
    baro_put_slowly(1, 99, 1, NULL);
    baro_frame_slowly(1, 1, NULL);
    baro_wake_agent();
    baro_commit();
    CHECK(baro_on(NULL, "a", "b", NULL, NULL) == BARO_E_ARGUMENT && baro_listen(NULL) == BARO_E_ARGUMENT);
    CHECK(baro_publication_on(NULL, 0, "a", "b", NULL, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_poll(NULL) == 0 && baro_poll_slowly(NULL) == 0);
    baro_apply_slowly(NULL);
    CHECK(baro_knob_f64(0, NULL, 0, 0, 1, NULL, NULL) == NULL && baro_knob_i64(0, "No", 0, 0, 1, NULL, NULL) == NULL);
    CHECK(baro_knob_get_f64(NULL) == 0 && baro_knob_get_i64(NULL) == 0 && baro_knob_get_bool(NULL) == 0);
    CHECK(baro_latest(NULL, "a", &ts, &value, &age) == BARO_E_ARGUMENT);
    CHECK(baro_latest_expected(NULL, "a", &ts, &value, NULL, NULL, &age) == BARO_E_ARGUMENT);
    CHECK(baro_stream_latest_expected(NULL, &ts, &value, NULL, NULL, &age) == BARO_E_ARGUMENT);
    CHECK(baro_stream_open(NULL, "a") == NULL && baro_stream_latest_f64(NULL, NULL, NULL) < 0);
    CHECK(baro_wait(NULL, 0) == BARO_E_ARGUMENT);
    baro_stream_close(NULL);
    baro_node_close(NULL);
    CHECK(baro_query(NULL, "SELECT 1", &table) == BARO_E_ARGUMENT && table == NULL);
    CHECK(baro_query(NULL, NULL, NULL) == BARO_E_ARGUMENT);
    baro_table_free(NULL);
    CHECK(baro_table_rows(NULL) == 0 && baro_table_columns(NULL) == 0);
    CHECK(baro_table_name(NULL, 0) == NULL && baro_table_cell(NULL, 0, 0).type == BARO_NULL);
    CHECK(baro_server_map(NULL, "a", NULL, 0) == NULL && baro_map_server(NULL, "a", 1) == NULL);
    CHECK(baro_map_begin(NULL, 0, NULL) == BARO_E_ARGUMENT && baro_map_refused(NULL, NULL, 1) == BARO_E_ARGUMENT);
    CHECK(baro_map_serve_begin(NULL, 0, NULL) == BARO_E_ARGUMENT);
    baro_server_map_close(NULL);
    baro_map_server_close(NULL);
    baro_stage_info_t info;
    baro_stage_block_t *block;
    const baro_stage_entry_t *entry;
    CHECK(baro_stage_open(NULL, 1, NULL) == NULL && baro_stage_servers(NULL, 1, NULL, 0) < 0);
    CHECK(baro_stage_put(NULL, NULL, NULL, 1, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_stage_get(NULL, NULL, NULL, 1, &info) == BARO_E_ARGUMENT && info.bytes == 0);
    CHECK(baro_stage_stat(NULL, NULL, NULL) < 0 && baro_stage_remove(NULL, NULL, 0) < 0);
    CHECK(baro_stage_map(NULL, NULL, &block) < 0 && block == NULL && baro_stage_map(NULL, NULL, NULL) < 0);
    CHECK(baro_stage_block_data(NULL, &info) == NULL && baro_stage_is_valid(NULL) == 0);
    CHECK(baro_stage_list(NULL, "a", NULL) == NULL && baro_stage_list_next(NULL, &entry) < 0 && entry == NULL);
    size_t found = 7;
    CHECK(baro_stage_locate(NULL, NULL, 0, NULL, 0, &found) < 0 && found == 0);
    baro_stage_release(NULL);
    baro_stage_list_close(NULL);
    baro_stage_close(NULL);
    CHECK(baro_node_open("/nowhere") == NULL);
    CHECK(strstr(baro_error(), "/nowhere") != NULL);
}

static void configurations(void)
{
    baro_config_t config = BARO_CONFIG_INIT;
    size_t no_size = 0;
    CHECK(baro_open("app", (const baro_config_t *)&no_size) == NULL);
    config.overflow = 7;
    CHECK(baro_open("app", &config) == NULL);
    CHECK(baro_open("\xff\xfe", NULL) == NULL);
}

static int handler(const baro_call_t *call, void *data)
{
    return call == data;
}

/* BAROGRAPH=off */
static void switched_off(void)
{
    baro_t *b = baro_open("app", NULL);
    /* Handles that were never given out. */
    uint64_t lost = baro_lost(b);
    CHECK(b != NULL && !baro_is_enabled(b));
    CHECK(strstr(baro_error(), "BAROGRAPH=off") != NULL);
    CHECK(baro_label(b, "phase", "solve") == BARO_OK && baro_label(b, "no good", "") == BARO_E_REFUSED);
    baro_publication_t p = baro_publication(b, "step", BARO_READERS_ALL);
    CHECK(p == 0 && baro_publication(b, "No", 0) == 0 && baro_publication(b, "step", 9) == 0);
    baro_value_t v = baro_value(p, "x", BARO_FLOAT, "1", BARO_GAUGE, "");
    CHECK(v == 0);
    baro_value(p, "No", BARO_FLOAT, "1", BARO_GAUGE, "");
    CHECK(strstr(baro_error(), "No") != NULL);
    CHECK(baro_value(p, "x", 99, "1", BARO_GAUGE, "") == 0);
    CHECK(strstr(baro_error(), "type") != NULL);
    baro_put_f64(v, 1);
    baro_put_i64(v, 1);
    baro_put_bool(v, 1);
    CHECK(baro_put_text(v, "a") == BARO_OK && baro_put_floats(v, NULL, 0) == BARO_OK);
    baro_frame(p, 1);
    const baro_knob_t *k = baro_knob_f64(p, "k", 0.5, 0, 1, "1", "");
    CHECK(k != NULL && k == baro_knob_f64(p, "k", 0.5, 0, 1, "1", "") && baro_knob_get_f64(k) == 0.5);
    CHECK(baro_knob_f64(p, "k", 0.25, 0, 1, "1", "") != k && baro_knob_f64(p, "k", 2, 0, 1, "1", "") == NULL);
    CHECK(baro_on(b, "a", "", handler, NULL) == BARO_OK && baro_on(b, "No", "", handler, NULL) == BARO_E_REFUSED);
    CHECK(baro_publication_on(b, p, "a", "", handler, NULL, NULL) == BARO_OK);
    CHECK(baro_on(b, "a", "", NULL, NULL) == BARO_E_ARGUMENT && baro_listen(b) == BARO_OK && baro_poll(b) == 0);
    CHECK(baro_lost(b) == lost);
    baro_close(b);
}

int main(void)
{
    CHECK(baro_version() >> 16 == BARO_VERSION_MAJOR);
    nulls();
    configurations();
    switched_off();
    return 0;
}
