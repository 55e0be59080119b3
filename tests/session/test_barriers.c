// test_barriers: the recordings of whole models, proved by the hazard checker: not one hazard, and one for every
// barrier that is left out. And how often they are submitted.
#include "device_handle.h"
#include "hazard.h"
#include "session.h"
#include "vulkan_backend.h"
#undef fail // cmocka's is meant
#include "devices.h"

enum { V = 259, PROMPT = 70 };
#define MODELS TESTS_DIR "/vectors/models/"
static const char *const models[] = {
    MODELS "tiny_gated_deltanet_h1", MODELS "tiny_delta_net_swa", MODELS "tiny_gated_delta_product",
    MODELS "tiny_hh_gated_dynamic",  MODELS "tiny_mamba2",        MODELS "released_qwen3_next"};

static struct hazard_trace *trace;
static int32_t text[PROMPT];

static deltaic_session *open_exact(deltaic_device *device, const char *path, deltaic_model **model) {
  *model = open_model(device, path);
  return open_session(*model, &exact);
}

static void follow(struct recorder *c, uint32_t skip_barrier) {
  commands_trace(((struct vulkan_recorder *)c)->commands, trace, skip_barrier);
}

static bool is_vulkan(deltaic_device *device) { return device_info(device).kind != DELTAIC_DEVICE_CPU; }

static void prefill(deltaic_session *s) { assert_ok(deltaic_session_eval(s, text, PROMPT, DELTAIC_LOGITS_NONE, NULL)); }

static void assert_no_hazard(const char *path) {
  char line[512];
  uint64_t n = hazard_check(trace, line, sizeof line);
  if (n) fail_msg("%s: %llu hazards: %s", path, (unsigned long long)n, line);
}

// ---------------------------------------------------------------- whole models

static void check_model(deltaic_device *device, const char *path) {
  deltaic_model *model;
  deltaic_session *s = open_exact(device, path, &model);
  float logits[V];
  int32_t token;
  struct recorder *recorders[] = {s->prefill, s->steps[0].recorder, s->next[0].recorder};
  hazard_clear(trace);
  for (int i = 0; i < 3; i++) follow(recorders[i], 0);
  prefill(s);
  uint64_t streamed = hazard_barriers(trace);
  for (int i = 0; i < 3; i++) assert_ok(deltaic_session_eval(s, text, 1, DELTAIC_LOGITS_LAST, logits));
  uint64_t stepped = hazard_barriers(trace);
  for (int i = 0; i < 3; i++) assert_ok(deltaic_session_next(s, NULL, &token, NULL));
  if (streamed < 10 || stepped < streamed + 10 || hazard_barriers(trace) < stepped + 10)
    fail_msg("%s: too few barriers for a model: the trace has missed something", path);
  assert_no_hazard(path);
  close_session(s, model);
}

// What several texts add: scores, steps of many, copies between slots.
static void check_batch(deltaic_device *device, const char *path) {
  enum { B = 3 };
  deltaic_session_options options = {.size = sizeof options, .sequences = B};
  deltaic_score scores[PROMPT];
  int32_t tokens[B];
  deltaic_model *model = open_model(device, path);
  deltaic_session *s = open_session(model, &options);
  deltaic_piece pieces[B] = {{.sequence = 2, .tokens = text, .count = PROMPT, .targets = text, .scores = scores},
                             {.sequence = 0, .tokens = text, .count = 1},
                             {.sequence = 1, .tokens = text, .count = 20}};
  assert_ok(deltaic_session_eval_batch(s, pieces, B));
  assert_ok(deltaic_session_next_batch(s, NULL, B, NULL, tokens, NULL)); // makes the recorder
  s->next[B - 1].recorded = false;
  hazard_clear(trace);
  follow(s->prefill, 0);
  follow(s->next[B - 1].recorder, 0);
  assert_ok(deltaic_session_eval_batch(s, pieces, B));
  uint64_t streamed = hazard_barriers(trace);
  for (int i = 0; i < 3; i++) assert_ok(deltaic_session_next_batch(s, NULL, B, NULL, tokens, NULL));
  uint64_t stepped = hazard_barriers(trace);
  assert_ok(deltaic_sequence_copy(s, 0, 2));
  assert_ok(deltaic_sequence_reset(s, 2));
  if (streamed < 10 || stepped < streamed + 10 || hazard_barriers(trace) == stepped)
    fail_msg("%s: too few barriers for a batch: the trace has missed something", path);
  assert_no_hazard(path);
  close_session(s, model);
}

static void no_recording_of_a_model_has_a_hazard(deltaic_device *device) {
  for (size_t i = 0; is_vulkan(device) && i < sizeof models / sizeof *models; i++) check_model(device, models[i]);
}

static void texts_side_by_side_have_no_hazard(deltaic_device *device) {
  for (size_t i = 0; is_vulkan(device) && i < sizeof models / sizeof *models; i++) check_batch(device, models[i]);
}

// ---------------------------------------------------------------- barriers left out

static void record_prefill(deltaic_session *s, uint32_t skip_barrier) {
  assert_ok(deltaic_session_reset(s));
  hazard_clear(trace);
  follow(s->prefill, skip_barrier);
  prefill(s);
}

static void record_step(deltaic_session *s, uint32_t skip_barrier) {
  assert_ok(deltaic_session_reset(s));
  hazard_clear(trace);
  follow(s->steps[0].recorder, skip_barrier);
  s->steps[0].recorded = false;
  assert_ok(deltaic_session_eval(s, text, 1, DELTAIC_LOGITS_NONE, NULL));
}

static void check_left_out(deltaic_session *s, void (*record)(deltaic_session *, uint32_t), const char *what) {
  char line[512];
  record(s, 0);
  assert_no_hazard(what);
  uint64_t all = hazard_barriers(trace), between = all - 1; // one is at the start
  assert_true(between >= 10);
  for (uint32_t k = 1; k <= between; k += k < 5 ? 1 : 7) {
    record(s, k);
    assert_int_equal(hazard_barriers(trace), all - 1);
    if (!hazard_check(trace, line, sizeof line)) fail_msg("%s: nothing is said without barrier %u", what, k);
  }
}

static void left_out_on(deltaic_device *device) {
  deltaic_model *model;
  deltaic_session *s = open_exact(device, models[0], &model);
  check_left_out(s, record_step, "a step");
  check_left_out(s, record_prefill, "a prompt");
  close_session(s, model);
}

// These recordings are wrong and are run: what they compute is of no interest. So no layer of ours watches.
static void a_barrier_left_out_of_a_model_is_found(void **state) {
  deltaic_context_options options = {.size = sizeof options, .cache_dir = ""};
  deltaic_context *context;
  deltaic_device_info infos[16];
  size_t count, tested = 0;
  assert_ok(deltaic_context_create(&options, &context));
  assert_ok(deltaic_devices(context, infos, 16, &count));
  for (size_t i = 0; i < count && i < 16; i++) {
    if (!device_wanted(&infos[i]) || infos[i].kind == DELTAIC_DEVICE_CPU) continue;
    deltaic_device_options choice = {.size = sizeof choice, .index = infos[i].index};
    deltaic_device *device;
    assert_ok(deltaic_device_open(context, &choice, &device));
    left_out_on(device);
    deltaic_device_close(device);
    tested++;
  }
  assert_vulkan_tested(tested);
  deltaic_context_free(context);
}

// ---------------------------------------------------------------- submissions

static PFN_vkQueueSubmit real_submit;
static uint64_t submits; // of every kind, as the driver sees them

static VKAPI_ATTR VkResult VKAPI_CALL count_submit(VkQueue queue, uint32_t count, const VkSubmitInfo *info,
                                                   VkFence fence) {
  submits++;
  return real_submit(queue, count, info, fence);
}

// As on a card whose memory cannot be mapped: reading logits takes a submission more, which the counters leave out.
static void a_token_is_one_submit_and_its_logits_one_more(deltaic_device *device) {
  if (!is_vulkan(device)) return;
  deltaic_model *model;
  deltaic_session *s = open_exact(device, models[0], &model);
  struct device *d = vulkan_device(model->backend);
  float logits[V];
  int32_t token;
  prefill(s);
  assert_ok(deltaic_session_next(s, NULL, &token, NULL)); // records
  ((struct buffer *)s->last.buffer)->mapped = NULL;
  real_submit = d->vk.vkQueueSubmit;
  d->vk.vkQueueSubmit = count_submit;
  for (uint64_t with = 0; with < 2; with++) {
    deltaic_counters before, after;
    submits = 0;
    deltaic_session_get_counters(s, &before);
    assert_ok(deltaic_session_next(s, NULL, &token, with ? logits : NULL));
    deltaic_session_get_counters(s, &after);
    assert_int_equal(after.submits - before.submits, 1);
    assert_int_equal(submits, 1 + with);
  }
  d->vk.vkQueueSubmit = real_submit;
  close_session(s, model);
}

// DELTAIC_TEST_FILTER: only the tests that match it.
int main(void) {
  cmocka_set_test_filter(getenv("DELTAIC_TEST_FILTER"));
  for (int i = 0; i < PROMPT; i++) text[i] = 3 + i * 37 % 50;
  assert_ok(hazard_create(&trace));
  const struct CMUnitTest tests[] = {
      device_test(no_recording_of_a_model_has_a_hazard),
      device_test(texts_side_by_side_have_no_hazard),
      cmocka_unit_test(a_barrier_left_out_of_a_model_is_found),
      device_test(a_token_is_one_submit_and_its_logits_one_more),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  hazard_free(trace);
  return failed;
}
