// arch_gguf: the keys of a GGUF file as a config.json in the layout of Hugging Face's transformers, which the family's
// file reads. Keys of the architecture that are not in its table are refused: they might change what the model
// computes.
#include "arch_common.h"
#include "hash.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct arch arch_qwen35, arch_qwen35moe, arch_qwen3next;

// A key of the architecture (without its prefix), and the config's. config NULL: without effect on the result, or read
// in config_of().
struct gguf_key {
  const char *key, *config;
  bool needed;
};

static const struct gguf_key qwen_keys[] = {
    {"block_count", NULL, true},
    {"nextn_predict_layers", "mtp_num_hidden_layers", false},
    {"context_length", "max_position_embeddings", false},
    {"vocab_size", NULL, false},
    {"embedding_length", "hidden_size", true},
    {"feed_forward_length", "intermediate_size", false},
    {"expert_count", "num_experts", false},
    {"expert_used_count", "num_experts_per_tok", false},
    {"expert_feed_forward_length", "moe_intermediate_size", false},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size", false},
    {"attention.head_count", "num_attention_heads", true},
    {"attention.head_count_kv", "num_key_value_heads", true},
    {"attention.key_length", "head_dim", true},
    {"attention.value_length", NULL, false},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    {"attention.recurrent_layers", NULL, false},
    {"rope.dimension_count", NULL, true},
    {"rope.dimension_sections", NULL, false},
    {"rope.freq_base", "rope_theta", true},
    {"full_attention_interval", "full_attention_interval", false},
    {"ssm.conv_kernel", "linear_conv_kernel_dim", true},
    {"ssm.state_size", "linear_key_head_dim", true},
    {"ssm.group_count", "linear_num_key_heads", true},
    {"ssm.time_step_rank", "linear_num_value_heads", true},
    {"ssm.inner_size", NULL, true},
    {0},
};

static const struct gguf_arch {
  const struct arch *arch;
  const struct gguf_key *keys;
  const char *width; // the key of the FFN's width, which it needs
} archs[] = {{&arch_qwen35, qwen_keys, "feed_forward_length"},
             {&arch_qwen35moe, qwen_keys, "expert_feed_forward_length"},
             {&arch_qwen3next, qwen_keys, "expert_feed_forward_length"}};

struct keys {
  struct json_reader *r;
  const json_t *all;
  const char *arch;
};

static const char *full_name(const struct keys *k, const char *key, char name[128]) {
  snprintf(name, 128, "%s.%s", k->arch, key);
  return name;
}

static const json_t *get(const struct keys *k, const char *key) {
  char name[128];
  return json_object_get(k->all, full_name(k, key, name));
}

static int64_t get_int(const struct keys *k, const char *key, int64_t missing, int64_t low) {
  char name[128];
  return json_int(k->r, k->all, full_name(k, key, name), missing, low, INT32_MAX);
}

static const struct gguf_key *find_key(const struct gguf_key *keys, const char *key) {
  for (; keys->key; keys++)
    if (!strcmp(keys->key, key)) return keys;
  return NULL;
}

// Copies what has a key of its own in the config.
static deltaic_status copy_keys(const struct keys *k, const struct gguf_arch *a, json_t *config) {
  const size_t prefix = strlen(k->arch);
  const char *name;
  json_t *value;
  json_object_foreach((json_t *)k->all, name, value) {
    if (strncmp(name, k->arch, prefix) || name[prefix] != '.') continue;
    const struct gguf_key *known = find_key(a->keys, name + prefix + 1);
    if (!known)
      return fail(DELTAIC_UNSUPPORTED, "%s: key %.100s is not known and might change what the model computes",
                  k->r->file, name);
    if (known->config && json_object_set_nocheck(config, known->config, value)) return fail_memory("a config", 0);
  }
  for (const struct gguf_key *known = a->keys; known->key; known++)
    if ((known->needed || !strcmp(known->key, a->width)) && !get(k, known->key))
      return fail(DELTAIC_BAD_FILE, "%s: has no %s.%s", k->r->file, k->arch, known->key);
  return DELTAIC_OK;
}

// attention.recurrent_layers: for each block whether it is recurrent; blocks after the last layer are left out.
static json_t *layer_types(const json_t *recurrent, int64_t layers) {
  if (!json_is_array(recurrent)) return json_null();
  json_t *types = json_array();
  for (size_t i = 0; i < json_array_size(recurrent) && (int64_t)i < layers; i++) {
    const json_t *value = json_array_get(recurrent, i);
    const bool attention = json_is_false(value) || (json_is_integer(value) && !json_integer_value(value));
    json_array_append_new(types, json_string(attention ? "full_attention" : "linear_attention"));
  }
  return types;
}

// Whether every pair of rotated elements belongs to a section. Of text all sections have equal positions.
static bool sections_fit(const json_t *sections, int64_t rotated) {
  int64_t pairs = 0;
  if (sections && !json_is_array(sections)) return false;
  for (size_t i = 0; i < json_array_size(sections); i++) {
    const json_int_t size = json_integer_value(json_array_get(sections, i));
    if (size < 0 || size > INT32_MAX || i >= 4) return false;
    pairs += size;
  }
  return !sections || 2 * pairs == rotated;
}

static const char *const token_ids[][2] = {{"bos_token_id", "tokenizer.ggml.bos_token_id"},
                                           {"eos_token_id", "tokenizer.ggml.eos_token_id"}};

// What is computed from several keys.
static deltaic_status derive_keys(const struct keys *k, struct checkpoint *checkpoint, json_t *config) {
  const int64_t layers = get_int(k, "block_count", 1, 1) - get_int(k, "nextn_predict_layers", 0, 0);
  const int64_t head = get_int(k, "attention.key_length", 1, 1), rotated = get_int(k, "rope.dimension_count", 0, 0);
  const int64_t values = get_int(k, "ssm.inner_size", 1, 1), heads = get_int(k, "ssm.time_step_rank", 1, 1);
  const int64_t value_length = get_int(k, "attention.value_length", head, 1);
  if (k->r->status) return k->r->status;
  if (!sections_fit(get(k, "rope.dimension_sections"), rotated))
    return fail(DELTAIC_UNSUPPORTED,
                "%s: %s.rope.dimension_sections do not add up to half of rope.dimension_count %lld", k->r->file,
                k->arch, (long long)rotated);
  if (values % heads)
    return fail(DELTAIC_BAD_SHAPE, "%s: %s.ssm.time_step_rank %lld does not divide ssm.inner_size %lld", k->r->file,
                k->arch, (long long)heads, (long long)values);
  if (value_length != head || rotated > head)
    return fail(DELTAIC_UNSUPPORTED,
                "%s: %s.attention.key_length %lld needs values of that length and at most as many rotated elements",
                k->r->file, k->arch, (long long)head);
  // The half makes up for rounding: a family takes the whole part of the head's size times this.
  const double part = rotated < head ? ((double)rotated + 0.5) / (double)head : 1;
  bool bad =
      json_object_set_new(config, "num_hidden_layers", json_integer(layers)) ||
      json_object_set_new(config, "linear_value_head_dim", json_integer(values / heads)) ||
      json_object_set_new(config, "partial_rotary_factor", json_real(part)) ||
      json_object_set_new(config, "layer_types", layer_types(get(k, "attention.recurrent_layers"), layers)) ||
      json_object_set_new(config, "tie_word_embeddings", json_boolean(!checkpoint_find(checkpoint, "output.weight")));
  for (int i = 0; i < 2 && !bad; i++) {
    json_t *id = json_object_get(k->all, token_ids[i][1]); // without it there is none, whatever the family's default is
    bad = json_object_set_new(config, token_ids[i][0], id ? json_incref(id) : json_null());
  }
  if (!bad && !json_object_get(config, "full_attention_interval"))
    bad = json_object_set_new(config, "full_attention_interval", json_integer(4));
  return bad ? fail_memory("a config", 0) : DELTAIC_OK;
}

// Config keys that are computed, and the keys that they come from.
static const char *const derived[][2] = {{"num_hidden_layers", "block_count"},
                                         {"linear_value_head_dim", "ssm.inner_size / ssm.time_step_rank"},
                                         {"partial_rotary_factor", "rope.dimension_count"},
                                         {"layer_types", "attention.recurrent_layers"}};
enum { ALIASES = 48 };

// So that messages name the keys that the file has.
static void name_keys(const struct gguf_arch *a, struct json_alias aliases[ALIASES]) {
  const char *arch = a->arch->model_type;
  for (const struct gguf_key *key = a->keys; key->key; key++) {
    if (!key->config) continue;
    aliases->key = key->config;
    snprintf(aliases++->name, sizeof aliases->name, "%s.%s", arch, key->key);
  }
  for (size_t i = 0; i < sizeof derived / sizeof *derived; i++) {
    aliases->key = derived[i][0];
    snprintf(aliases++->name, sizeof aliases->name, "%s.%s", arch, derived[i][1]);
  }
  for (size_t i = 0; i < sizeof token_ids / sizeof *token_ids; i++) {
    aliases->key = token_ids[i][0];
    snprintf(aliases++->name, sizeof aliases->name, "%s", token_ids[i][1]);
  }
  aliases->key = NULL;
}
static_assert(sizeof qwen_keys / sizeof *qwen_keys + sizeof derived / sizeof *derived +
                      sizeof token_ids / sizeof *token_ids <
                  ALIASES,
              "room for every name");

static deltaic_status read_config(struct json_reader *r, const struct gguf_arch *a, struct checkpoint *checkpoint,
                                  struct model_spec *out) {
  const struct keys k = {r, checkpoint_keys(checkpoint), a->arch->model_type};
  struct json_alias aliases[ALIASES];
  name_keys(a, aliases);
  r->aliases = aliases;
  json_t *config = json_object();
  deltaic_status status = config ? copy_keys(&k, a, config) : fail_memory("a config", 0);
  if (!status) status = derive_keys(&k, checkpoint, config);
  char *text = status ? NULL : json_dumps(config, JSON_COMPACT | JSON_SORT_KEYS);
  if (!status && !text) status = fail_memory("a config", 0);
  if (!status) status = a->arch->read(r, config, checkpoint, out);
  if (!status) status = r->status;
  if (!status) status = generation_of_gguf(checkpoint, out->V, &out->generation);
  if (!status) out->eos = out->generation.ends.count ? out->generation.ends.ids[0] : -1;
  if (!status) out->config_hash = hash_bytes(HASH_BEGIN, text, strlen(text));
  free(text);
  json_decref(config);
  r->aliases = NULL;
  return status;
}

deltaic_status model_spec_of_gguf(struct checkpoint *checkpoint, struct model_spec *out) {
  struct json_reader r = {.file = checkpoint_path(checkpoint)};
  char list[256] = "";
  memset(out, 0, sizeof *out);
  const char *name = json_text(&r, checkpoint_keys(checkpoint), "general.architecture", NULL);
  if (r.status) return r.status;
  if (!name) return fail(DELTAIC_BAD_FILE, "%s: has no general.architecture", r.file);
  for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
    const char *known = archs[i].arch->model_type;
    if (!strcmp(known, name)) {
      snprintf(out->architecture, sizeof out->architecture, "%s", known);
      return read_config(&r, &archs[i], checkpoint, out);
    }
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", known);
  }
  return fail(DELTAIC_UNSUPPORTED, "%s: general.architecture \"%.100s\" is not supported; supported are: %s", r.file,
              name, list);
}
