// quant_api: implements deltaic_quantize() and its report.
#include "option_structs.h"
#include "platform.h"
#include "quant_qwen.h"
#include "quant_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The plan that was carried out.
struct deltaic_quantization {
  struct quant quant;
  deltaic_quantization_info info;
};

bool deltaic_quantize_type_at(int32_t i, deltaic_quantize_type *type) {
  const struct quant_type *found = i < 0 ? NULL : quant_type_at((size_t)i);
  if (found && type) *type = (deltaic_quantize_type){.name = found->name, .about = found->about};
  return found != NULL;
}

static deltaic_status fail_type(const char *name) {
  char list[256] = "";
  for (size_t i = 0; quant_type_at(i); i++)
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%s", i ? ", " : "", quant_type_at(i)->name);
  return fail(DELTAIC_INVALID_ARGUMENT, "there is no type \"%.100s\"; there are: %s", name, list);
}

static deltaic_status check_out(const struct quant *q, const char *out, bool force) {
  struct path_facts there;
  deltaic_status status = checkpoint_spare(q->checkpoint, out);
  if (status) return status;
  if (platform_facts(out, true, &there)) return DELTAIC_OK;
  if (there.kind == PATH_FOLDER) return fail(DELTAIC_INVALID_ARGUMENT, "%s: is a folder, not a file", out);
  if (there.kind == PATH_FILE && !force)
    return fail(DELTAIC_INVALID_ARGUMENT, "%s: is there already (force replaces it)", out);
  return DELTAIC_OK;
}

static void fill_info(struct deltaic_quantization *z) {
  const struct quant *q = &z->quant;
  deltaic_quantization_info *info = &z->info;
  const json_t *name = json_object_get(checkpoint_keys(q->checkpoint), "general.architecture");
  snprintf(info->architecture, sizeof info->architecture, "%s",
           q->family ? q->family->name
           : name    ? json_string_value(name)
                     : q->spec.architecture);
  info->type = q->type->name;
  info->tensors = q->count;
  info->left_out = q->left_out;
  info->left_out_first = q->left_out_first;
  for (size_t i = 0; i < q->count; i++) {
    info->bytes += quant_tensor_bytes(&q->tensors[i]);
    info->elements += quant_rows(&q->tensors[i]) * quant_columns(&q->tensors[i]);
  }
  info->own_keys = q->family ? !quant_family_everywhere(&q->spec)
                             : !name || json_object_get(checkpoint_keys(q->checkpoint), KEY_CONFIG) != NULL;
}

deltaic_status deltaic_quantize(const char *path, const char *out, const deltaic_quantize_options *options,
                                deltaic_quantization **report) {
  deltaic_quantize_options o;
  if (refuse_null("deltaic_quantize", "path,out", path, out)) return DELTAIC_INVALID_ARGUMENT;
  deltaic_status status = options_read(&o, sizeof o, options, "deltaic_quantize_options");
  if (status) return status;
  const char *name = o.type ? o.type : "q4_k_m";
  const struct quant_type *type = quant_type_find(name);
  if (!type) return fail_type(name);
  struct deltaic_quantization *z = calloc(1, sizeof *z);
  if (!z) return fail_memory("a report", sizeof *z);
  status = quant_open(path, o.adapter, type, &z->quant);
  if (!status) status = check_out(&z->quant, out, o.force);
  if (!status && !o.plan_only) status = quant_write(&z->quant, out, o.threads, o.progress, o.progress_user);
  if (!status) fill_info(z);
  if (!status) quant_close_files(&z->quant);
  if (!status && report)
    *report = z;
  else
    deltaic_quantization_free(z);
  return status;
}

void deltaic_quantization_get_info(const deltaic_quantization *z, deltaic_quantization_info *info) {
  if (info) *info = z ? z->info : (deltaic_quantization_info){.type = ""};
}

bool deltaic_quantization_at(const deltaic_quantization *z, size_t i, deltaic_quantized_tensor *tensor) {
  if (!z || i >= z->quant.count) return false;
  const struct quant_tensor *t = &z->quant.tensors[i];
  if (tensor)
    *tensor = (deltaic_quantized_tensor){.name = t->name,
                                         .type = t->raw ? t->raw->name : dtype_name(t->dtype),
                                         .wanted = t->raw ? t->raw->name : dtype_name(t->wanted),
                                         .elements = quant_rows(t) * quant_columns(t),
                                         .columns = quant_columns(t),
                                         .bytes = quant_tensor_bytes(t)};
  return true;
}

void deltaic_quantization_free(deltaic_quantization *z) {
  if (z) quant_close(&z->quant);
  free(z);
}
