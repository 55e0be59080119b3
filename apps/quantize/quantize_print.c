// quantize_print: reports what `deltaic quantize` has written, as tables and as JSON.
#include "print.h"
#include "quantize.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TYPES = 16 };

struct sum {
  const char *type;
  uint64_t tensors, elements, bytes;
};

// The tensors by their type, the largest sum first.
static size_t sums_of(const deltaic_quantization *report, struct sum sums[TYPES]) {
  deltaic_quantized_tensor t;
  size_t count = 0;
  for (size_t i = 0; deltaic_quantization_at(report, i, &t); ++i) {
    size_t k = 0;
    while (k < count && strcmp(sums[k].type, t.type)) ++k;
    if (k == TYPES) continue;
    if (k == count) sums[count++] = (struct sum){.type = t.type};
    sums[k].tensors++;
    sums[k].elements += t.elements;
    sums[k].bytes += t.bytes;
  }
  for (size_t i = 1; i < count; ++i)
    for (size_t k = i; k && sums[k].bytes > sums[k - 1].bytes; --k) {
      struct sum other = sums[k];
      sums[k] = sums[k - 1];
      sums[k - 1] = other;
    }
  return count;
}

static double bits_of(uint64_t bytes, uint64_t elements) {
  return elements ? 8 * (double)bytes / (double)elements : NAN;
}

static struct text bits_text(uint64_t bytes, uint64_t elements) {
  struct text t;
  snprintf(t.text, sizeof t.text, elements ? "%.2f" : "-", bits_of(bytes, elements));
  return t;
}

// ---------------------------------------------------------------- tables

static void print_row(struct table *t, const char *name, const struct sum *s) {
  table_row(t, name, text_count(s->tensors).text, text_count(s->elements).text, text_bytes(s->bytes).text,
            bits_text(s->bytes, s->elements).text);
}

static void print_types(const deltaic_quantization *report) {
  struct sum sums[TYPES], all = {0};
  struct table t;
  const size_t count = sums_of(report, sums);
  table_begin(&t, "lrrrr");
  table_row(&t, "type", "tensors", "weights", "size", "bits per weight");
  for (size_t i = 0; i < count; ++i) {
    print_row(&t, sums[i].type, &sums[i]);
    all.tensors += sums[i].tensors;
    all.elements += sums[i].elements;
    all.bytes += sums[i].bytes;
  }
  print_row(&t, "all", &all);
  table_end(&t, 0);
}

static void print_tensors(const deltaic_quantization *report) {
  struct table t;
  deltaic_quantized_tensor one;
  table_begin(&t, "llrr");
  table_row(&t, "tensor", "type", "weights", "size");
  for (size_t i = 0; deltaic_quantization_at(report, i, &one); ++i)
    table_row(&t, one.name, one.type, text_count(one.elements).text, text_bytes(one.bytes).text);
  table_end(&t, 0);
  printf("\n");
}

struct fallback {
  deltaic_quantized_tensor first;
  size_t count;
};

// A line for every pair of types and row length.
static void print_fallbacks(const deltaic_quantization *report) {
  deltaic_quantized_tensor t;
  struct fallback *kinds = NULL;
  size_t count = 0;
  for (size_t i = 0, k; deltaic_quantization_at(report, i, &t); ++i) {
    if (!strcmp(t.type, t.wanted)) continue;
    for (k = 0; k < count; ++k)
      if (!strcmp(t.type, kinds[k].first.type) && !strcmp(t.wanted, kinds[k].first.wanted) &&
          t.columns == kinds[k].first.columns)
        break;
    if (k == count) {
      kinds = must_resize(kinds, ++count * sizeof *kinds);
      kinds[k] = (struct fallback){.first = t};
    }
    kinds[k].count++;
  }
  for (size_t k = 0; k < count; ++k)
    printf("%s instead of %s: %zu tensor%s with rows of %llu, such as %s\n", kinds[k].first.type, kinds[k].first.wanted,
           kinds[k].count, kinds[k].count == 1 ? "" : "s", (unsigned long long)kinds[k].first.columns,
           kinds[k].first.name);
  free(kinds);
}

static void print_compare(const struct quantize_result *r) {
  struct table t;
  const struct quantize_score *both[] = {&r->before, &r->after};
  if (!r->before.known || !r->after.known) return;
  printf("\n");
  table_begin(&t, "lrrr");
  table_row(&t, "perplexity", "bits per weight", "mean NLL", "perplexity");
  for (int i = 0; i < 2; ++i) {
    char bits[32], nll[32], perplexity[32];
    snprintf(bits, sizeof bits, "%.2f", both[i]->bits);
    snprintf(nll, sizeof nll, "%.6f", both[i]->nll);
    snprintf(perplexity, sizeof perplexity, "%.4f", exp(both[i]->nll));
    table_row(&t, i ? "after" : "before", bits, nll, perplexity);
  }
  table_end(&t, 0);
  printf("%+.2f%% in perplexity, from %s predictions of %s\n", 100 * (exp(r->after.nll - r->before.nll) - 1),
         text_count(r->after.predictions).text, r->request->score.file);
}

void quantize_print(const struct quantize_result *r) {
  deltaic_quantization_info info;
  deltaic_quantization_get_info(r->report, &info);
  if (r->request->tensors) print_tensors(r->report);
  print_types(r->report);
  print_fallbacks(r->report);
  if (info.left_out)
    printf("left out: %llu tensor%s that the model does not need, such as %s\n", (unsigned long long)info.left_out,
           info.left_out == 1 ? "" : "s", info.left_out_first);
  printf("%s  %s, %s%s, %s\n", r->request->dry_run ? "would be written" : "written", r->request->out, info.architecture,
         info.own_keys ? " (for Deltaic only)" : "", r->request->dry_run ? "dry run" : text_seconds(r->seconds).text);
  print_compare(r);
}

// ---------------------------------------------------------------- JSON

static json_t *types_json(const deltaic_quantization *report) {
  struct sum sums[TYPES];
  const size_t count = sums_of(report, sums);
  json_t *list = json_array();
  for (size_t i = 0; i < count; ++i)
    json_array_append_new(list, json_pack("{s:s, s:I, s:I, s:I, s:f}", "type", sums[i].type, "tensors",
                                          (json_int_t)sums[i].tensors, "weights", (json_int_t)sums[i].elements, "bytes",
                                          (json_int_t)sums[i].bytes, "bits_per_weight",
                                          bits_of(sums[i].bytes, sums[i].elements)));
  return list;
}

// fallbacks: only tensors whose type is not the one that was wanted.
static json_t *tensors_json(const deltaic_quantization *report, bool fallbacks) {
  deltaic_quantized_tensor t;
  json_t *list = json_array();
  for (size_t i = 0; deltaic_quantization_at(report, i, &t); ++i)
    if (!fallbacks || strcmp(t.type, t.wanted))
      json_array_append_new(list, json_pack("{s:o, s:s, s:s, s:I, s:I, s:I}", "name", text_json(t.name), "type", t.type,
                                            "wanted", t.wanted, "weights", (json_int_t)t.elements, "columns",
                                            (json_int_t)t.columns, "bytes", (json_int_t)t.bytes));
  return list;
}

static json_t *score_json(const struct quantize_score *s) {
  if (!s->known) return json_null();
  return json_pack("{s:f, s:f, s:f, s:I}", "bits_per_weight", s->bits, "nll", s->nll, "perplexity", exp(s->nll),
                   "predictions", (json_int_t)s->predictions);
}

int quantize_print_json(const struct quantize_result *r) {
  deltaic_quantization_info info;
  deltaic_quantization_get_info(r->report, &info);
  json_t *compare = json_null();
  if (r->request->score.file)
    compare = json_pack("{s:o, s:o, s:o}", "text", text_json(r->request->score.file), "before", score_json(&r->before),
                        "after", score_json(&r->after));
  json_t *object =
      json_pack("{s:o, s:o, s:b, s:s, s:s, s:b, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "model",
                text_json(r->request->score.engine.model), "out", text_json(r->request->out), "written",
                !r->request->dry_run, "type", info.type, "architecture", info.architecture, "deltaic_only",
                info.own_keys, "tensors", (json_int_t)info.tensors, "left_out", (json_int_t)info.left_out, "weights",
                (json_int_t)info.elements, "bytes", (json_int_t)info.bytes, "bits_per_weight",
                number_json(bits_of(info.bytes, info.elements)), "seconds", number_json(r->seconds), "types",
                types_json(r->report), "fallbacks", tensors_json(r->report, true), "compare", compare);
  if (object && r->request->tensors) json_object_set_new(object, "tensor_list", tensors_json(r->report, false));
  return json_finish(object);
}
