// test_session: sessions through the public API, on the CPU and every Vulkan device.
#include "test_session.h"

#include <pthread.h>
#include <unistd.h>

// ---------------------------------------------------------------- decoding

static void draw(deltaic_session *s, uint64_t seed, int n, int32_t *tokens, float *logits) {
  deltaic_sampling sampling = {
      .size = sizeof sampling, .temperature = 1.0f, .top_p = 0.95f, .repetition_penalty = 1.1f, .seed = seed};
  for (int i = 0; i < n; i++) assert_ok(deltaic_session_next(s, &sampling, &tokens[i], i == n - 1 ? logits : NULL));
}

static void one_seed_gives_one_text(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *a = create(model), *b = create(model), *c = create(model);
  int32_t ta[60], tb[60], tc[60];
  float la[V], lb[V];
  eval(a, 0, 50, NULL);
  eval(b, 0, 50, NULL);
  eval(c, 0, 50, NULL);
  draw(a, 7, 60, ta, la);
  draw(b, 7, 60, tb, lb);
  draw(c, 8, 60, tc, NULL);
  assert_memory_equal(ta, tb, sizeof ta);
  assert_same_bits(la, lb, "two runs with one seed");
  assert_memory_not_equal(ta, tc, sizeof ta);
  deltaic_session_free(c);
  deltaic_session_free(b);
  close_session(a, model);
}

static void a_token_after_the_first_is_one_submit_and_no_recording(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[1]);
  deltaic_session *s = create(model);
  deltaic_sampling sampling = {.size = sizeof sampling, .temperature = 1.0f, .top_k = 5};
  deltaic_counters before, after;
  int32_t token;
  eval(s, 0, 20, NULL);
  assert_ok(deltaic_session_next(s, &sampling, &token, NULL));
  for (int i = 0; i < 10; i++) {
    sampling.seed = (uint64_t)i; // changing the sampling records nothing either
    deltaic_session_get_counters(s, &before);
    assert_ok(deltaic_session_next(s, &sampling, &token, NULL));
    deltaic_session_get_counters(s, &after);
    if (device_info(device).kind == DELTAIC_DEVICE_CPU) {
      assert_int_equal(after.submits, 0);
      continue;
    }
    assert_int_equal(after.submits - before.submits, 1);
    assert_int_equal(after.recordings - before.recordings, 0);
    assert_int_equal(after.dispatches - before.dispatches, 0);
  }
  close_session(s, model);
}

// Beside the layers there are sample, embed and the head.
static void a_layer_takes_at_most_six_dispatches_a_token(deltaic_device *device) {
  static const struct {
    const char *path;
    uint64_t layer; // most dispatches of one
  } models[] = {{TINY "tiny_gated_deltanet", 5},
                {TINY "tiny_gated_delta_product", 5},
                {TINY "tiny_hh_gated_dynamic", 5},
                {TINY "tiny_delta_net_global", 6},
                {TINY "tiny_mamba2", 5}};
  static const int32_t start[] = {1, 2, 3};
  const deltaic_device_info info = device_info(device);
  for (int k = 0; k < 5 && info.kind != DELTAIC_DEVICE_CPU; k++) {
    deltaic_model *model = open_model(device, models[k].path);
    deltaic_session *s = create(model);
    deltaic_counters before, after;
    int32_t token;
    assert_ok(deltaic_session_eval(s, start, 3, DELTAIC_LOGITS_NONE, NULL));
    deltaic_session_get_counters(s, &before);
    assert_ok(deltaic_session_next(s, NULL, &token, NULL));
    deltaic_session_get_counters(s, &after);
    assert_in_range(after.dispatches - before.dispatches, 1, 3 + models[k].layer * model->spec.L);
    close_session(s, model);
  }
}

static void next_computes_what_eval_of_its_token_does(deltaic_device *device) {
  for (int k = 0; k < KINDS; k++) {
    deltaic_model *model = open_model(device, kinds[k]);
    deltaic_session *a = create(model), *b = create(model);
    float la[V], lb[V];
    int32_t token;
    eval(a, 0, 70, NULL);
    eval(b, 0, 70, NULL);
    for (int i = 0; i < 5; i++) {
      assert_ok(deltaic_session_next(a, NULL, &token, la));
      assert_ok(deltaic_session_eval(b, &token, 1, DELTAIC_LOGITS_LAST, lb));
      assert_same_bits(la, lb, "next against eval of the same token");
    }
    deltaic_session_free(b);
    close_session(a, model);
  }
}

// ---------------------------------------------------------------- memory

static void state_grows_with_the_text_only_by_the_stated_cache(deltaic_device *device) {
  for (int k = 0; k < KINDS; k++) {
    deltaic_memory memory;
    deltaic_model_info info;
    assert_ok(deltaic_model_inspect(device, kinds[k], NULL, &info, &memory));
    deltaic_model *model = open_model(device, kinds[k]);
    deltaic_memory opened;
    assert_ok(deltaic_model_get_memory(model, NULL, &opened));
    assert_memory_equal(&opened, &memory, sizeof memory);
    deltaic_session *s = create(model);
    size_t at_100, at_600;
    eval(s, 0, 100, NULL);
    assert_ok(deltaic_session_state_size(s, &at_100));
    eval(s, 100, 4 * N - 100, NULL);
    assert_ok(deltaic_session_state_size(s, &at_600));
    assert_int_equal(at_600 - at_100, info.grows ? memory.cache_per_token * (4 * N - 100) : 0);
    assert_true((memory.cache_per_token != 0) == info.grows);
    if (info.grows) { // the stated cache is all that the context adds
      deltaic_session_options options = {
          .size = sizeof options, .precision = DELTAIC_PRECISION_FLOAT32, .context = 8192};
      deltaic_memory doubled;
      assert_ok(deltaic_model_inspect(device, kinds[k], &options, NULL, &doubled));
      assert_int_equal(doubled.state_bytes - memory.state_bytes, 4096 * memory.cache_per_token);
    }
    close_session(s, model);
  }
}

static void a_full_context_is_refused_and_leaves_the_session_whole(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[2]);
  deltaic_session_options options = {.size = sizeof options, .precision = DELTAIC_PRECISION_FLOAT32, .context = 64};
  float before[V], after[V];
  int32_t token;
  deltaic_session *s = open_session(model, &options);
  eval(s, 0, 60, before);
  assert_int_equal(deltaic_session_eval(s, text, 5, DELTAIC_LOGITS_NONE, NULL), DELTAIC_CONTEXT_FULL);
  assert_ok(deltaic_session_logits(s, after));
  assert_same_bits(before, after, "after a refused eval");
  eval(s, 60, 4, NULL);
  assert_int_equal(deltaic_session_next(s, NULL, &token, NULL), DELTAIC_CONTEXT_FULL);
  close_session(s, model);
}

// ---------------------------------------------------------------- misuse, cancel, threads

static void misuse_is_refused_with_a_sentence(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *s = create(model);
  int32_t token, bad[2] = {5, V};
  float logits[V];
  assert_int_equal(deltaic_session_next(s, NULL, &token, NULL), DELTAIC_BAD_STATE);
  assert_int_equal(deltaic_session_logits(s, logits), DELTAIC_BAD_STATE);
  assert_int_equal(deltaic_session_eval(s, bad, 2, DELTAIC_LOGITS_NONE, NULL), DELTAIC_INVALID_ARGUMENT);
  bad[1] = -1;
  assert_int_equal(deltaic_session_eval(s, bad, 2, DELTAIC_LOGITS_NONE, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_session_eval(s, text, 0, DELTAIC_LOGITS_NONE, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_session_eval(s, text, 1, DELTAIC_LOGITS_LAST, NULL), DELTAIC_INVALID_ARGUMENT);
  eval(s, 0, 3, NULL);
  const deltaic_sampling wrong[] = {{.size = sizeof *wrong, .temperature = -1},
                                    {.size = sizeof *wrong, .temperature = NAN},
                                    {.size = sizeof *wrong, .top_p = 1.5f},
                                    {.size = sizeof *wrong, .min_p = -0.1f},
                                    {.size = sizeof *wrong, .repetition_penalty = INFINITY},
                                    {.size = 0}};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
    assert_int_equal(deltaic_session_next(s, &wrong[i], &token, NULL), DELTAIC_INVALID_ARGUMENT);
  assert_ok(deltaic_session_next(s, NULL, &token, NULL));
  close_session(s, model);
}

static void *cancel_later(void *session) {
  usleep(30000);
  deltaic_session_cancel(session);
  return NULL;
}

static void a_cancelled_session_works_again_after_a_reset(deltaic_device *device) {
  deltaic_model *model = open_model(device, MODELS_DIR "/novelist");
  deltaic_session *s = create(model);
  enum { LONG = 60000 };
  int32_t *tokens = malloc(LONG * sizeof *tokens), token;
  float *a = malloc(4096 * sizeof *a), *b = malloc(4096 * sizeof *b);
  assert_true(tokens && a && b);
  for (int i = 0; i < LONG; i++) tokens[i] = text[i % (4 * N)];
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, cancel_later, s), 0);
  assert_int_equal(deltaic_session_eval(s, tokens, LONG, DELTAIC_LOGITS_NONE, NULL), DELTAIC_CANCELLED);
  pthread_join(thread, NULL);
  assert_int_equal(deltaic_session_eval(s, tokens, 1, DELTAIC_LOGITS_NONE, NULL), DELTAIC_BAD_STATE);
  assert_int_equal(deltaic_session_next(s, NULL, &token, NULL), DELTAIC_BAD_STATE);
  assert_ok(deltaic_session_reset(s));
  assert_ok(deltaic_session_eval(s, tokens, 90, DELTAIC_LOGITS_LAST, a));
  deltaic_session *fresh = create(model);
  assert_ok(deltaic_session_eval(fresh, tokens, 90, DELTAIC_LOGITS_LAST, b));
  assert_memory_equal(a, b, 4096 * sizeof *a);
  free(tokens), free(a), free(b);
  deltaic_session_free(fresh);
  close_session(s, model);
}

static void check_early_cancel(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *s = create(model), *other = create(model);
  static char saved[1 << 20];
  float a[V], b[V];
  int32_t token, same;
  size_t bytes;
  eval(s, 0, 9, NULL);
  eval(other, 0, 9, NULL);
  deltaic_session_cancel(s);
  assert_int_equal(deltaic_session_eval(s, text, 3, DELTAIC_LOGITS_NONE, NULL), DELTAIC_CANCELLED);
  deltaic_session_cancel(s);
  assert_int_equal(deltaic_session_next(s, NULL, &token, NULL), DELTAIC_CANCELLED);
  assert_int_equal(deltaic_session_position(s), 9);
  assert_ok(deltaic_session_next(s, NULL, &token, a));
  assert_ok(deltaic_session_next(other, NULL, &same, b));
  assert_int_equal(token, same);
  assert_same_bits(a, b, "after a cancel that came too early");
  assert_ok(deltaic_session_save(s, saved, sizeof saved, &bytes));
  deltaic_session_cancel(s);
  assert_ok(deltaic_session_load(s, saved, bytes));
  assert_ok(deltaic_session_next(s, NULL, &token, NULL));
  deltaic_session_cancel(s);
  assert_ok(deltaic_session_reset(s));
  eval(s, 0, 3, NULL);
  deltaic_session_free(other);
  close_session(s, model);
}

static void a_cancel_between_calls_stops_the_next_and_changes_nothing(void **state) {
  on_every_device(check_early_cancel);
}

static deltaic_session *to_cancel;
static const struct backend_functions *real_functions;

static deltaic_status cancel_and_run(struct recorder *c) {
  deltaic_session_cancel(to_cancel);
  return real_functions->recorder_run(c);
}

static void cancel_and_list(struct recorder *c, struct oplist *l) {
  deltaic_session_cancel(to_cancel);
  real_functions->recorder_list(c, l);
}

// A cancel in the middle of every step: while the CPU computes it, and as a GPU is about to.
static void a_cancel_during_a_step_is_the_next_calls(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *other = create(model), *s;
  real_functions = device->backend->functions;
  struct backend_functions cancelling = *real_functions;
  cancelling.recorder_run = cancel_and_run;
  cancelling.recorder_list = cancel_and_list;
  device->backend->functions = &cancelling;
  s = to_cancel = create(model); // its recorders have these
  device->backend->functions = real_functions;
  float a[V], b[V];
  eval(other, 0, 1, NULL);
  eval(s, 0, 1, NULL);
  for (int i = 0; i < 4; i++) {
    int32_t token, same;
    assert_int_equal(deltaic_session_next(s, NULL, &token, a), DELTAIC_CANCELLED); // the step's before, seen now
    assert_int_equal(deltaic_session_position(s), 1 + i);
    assert_ok(deltaic_session_next(s, NULL, &token, a));
    assert_ok(deltaic_session_next(other, NULL, &same, b));
    assert_int_equal(token, same);
    assert_same_bits(a, b, "after a cancel during a step");
  }
  deltaic_session_free(other);
  close_session(s, model);
}

// ---------------------------------------------------------------- probes, threads, progress, profile

static bool count_probed(void *user, const deltaic_probed *probed) {
  ++*(int *)user;
  return true;
}

// A draw is a recording, which cannot stop to be looked at, and must not be cut into pieces by trying.
static void a_probe_does_not_see_draws_nor_disturb_them(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *plain = create(model), *probed = create(model);
  int32_t want[8], got[8];
  float a[V], b[V];
  int seen = 0;
  eval(plain, 0, 20, NULL);
  eval(probed, 0, 20, NULL);
  assert_ok(deltaic_session_probe(probed, DELTAIC_PROBE_RESIDUAL | DELTAIC_PROBE_STATE, count_probed, &seen));
  draw(plain, 7, 8, want, a);
  draw(probed, 7, 8, got, b);
  assert_int_equal(seen, 0);
  assert_memory_equal(want, got, sizeof want);
  assert_same_bits(a, b, "drawing under a probe");
  deltaic_session_free(probed);
  close_session(plain, model);
}

struct worker {
  deltaic_model *model;
  float logits[V];
  deltaic_status status;
};

static void *work(void *argument) {
  struct worker *w = argument;
  deltaic_session *s;
  int32_t token;
  w->status = deltaic_session_create(w->model, &exact, &s);
  if (w->status != DELTAIC_OK) return NULL;
  w->status = deltaic_session_eval(s, text, N, DELTAIC_LOGITS_NONE, NULL);
  for (int i = 0; i < 20 && w->status == DELTAIC_OK; i++)
    w->status = deltaic_session_next(s, NULL, &token, i == 19 ? w->logits : NULL);
  deltaic_session_free(s);
  return NULL;
}

static void sessions_in_threads_do_not_disturb_each_other(deltaic_device *device) {
  enum { THREADS = 4 };
  deltaic_model *model = open_model(device, kinds[0]);
  struct worker workers[THREADS + 1];
  pthread_t threads[THREADS];
  for (int i = 0; i <= THREADS; i++) workers[i] = (struct worker){.model = model};
  work(&workers[THREADS]);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i <= THREADS; i++) {
    assert_int_equal(workers[i].status, DELTAIC_OK);
    assert_same_bits(workers[THREADS].logits, workers[i].logits, "a session among others");
  }
  deltaic_model_close(model);
}

struct visitor {
  deltaic_device *device;
  const deltaic_tokenizer *tokenizer;
  const char *path;
  float logits[V];
  char text[64];
  deltaic_status status;
};

// A context and a model of its own, on a device and with a tokenizer that others use meanwhile.
static void *visit(void *argument) {
  struct visitor *v = argument;
  deltaic_context *context = NULL;
  deltaic_device_info infos[16];
  deltaic_model *model = NULL;
  deltaic_session *s = NULL;
  int32_t ids[64];
  size_t count, n;
  v->status = deltaic_context_create(NULL, &context);
  if (!v->status) v->status = deltaic_devices(context, infos, 16, &count);
  if (!v->status) v->status = deltaic_tokenizer_encode(v->tokenizer, "It was the best of times", 24, true, ids, 64, &n);
  if (!v->status) v->status = deltaic_tokenizer_decode(v->tokenizer, ids, n, true, v->text, sizeof v->text, &count);
  if (!v->status) v->status = deltaic_model_open(v->device, v->path, NULL, &model);
  if (!v->status) v->status = deltaic_session_create(model, &exact, &s);
  if (!v->status) v->status = deltaic_session_eval(s, text, N, DELTAIC_LOGITS_LAST, v->logits);
  close_session(s, model);
  deltaic_context_free(context);
  return NULL;
}

static void threads_share_a_device_and_a_tokenizer(deltaic_device *device) {
  enum { THREADS = 4 };
  static struct visitor alone[KINDS], visitors[THREADS];
  pthread_t threads[THREADS];
  deltaic_tokenizer *tokenizer;
  assert_ok(deltaic_tokenizer_open(kinds[0], &tokenizer));
  for (int i = 0; i < KINDS; i++) {
    alone[i] = (struct visitor){.device = device, .tokenizer = tokenizer, .path = kinds[i]};
    visit(&alone[i]);
    assert_ok(alone[i].status);
  }
  for (int i = 0; i < THREADS; i++) {
    visitors[i] = (struct visitor){.device = device, .tokenizer = tokenizer, .path = kinds[i % KINDS]};
    assert_int_equal(pthread_create(&threads[i], NULL, visit, &visitors[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < THREADS; i++) {
    assert_int_equal(visitors[i].status, DELTAIC_OK);
    assert_same_bits(alone[i % KINDS].logits, visitors[i].logits, "a model among others");
    assert_memory_equal(alone[0].text, visitors[i].text, sizeof visitors[i].text);
  }
  deltaic_tokenizer_close(tokenizer);
}

static bool note_progress(void *user, uint64_t done, uint64_t total) {
  uint64_t *last = user;
  assert_in_range(done, last[0], total);
  last[0] = done;
  last[1] = total;
  return true;
}

static bool stop_half_way(void *user, uint64_t done, uint64_t total) {
  *(uint64_t *)user = total;
  return done < total / 2;
}

static void progress_can_stop_the_opening_of_a_model(deltaic_device *device) {
  uint64_t total = 0;
  deltaic_model_options options = {.size = sizeof options, .progress = stop_half_way, .progress_user = &total};
  deltaic_model *model;
  assert_int_equal(deltaic_model_open(device, kinds[0], &options, &model), DELTAIC_CANCELLED);
  deltaic_memory memory;
  assert_ok(deltaic_model_inspect(device, kinds[0], NULL, NULL, &memory));
  assert_int_equal(total, memory.weights_bytes);
  uint64_t last[2] = {0};
  options = (deltaic_model_options){.size = sizeof options, .progress = note_progress, .progress_user = last};
  assert_ok(deltaic_model_open(device, kinds[0], &options, &model));
  assert_int_equal(last[0], memory.weights_bytes); // the end is the total
  assert_int_equal(last[1], memory.weights_bytes);
  deltaic_model_close(model);
}

static void profiling_times_every_kernel_and_changes_no_bit(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *s = create(model);
  deltaic_kernel_time times[64];
  size_t count;
  float plain[V], profiled[V];
  eval(s, 0, N, plain);
  assert_ok(deltaic_session_reset(s));
  assert_ok(deltaic_session_profile_begin(s));
  eval(s, 0, N, profiled);
  assert_ok(deltaic_session_profile_end(s, times, 64, &count));
  assert_same_bits(plain, profiled, "with and without profiling");
  assert_in_range(count, 8, 64);
  double seconds = 0;
  for (size_t i = 0; i < count; i++) {
    assert_true(times[i].dispatches > 0 && times[i].bytes > 0 && times[i].name[0]);
    seconds += times[i].seconds;
    if (strncmp(times[i].name, "embed", 5)) continue;
    // The rows that are read, not the table.
    uint64_t row = (uint64_t)model->info.width * (4 + (strstr(times[i].name, "f16") ? 2 : 4));
    assert_in_range(times[i].bytes, N * row, N * (row + sizeof(int32_t)));
  }
  assert_true(seconds > 0);
  // The sum alone; steps that were recorded before have no stamps, and are recorded again.
  int32_t token;
  double busy = 0, none = 1;
  assert_ok(deltaic_session_reset(s));
  eval(s, 0, N, plain);
  assert_ok(deltaic_session_next(s, NULL, &token, NULL));
  assert_ok(deltaic_session_busy_begin(s));
  assert_ok(deltaic_session_busy_end(s, &none));
  assert_true(none == 0);
  assert_ok(deltaic_session_busy_begin(s));
  assert_ok(deltaic_session_next(s, NULL, &token, NULL));
  assert_ok(deltaic_session_busy_end(s, &busy));
  assert_true(busy > 0 && busy < 60);
  close_session(s, model);
}

static void counters_of_no_session_are_zero(void **state) {
  deltaic_counters counters = {1, 2, 3};
  deltaic_session_get_counters(NULL, &counters);
  assert_true(!counters.submits && !counters.recordings && !counters.dispatches);
  deltaic_session_get_counters(NULL, NULL);
}

static void count_row(const void *context, uint32_t row, uint32_t cols, float *out) {
  for (uint32_t i = 0; i < cols; i++) out[i] = (float)(*(const int *)context + (int)row);
}

static void equal_computed_weights_are_stored_once(void **state) {
  struct backend *cpu;
  assert_ok(backend_open_cpu(1, &cpu));
  struct weights w = {.backend = cpu};
  struct tensor t[4];
  int one = 1, two = 2;
  weights_rows(&w, &t[0], 100, 8, count_row, &one, sizeof one);
  uint64_t bytes = w.arena.bytes;
  weights_rows(&w, &t[1], 100, 8, count_row, &one, sizeof one);
  assert_int_equal(w.arena.bytes, bytes);
  weights_rows(&w, &t[2], 100, 8, count_row, &two, sizeof two);
  weights_rows(&w, &t[3], 100, 9, count_row, &one, sizeof one);
  assert_true(w.arena.bytes >= bytes + 100 * 17 * sizeof(float));
  assert_ok(arena_allocate(&w.arena, cpu, MEMORY_DEVICE, "weights"));
  weights_free(&w);
  cpu->functions->close(cpu);
}

int main(void) {
  make_text();
  const struct CMUnitTest tests[] = {
      device_test(one_seed_gives_one_text),
      device_test(a_token_after_the_first_is_one_submit_and_no_recording),
      device_test(a_layer_takes_at_most_six_dispatches_a_token),
      device_test(next_computes_what_eval_of_its_token_does),
      device_test(state_grows_with_the_text_only_by_the_stated_cache),
      device_test(a_full_context_is_refused_and_leaves_the_session_whole),
      device_test(misuse_is_refused_with_a_sentence),
      device_test(a_cancelled_session_works_again_after_a_reset),
      cmocka_unit_test(a_cancel_between_calls_stops_the_next_and_changes_nothing),
      device_test(a_cancel_during_a_step_is_the_next_calls),
      device_test(a_probe_does_not_see_draws_nor_disturb_them),
      device_test(sessions_in_threads_do_not_disturb_each_other),
      device_test(threads_share_a_device_and_a_tokenizer),
      cmocka_unit_test(counters_of_no_session_are_zero),
      cmocka_unit_test(equal_computed_weights_are_stored_once),
      device_test(progress_can_stop_the_opening_of_a_model),
      device_test(profiling_times_every_kernel_and_changes_no_bit),
  };
  return cmocka_run_group_tests(tests, NULL, NULL) + test_states();
}
