// ops_cpu_linear: products with weights on the CPU, part by part: norm, product, what follows it.
#include "ops_cpu.h"

static struct tensor input_rows(struct recorder *c, const struct linear_input *in) {
  if (!in->weight.buffer) return in->x;
  cpu_rmsnorm(c, in->h, in->x, in->weight, (struct tensor){0}, in->eps);
  return in->h;
}

enum dtype cpu_input_dtype(const struct recorder *c, struct tensor w, uint32_t T) {
  (void)c, (void)w, (void)T;
  return DTYPE_F32;
}

void cpu_linear(struct recorder *c, struct tensor y, struct linear_input in, struct tensor w, struct tensor bias,
                bool add) {
  cpu_matmul(c, y, input_rows(c, &in), w, bias, add);
}

void cpu_linear_residual(struct recorder *c, struct tensor x, struct linear_input in, struct tensor w,
                         struct tensor bias, const struct linear_input *next) {
  (void)next;
  cpu_linear(c, x, in, w, bias, true);
}

bool cpu_linear_conv(struct recorder *c, struct tensor y, struct tensor p, struct linear_input in, struct tensor w,
                     struct tensor bias, struct linear_conv conv) {
  cpu_matmul(c, p, input_rows(c, &in), w, bias, false);
  cpu_short_conv(c, y, tensor_cols(p, conv.from, conv.a.C), conv.weight, conv.bias, conv.history, conv.sequences,
                 conv.a);
  return false;
}

void cpu_linear_gated(struct recorder *c, struct tensor y, struct tensor gate_up, struct linear_input in,
                      struct tensor w, enum activation activation) {
  cpu_matmul(c, gate_up, input_rows(c, &in), w, (struct tensor){0}, false);
  cpu_swiglu(c, y, gate_up, activation);
}
