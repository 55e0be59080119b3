// test_session.h: small models, a text, and what the tests of sessions do with them.
#ifndef TEST_SESSION_H
#define TEST_SESSION_H
#include "device.h"
#include "device_handle.h"
#include "session.h"
#include "vulkan_backend.h"

#include "devices.h" // last: its macro fail() must not meet the declaration of ours

#include <math.h>

#define TINY TESTS_DIR "/vectors/models/"
static const char *const kinds[] = {TINY "tiny_gated_deltanet", TINY "tiny_delta_net_swa",
                                    TINY "tiny_delta_net_global"};
enum { KINDS = sizeof kinds / sizeof *kinds, V = 259, N = 150 };

static int32_t text[4 * N];

static inline void make_text(void) {
  uint32_t x = 1;
  for (int i = 0; i < 4 * N; i++) text[i] = 3 + (int32_t)((x = x * 1664525u + 1013904223u) >> 16) % (V - 3);
}

static inline deltaic_session *create(deltaic_model *model) { return open_session(model, &exact); }

static inline void eval(deltaic_session *s, int from, int n, float *logits) {
  assert_ok(
      deltaic_session_eval(s, text + from, (size_t)n, logits ? DELTAIC_LOGITS_LAST : DELTAIC_LOGITS_NONE, logits));
}

static inline void assert_same_bits(const float *a, const float *b, const char *what) {
  for (int i = 0; i < V; i++)
    if (memcmp(&a[i], &b[i], sizeof a[i])) fail_msg("%s: logit %d is %.9g and %.9g", what, i, a[i], b[i]);
}

int test_states(void); // runs the tests of test_session_states.c; returns how many failed
#endif
