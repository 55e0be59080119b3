// arch: reads config.json into a model_spec, with the table of families. arch_common.c has what the families' files,
// arch_*.c, share.
#include "arch.h"
#include "hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern const struct arch arch_delta_net, arch_delta_net_2, arch_gated_deltanet, arch_gated_deltaproduct, arch_mamba2,
    arch_olmo_hybrid, arch_qwen2, arch_qwen3_5, arch_qwen3_5_moe, arch_qwen3_5_moe_text, arch_qwen3_5_text,
    arch_qwen3_next, arch_transformer;
static const struct arch *const arch_table[] = {&arch_delta_net,
                                                &arch_delta_net_2,
                                                &arch_gated_deltanet,
                                                &arch_gated_deltaproduct,
                                                &arch_mamba2,
                                                &arch_olmo_hybrid,
                                                &arch_qwen2,
                                                &arch_qwen3_5,
                                                &arch_qwen3_5_text,
                                                &arch_qwen3_5_moe,
                                                &arch_qwen3_5_moe_text,
                                                &arch_qwen3_next,
                                                &arch_transformer,
                                                NULL};

// ---------------------------------------------------------------- unused tensors

deltaic_status model_leftovers(struct checkpoint *checkpoint, const struct model_spec *spec) {
  char head[64];
  names_write(spec->names, 0, ROLE_HEAD, head, sizeof head);
  for (uint64_t i = 0; i < checkpoint_count(checkpoint); i++) {
    const struct file_tensor *t = checkpoint_at(checkpoint, i);
    const bool copy = spec->tied && !strcmp(t->name, head); // of the embedding
    if (!t->used && !copy && !names_ignored(spec->names, t->name))
      return fail(DELTAIC_UNSUPPORTED, "%s: tensor %.200s is not part of a %s with this configuration",
                  checkpoint_path(checkpoint), t->name, spec->architecture);
  }
  return DELTAIC_OK;
}

// ---------------------------------------------------------------- the whole file

static const struct arch *find_arch(const char *model_type) {
  for (size_t i = 0; arch_table[i]; i++)
    if (!strcmp(arch_table[i]->model_type, model_type)) return arch_table[i];
  return NULL;
}

static deltaic_status fail_model_type(const char *file, const char *model_type) {
  char list[256] = "";
  size_t used = 0;
  for (size_t i = 0; arch_table[i] && used < sizeof list; i++)
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", arch_table[i]->model_type);
  return fail(DELTAIC_UNSUPPORTED, "%s: model_type \"%.100s\" is not supported; supported are: %s", file, model_type,
              list);
}

// Refuses a config that says that the weights are quantized, whether they are, which no family reads, or not.
static deltaic_status refuse_quantization(const char *file, const json_t *config, struct checkpoint *checkpoint) {
  static const char key[] = "quantization_config";
  const json_t *text = json_object_get(config, "text_config");
  const json_t *holder = json_present(config, key) ? config : text;
  if (!json_present(holder, key)) return DELTAIC_OK;
  const json_t *value = json_object_get(holder, key);
  const char *method = json_string_value(json_object_get(value, "quant_method"));
  const struct file_tensor *t = NULL;
  if (json_is_object(value) && json_object_size(value) == 0) return DELTAIC_OK;
  if (!method) method = "a method without a name";
  for (uint64_t i = 0; checkpoint && i < checkpoint_count(checkpoint) && !t; i++)
    if (checkpoint_at(checkpoint, i)->dtype > FILE_BLOCKS_LAST) t = checkpoint_at(checkpoint, i);
  if (t)
    return fail(DELTAIC_UNSUPPORTED,
                "%s: config key %s: weights quantized by %.60s (tensor %.200s is %.40s) are not supported; take the "
                "model's 16-bit weights, or a GGUF file",
                file, key, method, t->name, t->dtype_name);
  return fail(DELTAIC_UNSUPPORTED,
              "%s: config key %s says that the weights are quantized by %.60s, but none of the tensors is", file, key,
              method);
}

// All ids of eos_token_id, which may stand in text_config. Without the key a family may have a default, in out->eos.
static void read_config_ends(struct json_reader *r, const json_t *config, struct model_spec *out) {
  struct ends *ends = &out->generation.ends;
  const json_t *text = json_object_get(config, "text_config");
  const json_t *holder = json_present(config, "eos_token_id") ? config : text;
  if (json_present(holder, "eos_token_id"))
    ends_read(r, holder, "eos_token_id", out->V, ends);
  else if (!r->status)
    r->status = ends_add(ends, r->file, out->eos);
  out->eos = ends->count ? ends->ids[0] : -1;
}

static deltaic_status parse(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                            struct model_spec *out) {
  if (!json_is_object(config)) return fail(DELTAIC_BAD_FILE, "%s: must be a JSON object", r->file);
  const char *model_type = json_text(r, config, "model_type", NULL);
  if (r->status) return r->status;
  if (!model_type) return fail(DELTAIC_BAD_FILE, "%s: has no model_type", r->file);
  const struct arch *arch = find_arch(model_type);
  if (!arch) return fail_model_type(r->file, model_type);
  snprintf(out->architecture, sizeof out->architecture, "%s", arch->model_type);
  deltaic_status status = refuse_quantization(r->file, config, checkpoint);
  if (!status) status = arch->read(r, config, checkpoint, out);
  if (!status) read_config_ends(r, config, out);
  return status ? status : r->status;
}

// Python writes an infinite upper end of dt_limit as Infinity, which JSON does not have. Replaces it by 1e308 in a
// copy, which the caller frees; NULL: out of memory.
char *config_without_infinity(const char *text, size_t bytes) {
  static const char infinity[] = "Infinity", large[] = "1e308   ";
  char *copy = malloc(bytes + 1);
  bool quoted = false;
  if (!copy) return NULL;
  if (bytes) memcpy(copy, text, bytes);
  for (size_t i = 0; i < bytes; i++) {
    if (copy[i] == '"') quoted = !quoted;
    if (quoted && copy[i] == '\\') i++;
    if (quoted || bytes - i < 8 || memcmp(copy + i, infinity, 8)) continue;
    memcpy(copy + i, large, 8);
  }
  return copy;
}

deltaic_status model_spec_parse(const char *file, const char *text, size_t bytes, struct checkpoint *checkpoint,
                                struct model_spec *out) {
  struct json_reader reader = {.file = file};
  json_t *config;
  memset(out, 0, sizeof *out);
  char *copy = config_without_infinity(text, bytes);
  if (!copy) return fail_memory("a config", bytes);
  deltaic_status status = json_parse(file, copy, bytes, &config);
  free(copy);
  if (status) return status;
  status = parse(&reader, config, checkpoint, out);
  json_decref(config);
  out->config_hash = hash_bytes(HASH_BEGIN, text, bytes);
  if (status) model_spec_free(out);
  return status;
}

// A GGUF file that has a folder's config.json and generation_config.json, and its tensors by their names.
static deltaic_status read_whole_config(struct checkpoint *checkpoint, const json_t *config, struct model_spec *out) {
  const char *file = checkpoint_path(checkpoint);
  const json_t *generation = json_object_get(checkpoint_keys(checkpoint), KEY_GENERATION);
  deltaic_status status =
      model_spec_parse(file, json_string_value(config), json_string_length(config), checkpoint, out);
  if (status) return status;
  if (json_is_string(generation))
    status =
        generation_parse(file, json_string_value(generation), json_string_length(generation), out->V, &out->generation);
  out->eos = out->generation.ends.count ? out->generation.ends.ids[0] : -1;
  return status;
}

static deltaic_status read_gguf(struct checkpoint *checkpoint, struct model_spec *out) {
  const json_t *config = json_object_get(checkpoint_keys(checkpoint), KEY_CONFIG);
  deltaic_status status =
      json_is_string(config) ? read_whole_config(checkpoint, config, out) : model_spec_of_gguf(checkpoint, out);
  if (status) model_spec_free(out);
  return status;
}

deltaic_status model_spec_read(const char *folder, struct checkpoint *checkpoint, struct model_spec *out) {
  memset(out, 0, sizeof *out);
  if (checkpoint && checkpoint_keys(checkpoint)) return read_gguf(checkpoint, out);
  char *file = path_join(folder, "config.json");
  if (!file) return DELTAIC_OUT_OF_MEMORY;
  const deltaic_source *source = checkpoint ? checkpoint_source(checkpoint) : NULL;
  struct input in;
  deltaic_status status = input_open_whole(source, file, &in);
  if (!status) {
    status = model_spec_parse(file, in.view.data, in.view.bytes, checkpoint, out);
    input_close(&in);
  }
  free(file);
  if (status) return status;
  status = generation_read(source, folder, out->V, &out->generation);
  out->eos = out->generation.ends.count ? out->generation.ends.ids[0] : -1;
  if (status) model_spec_free(out);
  return status;
}

void model_spec_free(struct model_spec *spec) {
  for (uint32_t i = 0; spec->layers && i < spec->L; i++) {
    free(spec->layers[i].spec);
    free(spec->layers[i].ffn_spec);
  }
  free(spec->layers);
  memset(spec, 0, sizeof *spec);
}
