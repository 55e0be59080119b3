// bench.h: declares the measurements of bench and their output.
#ifndef BENCH_H
#define BENCH_H
#include "common.h"
#include "engine.h"
#include "print.h"

enum { KERNELS = 64, ROWS = LIST_CAPACITY + 1 };

// The rates of a large copy (bytes read and written) and of a large matrix product, from which floors are computed.
// matrices is 0 if no floors are wanted.
struct bench_rates {
  double copy, matrices; // bytes and operations per second
};
// Returns seconds: the longer of moving the bytes and doing the operations; 0 if there are none or no matrix rate.
double bench_floor(const struct bench_rates *rates, uint64_t bytes, uint64_t operations);
bool bench_software(const struct engine *engine); // a software device: the rows are few and small
json_t *bench_device_json(const struct engine *engine);

struct row {
  bool decode;     // false: prefill
  uint32_t tokens; // per run and sequence
  uint32_t runs;
  double median, least, most; // seconds of a run
  uint64_t bytes, operations; // of a run: the sum over its kernels
  double kernel_seconds;      // of the profiled run
  deltaic_kernel_time kernels[KERNELS];
  size_t kernel_count;
};

// Tokens evaluated at once, and the experts that they choose.
enum { EXPERT_ROWS = 8 };
struct experts_row {
  uint32_t tokens;
  double chosen;  // distinct experts, the mean of the layers
  uint64_t bytes; // of the weights of the chosen experts, in all layers
  double seconds; // of the kernels that have "experts" in their names
};

struct bench {
  const char *model;
  struct engine engine;
  deltaic_memory memory;
  deltaic_session *session;
  uint32_t sequences; // number of sequences
  int32_t *tokens;
  uint32_t token_count;
  deltaic_piece *pieces; // one per sequence
  int32_t *drawn;        // one per sequence
  struct bench_rates rates;
  uint32_t repeat;
  float row_seconds;
  bool kernels, as_json;
  bool complete; // every row was measured
  struct row rows[ROWS];
  size_t row_count;
  struct experts_row experts[EXPERT_ROWS];
  size_t experts_count;
};

enum { BENCH_MATMULS = 16 };
struct bench_matmuls {
  struct bench_rates rates;
  struct {
    deltaic_matmul m;
    deltaic_matmul_result r;
  } rows[BENCH_MATMULS];
  size_t count;
};
bool bench_matmuls_any(const struct engine *engine, const char *only);
deltaic_status bench_matmuls_measure(struct bench_matmuls *b, struct engine *engine, deltaic_precision precision,
                                     const char *only, uint32_t repeat, struct progress *progress);
void bench_matmuls_print(const struct bench_matmuls *b);
json_t *bench_matmuls_json(const struct bench_matmuls *b);
bool bench_matmuls_right(const struct bench_matmuls *b, double most_error);

// Runs bench --operators and returns an exit code. only: a part of the row's text, or NULL for all rows.
int bench_operators(struct engine_options *options, const char *only, uint32_t repeat, bool as_json);
// Fills the rows of experts with sessions of one sequence. The model has experts.
deltaic_status bench_experts_measure(struct bench *b, const struct engine_options *options);
void bench_experts_print(const struct bench *b);
json_t *bench_experts_json(const struct bench *b);
void bench_print(const struct bench *bench);
int bench_print_json(const struct bench *bench); // returns an exit code
#endif
