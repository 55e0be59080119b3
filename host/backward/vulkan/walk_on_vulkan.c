// walk_on_vulkan: Vulkan's column of the table of a walk.
#include "backward_vulkan.h"

static void clear(struct walk *w, struct tensor t) {
  const struct tensor none = {0};
  if (!w->status) vulkan_copy(w->c, &(struct copy){t, none});
}

static void copy(struct walk *w, struct tensor to, struct tensor from) {
  if (!w->status) vulkan_copy(w->c, &(struct copy){to, from});
}

static void add(struct walk *w, struct tensor to, struct tensor from) {
  if (!w->status && to.buffer) vulkan_add(w->c, &(struct add){to, to, from});
}

static void add_rows(struct walk *w, struct tensor to, struct tensor from) {
  back_sum_rows(w, to, from, from.rows, from.stride, 0);
}

static void round_to(struct walk *w, struct tensor to, struct tensor from) {
  if (!w->status) vulkan_round(w->c, to, from);
}

static void linear(struct walk *w, struct tensor y, struct tensor x, struct tensor m) {
  back_product(w, y, x, m, false);
}

static void times(struct walk *w, struct tensor y, struct tensor x, struct tensor m, bool adds) {
  if (!back_turned_times(w, y, x, m, adds)) back_product(w, y, x, back_transposed(w, walk_unrounded(w, m)), adds);
}

static void add_outer(struct walk *w, struct tensor y, struct tensor a, struct tensor b) {
  if (!back_turned_outer(w, y, a, b)) back_product(w, y, back_transposed(w, a), back_transposed(w, b), true);
}

const struct walk_functions backward_on_vulkan = {
    .clear = clear,
    .copy = copy,
    .add = add,
    .add_rows = add_rows,
    .linear = linear,
    .times = times,
    .add_outer = add_outer,
    .round = round_to,
    .rounds = vulkan_can_round,
    .loss = vulkan_back_loss,
    .squares = vulkan_back_squares,
    .adamw = vulkan_back_adamw,
    .blend = vulkan_back_blend,
    .overwrites = 1u << OP_NORM | 1u << OP_CONV | 1u << OP_GLU | 1u << OP_DELTA_INPUTS | 1u << OP_GATED_NORM |
                  1u << OP_DELTA_RULE,
    .embed = vulkan_back_embed,
    .norm = vulkan_back_norm,
    .conv = vulkan_back_conv,
    .glu = vulkan_back_glu,
    .delta_inputs = vulkan_back_delta_inputs,
    .delta_rule = vulkan_back_delta_rule,
    .mamba2_inputs = vulkan_back_mamba2_inputs,
    .mamba2 = vulkan_back_mamba2,
    .gated_norm = vulkan_back_gated_norm,
    .rope_append = vulkan_back_rope_append,
    .attention = vulkan_back_attention,
};
