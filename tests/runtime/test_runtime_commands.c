// test_runtime_commands: the recorder: numbers, barriers, replay, streaming, cancelling, profiling.
#include "test_runtime.h"

#include "hazard.h"
#include "platform.h"

#include <time.h>

static void dependent_dispatches_give_the_right_numbers(void **state) {
  struct scene s = scene_open(device_of(state));
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 2, 0);  // y = a + 2 b = 3 i + 5
  add(s.c, s.kernel, whole(&s.z), whole(&s.y), whole(&s.a), -1, 0); // z = y - a = 2 i + 4
  add(s.c, s.kernel, whole(&s.y), whole(&s.z), whole(&s.z), 1, 0);  // y = 2 z = 4 i + 8
  add(s.c, s.kernel, whole(&s.a), whole(&s.y), whole(&s.z), 1, 0);  // a = y + z = 6 i + 12
  ok(commands_submit(s.c));
  for (uint32_t i = 0; i < N; i += 37) {
    assert_true(number(s.device, &s.y, i) == 4 * (float)i + 8);
    assert_true(number(s.device, &s.a, i) == 6 * (float)i + 12);
  }
  scene_close(&s);
}

// A long chain in place: every dispatch must see the one before.
static void a_thousand_dispatches_run_in_order(void **state) {
  struct scene s = scene_open(device_of(state));
  ok(buffer_zero(s.device, &s.y, 0, s.y.bytes));
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  for (int i = 0; i < 1000; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.a), 1, 0);
  ok(commands_submit(s.c));
  for (uint32_t i = 0; i < N; i += 111) assert_true(number(s.device, &s.y, i) == 1000 * ((float)i + 1));
  scene_close(&s);
}

static uint64_t barriers_after(struct hazard_trace *trace, uint64_t *before) {
  uint64_t now = hazard_barriers(trace), added = now - *before;
  *before = now;
  return added;
}

static void barriers_stand_exactly_where_ranges_conflict(void **state) {
  struct scene s = scene_open(device_of(state));
  struct hazard_trace *trace;
  uint64_t seen = 0;
  ok(hazard_create(&trace));
  commands_trace(s.c, trace, 0);
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  assert_int_equal(barriers_after(trace, &seen), 1); // what came before this command buffer
  const struct binding y_low = part(&s.y, 0, 1024), y_high = part(&s.y, 1024, 1024);
  add(s.c, s.kernel, y_low, whole(&s.a), whole(&s.b), 1, 0);
  add(s.c, s.kernel, y_high, whole(&s.a), whole(&s.b), 1, 0); // beside the first's range, reads what it reads
  assert_int_equal(barriers_after(trace, &seen), 0);
  add(s.c, s.kernel, whole(&s.z), y_high, whole(&s.a), 1, 0); // reads what was written
  assert_int_equal(barriers_after(trace, &seen), 1);
  add(s.c, s.kernel, y_low, whole(&s.a), whole(&s.b), 1, 0); // was written before the barrier
  assert_int_equal(barriers_after(trace, &seen), 0);
  add(s.c, s.kernel, y_high, whole(&s.b), whole(&s.b), 1, 0); // writes what was read
  assert_int_equal(barriers_after(trace, &seen), 1);
  add(s.c, s.kernel, y_high, whole(&s.b), whole(&s.b), 1, 0); // writes what was written
  assert_int_equal(barriers_after(trace, &seen), 1);
  add(s.c, s.kernel, part(&s.y, 2032, 16), whole(&s.b), whole(&s.b), 1, 0); // the last bytes of it
  assert_int_equal(barriers_after(trace, &seen), 1);
  add(s.c, s.kernel, part(&s.y, 2048, 16), whole(&s.b), whole(&s.b), 1, 0); // one past it
  assert_int_equal(barriers_after(trace, &seen), 0);
  ok(commands_submit(s.c));
  char text[256];
  assert_int_equal(hazard_check(trace, text, sizeof text), 0);
  hazard_free(trace);
  scene_close(&s);
}

static void record_chain(struct scene *s) {
  add(s->c, s->kernel, whole(&s->y), whole(&s->a), whole(&s->b), 1, 0);
  add(s->c, s->kernel, whole(&s->z), whole(&s->y), whole(&s->b), 1, 0);
  add(s->c, s->kernel, whole(&s->a), whole(&s->z), whole(&s->b), 1, 0);
  add(s->c, s->kernel, whole(&s->y), whole(&s->a), whole(&s->z), 1, 0);
}

// Nothing is submitted. A layer that sees hazards rightly objects to what is recorded: that is not an error here.
static void a_barrier_left_out_is_found(void **state) {
  struct fixture *f = *state;
  struct scene s = scene_open(f->device);
  struct hazard_trace *trace;
  char text[256];
  ok(hazard_create(&trace));
  commands_trace(s.c, trace, 0);
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  record_chain(&s);
  assert_int_equal(hazard_barriers(trace), 4);
  assert_int_equal(hazard_check(trace, text, sizeof text), 0);
  assert_string_equal(text, "");
  assert_int_equal(atomic_load(&f->instance.validation_errors), 0);
  for (uint32_t skip = 1; skip <= 3; skip++) {
    hazard_clear(trace);
    commands_trace(s.c, trace, skip);
    commands_begin(s.c, COMMANDS_REPLAY, NULL);
    record_chain(&s);
    assert_int_equal(hazard_barriers(trace), 3);
    assert_true(hazard_check(trace, text, sizeof text) > 0);
    assert_non_null(strstr(text, "add (dispatch"));
  }
  atomic_store(&f->instance.validation_errors, 0);
  hazard_clear(trace); // skipping is for one recording
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  record_chain(&s);
  assert_int_equal(hazard_check(trace, text, sizeof text), 0);
  hazard_free(trace);
  scene_close(&s);
}

static void accesses_outside_a_buffer_are_reported(void **state) {
  struct scene s = scene_open(device_of(state));
  struct hazard_trace *trace;
  char text[256];
  ok(hazard_create(&trace));
  hazard_dispatch(trace, "reckless");
  hazard_access(trace, &s.a, 4, s.a.bytes, true, false);
  hazard_access(trace, &s.b, UINT64_MAX, 2, true, false);
  assert_int_equal(hazard_check(trace, text, sizeof text), 2);
  assert_non_null(strstr(text, "reckless"));
  hazard_free(trace);

  const struct binding bad[] = {part(&s.y, 16, s.y.bytes), part(&s.y, UINT64_MAX - 15, 32), part(&s.y, 1, 4),
                                part(&s.y, 0, 0), part(NULL, 0, 4)};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    commands_begin(s.c, COMMANDS_REPLAY, NULL);
    add(s.c, s.kernel, bad[i], whole(&s.a), whole(&s.b), 1, 0);
    assert_int_equal(commands_submit(s.c), DELTAIC_INTERNAL);
    assert_non_null(strstr(deltaic_last_error(), "add: binding 2"));
  }
  scene_close(&s);
}

// The layer must speak when there is reason to: a descriptor reaches beyond its buffer. It is recorded and never run.
// Where the tests may do without the layer, nothing else counts errors.
static void an_access_past_the_end_is_reported_by_the_layer(void **state) {
  struct fixture *f = *state;
  struct scene s = scene_open(f->device);
  struct buffer longer = s.y; // our own check believes it
  longer.bytes *= 2;
  assert_int_equal(atomic_load(&f->instance.validation_errors), 0);
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  add(s.c, s.kernel, whole(&longer), whole(&s.a), whole(&s.b), 1, 0);
  assert_int_equal(atomic_exchange(&f->instance.validation_errors, 0) != 0, f->instance.validate);
  scene_close(&s);
}

static void a_replay_is_one_submit_and_no_recording(void **state) {
  struct scene s = scene_open(device_of(state));
  ok(buffer_zero(s.device, &s.y, 0, s.y.bytes));
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 0);
  add(s.c, s.kernel, whole(&s.z), whole(&s.y), whole(&s.b), 0, 0);
  for (uint64_t i = 1; i <= 25; i++) {
    ok(commands_submit(s.c));
    assert_true(number(s.device, &s.z, 3) == 5 * (float)i);
    struct commands_counters n = commands_count(s.c);
    assert_int_equal(n.submits, i);
    assert_int_equal(n.recordings, 1);
    assert_int_equal(n.dispatches, 2);
  }
  scene_close(&s);
}

// Only GPUs are polled: the device poses as one. A replay that is followed by a longer one is waited for all the same.
static void replays_are_waited_for_by_polling_too(void **state) {
  enum { MANY = 4000 };
  struct scene s = scene_open(device_of(state));
  const uint32_t type = s.device->caps.device_type;
  s.device->caps.device_type = VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU;
  ok(buffer_zero(s.device, &s.y, 0, s.y.bytes));
  float want = 0;
  for (int dispatches = 1; dispatches <= MANY; dispatches += MANY - 1) { // shorter and longer than it sleeps for
    commands_begin(s.c, COMMANDS_REPLAY, NULL);
    for (int i = 0; i < dispatches; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 0);
    for (int i = 0; i < 4; i++) {
      ok(commands_submit(s.c));
      want += 5 * (float)dispatches;
      assert_true(number(s.device, &s.y, 3) == want);
    }
  }
  s.device->caps.device_type = type;
  scene_close(&s);
}

static void what_the_host_writes_between_replays_is_seen(void **state) {
  struct scene s = scene_open(device_of(state));
  struct buffer shared, back;
  ok(buffer_create(s.device, MEMORY_SHARED, 64, "control", &shared));
  ok(buffer_create(s.device, MEMORY_SHARED, 64, "results", &back));
  assert_non_null(shared.mapped);
  assert_non_null(back.mapped);
  memset(shared.mapped, 0, 64);
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  add(s.c, s.kernel, whole(&back), whole(&shared), whole(&shared), 1, 0);
  for (int i = 0; i < 50; i++) {
    ((float *)shared.mapped)[5] = (float)i;
    ok(commands_submit(s.c));
    assert_true(((float *)back.mapped)[5] == 2 * (float)i);
  }
  buffer_free(s.device, &shared);
  buffer_free(s.device, &back);
  scene_close(&s);
}

static const atomic_bool never = false; // cancelled

static void streaming_splits_by_operations(void **state) {
  struct scene s = scene_open(device_of(state));
  s.device->plan.submit_operations = 100;
  ok(buffer_zero(s.device, &s.y, 0, s.y.bytes));
  for (int round = 1; round <= 2; round++) {
    commands_begin(s.c, COMMANDS_STREAM, &never);
    for (int i = 0; i < 11; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 50);
    ok(commands_submit(s.c));
    assert_int_equal(commands_count(s.c).submits, 6 * (uint64_t)round); // five pairs and the odd one
    assert_true(number(s.device, &s.y, 8) == 110 * (float)round);
  }
  scene_close(&s);
}

// Most of 400 submissions of two tiny dispatches take less than 2 ms, on any device. Results are the same.
static void what_nothing_cancels_is_sent_in_larger_pieces(void **state) {
  struct scene s = scene_open(device_of(state));
  s.device->plan.submit_operations = 100;
  ok(buffer_zero(s.device, &s.y, 0, s.y.bytes));
  commands_begin(s.c, COMMANDS_STREAM, NULL);
  for (int i = 0; i < 800; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 50);
  ok(commands_submit(s.c));
  assert_in_range(commands_count(s.c).submits, 50, 399);
  assert_true(number(s.device, &s.y, 8) == 8000);
  scene_close(&s);
}

static void streaming_without_a_rest_submits_nothing_more(void **state) {
  struct scene s = scene_open(device_of(state));
  s.device->plan.submit_operations = 100;
  commands_begin(s.c, COMMANDS_STREAM, &never);
  for (int i = 0; i < 4; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 50);
  ok(commands_submit(s.c));
  assert_int_equal(commands_count(s.c).submits, 2);
  assert_int_equal(commands_submit(s.c), DELTAIC_INTERNAL); // there is nothing to submit
  scene_close(&s);
}

static void *cancel_soon(void *flag) {
  nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  atomic_store((atomic_bool *)flag, true);
  return NULL;
}

static void another_thread_cancels_a_stream(void **state) {
  struct scene s = scene_open(device_of(state));
  s.device->plan.submit_operations = 100;
  atomic_bool cancel = false;
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, cancel_soon, &cancel), 0);
  commands_begin(s.c, COMMANDS_STREAM, &cancel);
  while (!commands_status(s.c)) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 50);
  assert_int_equal(commands_submit(s.c), DELTAIC_CANCELLED);
  pthread_join(thread, NULL);
  atomic_store(&cancel, false);
  commands_begin(s.c, COMMANDS_STREAM, &cancel);
  add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 50);
  ok(commands_submit(s.c));
  assert_true(number(s.device, &s.y, 4) == 11);
  scene_close(&s);
}

static void the_first_error_is_kept_until_begin(void **state) {
  struct scene s = scene_open(device_of(state));
  for (int mode = COMMANDS_REPLAY; mode <= COMMANDS_STREAM; mode++) {
    commands_begin(s.c, (enum commands_mode)mode, NULL);
    ok(commands_status(s.c));
    commands_fail(s.c, fail(DELTAIC_BAD_SHAPE, "the first"));
    commands_fail(s.c, fail(DELTAIC_IO, "the second"));
    add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 0);
    fail(DELTAIC_IO, "something else");
    assert_int_equal(commands_status(s.c), DELTAIC_BAD_SHAPE);
    for (int i = 0; i < 2; i++) {
      assert_int_equal(commands_submit(s.c), DELTAIC_BAD_SHAPE);
      assert_string_equal(deltaic_last_error(), "the first");
    }
    assert_int_equal(commands_count(s.c).dispatches, mode);
    commands_begin(s.c, (enum commands_mode)mode, NULL);
    add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 0);
    ok(commands_submit(s.c));
  }
  scene_close(&s);
}

static void too_many_workgroups_are_refused_by_name(void **state) {
  struct scene s = scene_open(device_of(state));
  s.device->caps.max_groups[1] = 65535;
  const struct binding bindings[] = {whole(&s.a), whole(&s.b), whole(&s.y)};
  struct add_args args = {N, 1};
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  commands_dispatch(s.c, s.kernel, bindings, &args, (const uint32_t[]){1, 65536, 1}, 0);
  assert_int_equal(commands_submit(s.c), DELTAIC_INTERNAL);
  assert_non_null(strstr(deltaic_last_error(), "add: 1 x 65536 x 1 workgroups"));
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  commands_dispatch(s.c, s.kernel, bindings, &args, (const uint32_t[]){1, 0, 1}, 0); // nothing, and no error
  ok(commands_submit(s.c));
  assert_int_equal(commands_count(s.c).dispatches, 0);
  scene_close(&s);
}

static void work_without_a_recording_is_refused(void **state) {
  struct scene s = scene_open(device_of(state));
  assert_int_equal(commands_submit(s.c), DELTAIC_INTERNAL);
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  ok(commands_submit(s.c)); // an empty one is fine
  add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 0);
  assert_int_equal(commands_submit(s.c), DELTAIC_INTERNAL);
  scene_close(&s);
}

static int tiredness; // fences' waits and questions that fail before one is answered
static PFN_vkWaitForFences real_wait;
static PFN_vkGetFenceStatus real_fence_status;

static VKAPI_ATTR VkResult VKAPI_CALL tired_wait(VkDevice device, uint32_t count, const VkFence *fence, VkBool32 all,
                                                 uint64_t timeout) {
  return tiredness-- > 0 ? VK_ERROR_OUT_OF_HOST_MEMORY : real_wait(device, count, fence, all, timeout);
}

static VKAPI_ATTR VkResult VKAPI_CALL tired_fence_status(VkDevice device, VkFence fence) {
  return tiredness-- > 0 ? VK_ERROR_OUT_OF_HOST_MEMORY : real_fence_status(device, fence);
}

static void tire(struct device *device) {
  real_wait = device->vk.vkWaitForFences;
  real_fence_status = device->vk.vkGetFenceStatus;
  device->vk.vkWaitForFences = tired_wait;
  device->vk.vkGetFenceStatus = tired_fence_status;
}

static void rest(struct device *device) {
  device->vk.vkWaitForFences = real_wait;
  device->vk.vkGetFenceStatus = real_fence_status;
}

// Of a replay, of a stream in its middle and at its end, and of a transfer: the work runs on, and is waited for again.
static void a_wait_that_fails_is_repeated(void **state) {
  struct scene s = scene_open(device_of(state));
  s.device->plan.submit_operations = 100;
  tire(s.device);
  for (int mode = COMMANDS_REPLAY; mode <= COMMANDS_STREAM; mode++)
    for (int times = 1; times <= 3; times++) {
      tiredness = 0;
      ok(buffer_zero(s.device, &s.y, 0, s.y.bytes));
      commands_begin(s.c, (enum commands_mode)mode, NULL);
      tiredness = times;
      for (int i = 0; i < 8; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.a), 1, 50);
      ok(commands_submit(s.c));
      assert_true(tiredness < 0);
      assert_true(number(s.device, &s.y, 0) == 8);
    }
  s.y.mapped = NULL;
  tiredness = 3;
  ok(buffer_zero(s.device, &s.y, 0, s.y.bytes));
  assert_true(tiredness < 0);
  assert_true(number(s.device, &s.y, 0) == 0);
  rest(s.device);
  scene_close(&s);
}

static void profiling_adds_up_by_kernel(void **state) {
  struct scene s = scene_open(device_of(state));
  if (!s.device->caps.timestamp_bits) {
    assert_int_equal(commands_profile(s.c, true), DELTAIC_UNSUPPORTED);
    scene_close(&s);
    return;
  }
  ok(commands_profile(s.c, true));
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  for (int i = 0; i < 200; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 7);
  for (int i = 0; i < 3; i++) ok(commands_submit(s.c));
  deltaic_kernel_time time[2];
  assert_int_equal(commands_times(s.c, time, 2), 1);
  assert_string_equal(time[0].name, "add");
  assert_int_equal(time[0].dispatches, 600);
  assert_int_equal(time[0].operations, 600 * 7);
  assert_int_equal(time[0].bytes, 600 * 3 * 4 * N);
  assert_true(time[0].seconds > 0 && time[0].seconds < 60);
  ok(commands_profile(s.c, false));
  commands_begin(s.c, COMMANDS_REPLAY, NULL);
  add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 7);
  ok(commands_submit(s.c));
  commands_times(s.c, time, 2);
  assert_int_equal(time[0].dispatches, 600);
  ok(commands_profile(s.c, true)); // begins anew
  assert_int_equal(commands_times(s.c, NULL, 0), 0);
  scene_close(&s);
}

static void a_profiled_stream_counts_every_dispatch(void **state) {
  struct scene s = scene_open(device_of(state));
  s.device->plan.submit_operations = 100;
  if (!commands_profile(s.c, true)) {
    commands_begin(s.c, COMMANDS_STREAM, NULL);
    for (int i = 0; i < 31; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 30);
    ok(commands_submit(s.c));
    deltaic_kernel_time time;
    assert_int_equal(commands_times(s.c, &time, 1), 1);
    assert_int_equal(time.dispatches, 31);
  }
  scene_close(&s);
}

// Streamed and replayed: one stamp pair each, and no more time than has passed.
static void submissions_are_timed_once(void **state) {
  struct scene s = scene_open(device_of(state));
  s.device->plan.submit_operations = 100;
  if (!commands_busy(s.c, true)) {
    uint64_t start = platform_clock_ns();
    commands_begin(s.c, COMMANDS_STREAM, &never);
    for (int i = 0; i < 31; i++) add(s.c, s.kernel, whole(&s.y), whole(&s.y), whole(&s.b), 1, 30);
    ok(commands_submit(s.c));
    deltaic_kernel_time time;
    assert_int_equal(commands_times(s.c, &time, 1), 1);
    assert_string_equal(time.name, "submissions");
    assert_int_equal(time.dispatches, commands_count(s.c).submits);
    assert_int_equal(time.dispatches, 8); // of four dispatches, 120 operations
    commands_begin(s.c, COMMANDS_REPLAY, NULL);
    add(s.c, s.kernel, whole(&s.y), whole(&s.a), whole(&s.b), 1, 7);
    for (int i = 0; i < 3; i++) ok(commands_submit(s.c));
    commands_times(s.c, &time, 1);
    assert_int_equal(time.dispatches, 11);
    assert_true(time.seconds > 0 && time.seconds <= 1e-9 * (double)(platform_clock_ns() - start));
  }
  scene_close(&s);
}

int test_commands(void) {
  const struct CMUnitTest tests[] = {
      ON_DEVICE(dependent_dispatches_give_the_right_numbers),
      ON_DEVICE(a_thousand_dispatches_run_in_order),
      ON_DEVICE(barriers_stand_exactly_where_ranges_conflict),
      ON_DEVICE(a_barrier_left_out_is_found),
      ON_DEVICE(accesses_outside_a_buffer_are_reported),
      ON_DEVICE(an_access_past_the_end_is_reported_by_the_layer),
      ON_DEVICE(a_replay_is_one_submit_and_no_recording),
      ON_DEVICE(replays_are_waited_for_by_polling_too),
      ON_DEVICE(what_the_host_writes_between_replays_is_seen),
      ON_DEVICE(streaming_splits_by_operations),
      ON_DEVICE(what_nothing_cancels_is_sent_in_larger_pieces),
      ON_DEVICE(streaming_without_a_rest_submits_nothing_more),
      ON_DEVICE(another_thread_cancels_a_stream),
      ON_DEVICE(the_first_error_is_kept_until_begin),
      ON_DEVICE(too_many_workgroups_are_refused_by_name),
      ON_DEVICE(work_without_a_recording_is_refused),
      ON_DEVICE(a_wait_that_fails_is_repeated),
      ON_DEVICE(profiling_adds_up_by_kernel),
      ON_DEVICE(a_profiled_stream_counts_every_dispatch),
      ON_DEVICE(submissions_are_timed_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
