// test_session_states: the states of sessions, saved, loaded, forked, and damaged.
#include "test_session.h"

#include <unistd.h>

static void *save(deltaic_session *s, size_t *bytes) {
  assert_ok(deltaic_session_state_size(s, bytes));
  void *data = malloc(*bytes);
  assert_non_null(data);
  assert_ok(deltaic_session_save(s, data, *bytes, NULL));
  return data;
}

static void a_saved_or_forked_session_continues_bit_for_bit(deltaic_device *device) {
  for (int k = 0; k < KINDS; k++) {
    deltaic_model *model = open_model(device, kinds[k]);
    deltaic_session *a = create(model), *b = create(model), *c;
    float la[V], lb[V], lc[V];
    size_t bytes;
    eval(a, 0, 100, NULL);
    eval(b, 0, 37, NULL); // something to overwrite
    void *data = save(a, &bytes);
    assert_ok(deltaic_session_load(b, data, bytes));
    assert_ok(deltaic_session_fork(a, &c));
    assert_int_equal(deltaic_session_position(b), 100);
    assert_ok(deltaic_session_logits(a, la));
    assert_ok(deltaic_session_logits(b, lb));
    assert_same_bits(la, lb, "logits after loading");
    for (int step = 0; step < 3; step++) { // one token, few, many
      int from = step == 0 ? 100 : step == 1 ? 101 : 108, n = step == 0 ? 1 : step == 1 ? 7 : N;
      eval(a, from, n, la);
      eval(b, from, n, lb);
      eval(c, from, n, lc);
      assert_same_bits(la, lb, "continued after loading");
      assert_same_bits(la, lc, "continued after forking");
    }
    free(data);
    deltaic_session_free(c);
    deltaic_session_free(b);
    close_session(a, model);
  }
}

static void a_state_fits_sessions_of_other_options(deltaic_device *device) {
  for (int k = 0; k < KINDS; k++) {
    deltaic_model *model = open_model(device, kinds[k]);
    deltaic_session_options options = {
        .size = sizeof options, .precision = DELTAIC_PRECISION_FLOAT32, .context = 1000, .batch = 33};
    deltaic_session *a = create(model), *b;
    float la[V], lb[V];
    size_t bytes;
    assert_ok(deltaic_session_create(model, &options, &b));
    eval(a, 0, N, NULL);
    void *data = save(a, &bytes);
    assert_ok(deltaic_session_load(b, data, bytes));
    eval(a, N, 1, la);
    eval(b, N, 1, lb);
    double error = 0, size = 0; // a ring of another length adds the same numbers in another order
    for (int i = 0; i < V; i++) error += pow((double)la[i] - lb[i], 2), size += pow(la[i], 2);
    assert_true(sqrt(error / size) < 5e-6);
    options.context = 100;
    deltaic_session *small = open_session(model, &options);
    assert_int_equal(deltaic_session_load(small, data, bytes),
                     info_of(model).grows ? DELTAIC_CONTEXT_FULL : DELTAIC_OK);
    free(data);
    deltaic_session_free(small);
    deltaic_session_free(b);
    close_session(a, model);
  }
}

static void a_damaged_or_foreign_state_is_refused_and_changes_nothing(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[1]), *other = open_model(device, kinds[0]);
  deltaic_session *a = create(model), *b = create(other);
  float before[V], after[V];
  size_t bytes;
  eval(a, 0, 60, before);
  eval(b, 0, 60, NULL);
  unsigned char *data = save(a, &bytes);
  assert_int_equal(deltaic_session_load(b, data, bytes), DELTAIC_BAD_FILE);
  assert_non_null(strstr(deltaic_last_error(), "another model"));
  for (size_t cut = 0; cut < bytes; cut += 1 + bytes / 97)
    assert_int_not_equal(deltaic_session_load(a, data, cut), DELTAIC_OK);
  for (size_t at = 0; at < bytes; at += at < 64 ? 1 : 1 + bytes / 97) {
    data[at] ^= 0x10;
    assert_int_not_equal(deltaic_session_load(a, data, bytes), DELTAIC_OK);
    data[at] ^= 0x10;
  }
  assert_ok(deltaic_session_logits(a, after));
  assert_same_bits(before, after, "after refused states");
  assert_int_equal(deltaic_session_position(a), 60);
  assert_int_equal(deltaic_session_save(a, data, bytes - 1, NULL), DELTAIC_BUFFER_TOO_SMALL);
  free(data);
  deltaic_session_free(b);
  close_session(a, other);
  deltaic_model_close(model);
}

static void a_state_goes_through_a_file(deltaic_device *device) {
  char path[] = "deltaic-state-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  close(fd);
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *a = create(model), *b = create(model);
  float la[V], lb[V];
  eval(a, 0, 80, NULL);
  assert_ok(deltaic_session_save_file(a, path));
  assert_ok(deltaic_session_load_file(b, path));
  eval(a, 80, 1, la);
  eval(b, 80, 1, lb);
  assert_same_bits(la, lb, "continued from a file");
  assert_int_equal(deltaic_session_load_file(b, "no/such/file"), DELTAIC_NOT_FOUND);
  assert_int_not_equal(deltaic_session_save_file(a, "no/such/folder/state"), DELTAIC_OK);
  unlink(path);
  deltaic_session_free(b);
  close_session(a, model);
}

// Where part `at` of a state begins; its length is *bytes.
static size_t part_at(const deltaic_state_part *parts, size_t at, uint64_t position, size_t *bytes) {
  size_t offset = 0;
  for (size_t i = 0; i <= at; i++) {
    const uint64_t held = parts[i].positions < position ? parts[i].positions : position;
    offset += *bytes = parts[i].bytes * (parts[i].positions ? held : 1);
  }
  return offset - *bytes;
}

static void parts_are_the_whole_state_and_caches_of_all_positions_only_grow(deltaic_device *device) {
  for (int k = 0; k < KINDS; k++) {
    deltaic_model *model = open_model(device, kinds[k]);
    deltaic_session *s = create(model);
    deltaic_state_part parts[64];
    size_t count, bytes[2], at[2], size[2];
    char *data[2];
    assert_ok(deltaic_session_state_parts(s, NULL, 0, &count));
    assert_int_equal(deltaic_session_state_parts(s, parts, count - 1, &count), DELTAIC_BUFFER_TOO_SMALL);
    assert_ok(deltaic_session_state_parts(s, parts, 64, &count));
    const uint64_t positions[2] = {60, 160};
    for (int i = 0; i < 2; i++) {
      eval(s, i ? 60 : 0, i ? 100 : 60, NULL);
      data[i] = save(s, &bytes[i]);
      at[i] = part_at(parts, count - 1, positions[i], &size[i]);
      assert_int_equal(bytes[i], at[i] + size[i]);
      uint64_t position;
      assert_ok(deltaic_state_position(data[i], bytes[i], &position));
      assert_int_equal(position, positions[i]);
    }
    bool grows = false;
    for (size_t p = 0; p < count; p++) {
      for (int i = 0; i < 2; i++) at[i] = part_at(parts, p, positions[i], &size[i]);
      if (parts[p].positions == UINT64_MAX) assert_memory_equal(data[0] + at[0], data[1] + at[1], size[0]);
      grows |= parts[p].positions == UINT64_MAX;
    }
    assert_int_equal(grows, info_of(model).grows);
    assert_int_equal(deltaic_state_position(data[0], 8, &(uint64_t){0}), DELTAIC_BAD_FILE);
    free(data[1]);
    free(data[0]);
    close_session(s, model);
  }
}

static void a_state_whose_numbers_changed_loads_once_it_is_sealed(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[0]);
  deltaic_session *s = create(model);
  deltaic_state_part parts[64];
  size_t count, bytes, size, at;
  eval(s, 0, 60, NULL);
  char *data = save(s, &bytes);
  assert_ok(deltaic_session_state_parts(s, parts, 64, &count));
  at = part_at(parts, count - 1, 60, &size);
  const float changed = 0.25f;
  memcpy(data + at, &changed, sizeof changed);
  assert_int_equal(deltaic_session_load(s, data, bytes), DELTAIC_BAD_FILE);
  assert_ok(deltaic_state_seal(data, bytes));
  assert_ok(deltaic_session_load(s, data, bytes));
  float logits[V];
  assert_ok(deltaic_session_logits(s, logits));
  assert_true(logits[0] == changed);
  data[0] ^= 1;
  assert_int_equal(deltaic_state_seal(data, bytes), DELTAIC_BAD_FILE);
  free(data);
  close_session(s, model);
}

// Ranges that end anywhere: in the header, between two tensors, in a ring buffer's second half.
static void a_state_moves_in_ranges(deltaic_device *device) {
  for (int k = 0; k < KINDS; k++) {
    deltaic_model *model = open_model(device, kinds[k]);
    deltaic_session *a = create(model), *b = create(model);
    float la[V], lb[V];
    size_t bytes;
    eval(a, 0, 2 * N, NULL);
    eval(b, 0, 4 * N - 1, NULL); // something longer to overwrite
    char *whole = save(a, &bytes), *data = malloc(bytes);
    assert_non_null(data);
    for (size_t at = 0, n = 7; at < bytes; at += n, n = n * 5 / 3) { // the last ones first
      if (n > bytes - at) n = bytes - at;
      assert_ok(deltaic_sequence_save_range(a, 0, bytes - at - n, data + bytes - at - n, n));
    }
    assert_int_not_equal(deltaic_session_load(b, data, bytes), DELTAIC_OK); // without a checksum
    assert_ok(deltaic_state_seal(data, bytes));
    assert_memory_equal(data, whole, bytes);
    for (size_t at = 0, n = 61; at < bytes; at += n, n = n * 5 / 3) {
      if (n > bytes - at) n = bytes - at;
      assert_ok(deltaic_sequence_load_range(b, 0, at, data + at, n));
      if (at + n < bytes)
        assert_int_equal(deltaic_session_eval(b, text, 1, DELTAIC_LOGITS_NONE, NULL), DELTAIC_BAD_STATE);
      if (at + n < bytes) assert_non_null(strstr(deltaic_last_error(), "the load of sequence 0 is unfinished"));
      assert_int_equal(deltaic_session_position(b), 2 * N);
    }
    assert_int_equal(deltaic_session_position(b), 2 * N);
    eval(a, 2 * N, 1, la);
    eval(b, 2 * N, 1, lb);
    assert_same_bits(la, lb, "continued after loading in ranges");
    assert_ok(deltaic_session_reset(b));
    eval(a, 2 * N + 1, N, NULL); // beyond what the reset has to empty
    assert_ok(deltaic_session_load(b, whole, bytes));
    eval(b, 2 * N, 1, lb);
    assert_same_bits(la, lb, "continued after a reset and a load");
    free(data);
    free(whole);
    deltaic_session_free(b);
    close_session(a, model);
  }
}

static void ranges_are_refused_out_of_order_and_a_load_may_be_given_up(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[2]);
  deltaic_session *a = create(model), *b = create(model);
  float la[V], lb[V];
  size_t bytes;
  eval(a, 0, 100, NULL);
  eval(b, 0, 60, la);
  char *data = save(a, &bytes), all[64];
  assert_int_equal(deltaic_sequence_save_range(a, 0, bytes - 8, all, 9), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_sequence_save_range(a, 0, bytes + 1, all, 0), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_sequence_load_range(b, 0, 1000, data + 1000, 8), DELTAIC_INVALID_ARGUMENT);
  for (size_t at = 0; at < 40; at++) { // every field but the checksum
    data[at] ^= 0x10;
    assert_int_not_equal(deltaic_sequence_load_range(b, 0, 0, data, 1000), DELTAIC_OK);
    data[at] ^= 0x10;
  }
  assert_int_equal(deltaic_sequence_load_range(b, 0, 0, data, 47), DELTAIC_BAD_FILE);
  assert_ok(deltaic_session_logits(b, lb)); // nothing has changed
  assert_same_bits(la, lb, "after refused ranges");
  assert_ok(deltaic_sequence_load_range(b, 0, 0, data, 1000));
  assert_int_equal(deltaic_sequence_load_range(b, 0, 999, data + 999, 8), DELTAIC_INVALID_ARGUMENT);
  assert_int_equal(deltaic_sequence_load_range(b, 0, 1000, data, bytes), DELTAIC_INVALID_ARGUMENT);
  size_t size;
  assert_int_equal(deltaic_session_state_size(b, &size), DELTAIC_BAD_STATE);
  assert_ok(deltaic_sequence_load_range(b, 0, 0, data, 2000)); // anew
  assert_ok(deltaic_sequence_reset(b, 0));
  assert_int_equal(deltaic_sequence_load_range(b, 0, 2000, data + 2000, 8), DELTAIC_INVALID_ARGUMENT);
  eval(b, 0, 60, lb); // as in a new session
  assert_same_bits(la, lb, "after a load that was given up");
  free(data);
  deltaic_session_free(b);
  close_session(a, model);
}

static const struct backend_functions *real;
static deltaic_status run_and_fail(struct recorder *c) {
  const deltaic_status status = real->recorder_run(c);
  return status == DELTAIC_OK ? DELTAIC_OUT_OF_MEMORY : status;
}

static void a_load_does_not_go_on_behind_a_reset_or_copy_that_failed(deltaic_device *device) {
  deltaic_model *model = open_model(device, kinds[2]);
  deltaic_session_options two = exact;
  two.sequences = 2;
  deltaic_session *s = open_session(model, &two);
  float want[V], got[V];
  size_t bytes;
  real = s->prefill->functions;
  struct backend_functions failing = *real;
  failing.recorder_run = run_and_fail;
  eval(s, 0, 100, want);
  char *data = save(s, &bytes);
  assert_ok(deltaic_sequence_copy(s, 1, 0));
  for (int copy = 0; copy < 2; copy++) {
    assert_ok(deltaic_sequence_load_range(s, 0, 0, data, 1000));
    s->prefill->functions = &failing;
    const deltaic_status status = copy ? deltaic_sequence_copy(s, 0, 1) : deltaic_sequence_reset(s, 0);
    s->prefill->functions = real;
    assert_int_equal(status, DELTAIC_OUT_OF_MEMORY);
    assert_int_equal(deltaic_sequence_load_range(s, 0, 1000, data + 1000, 8), DELTAIC_INVALID_ARGUMENT);
    assert_int_equal(deltaic_session_eval(s, text, 1, DELTAIC_LOGITS_NONE, NULL), DELTAIC_BAD_STATE);
    assert_ok(deltaic_sequence_reset(s, 0));
    eval(s, 0, 100, got); // as in a new session
    assert_same_bits(want, got, "after a failure in a load");
  }
  free(data);
  close_session(s, model);
}

int test_states(void) {
  make_text();
  const struct CMUnitTest tests[] = {
      device_test(a_saved_or_forked_session_continues_bit_for_bit),
      device_test(a_state_fits_sessions_of_other_options),
      device_test(a_damaged_or_foreign_state_is_refused_and_changes_nothing),
      device_test(a_state_goes_through_a_file),
      device_test(a_state_moves_in_ranges),
      device_test(ranges_are_refused_out_of_order_and_a_load_may_be_given_up),
      device_test(a_load_does_not_go_on_behind_a_reset_or_copy_that_failed),
      device_test(parts_are_the_whole_state_and_caches_of_all_positions_only_grow),
      device_test(a_state_whose_numbers_changed_loads_once_it_is_sealed),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
