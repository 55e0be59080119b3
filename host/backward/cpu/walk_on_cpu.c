// walk_on_cpu: the CPU's column of the table of a walk.
#include "backward_cpu.h"

struct copy_call {
  struct tensor to, from;
};

static void clear_row(void *context, uint64_t row, uint32_t worker) {
  const struct tensor *t = context;
  (void)worker;
  memset(f32_row(t, row), 0, t->cols * sizeof(float));
}

static void clear(struct walk *w, struct tensor t) {
  cpu_parallel(w->c, t.rows, (uint64_t)t.rows * t.cols, clear_row, &t);
}

static void copy_row(void *context, uint64_t row, uint32_t worker) {
  const struct copy_call *c = context;
  (void)worker;
  memcpy(f32_row(&c->to, row), f32_row(&c->from, row), c->to.cols * sizeof(float));
}

static void copy(struct walk *w, struct tensor to, struct tensor from) {
  cpu_parallel(w->c, to.rows, (uint64_t)to.rows * to.cols, copy_row, &(struct copy_call){to, from});
}

static void add_rows(struct walk *w, struct tensor to, struct tensor from) {
  back_add_rows(w, to, f32_row(&from, 0), from.rows, from.stride);
}

static void linear(struct walk *w, struct tensor y, struct tensor x, struct tensor m) {
  const struct tensor none = {0};
  cpu_linear(w->c, &(struct linear){y, x, m, none}, none);
}

static void times(struct walk *w, struct tensor y, struct tensor x, struct tensor m, bool adds) {
  if (!adds) clear(w, y);
  back_add(w, y, back_times(w, x, m));
}

static void add_outer(struct walk *w, struct tensor y, struct tensor a, struct tensor b) {
  back_add(w, y, back_outer(w, a, b));
}

const struct walk_functions backward_on_cpu = {
    .clear = clear,
    .copy = copy,
    .add = back_add,
    .add_rows = add_rows,
    .linear = linear,
    .times = times,
    .add_outer = add_outer,
    .loss = backward_loss,
    .squares = backward_squares,
    .adamw = backward_adamw,
    .blend = backward_blend,
    .embed = backward_embed,
    .norm = backward_norm,
    .conv = backward_conv,
    .glu = backward_glu,
    .delta_inputs = backward_delta_inputs,
    .delta_rule = backward_delta_rule,
    .mamba2_inputs = backward_mamba2_inputs,
    .mamba2 = backward_mamba2,
    .gated_norm = backward_gated_norm,
    .rope_append = backward_rope_append,
    .attention = backward_attention,
};
