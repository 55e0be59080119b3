// What fits into a time: the lengths of slices against a device that is a formula, and the calls on real ones.
#include "test_session.h"

#include "pace.h"

#include <math.h>

// ---------------------------------------------------------------- a device that is a formula

struct formula {
  double call, token, first; // nanoseconds: of a slice, of each token, of a length's first slice in addition
  bool seen[PACE_LENGTHS + 1];
};

static double run(struct formula *f, uint32_t tokens) {
  const int length = (int)log2(tokens);
  const double first = f->seen[length] ? 0 : f->first;
  f->seen[length] = true;
  return f->call + f->token * tokens + first;
}

// Evaluates n tokens in calls of `ns` each; returns the number of calls. *slowest: of those without a first slice.
static int read_all(struct formula *f, struct pace *p, uint32_t n, double ns, double *slowest) {
  int calls = 0;
  *slowest = 0;
  for (uint32_t done = 0; done < n; calls++) {
    double used = 0;
    bool first = false;
    for (uint32_t slices = 0; done < n; slices++) {
      uint32_t slice = pace_slice(p, ns - used, n - done < 512 ? n - done : 512);
      if (!slice && slices) break;
      if (!slice) slice = 1;
      assert_in_range(slice, 1, n - done);
      first |= !f->seen[(int)log2(slice)];
      const double took = run(f, slice);
      pace_slice_took(p, slice, took);
      used += took;
      done += slice;
    }
    if (!first && used > *slowest) *slowest = used;
  }
  return calls;
}

static void slices_fill_the_time_and_not_more(void **state) {
  static const struct formula devices[] = {
      {.call = 1e5, .token = 1e4},              // a CPU, small model: 790 tokens in 8 ms
      {.call = 1e6, .token = 1e4},              // a GPU: as long for 1 token as for 100
      {.call = 1e5, .token = 1e6},              // 8 tokens in 8 ms
      {.call = 1e5, .token = 1e4, .first = 1e9} // each length is compiled at its first slice
  };
  for (size_t i = 0; i < sizeof devices / sizeof *devices; i++) {
    struct formula f = devices[i];
    struct pace p = {0};
    double slowest;
    (void)read_all(&f, &p, 8000, 8e6, &slowest); // learns
    assert_true(slowest <= 8e6);
    const int calls = read_all(&f, &p, 8000, 8e6, &slowest);
    const double fits = fmin(512, (8e6 - f.call) / f.token); // tokens of one slice in the time
    assert_true(slowest <= 8e6);
    if (calls > 2 * 8000 / fits + 2) fail_msg("device %zu: %d calls, %.0f tokens fit into one", i, calls, fits);
  }
}

static void a_token_slower_than_the_time_gets_on_alone(void **state) {
  struct formula f = {.token = 1e8};
  struct pace p = {0};
  double slowest;
  (void)read_all(&f, &p, 100, 8e6, &slowest);
  assert_int_equal(read_all(&f, &p, 10, 8e6, &slowest), 10);
}

// A device that was busy for a while is not taken for slow for ever.
static void a_slow_moment_is_forgotten(void **state) {
  struct formula f = {.call = 1e5, .token = 1e4};
  struct pace p = {0};
  double slowest;
  (void)read_all(&f, &p, 8000, 8e6, &slowest);
  const int before = read_all(&f, &p, 8000, 8e6, &slowest);
  for (int i = 0; i < PACE_LENGTHS; i++) pace_slice_took(&p, 1u << i, 1e9);
  (void)read_all(&f, &p, 20000, 8e6, &slowest);
  assert_in_range(read_all(&f, &p, 8000, 8e6, &slowest), before, before + 2);
}

static void steps_run_while_they_fit(void **state) {
  struct pace p = {0};
  assert_false(pace_step_fits(&p, 1e12)); // not known
  pace_step_took(&p, 1e9);                // compiles
  assert_false(pace_step_fits(&p, 1e12));
  pace_step_took(&p, 1e6);
  assert_true(pace_step_fits(&p, 1.1e6));
  assert_false(pace_step_fits(&p, 0.9e6));
}

// ---------------------------------------------------------------- devices

static void a_prompt_in_a_time_is_the_same_prompt(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *whole = create(model), *within = create(model);
  float a[V], b[V];
  size_t done, all = 0, calls = 0;
  eval(whole, 0, N, NULL);
  for (; all < N; all += done, calls++) {
    assert_ok(deltaic_session_eval_within(within, text + all, N - all, calls ? 2 : 0, &done));
    assert_in_range(done, 1, N - all);
    if (!calls) assert_int_equal(done, 1); // no time, but the prompt gets on
  }
  assert_int_equal(deltaic_session_position(within), N);
  assert_ok(deltaic_session_logits(whole, a));
  assert_ok(deltaic_session_logits(within, b));
  for (int i = 0; i < V; i++) assert_true(fabsf(a[i] - b[i]) < 1e-3f);

  int32_t one[12], some[12];
  size_t count, drawn = 0;
  for (int i = 0; i < 12; i++) assert_ok(deltaic_session_next(whole, NULL, &one[i], NULL));
  assert_ok(deltaic_session_next_within(within, NULL, 0, some, 12, &drawn));
  assert_int_equal(drawn, 1);
  for (; drawn < 12; drawn += count) // a whole second: all that there is room for, or up to an end
    assert_ok(deltaic_session_next_within(within, NULL, 1000, some + drawn, 12 - drawn, &count));
  assert_memory_equal(one, some, sizeof one);
  deltaic_session_free(whole);
  close_session(within, model);
}

static void a_cancel_leaves_what_is_done(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *s = create(model);
  int32_t tokens[4];
  size_t n = 9;
  deltaic_session_cancel(s);
  assert_int_equal(deltaic_session_eval_within(s, text, N, 1000, &n), DELTAIC_CANCELLED);
  assert_int_equal(n, 0);
  assert_ok(deltaic_session_eval_within(s, text, N, 1000, &n));
  assert_int_equal(deltaic_session_position(s), n);
  deltaic_session_cancel(s);
  assert_int_equal(deltaic_session_next_within(s, NULL, 1000, tokens, 4, &n), DELTAIC_CANCELLED);
  assert_int_equal(n, 0);
  assert_ok(deltaic_session_next_within(s, NULL, 1000, tokens, 4, &n));
  close_session(s, model);
}

static void wrong_arguments_change_nothing(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *s = create(model);
  int32_t tokens[8] = {1, 2, 3, 4, 5, 6, 7, -1};
  size_t n = 9;
#define REFUSED(call, text)                                                                                            \
  assert_int_equal(call, DELTAIC_INVALID_ARGUMENT);                                                                    \
  assert_non_null(strstr(deltaic_last_error(), text))
  REFUSED(deltaic_session_eval_within(s, tokens, 8, 10, &n), "token 7 is -1");
  REFUSED(deltaic_session_eval_within(s, tokens, 0, 10, &n), "deltaic_session_eval_within: there are no tokens");
  REFUSED(deltaic_session_eval_within(s, NULL, 7, 10, &n), "deltaic_session_eval_within: tokens is NULL");
  REFUSED(deltaic_session_eval_within(s, tokens, 7, -1, &n), "milliseconds is -1");
  REFUSED(deltaic_session_eval_within(s, tokens, 7, (double)NAN, &n), "milliseconds is nan");
  REFUSED(deltaic_session_eval_within(NULL, tokens, 7, 1, &n), "session is NULL");
  REFUSED(deltaic_session_next_within(s, NULL, 1, tokens, 0, &n), "capacity is 0");
  REFUSED(deltaic_session_next_within(s, NULL, 1, NULL, 1, &n), "deltaic_session_next_within: tokens is NULL");
  assert_int_equal(n, 9);
  assert_int_equal(deltaic_session_next_within(s, NULL, 1, tokens, 1, &n), DELTAIC_BAD_STATE);
  assert_int_equal(deltaic_session_position(s), 0);
  close_session(s, model);
}

int main(void) {
  make_text();
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(slices_fill_the_time_and_not_more), cmocka_unit_test(a_token_slower_than_the_time_gets_on_alone),
      cmocka_unit_test(a_slow_moment_is_forgotten),        cmocka_unit_test(steps_run_while_they_fit),
      device_test(a_prompt_in_a_time_is_the_same_prompt),  device_test(a_cancel_leaves_what_is_done),
      device_test(wrong_arguments_change_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
