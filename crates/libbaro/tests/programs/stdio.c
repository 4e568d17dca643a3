/* Calls every function of stdio that the I/O shim wraps, on files and on streams that are none.
 * Prints nothing: stdout is a file. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

static void must(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s: %s\n", what, strerror(errno));
        _exit(1);
    }
}

/* Writes 100 bytes: 20 in each of five ways. */
static void write_some(FILE *f)
{
    must(fwrite("0123456789012345678\n", 4, 5, f) == 5, "fwrite");
    must(fwrite_unlocked("0123456789012345678\n", 1, 20, f) == 20, "fwrite_unlocked");
    must(fputs("0123456789012345678\n", f) >= 0, "fputs");
    must(fprintf(f, "%019d\n", 7) == 20, "fprintf");
    for (int n = 0; n < 19; n++)
        must((n % 2 ? fputc('x', f) : putc('x', f)) == 'x', "fputc");
    must(fputc('\n', f) == '\n', "fputc");
}

/* Reads the same 100 bytes. */
static void read_some(FILE *f)
{
    char text[64], *line = NULL;
    size_t room = 0;
    must(fread(text, 4, 5, f) == 5, "fread");
    must(fread_unlocked(text, 1, 20, f) == 20, "fread_unlocked");
    must(fgets(text, sizeof text, f) != NULL && strlen(text) == 20, "fgets");
    must(getline(&line, &room, f) == 20, "getline");
    for (int n = 0; n < 20; n++)
        must((n % 2 ? fgetc(f) : getc(f)) != EOF, "fgetc");
    must(fgetc(f) == EOF && getline(&line, &room, f) == -1 && fread(text, 1, 1, f) == 0, "the end");
    free(line);
}

/* Three writes fail: at once, when the buffer is flushed, and on a stream for reading. One read
 * fails. */
static void fail(void)
{
    static char block[8192];
    struct rlimit limit;
    must(getrlimit(RLIMIT_FSIZE, &limit) == 0, "getrlimit");
    limit.rlim_cur = 4096;
    signal(SIGXFSZ, SIG_IGN);
    must(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit");
    FILE *f = fopen("limited", "w");
    setvbuf(f, NULL, _IONBF, 0);
    must(fwrite(block, 1, sizeof block, f) == 4096, "a short write");
    must(fclose(f) == 0, "fclose");
    f = fopen("limited", "a");
    must(fputs("more", f) >= 0 && fflush(f) == EOF, "fflush");
    fclose(f);
    FILE *directory = fopen("limited", "w");
    must(directory != NULL && fread(block, 1, 1, directory) == 0 && ferror(directory), "a read of what is for writing");
    fclose(directory);
    f = fopen("limited", "r");
    must(f != NULL && fputc('x', f) == EOF && ferror(f), "a write of what is for reading");
    must(fgetc(f) == EOF && feof(f), "the end, which is no error because there was one before");
    fclose(f);
}

int main(int count, char **arguments)
{
    must(count > 2 && chdir(arguments[2]) == 0, "stdio MODE FOLDER");
    if (strcmp(arguments[1], "fail") == 0) {
        fail();
        return 0;
    }
    FILE *f = fopen("some", "w+");
    write_some(f);
    rewind(f);
    read_some(f);
    fclose(f);
    /* To a pipe and to memory, which are not storage. */
    int ends[2];
    must(pipe(ends) == 0, "pipe");
    f = fdopen(ends[1], "w");
    write_some(f);
    fclose(f);
    char memory[200];
    f = fmemopen(memory, sizeof memory, "w+");
    write_some(f);
    rewind(f);
    read_some(f);
    fclose(f);
    /* 30 bytes to stdout. */
    must(puts("012345678") >= 0 && printf("%s", "0123456789") == 10 && putchar('x') == 'x', "puts");
    must(dprintf(1, "%09d", 7) == 9, "dprintf");
    return 0;
}
