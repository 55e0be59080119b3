// Cases of Head-in-Head on cooperative matrices, to what operands rounded to f16 cost (ops_cases_delta_matrix.c).
#include "device.h"
#include "ops_cases_matrix.h"

static enum matrices matrices; // of the group that runs

// Blocks that fill tiles and blocks that do not; sizes that are no multiples of a tile, of four or of two; every way to
// make masks; chunks that are not full; sequences without tokens; grouped value heads. Few: software compiles each
// kernel for seconds.
static void head_in_head_matches_over_awkward_shapes(void **state) {
  seed(70);
  static const struct {
    enum dtype dtype;
    uint32_t gap, r, d, Dv;
    enum hh_nonneg nonneg;
  } sizes[] = {{DTYPE_F16, 8, 2, 8, 16, HH_NONNEG_SOFTPLUS}, // lavapipe's tiles have 8 rows
               {DTYPE_F16, 8, 2, 16, 16, HH_NONNEG_SOFTPLUS},
               {DTYPE_F16, 1, 3, 5, 7, HH_NONNEG_EXP},
               {DTYPE_F32, 4, 8, 2, 20, HH_NONNEG_GIVEN}};
  static const uint32_t texts[] = {1, 15, 17, 65, 200};
  for (uint32_t s = 0; s < shapes(matrices == MATRICES_PLAIN ? 3 : 4, 1); s++)
    for (uint32_t l = 0; l < 5; l++) {
      struct delta_args a = {
          .H = 2, .Hv = l > 1 ? 4 : 2, .tiled = l % 2, .Dv = sizes[s].Dv, .n = 1, .r = sizes[s].r, .scale = 0.3f};
      const uint32_t T[] = {texts[l], 0, texts[l] / 2 + 1};
      a.Dk = a.r * sizes[s].d;
      a.gated = l % 2;
      a.fixed_mask = (s + l) % 3 == 2;
      a.nonneg = sizes[s].nonneg;
      struct delta_case c = delta_random_in(sizes[s].dtype, sizes[s].gap, a, T, 3, l % 2 ? 2 : 1);
      expect_on_matrices(OUTPUTS("Head-in-Head on matrices"), &c, matrices);
      tools_teardown(NULL);
    }
}

// Cut into segments that are walked at the same time.
static void a_long_sequence_of_head_in_head_matches(void **state) {
  seed(71);
  uint32_t T = 300; // or what the device's plan cuts
  struct plan_delta_matrix p;
  const struct delta_args a = {
      .H = 1, .Hv = 1, .Dk = 16, .Dv = 16, .n = 1, .r = 4, .scale = 0.25f, .gated = true, .nonneg = HH_NONNEG_SOFTPLUS};
  list->form = DELTA_CHUNK;
  list->matrices = matrices;
  while (vulkan_delta_matrix_plan(recorder, T, 1, &a, &p) && p.segments == 1 && T < 10000) T *= 2;
  assert_true(p.segments > 1);
  struct delta_case c = delta_random_in(DTYPE_F16, 8, a, &T, 1, 1);
  for (uint32_t i = 0; i < T; i++) c.g.v[i] *= 0.05; // so that states reach over segments
  c.g = activations(c.g.t.rows, 1, c.g.t.stride, c.g.v);
  expect_on_matrices(OUTPUTS("Head-in-Head on matrices"), &c, matrices);
}

int ops_cases_hh_matrix(void) {
  const struct CMUnitTest plain[] = {OPS_CASE(head_in_head_matches_over_awkward_shapes)},
                          cases[] = {
                              OPS_CASE(head_in_head_matches_over_awkward_shapes),
                              OPS_CASE(a_long_sequence_of_head_in_head_matches),
                          };
  // Cut or not, maps are the delta rule's: once is enough.
  matrices = MATRICES_PLAIN;
  int failed = cmocka_run_group_tests_name("Head-in-Head, plain matrices", plain, NULL, NULL);
  matrices = MATRICES_BEST;
  if (vulkan_device(backend)->plan.matrix_conversions)
    failed += cmocka_run_group_tests_name("Head-in-Head, sums become operands", cases, NULL, NULL);
  return failed;
}
