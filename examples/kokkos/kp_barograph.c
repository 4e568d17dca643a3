/* Publishes Kokkos programs without a change to them: a Kokkos tool over baro.h.
 *
 *   cc -O2 -shared -fPIC kp_barograph.c -o kp_barograph.so $(pkg-config --cflags --libs baro)
 *   KOKKOS_TOOLS_LIBS=$PWD/kp_barograph.so ./a_kokkos_program  (Kokkos 3: KOKKOS_PROFILE_LIBRARY)
 *
 * It publishes app.kokkos.<value>: `kernel.name` and `kernel.seconds` of every parallel_for,
 * parallel_reduce and parallel_scan (one frame each, so that frames('kokkos') has a row per
 * kernel), `kernel.kind`, and `region.name` if the program pushes regions. The functions are those
 * of Kokkos' profiling interface (kokkosp_*). */
#include <baro.h>

#include <stdint.h>
#include <stdio.h>
#include <time.h>

#define REGIONS_MAX 64
/* Kernels may start from several threads, and nest if one is launched in another. */
#define RUNNING_MAX 1024

typedef struct {
    uint64_t id; /* 0: free */
    int64_t since_ns;
    char kind[8];
    char name[112];
} kernel_t;

static baro_t *baro;
static baro_publication_t frames;
static baro_value_t name_of, kind_of, seconds_of, region_of;
static kernel_t running[RUNNING_MAX];
static uint64_t begun;
static char regions[REGIONS_MAX][112];
static unsigned depth;

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

void kokkosp_init_library(const int load_sequence, const uint64_t version, const uint32_t devices, void *device_info)
{
    (void)load_sequence, (void)version, (void)devices, (void)device_info;
    baro = baro_open(NULL, NULL);
    frames = baro_publication(baro, "kokkos", BARO_READERS_OWNER);
    name_of = baro_value(frames, "kernel.name", BARO_TEXT, "", BARO_STATE, "the kernel's label");
    kind_of = baro_value(frames, "kernel.kind", BARO_TEXT, "", BARO_STATE, "for, reduce or scan");
    seconds_of = baro_value(frames, "kernel.seconds", BARO_FLOAT, "s", BARO_GAUGE, "from launch to end");
    region_of = baro_value(frames, "region.name", BARO_TEXT, "", BARO_STATE, "the innermost region");
}

void kokkosp_finalize_library(void)
{
    baro_close(baro);
    baro = NULL;
    frames = name_of = kind_of = seconds_of = region_of = 0;
}

static void begin(const char *kind, const char *name, uint64_t *id)
{
    *id = __atomic_add_fetch(&begun, 1, __ATOMIC_RELAXED);
    kernel_t *kernel = &running[*id % RUNNING_MAX];
    snprintf(kernel->kind, sizeof kernel->kind, "%s", kind);
    snprintf(kernel->name, sizeof kernel->name, "%s", name);
    kernel->since_ns = now_ns();
    __atomic_store_n(&kernel->id, *id, __ATOMIC_RELEASE);
}

static void end(uint64_t id)
{
    kernel_t *kernel = &running[id % RUNNING_MAX];
    /* If there are more than RUNNING_MAX at once, the older one is overwritten. */
    if (__atomic_load_n(&kernel->id, __ATOMIC_ACQUIRE) != id)
        return;
    baro_put_text(name_of, kernel->name);
    baro_put_text(kind_of, kernel->kind);
    baro_put_f64(seconds_of, (double)(now_ns() - kernel->since_ns) / 1e9);
    baro_frame(frames, id);
}

void kokkosp_begin_parallel_for(const char *name, const uint32_t device, uint64_t *id)
{
    (void)device;
    begin("for", name, id);
}

void kokkosp_end_parallel_for(const uint64_t id) { end(id); }

void kokkosp_begin_parallel_reduce(const char *name, const uint32_t device, uint64_t *id)
{
    (void)device;
    begin("reduce", name, id);
}

void kokkosp_end_parallel_reduce(const uint64_t id) { end(id); }

void kokkosp_begin_parallel_scan(const char *name, const uint32_t device, uint64_t *id)
{
    (void)device;
    begin("scan", name, id);
}

void kokkosp_end_parallel_scan(const uint64_t id) { end(id); }

void kokkosp_push_profile_region(const char *name)
{
    if (depth < REGIONS_MAX)
        snprintf(regions[depth], sizeof regions[depth], "%s", name);
    depth++;
    baro_put_text(region_of, name);
    baro_commit();
}

void kokkosp_pop_profile_region(void)
{
    if (depth > 0)
        depth--;
    baro_put_text(region_of, depth == 0 ? "" : regions[(depth < REGIONS_MAX ? depth : REGIONS_MAX) - 1]);
    baro_commit();
}
