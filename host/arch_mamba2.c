// arch_mamba2: the family mamba2 of flash-linear-attention, whose layers are a norm and a mixer, and the Mamba-2
// layers of hybrids (docs/models.md).
#include "arch_common.h"

#include "mixer_mamba2.h"

#include <float.h>
#include <math.h>

// dt_limit, in older files time_step_limit: the least and the greatest dt.
static void read_limits(struct json_reader *r, const json_t *object, struct mamba2_spec *s) {
  const json_t *limit = json_object_get(object, json_present(object, "dt_limit") ? "dt_limit" : "time_step_limit");
  s->dt_low = 0;
  s->dt_high = INFINITY;
  if (!limit || json_is_null(limit)) return;
  const json_t *low = json_array_get(limit, 0), *high = json_array_get(limit, 1);
  double from = json_number_value(low), to = json_number_value(high);
  if (json_array_size(limit) != 2 || !json_is_number(low) || !json_is_number(high) || from < 0 || from > to) {
    if (!r->status) r->status = fail(DELTAIC_BAD_FILE, "%s: dt_limit must be two numbers, 0 <= low <= high", r->file);
    return;
  }
  s->dt_low = from > FLT_MAX ? FLT_MAX : (float)from;
  s->dt_high = to > FLT_MAX ? INFINITY : (float)to;
}

// norm_before_gate and rmsnorm, in older files rms_norm.
static enum norm_place read_norm_place(struct json_reader *r, const json_t *object) {
  bool first = json_bool(r, object, "norm_before_gate", false);
  bool present = json_bool(r, object, "rmsnorm", json_bool(r, object, "rms_norm", true));
  return !present ? NORM_ABSENT : first ? NORM_FIRST : NORM_OF_GATED;
}

static struct mamba2_spec read_layer(struct json_reader *r, const json_t *object, double *expand) {
  static const char *const activations[] = {"silu", "swish", NULL};
  struct mamba2_spec s = {0};
  *expand = json_number(r, object, "expand", 2, 0, 1024);
  s.P = (uint32_t)json_int(r, object, "head_dim", 64, 1, LIMIT_HEAD_SIZE);
  s.N = (uint32_t)json_int(r, object, "state_size", 128, 1, LIMIT_HEAD_SIZE);
  s.groups = (uint32_t)json_int(r, object, "n_groups", 1, 1, LIMIT_HEADS);
  s.W = (uint32_t)json_int(r, object, "conv_kernel", 4, 1, LIMIT_CONV);
  s.bias = json_bool(r, object, "use_bias", false);
  s.conv_bias = json_bool(r, object, "use_conv_bias", true);
  s.D_per_element = json_bool(r, object, "D_has_hdim", false);
  s.norm_place = read_norm_place(r, object);
  s.norm_eps = (float)json_number(r, object, "norm_eps", 1e-5, 0, 1);
  arch_choice(r, object, "hidden_act", activations);
  read_limits(r, object, &s);
  return s;
}

// heads = E / P with E = trunc(D * expand); the file may say the number too.
static deltaic_status count_heads(struct json_reader *r, const json_t *object, uint32_t D, double expand,
                                  struct mamba2_spec *s) {
  double E = trunc(D * expand);
  int64_t heads = json_int(r, object, "num_heads", 0, 1, LIMIT_HEADS);
  if (r->status) return r->status;
  if (fmod(E, s->P) != 0 || E < s->P || E / s->P > LIMIT_HEADS || (heads && heads * (double)s->P != E))
    return fail(DELTAIC_BAD_SHAPE, "%s: %g numbers (expand %g times hidden_size %u) do not make heads of %u%s", r->file,
                E, expand, D, s->P, heads ? " as num_heads says" : "");
  s->heads = (uint32_t)(E / s->P);
  if (s->heads % s->groups)
    return fail(DELTAIC_BAD_SHAPE, "%s: n_groups %u does not divide the %u heads", r->file, s->groups, s->heads);
  uint64_t state = (uint64_t)s->heads * s->N * s->P, columns = 2 * (uint64_t)E + 2ull * s->groups * s->N;
  if (state > INT32_MAX || columns > INT32_MAX / 2)
    return fail(DELTAIC_UNSUPPORTED, "%s: a Mamba-2 layer would have a state of %llu numbers and %llu columns", r->file,
                (unsigned long long)state, (unsigned long long)columns);
  return DELTAIC_OK;
}

deltaic_status arch_set_mamba2(struct json_reader *r, const json_t *object, struct checkpoint *checkpoint, uint32_t i,
                               struct model_spec *out) {
  double expand;
  struct mamba2_spec s = read_layer(r, object, &expand);
  deltaic_status status = count_heads(r, object, out->D, expand, &s);
  if (!status) status = arch_columns(checkpoint, i, "mixer.conv1d.weight", LIMIT_CONV, &s.W);
  return status ? status : arch_set_layer(out, i, &mixer_mamba2, &s, sizeof s);
}

static deltaic_status read_mamba2(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                  struct model_spec *out) {
  static const struct tensor_names now = {"backbone.embeddings.weight", "backbone.norm_f.weight", "backbone.layers",
                                          "norm.weight"};
  static const struct tensor_names older = {"backbone.embedding.weight", "backbone.norm_f.weight", "backbone.layers",
                                            "norm.weight"};
  bool old = checkpoint && checkpoint_find(checkpoint, older.embedding);
  deltaic_status status = arch_read_ends(r, config, checkpoint, old ? &older : &now, 48, 1e-5, out);
  for (uint32_t i = 0; !status && i < out->L; i++) status = arch_set_mamba2(r, config, checkpoint, i, out);
  return status;
}

const struct arch arch_mamba2 = {"mamba2", read_mamba2};
