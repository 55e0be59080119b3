// How a device is chosen and opened, and what a program can do while its pipelines are compiled.
#include "device_handle.h"
#include "slice.h"
#include "test_folder.h"

#include "devices.h" // last: its macro fail() must not meet the declaration of ours

#include <string.h>

#define MODEL TESTS_DIR "/vectors/models/tiny_delta_net"

static const int32_t text[9] = {1, 5, 3, 7, 2, 6, 4, 8, 9};

struct compiling {
  uint64_t calls, refuse_at; // refuse_at 0: never
  uint64_t last;
  deltaic_session *cancel; // by the callback, instead of refusing
};

static bool compile(void *user, uint64_t done, uint64_t total) {
  struct compiling *c = user;
  assert_int_equal(total, 0);
  assert_true(c->calls == 0 || done >= c->last);
  c->last = done;
  const bool now = ++c->calls == c->refuse_at;
  if (now && c->cancel) deltaic_session_cancel(c->cancel);
  return !now || c->cancel;
}

static deltaic_device *open_watched(deltaic_context *context, int32_t index, struct compiling *c) {
  deltaic_device_options o = {
      .size = sizeof o, .index = index, .threads = 1, .compiling = compile, .compiling_user = c};
  deltaic_device *device;
  assert_ok(deltaic_device_open(context, &o, &device));
  return device;
}

// Each call makes a kernel or two, then refuses or cancels: the session goes on as if nothing had been asked of it.
static void check_stops(deltaic_context *context, int32_t index, bool cancels, const int32_t *expected) {
  struct compiling c = {0};
  deltaic_device *device = open_watched(context, index, &c);
  deltaic_model *model = open_model(device, MODEL);
  deltaic_session *s = open_session(model, NULL);
  int32_t tokens[3];
  uint64_t stopped = 0;
  for (uint32_t i = 0; i < 9;) { // token by token: a single step is left as it was
    c = (struct compiling){.refuse_at = 2 + i % 2, .cancel = cancels ? s : NULL};
    const deltaic_status status = deltaic_session_eval(s, text + i, 1, DELTAIC_LOGITS_NONE, NULL);
    if (status == DELTAIC_OK) {
      i++;
      continue;
    }
    assert_int_equal(status, DELTAIC_CANCELLED);
    assert_int_equal(deltaic_session_position(s), i);
    stopped++;
  }
  assert_true(stopped > 0 || cancels); // a step does not look at cancels once it has begun
  for (int i = 0; i < 3;) {
    c = (struct compiling){.refuse_at = 2, .cancel = cancels ? s : NULL};
    const deltaic_status status = deltaic_session_next(s, NULL, &tokens[i], NULL);
    if (status == DELTAIC_OK) i++;
    stopped += status != DELTAIC_OK;
    assert_true(status == DELTAIC_OK || status == DELTAIC_CANCELLED);
  }
  assert_memory_equal(tokens, expected, sizeof tokens);
  assert_true(stopped > 0);
  assert_true(deltaic_device_compile_seconds(device) > 0);
  close_session(s, model);
  deltaic_device_close(device);
}

// A prompt whose compiling is stopped needs a reset.
static void check_prompt(deltaic_context *context, int32_t index, bool cancels) {
  struct compiling c = {0};
  deltaic_device *device = open_watched(context, index, &c);
  deltaic_model *model = open_model(device, MODEL);
  deltaic_session *s = open_session(model, NULL);
  c = (struct compiling){.refuse_at = 3, .cancel = cancels ? s : NULL};
  assert_int_equal(deltaic_session_eval(s, text, 9, DELTAIC_LOGITS_NONE, NULL), DELTAIC_CANCELLED);
  assert_int_equal(c.calls, 3); // nothing more was compiled
  assert_int_equal(deltaic_session_eval(s, text, 9, DELTAIC_LOGITS_NONE, NULL), DELTAIC_BAD_STATE);
  assert_ok(deltaic_session_reset(s));
  assert_ok(deltaic_session_eval(s, text, 9, DELTAIC_LOGITS_NONE, NULL));
  assert_int_equal(deltaic_session_position(s), 9);
  close_session(s, model);
  deltaic_device_close(device);
}

static int32_t first_vulkan(deltaic_context *context, deltaic_device_info *info) {
  deltaic_device_info infos[16];
  size_t count;
  assert_ok(deltaic_devices(context, infos, 16, &count));
  for (size_t i = 0; i < count && i < 16; i++)
    if (infos[i].kind != DELTAIC_DEVICE_CPU && infos[i].usable) {
      *info = infos[i];
      return infos[i].index;
    }
  fail_msg("no Vulkan device to test on");
  return 0;
}

static void compiling_can_be_watched_and_stopped(void **state) {
  deltaic_context *context = test_context();
  deltaic_device_info info;
  const int32_t index = first_vulkan(context, &info);
  struct compiling c = {0};
  deltaic_device *device = open_watched(context, index, &c);
  assert_true(deltaic_device_compile_seconds(device) == 0);
  deltaic_model *model = open_model(device, MODEL);
  deltaic_session *s = open_session(model, NULL);
  int32_t expected[3];
  for (int i = 0; i < 9; i++) assert_ok(deltaic_session_eval(s, text + i, 1, DELTAIC_LOGITS_NONE, NULL));
  for (int i = 0; i < 3; i++) assert_ok(deltaic_session_next(s, NULL, &expected[i], NULL));
  assert_true(c.calls > 5 && c.last + 1 == c.calls);
  close_session(s, model);
  deltaic_device_close(device);
  check_stops(context, index, false, expected);
  check_stops(context, index, true, expected);
  check_prompt(context, index, false);
  check_prompt(context, index, true);
  assert_int_equal(deltaic_context_validation_errors(context), 0);
  deltaic_context_free(context);
}

struct prompt {
  struct deltaic_session *s;
  struct slice_shape shape;
};

static void list_prompt(struct recorder *c, void *context) {
  struct prompt *p = context;
  slice_list_prompt(p->s, &p->shape);
  c->functions->recorder_list(c, &p->s->list);
}

static void list_step(struct recorder *c, void *context) {
  const struct prompt *p = context;
  slice_list_step(p->s, p->shape.count, true);
  c->functions->recorder_list(c, &p->s->list);
}

static bool never(void *user, const deltaic_probed *probed) {
  fail_msg("layer %d was probed", probed->layer);
  return false;
}

// A probe is left out.
static void check_probed(deltaic_model *model, struct compiling *c) {
  deltaic_session *s = open_session(model, NULL);
  assert_ok(deltaic_session_probe(s, DELTAIC_PROBE_RESIDUAL, never, NULL));
  *c = (struct compiling){0};
  assert_ok(deltaic_session_prepare(s));
  assert_ok(s->probe.status); // nothing was looked at
  assert_true(c->calls > 0);
  assert_ok(deltaic_session_probe(s, 0, NULL, NULL));
  *c = (struct compiling){.refuse_at = 1};
  assert_ok(deltaic_session_eval(s, text, 9, DELTAIC_LOGITS_NONE, NULL));
  assert_int_equal(c->calls, 0);
  deltaic_session_free(s);
}

static void a_prepared_session_compiles_nothing(void **state) {
  enum { SEQUENCES = 5, BATCH = 200 };
  deltaic_context *context = test_context();
  deltaic_device_info info;
  struct compiling c = {.refuse_at = 1};
  deltaic_device *device = open_watched(context, first_vulkan(context, &info), &c);
  struct backend *b = device->backend;
  deltaic_model *model = open_model(device, MODEL);
  const deltaic_session_options o = {.size = sizeof o, .sequences = SEQUENCES, .batch = BATCH};
  deltaic_session *s = open_session(model, &o);
  assert_int_equal(deltaic_session_prepare(s), DELTAIC_CANCELLED);
  assert_int_equal(c.calls, 1);
  check_probed(model, &c);
  c = (struct compiling){0};
  assert_ok(deltaic_session_prepare(s));
  assert_true(c.calls > 0 && deltaic_device_compile_seconds(device) > 0);
  c = (struct compiling){.refuse_at = 1};
  assert_ok(deltaic_session_prepare(s));
  struct prompt p = {.s = s};
  for (uint32_t n = 1; n <= SEQUENCES; n++) {
    p.shape.count = n;
    assert_ok(b->functions->compile(b, list_step, &p));
    for (uint32_t T = n + 1; T <= BATCH; T++)
      for (uint32_t longest = (T + n - 1) / n; longest <= T - n + 1; longest += longest / 2) {
        p.shape = (struct slice_shape){.T = T, .count = n, .longest = longest, .ends = T % (n + 1)};
        assert_ok(b->functions->compile(b, list_prompt, &p));
      }
  }
  int32_t tokens[2];
  static float logits[9 * 512];
  deltaic_model_info m;
  deltaic_model_get_info(model, &m);
  assert_true(m.vocabulary <= 512);
  const deltaic_piece pieces[] = {
      {.sequence = 4, .tokens = text, .count = 9, .logits = DELTAIC_LOGITS_ALL, .out = logits},
      {.sequence = 1, .tokens = text, .count = 4}};
  assert_ok(deltaic_session_eval_batch(s, pieces, 2));
  assert_ok(deltaic_session_next_batch(s, (const uint32_t[]){1, 4}, 2, NULL, tokens, NULL));
  assert_int_equal(c.calls, 0);
  close_session(s, model);
  deltaic_device_close(device);

  device = open_watched(context, DELTAIC_DEVICE_INDEX_CPU, &c);
  model = open_model(device, MODEL);
  s = open_session(model, NULL);
  assert_ok(deltaic_session_prepare(s));
  assert_int_equal(c.calls, 0);
  close_session(s, model);
  deltaic_device_close(device);
  assert_int_equal(deltaic_session_prepare(NULL), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_context_validation_errors(context), 0);
  deltaic_context_free(context);
}

static void a_device_is_chosen_by_its_uuid(void **state) {
  deltaic_context *context = test_context();
  deltaic_device_info info, opened;
  first_vulkan(context, &info);
  deltaic_device *device;
  deltaic_device_options o = {.size = sizeof o, .uuid = info.uuid, .background = true};
  assert_ok(deltaic_device_open(context, &o, &device));
  deltaic_device_get_info(device, &opened);
  assert_int_equal(opened.index, info.index);
  assert_memory_equal(opened.uuid, info.uuid, 16);
  deltaic_model *model = open_model(device, MODEL);
  deltaic_session *s = open_session(model, NULL);
  assert_ok(deltaic_session_eval(s, text, 9, DELTAIC_LOGITS_NONE, NULL));
  close_session(s, model);
  deltaic_device_close(device);

  const uint8_t strange[16] = {0xab, 1};
  o.uuid = strange;
  assert_int_equal(deltaic_device_open(context, &o, &device), DELTAIC_NO_DEVICE);
  assert_message((const char *[]){"no Vulkan device with the UUID ab010000000000000000000000000000", NULL});
  o.index = 1;
  assert_int_equal(deltaic_device_open(context, &o, &device), DELTAIC_INVALID_ARGUMENT);
  assert_message((const char *[]){"UUID", "index is 1", NULL});
  assert_true(deltaic_device_compile_seconds(NULL) == 0);
  deltaic_context_free(context);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(compiling_can_be_watched_and_stopped),
      cmocka_unit_test(a_prepared_session_compiles_nothing),
      cmocka_unit_test(a_device_is_chosen_by_its_uuid),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
