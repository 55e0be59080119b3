// bench_prune: how long drrqr takes to choose the channels of a model of 1.3 B parameters (24 layers, 16 heads of 128)
// by either route, on threads that take heads in turn: time, and the CPU's share of it, which is what it would take on
// an idle machine. No test: it takes seconds and only prints.
// usage: bench_prune [ROWS = 10000] [THREADS = 2]
#include "method.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

enum { HEADS = 24 * 16, D = 128, SHAPES = 8 };

// So many different heads are made; the 384 are these over and over, and a head's rows are queries then keys.
static float *rows_of[SHAPES];
static double *gram_of[SHAPES];
static int64_t rows;
static enum prune_route route;
static atomic_int next_head, swaps;

static double seconds(clockid_t clock) {
  struct timespec t;
  clock_gettime(clock, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// Of the process until now; the route that needs less is measured first.
static double peak_megabytes(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_maxrss * 1024 / 1e6;
}

// Correlated channels through SiLU, as a head's activations are.
static void make_head(int i) {
  uint64_t seed = (uint64_t)i + 1;
  float common[16] = {0};
  rows_of[i] = malloc(sizeof(float) * (size_t)rows * D);
  gram_of[i] = calloc(D * D, sizeof(double));
  for (int64_t t = 0; t < rows * D; t++) {
    float noise[17];
    for (int n = 0; n < 17; n++) {
      seed = seed * 6364136223846793005u + 1442695040888963407u;
      noise[n] = (float)(seed >> 40) * 0x1p-23f - 1;
    }
    for (int n = 0; t % D == 0 && n < 16; n++) common[n] = noise[n];
    float y = 0.7f * noise[16];
    for (int n = 0; n < 16; n++) y += common[n] * sinf((float)(i + 1) * (float)(t % D + 1) * (float)(n + 1));
    rows_of[i][t] = y / (1 + expf(-y));
  }
  if (matrix_add_gram((struct matrix_rows){rows_of[i], rows, D}, D, gram_of[i], NULL)) exit(1);
}

static void *work(void *unused) {
  (void)unused;
  struct prune_options o = {.route = route, .side = PRUNE_KEYS};
  for (int i; (i = atomic_fetch_add(&next_head, 1)) < HEADS;) {
    struct prune_head h = {.d = D, .k = {rows, gram_of[i % SHAPES], NULL}, .k_rows = {rows_of[i % SHAPES], rows, D}};
    struct prune_result r;
    if (prune_select(prune_method_find("drrqr"), &h, D / 2, &o, &r)) exit(1);
    atomic_fetch_add(&swaps, r.swap_count);
    prune_result_free(&r);
  }
  return NULL;
}

// The Gram matrices of all heads: what calibration does on a CPU.
static void *accumulate(void *unused) {
  (void)unused;
  for (int i; (i = atomic_fetch_add(&next_head, 1)) < HEADS;) {
    double *gram = calloc(D * D, sizeof *gram);
    if (matrix_add_gram((struct matrix_rows){rows_of[i % SHAPES], rows, D}, D, gram, NULL)) exit(1);
    free(gram);
  }
  return NULL;
}

static void measure(const char *what, void *(*body)(void *), enum prune_route which, int threads) {
  pthread_t id[64];
  double start = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID);
  route = which;
  atomic_store(&next_head, 0);
  atomic_store(&swaps, 0);
  for (int i = 0; i < threads; i++) pthread_create(&id[i], NULL, body, NULL);
  for (int i = 0; i < threads; i++) pthread_join(id[i], NULL);
  cpu = seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  printf("%-16s %6.2f s, CPU %6.2f s / %d = %5.2f s; %d swaps; peak so far %.1f MB\n", what,
         seconds(CLOCK_MONOTONIC) - start, cpu, threads, cpu / threads, atomic_load(&swaps), peak_megabytes());
}

int main(int argc, char **argv) {
  int threads = argc > 2 ? atoi(argv[2]) : 2;
  rows = argc > 1 ? atoi(argv[1]) : 10000;
  if (rows < 1 || threads < 1 || threads > 64) return 2;
  matrix_use_one_thread();
  for (int i = 0; i < SHAPES; i++) make_head(i);
  printf("%d heads of %d channels, %lld rows each, %d kept, %d threads\n", HEADS, D, (long long)rows, D / 2, threads);
  printf("peak so far %.1f MB, of which %.1f are the rows of %d heads\n", peak_megabytes(),
         (double)rows * D * 4 * SHAPES / 1e6, SHAPES);
  measure("accumulation", accumulate, PRUNE_GRAM, threads);
  measure("by Gram matrices", work, PRUNE_GRAM, threads);
  measure("by activations", work, PRUNE_ROWS, threads);
  return 0;
}
