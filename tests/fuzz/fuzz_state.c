// fuzz_state: arbitrary bytes as a saved state: as they are, or laid over the beginning of a real one, with the
// checksum mended or not, so that every check is reached and passed.
#include "session.h"

#include <stdlib.h>
#include <string.h>

static deltaic_context *context; // kept where the leak checker finds them
static deltaic_device *device;
static deltaic_model *model;
static deltaic_session *session;
static char *real;
static size_t real_bytes;

static void prepare(void) {
  static const int32_t tokens[] = {1, 40, 41, 42, 43, 44, 45};
  deltaic_context_options options = {.size = sizeof options, .cache_dir = ""};
  deltaic_device_options cpu = {.size = sizeof cpu, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 1};
  deltaic_session_options small = {.size = sizeof small, .context = 16, .batch = 8};
  if (deltaic_context_create(&options, &context) || deltaic_device_open(context, &cpu, &device) ||
      deltaic_model_open(device, TESTS_DIR "/vectors/models/tiny_delta_net_swa", NULL, &model) ||
      deltaic_session_create(model, &small, &session) ||
      deltaic_session_eval(session, tokens, 7, DELTAIC_LOGITS_NONE, NULL) ||
      deltaic_session_state_size(session, &real_bytes) || !(real = malloc(real_bytes)) ||
      deltaic_session_save(session, real, real_bytes, NULL))
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (!session) prepare();
  if (size < 3) return 0;
  if (data[0] & 1) {
    deltaic_session_load(session, data + 1, size - 1);
    if (!deltaic_sequence_load_range(session, 0, 0, data + 1, (size - 1) / 2))
      deltaic_sequence_load_range(session, 0, (size - 1) / 2, data + 1 + (size - 1) / 2, size - 1 - (size - 1) / 2);
    return 0;
  }
  char *copy = malloc(real_bytes); // its own block, so that the sanitizer sees an access past the end
  size_t at = data[1] % 64, n = size - 2;
  if (!copy) abort();
  memcpy(copy, real, real_bytes);
  memcpy(copy + at, data + 2, n < real_bytes - at ? n : real_bytes - at);
  size_t given = data[0] & 2 ? real_bytes : real_bytes - (data[0] >> 2);
  if (data[0] & 4) deltaic_state_seal(copy, given);
  int32_t token; // what loads must also run
  if (deltaic_session_load(session, copy, given) == DELTAIC_OK && deltaic_session_position(session) < 16)
    deltaic_session_next(session, NULL, &token, NULL);
  free(copy);
  return 0;
}
