/* The read side: latest, wait, SQL. The run directory is the first argument. */
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
    int64_t ts = 0, age = -1;
    double value = 0;
    baro_table_t *table;
    CHECK(argc == 2);
    baro_node_t *node = baro_node_open(argv[1]);
    CHECK(node != NULL);
    CHECK(baro_latest(node, "disk.read.bytes{device=vda}", &ts, &value, &age) == BARO_OK);
    CHECK(value == 42.5 && ts > 0 && age >= 0);
    CHECK(baro_latest(node, "disk.read.byte", NULL, NULL, NULL) == BARO_E_UNKNOWN);
    CHECK(strstr(baro_error(), "disk.read.bytes") != NULL);
    CHECK(baro_latest(node, "{", NULL, NULL, NULL) == BARO_E_ARGUMENT);
    CHECK(baro_latest(node, "empty", NULL, NULL, NULL) == BARO_NOTHING);
    CHECK(baro_latest(node, "name", NULL, NULL, NULL) == BARO_E_TYPE);

    double error = -1;
    int quality = -1;
    CHECK(baro_latest(node, "memory.free.bytes", &ts, &value, &age) == BARO_OK && value == 10);
    int64_t looked = ts;
    CHECK(baro_latest_expected(node, "memory.free.bytes", &ts, &value, &error, &quality, &age) == BARO_OK);
    CHECK(value == 12 && error == 2 && quality == BARO_PREDICTED && ts > looked && age >= 1000000000);
    CHECK(baro_latest_expected(node, "disk.read.bytes", NULL, &value, &error, &quality, NULL) == BARO_OK);
    CHECK(value == 42.5 && error == 0 && quality == BARO_MEASURED);
    CHECK(baro_latest_expected(node, "empty", NULL, NULL, NULL, NULL, NULL) == BARO_NOTHING);
    CHECK(baro_latest_expected(node, "name", NULL, NULL, NULL, NULL, NULL) == BARO_E_TYPE);
    baro_stream_t *memory = baro_stream_open(node, "memory.free.bytes");
    CHECK(baro_stream_latest_expected(memory, &ts, &value, &error, &quality, NULL) == BARO_OK);
    CHECK(value == 12 && error == 2 && quality == BARO_PREDICTED && ts > looked);
    baro_stream_close(memory);

    baro_stream_t *stream = baro_stream_open(node, "disk.read.bytes");
    CHECK(stream != NULL && baro_stream_latest_f64(stream, NULL, &value) == BARO_OK && value == 42.5);
    CHECK(baro_wait(stream, 0) == BARO_OK);
    CHECK(baro_wait(stream, 1000000) == BARO_NOTHING);
    baro_stream_close(stream);
    CHECK(baro_stream_open(node, "none") == NULL);

    CHECK(baro_query(node, "SELECT 'a' AS t, 1 AS i, value, x'00ff' AS b, NULL AS n FROM disk_read_bytes "
                           "WHERE newest",
                     &table) == BARO_OK);
    CHECK(baro_table_rows(table) == 1 && baro_table_columns(table) == 5);
    CHECK(strcmp(baro_table_name(table, 2), "value") == 0 && baro_table_name(table, 5) == NULL);
    baro_cell_t cell = baro_table_cell(table, 0, 0);
    CHECK(cell.type == BARO_TEXT && cell.bytes == 1 && strcmp(cell.as.text, "a") == 0);
    cell = baro_table_cell(table, 0, 1);
    CHECK(cell.type == BARO_INT && cell.as.i == 1);
    cell = baro_table_cell(table, 0, 2);
    CHECK(cell.type == BARO_FLOAT && cell.as.f == 42.5);
    cell = baro_table_cell(table, 0, 3);
    CHECK(cell.type == BARO_BYTES && cell.bytes == 2 && cell.as.data[1] == 255);
    CHECK(baro_table_cell(table, 0, 4).type == BARO_NULL && baro_table_cell(table, 1, 0).type == BARO_NULL);
    baro_table_free(table);
    CHECK(baro_query(node, "SELECT nothing", &table) == BARO_E_SQL && table == NULL);
    CHECK(baro_query(node, "DELETE FROM disk_read_bytes", &table) == BARO_E_SQL);

    /* Another node, whose mirror is in the run directory. */
    CHECK(baro_node_is_alive(node) == 1 && baro_node_is_alive(NULL) == BARO_E_ARGUMENT);
    baro_node_t *other = baro_node_open_mirrored(node, "n2");
    baro_node_t *quiet = baro_node_open_mirrored(other, "n3");
    baro_node_t *own = baro_node_open_mirrored(other, "n1");
    CHECK(other != NULL && quiet != NULL && own != NULL);
    CHECK(baro_node_open_mirrored(node, "n22") == NULL && strstr(baro_error(), "(mirrored: n2, n3)") != NULL);
    CHECK(baro_node_open_mirrored(node, NULL) == NULL && baro_node_open_mirrored(NULL, "n2") == NULL);
    baro_node_close(node);
    CHECK(baro_node_is_alive(node) == BARO_E_ARGUMENT);
    CHECK(baro_node_is_alive(other) == 1 && baro_node_is_alive(quiet) == 0);
    CHECK(baro_latest(other, "disk.read.bytes", &ts, &value, &age) == BARO_OK && value == 7.5);
    stream = baro_stream_open(other, "disk.read.bytes{device=vda}");
    CHECK(stream != NULL && baro_stream_latest_f64(stream, NULL, &value) == BARO_OK && value == 7.5);
    CHECK(baro_wait(stream, 1000000) == BARO_OK && baro_wait(stream, 1000000) == BARO_NOTHING);
    baro_stream_close(stream);
    CHECK(baro_query(other, "SELECT value FROM disk_read_bytes WHERE newest", &table) == BARO_OK);
    CHECK(baro_table_rows(table) == 1 && baro_table_cell(table, 0, 0).as.f == 7.5);
    baro_table_free(table);
    baro_subscription_t *disks = baro_subscribe(other, "disk.*");
    const baro_update_t *update = NULL;
    CHECK(baro_subscription_next(disks, 1000000000, &update) == BARO_OK && update->as.f == 7.5);
    baro_subscription_close(disks);
    /* What was not heard for a minute shows its age. */
    CHECK(baro_latest(quiet, "disk.read.bytes", NULL, &value, &age) == BARO_OK && value == 8.5);
    CHECK(age >= 60000000000);
    CHECK(baro_latest(own, "disk.read.bytes", NULL, &value, NULL) == BARO_OK && value == 42.5);
    baro_node_close(other);
    baro_node_close(quiet);
    baro_node_close(own);
    return 0;
}
