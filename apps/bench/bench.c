// bench: measures the speed of prefill and of decode separately, and the times of their kernels.
#include "bench.h"
#include "command.h"
#include "common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    .name = "bench",
    .arguments = "[options] [MODEL]",
    .summary =
        "Measures prefill (reading a prompt) and decode (one token at a time) separately, and compares the memory "
        "traffic with the bandwidth of a large copy on the same device.",
    .text =
        "Every row warms up (a GPU for half a second, or two seconds after compiling). It then runs --repeat times, or "
        "fewer after --seconds, and shows the median and the spread. Tokens are random, and decode is greedy. GB/s "
        "and GFLOP/s are computed from the kernels' tensors (each byte once a dispatch; of attention's caches only "
        "the new positions) and the wall time of the median. With --kernels they are computed from each kernel's own "
        "device time, measured in a separate run.\n\n"
        "A kernel's floor is the longer of two times: its bytes at the speed of a large copy, and its operations at "
        "the speed of a large matrix product. Both speeds are measured first. The ratio is the kernel's time over "
        "its floor. More than 100% of the copy means that the bytes came from caches. A ratio below 1 means the "
        "same, or arithmetic faster than that of the measured product, as on the CPU. With --sequences, tokens are "
        "those of one text, and tokens/s those of all texts together.",
    .examples = "  deltaic bench\n"
                "  deltaic bench --device cpu --prompt-tokens 64,256 --decode 32\n"
                "  deltaic bench --model models/novelist --kernels\n"
                "  deltaic bench --sequences 16 --prompt-tokens 512\n"
                "  deltaic bench --json > after.json\n"
                "  deltaic bench --operators --device 1\n"
                "  deltaic bench --operators --rule chunk --only '32 x 2048'\n",
    .most_arguments = 1,
};

// ---------------------------------------------------------------- one run

// The tokens' values do not matter; a linear congruential generator makes them.
static void fill_tokens(int32_t *tokens, size_t count, int32_t vocabulary) {
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525u + 1013904223u;
    tokens[i] = (int32_t)((state >> 8) % (uint32_t)vocabulary);
  }
}

// Every sequence begins one token later than the previous one.
static deltaic_status prefill(struct bench *b, uint32_t tokens) {
  for (uint32_t i = 0; i < b->sequences; ++i)
    b->pieces[i] = (deltaic_piece){.sequence = i, .tokens = b->tokens + i, .count = tokens};
  return deltaic_session_eval_batch(b->session, b->pieces, b->sequences);
}

static deltaic_status decode(struct bench *b, uint32_t tokens) {
  deltaic_status status = DELTAIC_OK;
  for (uint32_t i = 0; i < tokens && !status; ++i)
    status = deltaic_session_next_batch(b->session, NULL, b->sequences, NULL, b->drawn, NULL);
  return status;
}

// Starts from an empty sequence; decode continues a short one, whose prefill is not timed.
static deltaic_status run_once(struct bench *b, const struct row *row, bool profile, double *seconds) {
  enum { BEFORE_DECODE = 16 };
  deltaic_status status = deltaic_session_reset(b->session);
  if (!status && row->decode) status = prefill(b, BEFORE_DECODE);
  if (!status && profile) status = deltaic_session_profile_begin(b->session);
  if (status) return status;
  double start = time_now();
  status = row->decode ? decode(b, row->tokens) : prefill(b, row->tokens);
  *seconds = time_now() - start;
  return status;
}

// ---------------------------------------------------------------- one row

static int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static void summarize(struct row *row, double *seconds) {
  qsort(seconds, row->runs, sizeof *seconds, by_value);
  row->least = seconds[0];
  row->most = seconds[row->runs - 1];
  row->median = 0.5 * (seconds[(row->runs - 1) / 2] + seconds[row->runs / 2]);
}

static int by_seconds(const void *a, const void *b) {
  const deltaic_kernel_time *x = a, *y = b;
  return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

// Profiles a separate run, because profiling slows the work.
static deltaic_status profile_row(struct bench *b, struct row *row) {
  double seconds;
  deltaic_status status = run_once(b, row, true, &seconds);
  if (!status) status = deltaic_session_profile_end(b->session, row->kernels, KERNELS, &row->kernel_count);
  if (status) return status;
  if (row->kernel_count > KERNELS) row->kernel_count = KERNELS;
  qsort(row->kernels, row->kernel_count, sizeof *row->kernels, by_seconds);
  for (size_t i = 0; i < row->kernel_count; ++i) {
    row->bytes += row->kernels[i].bytes;
    row->operations += row->kernels[i].operations;
    row->kernel_seconds += row->kernels[i].seconds;
  }
  return DELTAIC_OK;
}

// The first run compiles pipelines; the device idles meanwhile, and its clocks fall. After seconds of compilation an
// H200 is still at half its speed on short prompts after 0.5 s of work, so the warm-up is then 2 s long.
static deltaic_status warm_up(struct bench *b, const struct row *row) {
  double first, run, spent, start;
  deltaic_status status = run_once(b, row, false, &first);
  if (bench_software(&b->engine)) return status; // a CPU needs no more, and the run may have been long
  start = time_now();
  do {
    if (!status) status = run_once(b, row, false, &run);
    spent = time_now() - start;
  } while (!status && spent < (first > run + 0.2 ? 2 : 0.5) && spent < b->row_seconds);
  return status;
}

static deltaic_status measure_row(struct bench *b, struct row *row, struct progress *progress, uint32_t before,
                                  uint32_t total) {
  double *seconds = must_resize(NULL, b->repeat * sizeof *seconds);
  deltaic_status status = warm_up(b, row);
  const double start = time_now();
  for (; row->runs < b->repeat && !status; ++row->runs) {
    if (row->runs && time_now() - start > b->row_seconds) break;
    status = run_once(b, row, false, &seconds[row->runs]);
    progress_show(progress, before + row->runs + 1, total);
  }
  if (!status) {
    summarize(row, seconds);
    status = profile_row(b, row);
  }
  free(seconds);
  return status;
}

// Measures all rows. If it stops early, it keeps only complete rows.
static int measure(struct bench *b) {
  struct progress progress;
  size_t rows = b->row_count, done = 0;
  deltaic_status status = deltaic_device_copy_bandwidth(b->engine.device, &b->rates.copy);
  if (!status && b->kernels) status = deltaic_device_matrix_rate(b->engine.device, &b->rates.matrices);
  progress_begin(&progress, "measuring", NULL, false);
  interrupt_watch(b->session);
  for (size_t i = 0; i < rows && !status && !interrupted(); ++i) {
    status = measure_row(b, &b->rows[i], &progress, (uint32_t)i * b->repeat, (uint32_t)rows * b->repeat);
    if (!status) done = i + 1;
  }
  b->row_count = done;
  interrupt_watch(NULL);
  progress_clear();
  return complain_work(status);
}

// ---------------------------------------------------------------- opening

static uint32_t longest_row(const struct bench *b) {
  uint32_t longest = 16;
  for (size_t i = 0; i < b->row_count; ++i)
    if (b->rows[i].tokens > longest) longest = b->rows[i].tokens;
  return longest;
}

static int open_bench(struct bench *b, struct engine_options *options) {
  b->model = model_path(options->model);
  if (!b->model) return EXIT_USAGE;
  int code = engine_open(options, &b->engine);
  if (code) return code;
  uint32_t longest = longest_row(b);
  options->context = longest + 16;
  b->sequences = options->sequences;
  b->token_count = longest;
  b->tokens = must_resize(NULL, (longest + b->sequences) * sizeof *b->tokens);
  b->pieces = must_resize(NULL, b->sequences * sizeof *b->pieces);
  b->drawn = must_resize(NULL, b->sequences * sizeof *b->drawn);
  fill_tokens(b->tokens, longest + b->sequences, b->engine.model_info.vocabulary);
  deltaic_session_options session = session_options(options);
  code = complain_status(deltaic_model_get_memory(b->engine.model, &session, &b->memory));
  return code ? code : session_create(&b->engine, options, &b->session);
}

static int bench(struct bench *b, struct engine_options *options) {
  int code = open_bench(b, options);
  int written = EXIT_OK;
  if (!code) {
    code = measure(b);
    if (!code && b->kernels && b->engine.model_info.experts) code = complain_work(bench_experts_measure(b, options));
    b->complete = !code;
    if (b->row_count && b->as_json)
      written = bench_print_json(b);
    else if (b->row_count)
      bench_print(b);
  }
  deltaic_session_free(b->session);
  free(b->tokens);
  free(b->pieces);
  free(b->drawn);
  return engine_close(&b->engine, code ? code : written);
}

int command_bench(int argc, char **argv) {
  struct engine_options engine = ENGINE_DEFAULTS;
  engine.sequences = 1;
  struct bench b = {.repeat = 5, .row_seconds = 10};
  struct count_list prompts = {.values = {128, 512, 2048}, .count = 3};
  struct arguments arguments;
  uint32_t decode_tokens = 64;
  bool operators = false;
  const char *only = NULL;
  int code;
  const struct option options[] = {
      HEADING("measurement"),
      LIST(0, "prompt-tokens", "LIST", &prompts, 1, 1u << 24, "lengths of the prompts to read"),
      COUNT('n', "decode", "N", &decode_tokens, 0, 1u << 24, "tokens to decode; 0: no decode row"),
      COUNT('s', "sequences", "N", &engine.sequences, 1, 256, "texts read and decoded at once"),
      COUNT('r', "repeat", "N", &b.repeat, 1, 1000, "runs of each row, after a warm-up"),
      NUMBER(0, "seconds", "X", &b.row_seconds, 1e6, "start no more runs of a row after this long"),
      FLAG('k', "kernels", &b.kernels,
           "a table of kernels for each row, with their floors; for a mixture of experts, also a table of the chosen "
           "experts"),
      FLAG(0, "operators", &operators,
           "the delta rule's kernels and products of matrices by themselves instead: time, floor and error of each "
           "shape; needs no model"),
      TEXT(0, "only", "TEXT", &only, "with --operators: only rows with this text in their name or shape"),
      FLAG(0, "json", &b.as_json, "print one JSON object, kernels included; their floors with --kernels"),
      TEXT(0, "rule", "FORM", &engine.rule,
           "how prompts go through the delta rule: auto (as planned for the device), recurrent or chunk; also with "
           "--operators"),
      ENGINE_OPTIONS(&engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (arguments.count && engine.model)
    return complain(EXIT_USAGE, "two checkpoints, \"%s\" and \"%s\": one at a time", engine.model, arguments.items[0]);
  if (strcmp(engine.rule, "auto") && strcmp(engine.rule, "recurrent") && strcmp(engine.rule, "chunk"))
    return complain(EXIT_USAGE, "--rule takes auto, recurrent or chunk, not \"%s\"", engine.rule);
  if (operators && (arguments.count || engine.model))
    return complain(EXIT_USAGE, "--operators measures kernels by themselves, without a checkpoint");
  static const char *const of_models[] = {"prompt-tokens", "decode", "sequences", "seconds", "kernels", "batch", NULL};
  if (operators && option_given_of(&arguments, of_models))
    return complain(EXIT_USAGE, "--operators has shapes of its own: it takes no --%s",
                    option_given_of(&arguments, of_models));
  if (only && !operators) return complain(EXIT_USAGE, "--only chooses rows of --operators");
  if (operators) return bench_operators(&engine, only, b.repeat, b.as_json);
  if (arguments.count) engine.model = arguments.items[0];
  for (size_t i = 0; i < prompts.count; ++i) b.rows[b.row_count++].tokens = prompts.values[i];
  if (decode_tokens) b.rows[b.row_count++] = (struct row){.decode = true, .tokens = decode_tokens};
  return bench(&b, &engine);
}
