/* The life of a plug-in: the library is opened, used, and closed while threads still have rings.
 * Its path is the first argument. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>

typedef void *(*open_fn)(const char *, const void *);
typedef uint64_t (*publication_fn)(void *, const char *, int);
typedef uint64_t (*value_fn)(uint64_t, const char *, int, const char *, int, const char *);
typedef void (*put_fn)(uint64_t, uint64_t, uint64_t, void *);

static put_fn slowly;
static uint64_t value;
static pthread_barrier_t barrier;

static void *put(void *unused)
{
    slowly(value, 1, 7, NULL);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    return unused;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    void *library = dlopen(argc == 2 ? argv[1] : "", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    open_fn open = (open_fn)dlsym(library, "baro_open");
    publication_fn publication = (publication_fn)dlsym(library, "baro_publication");
    value_fn declare = (value_fn)dlsym(library, "baro_value");
    slowly = (put_fn)dlsym(library, "baro_put_slowly");
    value = declare(publication(open("plugin", NULL), "plugin", 0), "x", 1, "1", 1, "");
    pthread_barrier_init(&barrier, NULL, 2);
    pthread_create(&thread, NULL, put, NULL);
    pthread_barrier_wait(&barrier);
    dlclose(library);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    return 0;
}
