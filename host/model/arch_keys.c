// arch_keys: config keys of the families in the layout of Hugging Face's transformers (docs/models.md).
#include "arch_keys.h"

#include "mixer_attention.h"
#include "mixer_delta.h"
#include "text.h"

#include <string.h>

// Keys that transformers, or a program that trains, writes into any config. They describe training, the text generated
// by default, or how transformers holds the model; none changes the logits.
static const char *const without_effect[] = {"_*",
                                             "*_dropout",
                                             "*_token_id",
                                             "architectures",
                                             "auto_map",
                                             "bad_words_ids",
                                             "chunk_size_feed_forward",
                                             "diversity_penalty",
                                             "do_sample",
                                             "dtype",
                                             "early_stopping",
                                             "id2label",
                                             "initializer_range",
                                             "label2id",
                                             "length_penalty",
                                             "max_length",
                                             "max_position_embeddings",
                                             "model_type",
                                             "mtp_*",
                                             "name_or_path",
                                             "num_beam_groups",
                                             "num_beams",
                                             "num_return_sequences",
                                             "output_attentions",
                                             "output_hidden_states",
                                             "output_router_logits",
                                             "output_scores",
                                             "repetition_penalty",
                                             "return_dict*",
                                             "router_aux_loss_coef",
                                             "temperature",
                                             "tokenizer_class",
                                             "top_k",
                                             "top_p",
                                             "torch_dtype",
                                             "transformers_version",
                                             "typical_p",
                                             "unsloth_*",
                                             "use_cache",
                                             NULL};

// Keys without effect at this value only.
static const struct {
  const char *key;
  double value;
} without_effect_at[] = {{"encoder_no_repeat_ngram_size", 0},
                         {"min_length", 0},
                         {"no_repeat_ngram_size", 0},
                         {"pretraining_tp", 1},
                         {"router_jitter_noise", 0}};

static bool is_listed(const char *const *list, const char *key) {
  for (size_t i = 0; list[i]; i++)
    if (text_like(key, list[i])) return true;
  return false;
}

static bool is_empty(const json_t *value) {
  return !value || json_is_null(value) || json_is_false(value) || (json_is_object(value) && !json_object_size(value)) ||
         (json_is_array(value) && !json_array_size(value));
}

// Windows are read only where use_sliding_window is true.
static bool has_no_effect(const json_t *object, const char *key, const json_t *value) {
  if (!strcmp(key, "sliding_window") || !strcmp(key, "max_window_layers"))
    return json_is_false(json_object_get(object, "use_sliding_window"));
  for (size_t i = 0; i < sizeof without_effect_at / sizeof *without_effect_at; i++)
    if (!strcmp(key, without_effect_at[i].key))
      return json_is_number(value) && json_number_value(value) == without_effect_at[i].value;
  return is_listed(without_effect, key);
}

deltaic_status arch_check_keys(const struct json_reader *r, const json_t *object, const char *const *known,
                               const char *where) {
  const char *key;
  json_t *value;
  json_object_foreach((json_t *)object, key, value) {
    if (is_empty(value) || is_listed(known, key) || has_no_effect(object, key, value)) continue;
    return fail(DELTAIC_UNSUPPORTED, "%s: config key %.100s%s%s is not known and might change what the model computes",
                r->file, key, where ? " of " : "", where ? where : "");
  }
  return DELTAIC_OK;
}

deltaic_status arch_read_strictly(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                  const struct names *names, const char *const *known, struct model_spec *out) {
  static const char *const activations[] = {"silu", "swish", NULL};
  const float eps = arch_eps(r, config, "rms_norm_eps", 1e-6f);
  deltaic_status status = arch_check_keys(r, config, known, NULL);
  if (!status) status = arch_read_ends(r, config, checkpoint, names, 0, eps, out);
  if (status) return status;
  out->ffn_norm_eps = out->norm_eps;
  (void)arch_choice(r, config, "hidden_act", activations);
  if (!json_object_get(config, "bos_token_id")) out->bos = -1;
  if (!json_object_get(config, "eos_token_id")) out->eos = -1;
  return arch_read_mlp(r, config, checkpoint, out);
}

json_t *arch_with_defaults(struct json_reader *r, const json_t *config, const struct arch_default *defaults) {
  json_t *copy = json_copy((json_t *)config);
  bool bad = !copy;
  for (; !bad && defaults->key; defaults++)
    if (!json_present(copy, defaults->key))
      bad = json_object_set_new(copy, defaults->key, json_integer(defaults->value));
  if (!bad) return copy;
  json_decref(copy);
  if (!r->status) r->status = fail_memory("a config", 0);
  return NULL;
}

bool arch_is_attention(struct json_reader *r, const json_t *config, uint32_t L, uint32_t every, uint32_t i) {
  if (!json_present(config, "layer_types")) return (i + 1) % every == 0;
  const json_t *types = json_object_get(config, "layer_types");
  const char *type = json_string_value(json_array_get(types, i));
  if (!r->status && (json_array_size(types) != L || !type))
    r->status = fail(DELTAIC_BAD_FILE, "%s: %s must be a list of %u values, one for each layer", r->file,
                     json_name(r, "layer_types"), L);
  if (!type || !strcmp(type, "linear_attention")) return false;
  if (!r->status && strcmp(type, "full_attention"))
    r->status = fail(DELTAIC_UNSUPPORTED, "%s: layer_types: \"%.100s\" is not supported", r->file, type);
  return true;
}

static deltaic_status check_rope_type(struct json_reader *r, const json_t *rope, const char *name) {
  const char *key = json_present(rope, "rope_type") ? "rope_type" : "type";
  const char *type = json_text(r, rope, key, "default");
  if (r->status || !strcmp(type, "default")) return r->status;
  return fail(DELTAIC_UNSUPPORTED, "%s: %s \"%.100s\" of %s is not supported", r->file, key, type, name);
}

// Empty objects count as missing, as in transformers, where rope_scaling wins over rope_parameters.
deltaic_status arch_read_rope(struct json_reader *r, const json_t *config, double rotated, struct arch_rope *out) {
  static const char *const known[] = {
      "rope_type",         "type", "rope_theta", "partial_rotary_factor", "mrope_section",
      "mrope_interleaved", NULL}; // of text, all three positions are equal
  const json_t *newer = json_object_get(config, "rope_parameters"), *older = json_object_get(config, "rope_scaling");
  const bool both = !is_empty(newer) && !is_empty(older);
  const json_t *rope = is_empty(older) ? newer : older;
  const char *name = is_empty(older) ? "rope_parameters" : "rope_scaling";
  *out = (struct arch_rope){json_number(r, config, "rope_theta", 0, 1e-3, 1e18),
                            json_number(r, config, "partial_rotary_factor", rotated, 0, 1)};
  if (r->status || is_empty(rope)) return r->status;
  if (!json_is_object(rope)) return fail(DELTAIC_BAD_FILE, "%s: %s must be an object", r->file, name);
  deltaic_status status = check_rope_type(r, rope, name);
  if (!status) status = arch_check_keys(r, rope, known, name);
  if (!status && both && !json_equal(newer, older))
    status = fail(DELTAIC_UNSUPPORTED, "%s: rope_scaling and rope_parameters differ", r->file);
  out->theta = json_number(r, rope, "rope_theta", out->theta, 1e-3, 1e18);
  out->rotated = json_number(r, rope, "partial_rotary_factor", out->rotated, 0, 1);
  return status ? status : r->status;
}

deltaic_status arch_check_value_heads(const struct json_reader *r, const struct delta_spec *s) {
  if (s->Hv % s->H == 0) return DELTAIC_OK;
  return fail(DELTAIC_BAD_SHAPE, "%s: %s %u is not a multiple of %s %u", r->file,
              json_name(r, "linear_num_value_heads"), s->Hv, json_name(r, "linear_num_key_heads"), s->H);
}

deltaic_status arch_check_heads(const struct json_reader *r, const struct arch_rope *rope, struct attention_spec *s) {
  if (s->heads % s->kv_heads)
    return fail(DELTAIC_BAD_SHAPE, "%s: %s %u does not divide %s %u", r->file, json_name(r, "num_key_value_heads"),
                s->kv_heads, json_name(r, "num_attention_heads"), s->heads);
  s->rope_theta = rope->theta;
  s->rotary = rope->theta ? (uint32_t)(s->d * rope->rotated) : 0;
  if (s->rotary % 2)
    return fail(DELTAIC_BAD_SHAPE, "%s: a head has %u rotated elements; their number must be even", r->file, s->rotary);
  return DELTAIC_OK;
}
