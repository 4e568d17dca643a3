/* The heat equation on a square, with an explicit time step, its rows distributed over MPI ranks.
 * The program publishes its residual and the time of its steps, and its time step can be set while
 * it runs.
 *
 *   mpicc -O2 heat.c -o heat $(pkg-config --cflags --libs baro) -lm
 *   mpirun -n 2 ./heat --cells 512 --seconds 20
 *
 * It publishes, per rank, app.heat.<name>{rank=...}: `residual` (the greatest change of a cell by a
 * step, per second of simulated time), `step.seconds` (of the wall clock), `dt` (the knob), and
 * with --rows N the mean temperature of N rows per step, as an example of many values. One frame
 * per step. */
#include <baro.h>

#include <math.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS_MAX 4096

static const double diffusivity = 1.0;

typedef struct {
    int cells;      /* along each side */
    double seconds; /* of the wall clock, at most */
    uint64_t steps; /* at most */
    double residual; /* to stop at */
    int rows;       /* whose means are published */
} options_t;

typedef struct {
    baro_publication_t frames;
    baro_value_t residual;
    baro_value_t step_seconds;
    baro_value_t row[ROWS_MAX];
    const baro_knob_t *dt;
} published_t;

static double number(int argc, char **argv, const char *name, double otherwise)
{
    for (int i = 1; i + 1 < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return atof(argv[i + 1]);
    return otherwise;
}

static published_t publish(baro_t *baro, const options_t *options, double dt, double dt_max)
{
    published_t p;
    memset(&p, 0, sizeof p);
    p.frames = baro_publication(baro, "heat", BARO_READERS_OWNER);
    p.residual = baro_value(p.frames, "residual", BARO_FLOAT, "K/s", BARO_GAUGE, "greatest change of a cell");
    p.step_seconds = baro_value(p.frames, "step.seconds", BARO_FLOAT, "s", BARO_GAUGE, "wall clock of one step");
    for (int i = 0; i < options->rows; i++) {
        char name[32];
        snprintf(name, sizeof name, "row%d.mean", i);
        p.row[i] = baro_value(p.frames, name, BARO_FLOAT, "K", BARO_GAUGE, "mean temperature of a row");
    }
    /* Beyond the limit of stability there is no solution, so the bounds refuse such a value. */
    p.dt = baro_knob_f64(p.frames, "dt", dt, dt_max * 1e-3, dt_max, "s", "time step");
    return p;
}

/* Exchanges rows above and below with the neighbours; the edges of the square stay as they are. */
static void exchange(double *field, int rows, int width, int rank, int ranks)
{
    int above = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    int below = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(field + width, width, MPI_DOUBLE, above, 0, field + (rows + 1) * (size_t)width, width, MPI_DOUBLE, below,
                 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(field + rows * (size_t)width, width, MPI_DOUBLE, below, 1, field, width, MPI_DOUBLE, above, 1,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Does one step; returns the greatest change of a cell. */
static double advance(const double *old, double *new, int rows, int width, double ratio)
{
    double greatest = 0.0;
    for (int y = 1; y <= rows; y++) {
        const double *here = old + y * (size_t)width;
        double *there = new + y * (size_t)width;
        there[0] = here[0];
        there[width - 1] = here[width - 1];
        for (int x = 1; x < width - 1; x++) {
            double change = ratio * (here[x - 1] + here[x + 1] + here[x - width] + here[x + width] - 4.0 * here[x]);
            there[x] = here[x] + change;
            greatest = fmax(greatest, fabs(change));
        }
    }
    return greatest;
}

static double mean(const double *row, int width)
{
    double sum = 0.0;
    for (int x = 0; x < width; x++)
        sum += row[x];
    return sum / width;
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    options_t options = {
        .cells = (int)number(argc, argv, "--cells", 256),
        .seconds = number(argc, argv, "--seconds", 10),
        .steps = (uint64_t)number(argc, argv, "--steps", 1e9),
        .residual = number(argc, argv, "--residual", 0),
        .rows = (int)number(argc, argv, "--rows", 0),
    };
    if (options.cells < 8 || options.cells > 1 << 14 || options.rows < 0 || options.rows > ROWS_MAX) {
        if (rank == 0)
            fprintf(stderr, "heat: --cells 8 to 16384, --rows 0 to %d\n", ROWS_MAX);
        MPI_Finalize();
        return 2;
    }

    int width = options.cells;
    int rows = width / ranks + (rank < width % ranks);
    double h = 1.0 / (width - 1);
    double dt_max = h * h / (4.0 * diffusivity); /* the scheme is stable up to here */
    double dt = dt_max / 10.0;
    double *old = calloc((rows + 2) * (size_t)width, sizeof *old);
    double *new = calloc((rows + 2) * (size_t)width, sizeof *new);
    if (rows < 1 || !old || !new) {
        fprintf(stderr, "heat: no memory, or more ranks than rows\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0) /* one hot edge */
        for (int x = 0; x < width; x++)
            old[x] = new[x] = 1.0;

    baro_t *baro = baro_open("heat", NULL);
    if (!baro_is_enabled(baro) && rank == 0)
        fprintf(stderr, "heat: nothing is published: %s\n", baro_error());
    published_t p = publish(baro, &options, dt, dt_max);

    double residual = INFINITY, simulated = 0.0, began = MPI_Wtime();
    uint64_t step = 0;
    for (; step < options.steps && residual > options.residual; step++) {
        double since = MPI_Wtime();
        /* All ranks take the same step: that of the first rank. A disabled knob keeps its first
         * value. */
        dt = baro_knob_get_f64(p.dt);
        double decided[2] = {dt, since - began};
        MPI_Bcast(decided, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        if (decided[1] > options.seconds)
            break;
        dt = decided[0];
        exchange(old, rows, width, rank, ranks);
        double change = advance(old, new, rows, width, diffusivity * dt / (h * h)) / dt;
        MPI_Allreduce(&change, &residual, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        double *swap = old;
        old = new;
        new = swap;
        simulated += dt;

        baro_put_f64(p.residual, residual);
        for (int i = 0; i < options.rows; i++)
            baro_put_f64(p.row[i], mean(old + (1 + i % rows) * (size_t)width, width));
        baro_put_f64(p.step_seconds, MPI_Wtime() - since);
        baro_frame(p.frames, step); /* the safe point: knobs are applied here */
        if (!isfinite(residual))
            break;
    }

    if (rank == 0)
        printf("{\"steps\": %llu, \"simulated_s\": %.9g, \"wall_s\": %.6f, \"dt\": %.9g, \"dt_max\": %.9g, \"residual\": %.9g, "
               "\"lost\": %llu}\n",
               (unsigned long long)step, simulated, MPI_Wtime() - began, dt, dt_max, residual,
               (unsigned long long)baro_lost(baro));
    baro_close(baro);
    free(old);
    free(new);
    MPI_Finalize();
    return isfinite(residual) ? 0 : 3;
}
