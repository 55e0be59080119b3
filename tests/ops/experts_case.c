// experts_case: see experts_case.h.
#include "experts_case.h"
#include "device.h"
#include "vulkan_backend.h"

struct array experts_ids(uint32_t T, uint32_t k, uint32_t E) {
  int32_t *ids = calloc((size_t)T * k, sizeof *ids);
  for (uint32_t t = 0; t < T; t++)
    for (uint32_t j = 0; j < k; j++) ids[t * k + j] = (int32_t)((uint32_t)uniform(0, E) % E);
  struct array a = integers(T, k, ids);
  free(ids);
  return a;
}

void experts_check(enum dtype dtype, const struct experts_shape *z, double limit) {
  const uint32_t R = z->T * z->k, rows = z->gated ? 2 * z->N : z->N, share = z->each ? 1 : z->k;
  struct array ids = experts_ids(z->T, z->k, z->E), order = activations(1, R, DENSE, NULL);
  struct array starts = activations(1, z->E + 1, DENSE, NULL);
  struct array x = activations(R / share, z->K, z->K + (z->K % 32 ? z->T % 3 : 4), normals((size_t)R / share * z->K));
  struct array w = weights(dtype, z->E * rows, z->K, DENSE, normals((size_t)z->E * rows * z->K));
  struct array y = activations(R, z->N, DENSE, NULL);
  begin();
  op_group(list, order.t, starts.t, ids.t);
  const struct tensor out = z->gated ? oplist_value(list, R, rows) : y.t;
  op_experts(list, &(struct experts){out, x.t, w.t, ids.t, order.t, starts.t});
  if (z->gated) op_glu(list, y.t, tensor_cols(out, 0, z->N), tensor_cols(out, z->N, z->N), ACTIVATION_SILU);
  run();
  const int32_t *id = read_words(&ids);
  double *want = zeros((size_t)R * z->N);
  for (uint32_t i = 0; i < R; i++)
    for (uint32_t n = 0; n < z->N; n++) {
      double sums[2] = {0};
      for (uint32_t half = 0; half <= z->gated; half++)
        for (uint32_t c = 0; c < z->K; c++)
          sums[half] += x.v[i / share * z->K + c] * w.v[((size_t)id[i] * rows + half * z->N + n) * z->K + c];
      want[i * z->N + n] = z->gated ? reference_activation(ACTIVATION_SILU, sums[0]) * sums[1] : sums[0];
    }
  expect_close(z->gated ? "gated experts" : "experts", read_values(&y), want, (size_t)R * z->N, limit);
  tools_teardown(NULL);
}

void experts_check_parts(enum dtype dtype, uint32_t T, double limit) {
  const struct experts_shape shape = {T, 2, 5, 16, 512, false, false};
  uint64_t unbound = 0,
           *bytes = backend->replays ? &((struct vulkan_backend *)backend)->device->plan.binding_bytes : &unbound;
  const uint64_t real = *bytes;
  *bytes = 40 << 10;
  experts_check(dtype, &shape, limit);
  *bytes = real;
}
