// test_failures: what the world can do wrong ends in one sentence and nothing leaked: allocations that fail,
// checkpoints that lie. On the CPU; the sanitizer build watches for leaks.
#include "deltaic_prune.h"

#include "devices.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>

static int threads_started;
static size_t thread_stack; // the largest
static sigset_t thread_signals;
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *), void *argument) {
  threads_started++;
  size_t stack = 0;
  if (attr) pthread_attr_getstacksize(attr, &stack);
  if (stack > thread_stack) thread_stack = stack;
  pthread_sigmask(SIG_SETMASK, NULL, &thread_signals);
  return __real_pthread_create(thread, attr, run, argument);
}

// ---------------------------------------------------------------- allocations that fail

// The linker sends the library's and this file's calls here (--wrap).
void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static long allocations, fail_at; // the fail_at-th from now returns NULL; 0: none

static bool fails(void) {
  const bool now = __atomic_add_fetch(&allocations, 1, __ATOMIC_RELAXED) == fail_at;
  if (now) errno = ENOMEM;
  return now;
}
void *__wrap_malloc(size_t n) { return fails() ? NULL : __real_malloc(n); }
void *__wrap_calloc(size_t n, size_t size) { return fails() ? NULL : __real_calloc(n, size); }
void *__wrap_realloc(void *p, size_t n) { return fails() ? NULL : __real_realloc(p, n); }

#define TINY TESTS_DIR "/vectors/models/tiny_gated_deltanet_h1"

struct objects {
  deltaic_context *context;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_session *session, *fork;
  deltaic_tokenizer *tokenizer;
  deltaic_decoder *decoder;
};

static deltaic_status decode_some(struct objects *o) {
  const char *text;
  size_t bytes;
  deltaic_status status = deltaic_decoder_create(o->tokenizer, true, &o->decoder);
  for (int i = 0; i < 40 && status == DELTAIC_OK; i++) status = deltaic_decoder_push(o->decoder, 60 + i, &text, &bytes);
  if (status == DELTAIC_OK) status = deltaic_decoder_finish(o->decoder, &text, &bytes);
  return status;
}

// A little of everything; stops at the first failure.
static deltaic_status live(struct objects *o) {
  static const int32_t tokens[] = {1, 40, 41, 42, 43};
  deltaic_context_options options = {.size = sizeof options, .cache_dir = ""};
  deltaic_device_options device = {.size = sizeof device, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 2};
  deltaic_session_options two = {.size = sizeof two, .sequences = 2};
  deltaic_memory memory;
  int32_t ids[64], token;
  size_t count;
  deltaic_status status = deltaic_context_create(&options, &o->context);
  if (status == DELTAIC_OK) status = deltaic_device_open(o->context, &device, &o->device);
  if (status == DELTAIC_OK) status = deltaic_model_inspect(NULL, TINY, NULL, NULL, &memory);
  if (status == DELTAIC_OK) status = deltaic_model_open(o->device, TINY, NULL, &o->model);
  if (status == DELTAIC_OK) status = deltaic_session_create(o->model, &two, &o->session);
  if (status == DELTAIC_OK) status = deltaic_session_eval(o->session, tokens, 5, DELTAIC_LOGITS_NONE, NULL);
  if (status == DELTAIC_OK) status = deltaic_session_next(o->session, NULL, &token, NULL);
  if (status == DELTAIC_OK) status = deltaic_sequence_copy(o->session, 1, 0);
  if (status == DELTAIC_OK) status = deltaic_session_next_batch(o->session, NULL, 2, NULL, ids, NULL);
  if (status == DELTAIC_OK) status = deltaic_session_fork(o->session, &o->fork);
  if (status == DELTAIC_OK) status = deltaic_tokenizer_open(TINY, &o->tokenizer);
  if (status == DELTAIC_OK) status = deltaic_tokenizer_encode(o->tokenizer, "Hello there", 11, true, ids, 64, &count);
  if (status == DELTAIC_OK) status = decode_some(o);
  return status;
}

static void release(struct objects *o) {
  deltaic_decoder_free(o->decoder);
  deltaic_tokenizer_close(o->tokenizer);
  deltaic_session_free(o->fork);
  close_session(o->session, o->model);
  deltaic_device_close(o->device);
  deltaic_context_free(o->context);
}

static void every_allocation_may_fail(void **state) {
  struct objects o = {0};
  allocations = fail_at = 0;
  assert_ok(live(&o));
  release(&o);
  long total = allocations, seen = 0;
  assert_true(total > 100);
  for (long n = 1; n <= total; n += n < 400 ? 1 : 1 + total / 500) {
    o = (struct objects){0};
    allocations = 0;
    fail_at = n;
    deltaic_status status = live(&o);
    fail_at = 0;
    // A cache that could not be had is no failure, nor is a thread less.
    if (status != DELTAIC_OK) {
      if (status != DELTAIC_OUT_OF_MEMORY)
        fail_msg("allocation %ld of %ld: %s: %s", n, total, deltaic_status_name(status), deltaic_last_error());
      assert_true(deltaic_last_error()[0]);
      seen++;
    }
    release(&o);
  }
  assert_true(seen > 50); // the failures did reach the library
}

static void quantizing_may_run_out_of_memory(void **state) {
  static const char out[] = "test_failures.gguf";
  const deltaic_quantize_options o = {.size = sizeof o, .type = "q8_0", .threads = 2, .force = true};
  allocations = fail_at = 0;
  assert_ok(deltaic_quantize(TESTS_DIR "/vectors/models/released_qwen3_5_moe", out, &o, NULL));
  const long total = allocations;
  assert_int_equal(unlink(out), 0);
  assert_true(total > 100);
  for (long n = 1; n <= total; n++) {
    deltaic_quantization *report = NULL;
    allocations = 0;
    fail_at = n;
    deltaic_status status = deltaic_quantize(TESTS_DIR "/vectors/models/released_qwen3_5_moe", out, &o, &report);
    fail_at = 0;
    deltaic_quantization_free(report);
    if (status != DELTAIC_OK && status != DELTAIC_OUT_OF_MEMORY && !strstr(deltaic_last_error(), strerror(ENOMEM)))
      fail_msg("allocation %ld of %ld: %s: %s", n, total, deltaic_status_name(status), deltaic_last_error());
    assert_int_equal(unlink(out), status == DELTAIC_OK ? 0 : -1);
  }
}

// The first eval of one token makes kernels and records: whatever of that fails, a reset mends it.
static void a_reset_mends_a_session_that_ran_out_of_memory(deltaic_device *device) {
  const int32_t tokens[] = {1, 40, 41};
  deltaic_model *model = open_model(device, TINY);
  long failed = 0;
  for (long n = 1; n < 60; n++) {
    int32_t token;
    deltaic_session *session = open_session(model, &exact);
    allocations = 0;
    fail_at = n;
    deltaic_status status = deltaic_session_eval(session, tokens, 1, DELTAIC_LOGITS_NONE, NULL);
    if (status == DELTAIC_OK) status = deltaic_session_next(session, NULL, &token, NULL);
    fail_at = 0;
    failed += status != DELTAIC_OK;
    if (status != DELTAIC_OK) assert_int_equal(status, DELTAIC_OUT_OF_MEMORY);
    assert_ok(deltaic_session_reset(session));
    assert_ok(deltaic_session_eval(session, tokens, 1, DELTAIC_LOGITS_NONE, NULL));
    assert_ok(deltaic_session_next(session, NULL, &token, NULL));
    deltaic_session_free(session);
  }
  assert_true(failed > 0 || device_info(device).kind == DELTAIC_DEVICE_CPU); // the CPU allocates nothing there
  deltaic_model_close(model);
}

// ---------------------------------------------------------------- checkpoints that lie

static char folder[64];

static void write_file(const char *name, const void *data, size_t bytes) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  FILE *f = fopen(path, "wb");
  assert_non_null(f);
  assert_int_equal(fwrite(data, 1, bytes, f), bytes);
  fclose(f);
}

static char *read_file(const char *name, size_t *bytes) {
  char path[512];
  snprintf(path, sizeof path, TINY "/%s", name);
  FILE *f = fopen(path, "rb");
  assert_non_null(f);
  fseek(f, 0, SEEK_END);
  *bytes = (size_t)ftell(f);
  rewind(f);
  char *data = malloc(*bytes + 1);
  assert_non_null(data);
  assert_int_equal(fread(data, 1, *bytes, f), *bytes);
  data[*bytes] = 0;
  fclose(f);
  return data;
}

static char *model_bytes, *config_bytes;
static size_t model_size, config_size;

static int setup(void **state) {
  strcpy(folder, "deltaic-test-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  model_bytes = read_file("model.safetensors", &model_size);
  config_bytes = read_file("config.json", &config_size);
  return 0;
}

static int teardown(void **state) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  free(model_bytes);
  free(config_bytes);
  return system(command);
}

static void remove_file(const char *name) {
  char path[128];
  snprintf(path, sizeof path, "%s/%s", folder, name);
  unlink(path);
  rmdir(path);
}

// Opens the folder and expects a failure whose sentence names `word`.
static void refused(const char *word) {
  deltaic_context *context;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_context_options options = {.size = sizeof options, .cache_dir = ""};
  deltaic_device_options cpu = {.size = sizeof cpu, .index = DELTAIC_DEVICE_INDEX_CPU};
  assert_ok(deltaic_context_create(&options, &context));
  assert_ok(deltaic_device_open(context, &cpu, &device));
  deltaic_status status = deltaic_model_open(device, folder, NULL, &model);
  if (status == DELTAIC_OK) fail_msg("opened, though it should say something of \"%s\"", word);
  if (!strstr(deltaic_last_error(), word)) fail_msg("\"%s\" does not name \"%s\"", deltaic_last_error(), word);
  assert_null(strchr(deltaic_last_error(), '\n'));
  print_message("    %s\n", deltaic_last_error());
  deltaic_device_close(device);
  deltaic_context_free(context);
}

static void refused_model(const void *model, size_t bytes, const char *word) {
  write_file("config.json", config_bytes, config_size);
  write_file("model.safetensors", model, bytes);
  refused(word);
}

static void refused_config(const char *config, const char *word) {
  write_file("model.safetensors", model_bytes, model_size);
  write_file("config.json", config, strlen(config));
  refused(word);
}

// A copy of the model with the first `from` of its header replaced by `to`, of the same length.
static char *edited(const char *from, const char *to) {
  char *copy = malloc(model_size + 1);
  assert_non_null(copy);
  memcpy(copy, model_bytes, model_size + 1);
  assert_int_equal(strlen(from), strlen(to));
  char *at = copy + 8;
  while (at < copy + model_size && memcmp(at, from, strlen(from))) at++;
  assert_true(at < copy + model_size);
  memcpy(at, to, strlen(to));
  return copy;
}

static void refused_edit(const char *from, const char *to, const char *word) {
  char *copy = edited(from, to);
  refused_model(copy, model_size, word);
  free(copy);
}

static void lying_weights_are_refused_by_name(void **state) {
  refused_model("", 0, "empty");
  refused_model(model_bytes, 5, "model.safetensors");
  refused_model(model_bytes, model_size / 2, "model.safetensors");
  refused_model(model_bytes, model_size - 1, "model.safetensors");
  char huge[] = "\xff\xff\xff\xff\xff\xff\xff\x7f{}";
  refused_model(huge, sizeof huge - 1, "header");
  refused_edit("model.norm.weight", "model.nOrm.weight", "model.norm.weight is missing");
  refused_edit("layers.0.attn.o_norm", "layers.9.attn.o_norm", "layers.0.attn.o_norm");
  refused_edit("\"data_offsets\":[0,", "\"data_offsets\":[9,", "model.safetensors");
  remove_file("model.safetensors");
  refused("model.safetensors");
  char path[128];
  snprintf(path, sizeof path, "%s/model.safetensors", folder);
  assert_int_equal(mkdir(path, 0700), 0);
  refused("model.safetensors");
  remove_file("model.safetensors");
}

static void a_number_that_is_not_finite_is_refused_by_its_tensor(void **state) {
  char *copy = edited("model", "model");
  memcpy(copy + model_size - 2, "\xff\x7f", 2); // a NaN in bf16; in f32, 0x7fff in the high half
  refused_model(copy, model_size, "not finite");
  free(copy);
}

static char *changed_config(const char *from, const char *to) {
  char *at = strstr(config_bytes, from);
  assert_non_null(at);
  char *copy = malloc(config_size + strlen(to) + 1);
  assert_non_null(copy);
  size_t head = (size_t)(at - config_bytes);
  sprintf(copy, "%.*s%s%s", (int)head, config_bytes, to, at + strlen(from));
  return copy;
}

static void refused_change(const char *from, const char *to, const char *word) {
  char *config = changed_config(from, to);
  refused_config(config, word);
  free(config);
}

static void configs_that_do_not_match_are_refused_by_name(void **state) {
  refused_config("", "config.json");
  refused_config("{\"model_type\": ", "config.json");
  refused_config("[1, 2]", "config.json");
  refused_config("{}", "model_type");
  refused_change("\"gated_deltanet\"", "\"delta_net_2\"", "q_conv1d.weight has 64 filters");
  refused_change("\"gated_deltanet\"", "\"gpt2\"", "gpt2");
  refused_change("\"hidden_size\": 64", "\"hidden_size\": 96", "hidden_size");
  refused_change("\"hidden_size\": 64", "\"hidden_size\": -1", "hidden_size");
  refused_change("\"hidden_size\": 64", "\"hidden_size\": 1e300", "hidden_size");
  refused_change("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 5", "layers.4");
  refused_change("\"num_hidden_layers\": 4", "\"num_hidden_layers\": 3", "layer");
  refused_change("\"num_heads\": 2", "\"num_heads\": 0", "num_heads");
  refused_change("\"use_gate\": true", "\"use_gate\": false", "g_proj");
  remove_file("config.json");
  refused("config.json");
}

// ---------------------------------------------------------------- threads

static void *live_and_release(void *unused) {
  struct objects o = {0};
  deltaic_status status = live(&o);
  release(&o);
  return status == DELTAIC_OK ? unused : NULL;
}

static void *nothing(void *unused) { return unused; }

// How much of a thread's stack `run` has written to, with what is there before it.
static size_t stack_used(void *(*run)(void *)) {
  enum { ROOM = 8 << 20 };
  pthread_attr_t attr;
  pthread_t thread;
  void *done = NULL;
  unsigned char *stack = mmap(NULL, ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  assert_true(stack != MAP_FAILED);
  memset(stack, 0xa5, ROOM);
  pthread_attr_init(&attr);
  assert_int_equal(pthread_attr_setstack(&attr, stack, ROOM), 0);
  assert_int_equal(__real_pthread_create(&thread, &attr, run, stack), 0);
  pthread_join(thread, &done);
  pthread_attr_destroy(&attr);
  assert_non_null(done);
  size_t clean = 0;
  while (clean < ROOM && stack[clean] == 0xa5) clean++;
  munmap(stack, ROOM);
  return ROOM - clean;
}

static void calls_take_no_more_stack_than_the_header_says(void **state) {
#ifdef __SANITIZE_ADDRESS__
  enum { MOST = 1 << 20 }; // its frames are larger
#else
  enum { MOST = 256 << 10 };
#endif
  assert_in_range(stack_used(live_and_release) - stack_used(nothing), 1, MOST);
}

static void workers_leave_signals_to_the_program(void **state) {
  struct objects o = {0};
  sigset_t before, after;
  pthread_sigmask(SIG_SETMASK, NULL, &before);
  threads_started = 0;
  thread_stack = 0;
  assert_ok(live(&o));
  assert_in_range(threads_started, 1, sysconf(_SC_NPROCESSORS_ONLN) + 2); // all cores, two for the device, one hashes
  assert_in_range(thread_stack, 4 << 20, 64 << 20);
  assert_true(sigismember(&thread_signals, SIGINT) && sigismember(&thread_signals, SIGTERM) &&
              sigismember(&thread_signals, SIGCHLD) && !sigismember(&thread_signals, SIGSEGV));
  pthread_sigmask(SIG_SETMASK, NULL, &after);
  for (int i = 1; i < 32; i++) assert_int_equal(sigismember(&after, i), sigismember(&before, i));
  release(&o);
}

// ---------------------------------------------------------------- NULL

static void null_is_refused(void **state) {
  deltaic_operator op = {.size = sizeof op};
  deltaic_matmul matmul = {.size = sizeof matmul};
  const deltaic_status got[] = {
      deltaic_context_create(NULL, NULL),
      deltaic_devices(NULL, NULL, 0, NULL),
      deltaic_device_describe(NULL, 0, NULL, 0, NULL),
      deltaic_device_open(NULL, NULL, NULL),
      deltaic_device_copy_bandwidth(NULL, NULL),
      deltaic_device_measure_operator(NULL, &op, NULL),
      deltaic_device_measure_matmul(NULL, &matmul, NULL),
      deltaic_device_matrix_rate(NULL, NULL),
      deltaic_model_inspect(NULL, NULL, NULL, NULL, NULL),
      deltaic_model_inspect_with(NULL, NULL, NULL, NULL, NULL, NULL),
      deltaic_model_open(NULL, NULL, NULL, NULL),
      deltaic_model_get_memory(NULL, NULL, NULL),
      deltaic_session_create(NULL, NULL, NULL),
      deltaic_session_eval(NULL, NULL, 0, DELTAIC_LOGITS_NONE, NULL),
      deltaic_session_eval_batch(NULL, NULL, 0),
      deltaic_session_next(NULL, NULL, NULL, NULL),
      deltaic_session_next_batch(NULL, NULL, 0, NULL, NULL, NULL),
      deltaic_session_logits(NULL, NULL),
      deltaic_session_reset(NULL),
      deltaic_session_fork(NULL, NULL),
      deltaic_session_state_size(NULL, NULL),
      deltaic_session_save(NULL, NULL, 0, NULL),
      deltaic_session_load(NULL, NULL, 0),
      deltaic_session_save_file(NULL, NULL),
      deltaic_session_load_file(NULL, NULL),
      deltaic_session_probe(NULL, 0, NULL, NULL),
      deltaic_session_profile_begin(NULL),
      deltaic_session_profile_end(NULL, NULL, 0, NULL),
      deltaic_session_busy_begin(NULL),
      deltaic_session_busy_end(NULL, NULL),
      deltaic_sequence_logits(NULL, 0, NULL),
      deltaic_sequence_reset(NULL, 0),
      deltaic_sequence_copy(NULL, 0, 0),
      deltaic_sequence_state_size(NULL, 0, NULL),
      deltaic_sequence_save(NULL, 0, NULL, 0, NULL),
      deltaic_sequence_load(NULL, 0, NULL, 0),
      deltaic_sequence_save_range(NULL, 0, 0, NULL, 0),
      deltaic_sequence_load_range(NULL, 0, 0, NULL, 0),
      deltaic_tensors_open(NULL, NULL),
      deltaic_tensors_at(NULL, 0, NULL),
      deltaic_tensors_read(NULL, NULL, 0, 0, NULL),
      deltaic_tensors_read_integers(NULL, NULL, 0, 0, NULL),
      deltaic_matrix_rank(NULL, 0, 0, 0, NULL, NULL),
      deltaic_tokenizer_open(NULL, NULL),
      deltaic_tokenizer_encode(NULL, NULL, 0, false, NULL, 0, NULL),
      deltaic_tokenizer_decode(NULL, NULL, 0, false, NULL, 0, NULL),
      deltaic_tokenizer_token_bytes(NULL, 0, NULL, 0, NULL),
      deltaic_decoder_create(NULL, false, NULL),
      deltaic_decoder_push(NULL, 0, NULL, NULL),
      deltaic_decoder_finish(NULL, NULL, NULL),
      deltaic_statistics_create(NULL, NULL, NULL),
      deltaic_statistics_load(NULL, NULL, NULL),
      deltaic_statistics_save(NULL, NULL),
      deltaic_calibrate(NULL, NULL, NULL, 0, NULL, NULL),
      deltaic_select(NULL, NULL, NULL, NULL),
      deltaic_select_given(NULL, NULL, NULL, 0, NULL, 0, NULL),
      deltaic_selection_at(NULL, 0, NULL),
      deltaic_selection_swap(NULL, 0, 0, NULL, NULL, NULL),
      deltaic_pruning_check(NULL, NULL, false),
      deltaic_pruning_begin(NULL, NULL, NULL, NULL, NULL),
      deltaic_pruning_refit(NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL),
      deltaic_pruning_commit(NULL),
  };
  for (size_t i = 0; i < sizeof got / sizeof *got; i++)
    if (got[i] != DELTAIC_INVALID_ARGUMENT) fail_msg("call %zu: %s", i, deltaic_status_name(got[i]));
}

static void getters_of_null_have_nothing(void **state) {
  deltaic_device_info device = {.name = "left over"};
  deltaic_model_info model = {.width = 9};
  deltaic_statistics_info statistics = {.tokens = 9};
  deltaic_device_get_info(NULL, &device);
  deltaic_model_get_info(NULL, &model);
  deltaic_statistics_get_info(NULL, &statistics);
  assert_true(!device.name[0] && !model.width && !statistics.tokens);
  deltaic_device_get_info(NULL, NULL);
  deltaic_model_get_info(NULL, NULL);
  deltaic_statistics_get_info(NULL, NULL);
  deltaic_session_get_counters(NULL, NULL);
  deltaic_session_cancel(NULL);
  assert_int_equal(deltaic_context_validation_errors(NULL), 0);
  assert_int_equal(deltaic_session_position(NULL), 0);
  assert_int_equal(deltaic_sequence_position(NULL, 3), 0);
  assert_int_equal(deltaic_tensors_count(NULL), 0);
  assert_false(deltaic_tensors_find(NULL, "a", NULL));
  assert_null(deltaic_tensors_metadata(NULL, "a"));
  assert_int_equal(deltaic_tokenizer_size(NULL), 0);
  assert_string_equal(deltaic_tokenizer_kind(NULL), "");
  assert_int_equal(deltaic_tokenizer_find(NULL, "a"), -1);
  assert_int_equal(deltaic_selection_count(NULL), 0);
  assert_null(deltaic_pruning_path(NULL));
  assert_true(deltaic_prune_method_at(0, NULL));
  assert_false(deltaic_prune_method_find(NULL, NULL));
}

static void nothing_can_be_freed(void **state) {
  deltaic_context_free(NULL);
  deltaic_device_close(NULL);
  deltaic_model_close(NULL);
  deltaic_session_free(NULL);
  deltaic_tensors_close(NULL);
  deltaic_tokenizer_close(NULL);
  deltaic_decoder_free(NULL);
  deltaic_statistics_free(NULL);
  deltaic_selection_free(NULL);
  deltaic_pruning_free(NULL);
}

// Listing opens nothing; opening does, or the count would prove nothing.
static void listing_devices_starts_no_threads(void **state) {
  deltaic_context *context = test_context();
  deltaic_device_info infos[8];
  deltaic_device *device;
  deltaic_device_options options = {.size = sizeof options, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 3};
  size_t count, needed;
  threads_started = 0;
  assert_ok(deltaic_devices(context, infos, 8, &count));
  assert_ok(deltaic_device_describe(context, DELTAIC_DEVICE_INDEX_CPU, NULL, 0, &needed));
  assert_int_equal(threads_started, 0);
  assert_ok(deltaic_device_open(context, &options, &device));
  assert_int_equal(threads_started, 2);
  deltaic_device_close(device);
  deltaic_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_allocation_may_fail),
      cmocka_unit_test(quantizing_may_run_out_of_memory),
      cmocka_unit_test(null_is_refused),
      cmocka_unit_test(getters_of_null_have_nothing),
      cmocka_unit_test(nothing_can_be_freed),
      cmocka_unit_test(listing_devices_starts_no_threads),
      cmocka_unit_test(workers_leave_signals_to_the_program),
      cmocka_unit_test(calls_take_no_more_stack_than_the_header_says),
      device_test(a_reset_mends_a_session_that_ran_out_of_memory),
      cmocka_unit_test_setup_teardown(lying_weights_are_refused_by_name, setup, teardown),
      cmocka_unit_test_setup_teardown(a_number_that_is_not_finite_is_refused_by_its_tensor, setup, teardown),
      cmocka_unit_test_setup_teardown(configs_that_do_not_match_are_refused_by_name, setup, teardown),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
