/* Reads a barograph segment with nothing but C11 and POSIX.
 *
 *     cc -O2 -Wall -Wextra -std=c11 -o read_segment read_segment.c
 *     read_segment SEGMENT          the newest sample of every stream, one JSON object a line
 *     read_segment SEGMENT NAME     what the rings of the streams of that name hold
 *
 * Written from segment-format.md alone; it shares no code with barograph. */

#define _POSIX_C_SOURCE 200809L

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    HEADER_BYTES = 4096,
    LINE_BYTES = 64,
    DESCRIPTOR_BYTES = 1024,
    CELL_BYTES = 24,
    TEXT_SLOT_BYTES = 128,
    TEXT_BYTES_MAX = 126,
    SLOT_BYTES_MIN = 64,
    VALUE_BYTES_MAX = 1 << 16,
    SLOTS_BYTES_MAX = 1 << 24,
    LIMIT = 1 << 20, /* of streams, and of samples in a ring */
    ATTEMPTS_MAX = 10000,
};
/* A string has slots of 128 bytes, a long string such as its descriptor says. */
enum { INT = 1, FLOAT, BOOL, STRING, LONG_STRING, BYTES, JSON, FLOATS };

static const uint64_t COUNT_MASK = (UINT64_C(1) << 48) - 1;
static const char *const TYPES[] = {"",       "int64", "float64", "bool",     "string",
                                    "string", "bytes", "json",    "floats"};
static const char *const KINDS[] = {"", "gauge", "counter", "state"};
static const char *const QUALITIES[] = {"measured", "derived", "predicted", "reconciled", "ended"};

typedef struct {
    const _Atomic uint64_t *words;
    uint64_t bytes, slots_max, descriptors_at, lines_at, rings_at;
} Segment;

typedef struct {
    uint64_t line_at, first_at, ring_at, text_at, generation;
    uint32_t depth, slot_bytes; /* of a slot; 0 of numbers */
    uint8_t type, kind;
    uint8_t copy[DESCRIPTOR_BYTES];
} Stream;

typedef struct {
    uint64_t number, cell[3], looked;
    uint64_t *text; /* a slot */
} Sample;

static uint64_t acquire(const Segment *segment, uint64_t at) {
    return atomic_load_explicit(&segment->words[at / 8], memory_order_acquire);
}

static void copy_words(const Segment *segment, uint64_t at, uint64_t *out, size_t count) {
    for (size_t i = 0; i < count; i++)
        out[i] = atomic_load_explicit(&segment->words[at / 8 + i], memory_order_relaxed);
}

static uint32_t low(uint64_t word) { return (uint32_t)word; }
static uint32_t high(uint64_t word) { return (uint32_t)(word >> 32); }

/* Whether `count` pieces of `each` bytes from offset `at` lie between `from` and the end. */
static bool inside(const Segment *segment, uint64_t from, uint64_t at, uint64_t count,
                   uint64_t each) {
    return at >= from && at % 8 == 0 && at <= segment->bytes &&
           count * each <= segment->bytes - at; /* count is at most LIMIT: no overflow */
}

/* Maps the file and checks its header; says why not. */
static const char *open_segment(const char *path, Segment *segment) {
    struct stat status;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &status) != 0)
        return "cannot be opened";
    if (!S_ISREG(status.st_mode) || status.st_size < HEADER_BYTES || status.st_size % 8 != 0) {
        close(fd);
        return "no room for a header";
    }
    segment->bytes = (uint64_t)status.st_size;
    void *memory = mmap(NULL, segment->bytes, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (memory == MAP_FAILED)
        return "cannot be mapped";
    segment->words = memory;

    uint64_t header[32];
    copy_words(segment, 0, header, 32);
    if (memcmp(header, "BAROSEG", 8) != 0)
        return "it does not start with BAROSEG";
    if (low(header[1]) != 1)
        return "its segment format is not 1.x";
    if (low(header[2]) != 0x01020304 || high(header[2]) != HEADER_BYTES ||
        header[3] != segment->bytes || high(header[16]) != DESCRIPTOR_BYTES ||
        low(header[20]) != CELL_BYTES || high(header[20]) != TEXT_SLOT_BYTES)
        return "its sizes are not those of this version";
    segment->slots_max = low(header[16]);
    segment->descriptors_at = header[17];
    segment->lines_at = header[18];
    segment->rings_at = header[19];
    if (segment->slots_max < 1 || segment->slots_max > LIMIT ||
        segment->rings_at < HEADER_BYTES || segment->rings_at > segment->bytes ||
        !inside(segment, HEADER_BYTES, segment->descriptors_at, segment->slots_max,
                DESCRIPTOR_BYTES) ||
        !inside(segment, HEADER_BYTES, segment->lines_at, segment->slots_max, LINE_BYTES))
        return "its directory lies outside of it";
    return NULL;
}

/* Strict UTF-8: no overlong forms, no surrogates, nothing beyond U+10FFFF. */
static bool is_utf8(const uint8_t *text, size_t length) {
    for (size_t i = 0; i < length;) {
        uint8_t lead = text[i++];
        size_t more = lead < 0x80 ? 0 : lead >= 0xf0 ? 3 : lead >= 0xe0 ? 2 : 1;
        if (lead >= 0x80 && (lead < 0xc2 || lead > 0xf4))
            return false;
        if (more > length - i)
            return false;
        for (size_t k = 0; k < more; k++) {
            uint8_t least = 0x80, most = 0xbf;
            if (k == 0 && lead == 0xe0) least = 0xa0;
            if (k == 0 && lead == 0xed) most = 0x9f;
            if (k == 0 && lead == 0xf0) least = 0x90;
            if (k == 0 && lead == 0xf4) most = 0x8f;
            if (text[i + k] < least || text[i + k] > most)
                return false;
        }
        i += more;
    }
    return true;
}

static bool labels_are_whole(const uint8_t *labels, size_t length) {
    for (size_t at = 0; at < length;) {
        if (at + 2 > length)
            return false;
        size_t name = labels[at], value = labels[at + 1];
        if (at + 2 + name + value > length || !is_utf8(labels + at + 2, name) ||
            !is_utf8(labels + at + 2 + name, value))
            return false;
        at += 2 + name + value;
    }
    return true;
}

static size_t labels_bytes(const Stream *stream) {
    return stream->copy[56] | (size_t)stream->copy[57] << 8;
}

/* The stream in a slot; false when there is none, or none that keeps to the format. */
static bool read_descriptor(const Segment *segment, uint64_t slot, Stream *stream) {
    uint64_t at = segment->descriptors_at + slot * DESCRIPTOR_BYTES;
    uint64_t copy[DESCRIPTOR_BYTES / 8];
    uint64_t before = acquire(segment, at);
    copy_words(segment, at, copy, DESCRIPTOR_BYTES / 8);
    atomic_thread_fence(memory_order_acquire);
    if (acquire(segment, at) != before || low(before) != 1)
        return false;
    memcpy(stream->copy, copy, sizeof copy);
    const uint8_t *bytes = stream->copy;
    stream->generation = high(before);
    stream->line_at = segment->lines_at + slot * LINE_BYTES;
    stream->first_at = at + 72;
    stream->ring_at = copy[4];
    stream->text_at = copy[5];
    stream->depth = low(copy[6]);
    stream->type = bytes[52];
    stream->kind = bytes[53];
    bool is_long = stream->type > STRING;
    stream->slot_bytes = is_long ? high(copy[7]) : stream->type == STRING ? TEXT_SLOT_BYTES : 0;
    if (is_long && (stream->slot_bytes < SLOT_BYTES_MIN || stream->slot_bytes > VALUE_BYTES_MAX ||
                    stream->slot_bytes % 8 != 0 ||
                    (uint64_t)stream->slot_bytes * stream->depth > SLOTS_BYTES_MAX))
        return false;
    return stream->generation >= 1 && stream->generation <= 0xffff && stream->type >= INT &&
           stream->type <= FLOATS && stream->kind >= 1 && stream->kind <= 3 &&
           stream->depth >= 2 && stream->depth <= LIMIT && bytes[54] <= 120 && bytes[55] <= 30 &&
           bytes[59] <= 222 && labels_bytes(stream) <= 510 && is_utf8(bytes + 96, bytes[54]) &&
           is_utf8(bytes + 216, bytes[55]) && is_utf8(bytes + 248, bytes[59]) &&
           labels_are_whole(bytes + 512, labels_bytes(stream)) &&
           inside(segment, segment->rings_at, stream->ring_at, stream->depth, CELL_BYTES) &&
           (stream->slot_bytes == 0 || inside(segment, segment->rings_at, stream->text_at,
                                              stream->depth, stream->slot_bytes));
}

/* The number of the newest sample; false when the stream has ended. */
static bool read_count(const Segment *segment, const Stream *stream, uint64_t *count) {
    uint64_t sequence = acquire(segment, stream->line_at);
    *count = sequence & COUNT_MASK;
    return sequence >> 48 == stream->generation;
}

/* Copies sample `number` from the cell at `at`, and its slot. */
static void copy_sample(const Segment *segment, const Stream *stream, uint64_t at, uint64_t number,
                        Sample *sample) {
    sample->number = number;
    copy_words(segment, at, sample->cell, 3);
    sample->looked = sample->cell[0];
    if (stream->slot_bytes > 0)
        copy_words(segment, stream->text_at + (number - 1) % stream->depth * stream->slot_bytes,
                   sample->text, stream->slot_bytes / 8);
}

static uint64_t oldest(const Stream *stream, uint64_t count) {
    return count + 2 > stream->depth + UINT64_C(1) ? count + 2 - stream->depth : 1;
}

/* The newest sample; false when there is none. `sample->text` has room for a slot. */
static bool read_latest(const Segment *segment, const Stream *stream, Sample *sample) {
    for (int attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
        uint64_t count, now;
        if (!read_count(segment, stream, &count) || count == 0)
            return false;
        bool from_ring = attempt >= ATTEMPTS_MAX / 2; /* a writer at full speed */
        uint64_t at = from_ring ? stream->ring_at + (count - 1) % stream->depth * CELL_BYTES
                                : stream->line_at + 16 + count % 2 * CELL_BYTES;
        copy_sample(segment, stream, at, count, sample);
        uint64_t looked = acquire(segment, stream->line_at + 8);
        atomic_thread_fence(memory_order_acquire);
        if (!read_count(segment, stream, &now))
            return false;
        if (now == count && (int64_t)looked > (int64_t)sample->looked)
            sample->looked = looked;
        if (now == count || (from_ring && oldest(stream, now) <= count))
            return true;
    }
    return false;
}

/* The samples after number `cursor` that the ring still holds: how many, from `*samples`, to be
 * freed: one allocation, with their slots behind them. Sets `*lost`, and `*cursor` for the next call. Negative when the stream has ended. */
static int64_t read_ring(const Segment *segment, const Stream *stream, uint64_t *cursor,
                         uint64_t *lost, Sample **samples) {
    uint64_t count, now;
    *samples = NULL;
    *lost = 0;
    if (!read_count(segment, stream, &count))
        return -1;
    uint64_t before = *cursor;
    *cursor = count;
    if (before >= count)
        return 0;
    uint64_t from = oldest(stream, count), begun = acquire(segment, stream->first_at);
    if (begun > count)
        begun = count; /* never, if the writer is correct */
    if (from < begun)
        from = begun;
    if (from < before + 1)
        from = before + 1;
    uint64_t length = count - from + 1, words = stream->slot_bytes / 8;
    Sample *copies = calloc(length, sizeof *copies + words * 8);
    if (copies == NULL)
        abort();
    uint64_t *slots = (uint64_t *)(copies + length);
    for (uint64_t number = from; number <= count; number++) {
        copies[number - from].text = slots + (number - from) * words;
        copy_sample(segment, stream, stream->ring_at + (number - 1) % stream->depth * CELL_BYTES,
                    number, &copies[number - from]);
    }
    atomic_thread_fence(memory_order_acquire);
    if (!read_count(segment, stream, &now)) {
        free(copies);
        return -1;
    }
    uint64_t first = oldest(stream, now);
    first = first < from ? from : first > count + 1 ? count + 1 : first;
    memmove(copies, copies + (first - from), (count + 1 - first) * sizeof *copies);
    *samples = copies;
    *lost = first - before - 1;
    return (int64_t)(count + 1 - first);
}

static void print_text(const uint8_t *text, size_t length) {
    static const char *const SHORT = "\bb\ff\nn\rr\tt\"\"\\\\";
    putchar('"');
    for (size_t i = 0; i < length; i++) {
        const char *known = NULL;
        for (const char *pair = SHORT; *pair != 0 && known == NULL; pair += 2)
            if ((uint8_t)*pair == text[i])
                known = pair + 1;
        if (known != NULL)
            printf("\\%c", *known);
        else if (text[i] < 0x20)
            printf("\\u%04x", text[i]);
        else
            putchar(text[i]);
    }
    putchar('"');
}

/* All digits of a float; null for what JSON cannot say. */
static void print_number(double value, int digits) {
    if (isfinite(value))
        printf("%.*g", digits, value);
    else
        printf("null");
}

static void print_value(const Stream *stream, const Sample *sample) {
    uint64_t bits = sample->cell[1];
    size_t length = sample->cell[2] >> 40 & 0xff;
    length = length > TEXT_BYTES_MAX ? TEXT_BYTES_MAX : length;
    if (stream->type > STRING)
        length = bits > stream->slot_bytes ? stream->slot_bytes : bits;
    const uint8_t *text = (const uint8_t *)sample->text;
    double number;
    switch (stream->type) {
    case INT:
        printf("%" PRId64, (int64_t)bits);
        break;
    case FLOAT:
        memcpy(&number, &bits, sizeof number);
        print_number(number, 17);
        break;
    case BOOL:
        printf("%s", bits != 0 ? "true" : "false");
        break;
    case BYTES:
        putchar('"');
        for (size_t i = 0; i < length; i++)
            printf("%02x", text[i]);
        putchar('"');
        break;
    case FLOATS:
        putchar('[');
        for (size_t i = 0; i < length / 8; i++) {
            memcpy(&number, text + i * 8, sizeof number);
            if (i > 0)
                putchar(',');
            print_number(number, 17);
        }
        putchar(']');
        break;
    default:
        if (is_utf8(text, length))
            print_text(text, length);
        else
            printf("null");
    }
}

static void print_line(const Stream *stream, const Sample *sample) {
    const uint8_t *bytes = stream->copy, *label = bytes + 512;
    uint32_t error_bits = low(sample->cell[2]);
    uint32_t quality = high(sample->cell[2]) & 0xff;
    float error;
    memcpy(&error, &error_bits, sizeof error);
    printf("{\"name\":");
    print_text(bytes + 96, bytes[54]);
    printf(",\"labels\":{");
    while (label < bytes + 512 + labels_bytes(stream)) {
        print_text(label + 2, label[0]);
        putchar(':');
        print_text(label + 2 + label[0], label[1]);
        label += 2 + label[0] + label[1];
        if (label < bytes + 512 + labels_bytes(stream))
            putchar(',');
    }
    printf("},\"type\":\"%s\",\"unit\":", TYPES[stream->type]);
    print_text(bytes + 216, bytes[55]);
    printf(",\"kind\":\"%s\",\"series\":\"", KINDS[stream->kind]);
    for (int i = 16; i < 32; i++)
        printf("%02x", bytes[i]);
    printf("\",\"ts\":%" PRId64 ",\"value\":", (int64_t)sample->cell[0]);
    print_value(stream, sample);
    printf(",\"quality\":\"%s\",\"error\":", QUALITIES[quality > 4 ? 3 : quality]);
    print_number(error, 9);
    printf(",\"count\":%" PRIu64 ",\"looked_ts\":%" PRId64 "}\n", sample->number,
           (int64_t)sample->looked);
}

int main(int argc, char **argv) {
    static Stream stream;
    static uint64_t slot_words[VALUE_BYTES_MAX / 8];
    Segment segment;
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: read_segment SEGMENT [NAME]\n");
        return 2;
    }
    const char *fault = open_segment(argv[1], &segment);
    if (fault != NULL) {
        fprintf(stderr, "%s: %s\n", argv[1], fault);
        return 1;
    }
    uint64_t used = acquire(&segment, 88);
    for (uint64_t slot = 0; slot < used && slot < segment.slots_max; slot++) {
        Sample newest = {.text = slot_words}, *samples;
        uint64_t cursor = 0, lost;
        if (!read_descriptor(&segment, slot, &stream))
            continue;
        if (argc == 2) {
            if (read_latest(&segment, &stream, &newest))
                print_line(&stream, &newest);
        } else if (strlen(argv[2]) == stream.copy[54] &&
                   memcmp(stream.copy + 96, argv[2], stream.copy[54]) == 0) {
            int64_t count = read_ring(&segment, &stream, &cursor, &lost, &samples);
            for (int64_t i = 0; i < count; i++)
                print_line(&stream, &samples[i]);
            free(samples);
        }
    }
    return 0;
}
