// arch_mamba2: the family mamba2 of flash-linear-attention, whose layers are a norm and a mixer, and the Mamba-2 layers
// of hybrids (docs/models.md).
#include "arch_common.h"

#include "mixer_mamba2.h"

#include <float.h>
#include <math.h>

// Reads dt_limit (time_step_limit in older files): the smallest and largest dt.
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

// Reads norm_before_gate and rmsnorm (rms_norm in older files).
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
  s.norm_eps = arch_eps(r, object, "norm_eps", 1e-5f);
  arch_choice(r, object, "hidden_act", activations);
  read_limits(r, object, &s);
  return s;
}

// heads = E / P with E = trunc(D * expand). If the file also has num_heads, they must agree.
static deltaic_status count_heads(struct json_reader *r, const json_t *object, uint32_t D, double expand,
                                  struct mamba2_spec *s) {
  double E = trunc(D * expand);
  int64_t heads = json_int(r, object, "num_heads", 0, 1, LIMIT_HEADS);
  if (r->status) return r->status;
  if (fmod(E, s->P) != 0 || E < s->P || E / s->P > LIMIT_HEADS || (heads && heads * (double)s->P != E))
    return fail(DELTAIC_BAD_SHAPE, "%s: expand %g times hidden_size %u is %g, which does not make heads of %u%s",
                r->file, expand, D, E, s->P, heads ? " as num_heads says" : "");
  s->heads = (uint32_t)(E / s->P);
  if (s->heads % s->groups)
    return fail(DELTAIC_BAD_SHAPE, "%s: n_groups %u does not divide the %u heads", r->file, s->groups, s->heads);
  uint64_t state = (uint64_t)s->heads * s->N * s->P, columns = 2 * (uint64_t)E + 2ull * s->groups * s->N;
  if (state > INT32_MAX || columns > INT32_MAX / 2)
    return fail(DELTAIC_UNSUPPORTED,
                "%s: a Mamba-2 layer would have a state of %llu elements and %llu columns, which is too large", r->file,
                (unsigned long long)state, (unsigned long long)columns);
  return DELTAIC_OK;
}

deltaic_status arch_set_mamba2(struct json_reader *r, const json_t *object, struct checkpoint *checkpoint, uint32_t i,
                               struct model_spec *out) {
  double expand;
  struct mamba2_spec s = read_layer(r, object, &expand);
  deltaic_status status = count_heads(r, object, out->D, expand, &s);
  if (!status) status = arch_columns(checkpoint, layer_names(out, i), i, ROLE_CONV, LIMIT_CONV, &s.W);
  return status ? status : arch_set_layer(out, i, &mixer_mamba2, &s, sizeof s);
}

// ---------------------------------------------------------------- names

// One projection has the rows of z, then those of x, B and C, then those of dt.
static uint64_t inner_of(const struct layer_spec *layer) {
  const struct mamba2_spec *s = layer->spec;
  return (uint64_t)s->heads * s->P;
}

static uint64_t channels_of(const struct layer_spec *layer) {
  const struct mamba2_spec *s = layer->spec;
  return inner_of(layer) + 2ull * s->groups * s->N;
}

static uint64_t in_rows(const struct layer_spec *layer) {
  return inner_of(layer) + channels_of(layer) + ((const struct mamba2_spec *)layer->spec)->heads;
}

static uint64_t z_row(const struct layer_spec *layer, uint32_t row) {
  (void)layer;
  return row;
}

static uint64_t xBC_row(const struct layer_spec *layer, uint32_t row) { return inner_of(layer) + row; }

static uint64_t dt_row(const struct layer_spec *layer, uint32_t row) {
  return inner_of(layer) + channels_of(layer) + row;
}

static const struct row_map z_rows = {in_rows, z_row}, xBC_rows = {in_rows, xBC_row}, dt_rows = {in_rows, dt_row};

#define MIXER "*layers.#.mixer."
const struct tensor_name tensors_of_mamba2_mixer[] = {
    MAPPED(Z, MIXER "in_proj.weight", &z_rows),
    MAPPED(XBC, MIXER "in_proj.weight", &xBC_rows),
    MAPPED(DT, MIXER "in_proj.weight", &dt_rows),
    MAPPED(Z_BIAS, MIXER "in_proj.bias", &z_rows),
    MAPPED(XBC_BIAS, MIXER "in_proj.bias", &xBC_rows),
    MAPPED(DT_BIAS, MIXER "in_proj.bias", &dt_rows),
    NAMED(CONV, MIXER "conv1d.weight"),
    NAMED(CONV_BIAS, MIXER "conv1d.bias"),
    NAMED(A_LOG, MIXER "A_log"),
    NAMED(STEP_BIAS, MIXER "dt_bias"),
    NAMED(SKIP, MIXER "D"),
    NAMED(OUTPUT_NORM, MIXER "norm.weight"),
    NAMED(OUTPUT, MIXER "out_proj.weight"),
    NAMED(OUTPUT_BIAS, MIXER "out_proj.bias"),
    {0},
};

static const struct tensor_name tensors_of_mamba2[] = {
    NAMED(EMBEDDING, "*embeddings.weight"),     NAMED(EMBEDDING, "*embedding.weight"), // older
    NAMED(FINAL_NORM, "*norm_f.weight"),        NAMED(HEAD, "lm_head.weight"),
    NAMED(MIXER_NORM, "*layers.#.norm.weight"), {0},
};

static const struct names names_of_mixer = {.tensors = tensors_of_mamba2_mixer};
static const struct names names_mamba2 = {
    .prefixes = {"backbone."}, .tensors = tensors_of_mamba2, .base = &names_of_mixer};

static deltaic_status read_mamba2(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                  struct model_spec *out) {
  deltaic_status status = arch_read_ends(r, config, checkpoint, &names_mamba2, 48, 1e-5f, out);
  for (uint32_t i = 0; !status && i < out->L; i++) status = arch_set_mamba2(r, config, checkpoint, i, out);
  return status;
}

const struct arch arch_mamba2 = {"mamba2", read_mamba2};
