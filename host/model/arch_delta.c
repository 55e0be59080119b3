// arch_delta: the families delta_net, gated_deltanet and gated_deltaproduct of flash-linear-attention (docs/models.md).
#include "arch_common.h"

#include "mixer_delta.h"

#include <math.h>
#include <string.h>

static const char *const norms[] = {"l2", "sum", "l1", "none", NULL};
static const enum key_norm norm_values[] = {KEY_NORM_L2, KEY_NORM_SUM, KEY_NORM_L1, KEY_NORM_NONE};
static const char *const fla_norms[] = {"l2", "sum", NULL};
static const char *const activations[] = {"silu", "relu", "elu", "identity", NULL};
static const enum activation activation_values[] = {ACTIVATION_SILU, ACTIVATION_RELU, ACTIVATION_ELU1,
                                                    ACTIVATION_IDENTITY};

static const char *const masks[] = {"static", "input", NULL};
static const char *const nonnegs[] = {"softplus", "sigmoid", "exp", NULL};
static const enum hh_nonneg nonneg_values[] = {HH_NONNEG_SOFTPLUS, HH_NONNEG_SIGMOID, HH_NONNEG_EXP};

// Shared filters: as many as there are heads, or one.
static deltaic_status size_filters(struct checkpoint *checkpoint, const struct names *names, uint32_t i,
                                   struct delta_spec *s) {
  const struct file_tensor *t = names_find(names, checkpoint, i, ROLE_Q_CONV).tensor;
  if (!t || t->shape[0] == 1 || t->shape[0] == s->H) {
    if (t) s->filters = (uint32_t)t->shape[0];
    return DELTAIC_OK;
  }
  return fail(DELTAIC_BAD_SHAPE, "%s: tensor %s has %llu filters, expected 1 or one for each of %u heads",
              checkpoint_path(checkpoint), t->name, (unsigned long long)t->shape[0], s->H);
}

// trunc(width * ratio) / heads, computed in double as in fla; 0 if heads does not divide it.
static uint32_t head_size(uint32_t width, double ratio, uint32_t heads) {
  double total = trunc(width * ratio);
  return fmod(total, heads) == 0 && total / heads <= UINT32_MAX ? (uint32_t)(total / heads) : 0;
}

// trunc(head_dim * expand_v); 0 if fla refuses it as no integer (relative tolerance 1e-5).
static uint32_t value_size(uint32_t head_dim, double expand) {
  double exact = head_dim * expand, size = trunc(exact);
  return exact - size <= 1e-5 * exact ? (uint32_t)size : 0;
}

deltaic_status arch_size_delta(const struct json_reader *r, struct checkpoint *checkpoint, const struct names *names,
                               uint32_t i, struct delta_spec *s) {
  const bool list = names_item(names, checkpoint, i, ROLE_V, 0).tensor; // DeltaProduct before June 2025
  const struct arch_rows keys = {ROLE_Q, i, s->H, "num_heads", LIMIT_HEAD_SIZE, false};
  const struct arch_rows values = {ROLE_V,          i,   list ? s->Hv : s->n * s->Hv, "the number of value heads",
                                   LIMIT_HEAD_SIZE, list};
  deltaic_status status = arch_rows(r, checkpoint, names, keys, &s->Dk);
  if (!status) status = arch_rows(r, checkpoint, names, values, &s->Dv);
  if (!status && s->W) status = arch_columns(checkpoint, names, i, ROLE_Q_CONV, LIMIT_CONV, &s->W);
  if (!status && s->W && s->filters) status = size_filters(checkpoint, names, i, s);
  if (status) return status;
  if (s->Dk % s->r)
    return fail(DELTAIC_BAD_SHAPE, "%s: layer %u: hh_r %u does not divide the key size %u", r->file, i, s->r, s->Dk);
  uint64_t state = (uint64_t)s->Hv * s->Dk * s->Dv;
  if (state > INT32_MAX)
    return fail(DELTAIC_UNSUPPORTED, "%s: layer %u would have a state of %llu elements; the limit is %d", r->file, i,
                (unsigned long long)state, INT32_MAX);
  uint64_t columns = (uint64_t)s->H * s->Dk * (1 + s->n) + (uint64_t)s->Hv * s->Dv * s->n;
  if (columns > INT32_MAX)
    return fail(DELTAIC_UNSUPPORTED, "%s: layer %u would have %llu columns of q, k and v; the limit is %d", r->file, i,
                (unsigned long long)columns, INT32_MAX);
  return DELTAIC_OK;
}

// `ablation`: variants from papers that fla's keys cannot express. The object is our own (docs/models.md), so that it
// can never be confused with a key of fla.
static deltaic_status read_ablation(struct json_reader *r, const json_t *config, struct delta_spec *s) {
  static const char *const keys[] = {"qk_norm", "qk_activation", "use_beta", "use_decay", "use_output_norm"};
  const json_t *ablation = json_object_get(config, "ablation");
  if (!ablation || json_is_null(ablation)) return DELTAIC_OK;
  if (!json_is_object(ablation)) return fail(DELTAIC_BAD_FILE, "%s: ablation must be an object", r->file);
  size_t known = 0;
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) known += json_object_get(ablation, keys[i]) != NULL;
  if (known != json_object_size(ablation))
    return fail(DELTAIC_UNSUPPORTED,
                "%s: ablation has keys other than qk_norm, qk_activation, use_beta, use_decay and use_output_norm",
                r->file);
  if (json_present(ablation, keys[0])) s->norm = norm_values[arch_choice(r, ablation, keys[0], norms)];
  if (json_present(ablation, keys[1]))
    s->activation = activation_values[arch_choice(r, ablation, keys[1], activations)];
  s->has_beta = json_bool(r, ablation, "use_beta", s->has_beta);
  s->gated = json_bool(r, ablation, "use_decay", s->gated);
  s->output_norm = json_bool(r, ablation, "use_output_norm", s->output_norm);
  return r->status ? fail(r->status, "%s (in ablation)", deltaic_last_error()) : DELTAIC_OK;
}

static deltaic_status set_layers(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                 const struct mixer *mixer, struct delta_spec *configured, struct model_spec *out) {
  if (r->status) return r->status;
  deltaic_status refused = read_ablation(r, config, configured);
  if (refused) return refused;
  for (uint32_t i = 0; i < out->L; i++) {
    if (out->layers[i].mixer) continue;
    struct delta_spec s = *configured;
    deltaic_status status = arch_size_delta(r, checkpoint, out->names, i, &s);
    if (!status) status = arch_set_layer(out, i, mixer, &s, sizeof s);
    if (status) return status;
  }
  return DELTAIC_OK;
}

// Reads the keys that the layers of all these families share.
static struct delta_spec read_layer(struct json_reader *r, const json_t *config, uint32_t default_heads, bool gate,
                                    const struct model_spec *out) {
  struct delta_spec s = {
      .n = 1, .r = 1, .activation = ACTIVATION_SILU, .norm = KEY_NORM_L2, .has_beta = true, .output_norm = true};
  s.H = s.Hv = (uint32_t)json_int(r, config, "num_heads", default_heads, 1, LIMIT_HEADS);
  s.W = (uint32_t)json_int(r, config, "conv_size", 4, 1, LIMIT_CONV);
  if (!json_bool(r, config, "use_short_conv", true)) s.W = 0;
  s.output_gate = json_bool(r, config, "use_gate", gate);
  s.beta_scale = json_bool(r, config, "allow_neg_eigval", false) ? 2.0f : 1.0f;
  s.norm_eps = out->norm_eps;
  return s;
}

// Reads the keys of Head-in-Head.
static void read_hh(struct json_reader *r, const json_t *config, struct delta_spec *s) {
  s->r = (uint32_t)json_int(r, config, "hh_r", 1, 1, HH_MOST);
  if (s->r == 1) return;
  s->mask_input = arch_choice(r, config, "hh_mask", masks) == 1;
  s->nonneg = nonneg_values[arch_choice(r, config, "hh_nonneg", nonnegs)];
}

// Also delta_net_2, whose filters are shared, and whose expand_k may be an object with a number for each layer: then
// the tensors must say it.
static deltaic_status read_delta_net(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                     struct model_spec *out) {
  const bool shared = !strcmp(out->architecture, "delta_net_2");
  const bool each = shared && json_is_object(json_object_get(config, "expand_k"));
  deltaic_status status = arch_read_outside(r, config, checkpoint, 24, out);
  if (status) return status;
  struct delta_spec s = read_layer(r, config, 16, false, out);
  double expand_k = each ? 1 : json_number(r, config, "expand_k", 1, 0, 1024);
  double expand_v = json_number(r, config, "expand_v", 1, 0, 1024);
  s.has_beta = json_bool(r, config, "use_beta", true);
  s.norm = norm_values[arch_choice(r, config, "qk_norm", fla_norms)];
  s.activation = activation_values[arch_choice(r, config, "qk_activation", activations)];
  if (json_bool(r, config, "use_elu", false)) s.activation = ACTIVATION_ELU1; // name of the key in 2024
  if (shared) s.filters = json_bool(r, config, "per_head_conv", true) ? s.H : 1;
  read_hh(r, config, &s);
  if (r->status) return r->status;
  s.Dk = head_size(out->D, expand_k, s.H);
  s.Dv = head_size(out->D, expand_v, s.H);
  return set_layers(r, config, checkpoint, &mixer_delta_net, &s, out);
}

static deltaic_status read_gated_deltanet(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                          struct model_spec *out) {
  deltaic_status status = arch_read_outside(r, config, checkpoint, 21, out);
  if (status) return status;
  struct delta_spec s = read_layer(r, config, 6, true, out);
  double expand_v = json_number(r, config, "expand_v", 2, 0, 1024);
  s.Hv = (uint32_t)json_int(r, config, "num_v_heads", s.H, 1, LIMIT_HEADS);
  s.Dk = (uint32_t)json_int(r, config, "head_dim", 256, 1, LIMIT_HEAD_SIZE);
  s.Dv = value_size(s.Dk, expand_v);
  s.gated = true;
  read_hh(r, config, &s);
  if (r->status) return r->status;
  if (s.Hv % s.H)
    return fail(DELTAIC_BAD_SHAPE, "%s: num_v_heads %u is not a multiple of num_heads %u", r->file, s.Hv, s.H);
  return set_layers(r, config, checkpoint, &mixer_gated_deltanet, &s, out);
}

static deltaic_status read_gated_deltaproduct(struct json_reader *r, const json_t *config,
                                              struct checkpoint *checkpoint, struct model_spec *out) {
  deltaic_status status = arch_read_outside(r, config, checkpoint, 21, out);
  if (status) return status;
  struct delta_spec s = read_layer(r, config, 6, true, out);
  double expand_v = json_number(r, config, "expand_v", 2, 0, 1024);
  s.output_gate = json_bool(r, config, "use_output_gate", s.output_gate); // name of the key since July 2025
  s.gated = json_bool(r, config, "use_forget_gate", false);
  s.n = (uint32_t)json_int(r, config, "num_householder", 1, 1, DELTA_STEPS);
  s.Dk = (uint32_t)json_int(r, config, "head_dim", 256, 1, LIMIT_HEAD_SIZE);
  s.Dv = value_size(s.Dk, expand_v);
  if (r->status) return r->status;
  return set_layers(r, config, checkpoint, s.gated ? &mixer_gated_delta_product : &mixer_delta_product, &s, out);
}

const struct arch arch_gated_deltaproduct = {"gated_deltaproduct", read_gated_deltaproduct};
const struct arch arch_delta_net = {"delta_net", read_delta_net};
const struct arch arch_delta_net_2 = {"delta_net_2", read_delta_net};
const struct arch arch_gated_deltanet = {"gated_deltanet", read_gated_deltanet};
