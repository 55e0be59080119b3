// Loading and freeing leaves nothing behind: the memory of the process after many cycles is that after a few.
// DELTAIC_TEST_CYCLES=1000 runs so many; by default there are 40, and 20 on Vulkan devices. The address sanitizer keeps
// what is freed, and finds leaks itself: there each model's cycle runs once by default. With DELTAIC_TEST_CYCLES memory
// counts there too, and ASAN_OPTIONS=quarantine_size_mb=8 says how much the sanitizer keeps.
#include "test_session.h"

static uint64_t resident_bytes(void) {
  unsigned long long pages = 0;
  FILE *f = fopen("/proc/self/statm", "r");
  if (f && fscanf(f, "%*u %llu", &pages) != 1) pages = 0;
  if (f) fclose(f);
  return pages * 4096;
}

// What a program does with a model, once.
static void cycle(deltaic_device *device, const char *folder, bool tokenizer_too) {
  static const deltaic_session_options two = {.size = sizeof two, .sequences = 2, .batch = 64};
  deltaic_model *model = open_model(device, folder);
  deltaic_session *s = open_session(model, &two), *copy, *other = open_session(model, &exact);
  int32_t tokens[2];
  size_t bytes;
  assert_ok(deltaic_session_eval(s, text, 70, DELTAIC_LOGITS_NONE, NULL)); // two slices
  assert_ok(deltaic_sequence_copy(s, 1, 0));
  for (int i = 0; i < 3; i++) assert_ok(deltaic_session_next_batch(s, NULL, 2, NULL, tokens, NULL));
  assert_ok(deltaic_session_fork(s, &copy));
  assert_ok(deltaic_session_state_size(s, &bytes));
  char *state = malloc(bytes);
  assert_non_null(state);
  assert_ok(deltaic_session_save(s, state, bytes, NULL));
  assert_ok(deltaic_session_load(other, state, bytes));
  free(state);
  assert_int_equal(deltaic_session_eval(other, (const int32_t[]){-1}, 1, DELTAIC_LOGITS_NONE, NULL),
                   DELTAIC_INVALID_ARGUMENT); // failures too
  deltaic_session_free(copy);
  deltaic_session_free(other);
  close_session(s, model);
  assert_int_equal(deltaic_model_open(device, TESTS_DIR, NULL, &model), DELTAIC_NOT_FOUND);
  if (!tokenizer_too) return;
  deltaic_tokenizer *tokenizer;
  deltaic_decoder *decoder;
  const char *piece;
  assert_ok(deltaic_tokenizer_open(MODELS_DIR "/novelist", &tokenizer));
  assert_ok(deltaic_decoder_create(tokenizer, true, &decoder));
  assert_ok(deltaic_decoder_push(decoder, 40, &piece, &bytes));
  deltaic_decoder_free(decoder);
  deltaic_tokenizer_close(tokenizer);
}

#ifdef __SANITIZE_ADDRESS__
static const bool keeps_freed = true;
enum { QUARANTINE = 8 << 20 };
#else
static const bool keeps_freed = false;
enum { QUARANTINE = 0 };
#endif

static void cycles_leave_nothing_behind(deltaic_device *device) {
  const char *wanted = getenv("DELTAIC_TEST_CYCLES");
  const bool software = device_info(device).kind != DELTAIC_DEVICE_CPU, compares = !keeps_freed || wanted;
  // Bytes by which what malloc keeps may vary; lavapipe's compiler takes part.
  const uint64_t grows_most = QUARANTINE + (software ? 4 << 20 : 1 << 20);
  const int cycles = wanted ? atoi(wanted) : keeps_freed ? KINDS : software ? 20 : 40, first = compares ? 20 : 0;
  uint64_t before = 0;
  for (int i = 0; i < first + cycles; i++) {
    if (i == first) before = resident_bytes();
    cycle(device, kinds[software ? 0 : i % KINDS], i % 10 == 0); // Vulkan compiles the shapes of one model
  }
  const uint64_t after = resident_bytes();
  print_message("%s: %d cycles, from %.1f to %.1f MiB\n", device_info(device).name, cycles, (double)before / (1 << 20),
                (double)after / (1 << 20));
  if (compares) assert_true(before > 0 && after < before + grows_most);
}

// Devices and their threads too.
static void devices_leave_nothing_behind(void **state) {
  uint64_t before = 0;
  for (int i = 0; i < (keeps_freed ? 2 : 60); i++) {
    deltaic_context *context;
    deltaic_device *device;
    const deltaic_context_options quiet = {.size = sizeof quiet, .cache_dir = ""};
    const deltaic_device_options cpu = {.size = sizeof cpu, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 2};
    if (i == 20) before = resident_bytes();
    assert_ok(deltaic_context_create(&quiet, &context));
    assert_ok(deltaic_device_open(context, &cpu, &device));
    cycle(device, kinds[0], false);
    deltaic_device_close(device);
    deltaic_context_free(context);
  }
  if (!keeps_freed) assert_true(before > 0 && resident_bytes() < before + (2 << 20));
}

int main(void) {
  make_text();
  const struct CMUnitTest tests[] = {device_test(cycles_leave_nothing_behind),
                                     cmocka_unit_test(devices_leave_nothing_behind)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
