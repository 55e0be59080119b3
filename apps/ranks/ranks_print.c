// ranks_print: prints tables and JSON of the measured states, and writes CSV.
#include "common.h"
#include "ranks.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// ---------------------------------------------------------------- tables

static struct text number(const char *format, double value) {
  struct text out;
  if (isnan(value))
    snprintf(out.text, sizeof out.text, "-");
  else
    snprintf(out.text, sizeof out.text, format, value);
  return out;
}

static void means_row(struct table *t, const char *name, const char *layer, const char *head, const char *size,
                      struct means s) {
  table_row(t, name, layer, head, size, number("%.3f", s.utilization).text, number("%.3f", s.last).text,
            number("%.2f", s.stable_rank).text, number("%.2f", s.entropy_rank).text, number("%.3g", s.condition).text,
            number("%.4f", s.similarity).text);
}

static void checkpoint_rows(struct table *t, const struct measured *m, bool heads) {
  for (size_t i = 0; i < m->layer_count; ++i) {
    const struct layer_ranks *l = &m->layers[i];
    char layer[16], size[32], head[16];
    snprintf(layer, sizeof layer, "%d", l->layer);
    snprintf(size, sizeof size, "%d x %d", l->key_size, l->value_size);
    for (int32_t h = 0; heads && h < l->heads; ++h) {
      snprintf(head, sizeof head, "%d", h);
      means_row(t, m->name, layer, head, size, means_of(m, l, h));
    }
    snprintf(head, sizeof head, "all %d", l->heads);
    means_row(t, m->name, layer, head, size, means_of(m, l, -1));
  }
  means_row(t, m->name, "all", "all", "", means_of_all(m));
}

void ranks_print(const struct measured *m, size_t count, const struct rank_request *r) {
  struct table t;
  printf("text      %s, %s tokens%s, states after every %u\n", r->text, text_count(m->tokens).text,
         m->mark_count ? ", several documents" : "", r->every);
  printf("device    %s\n", m->device);
  printf("means     over recorded states; of the condition, the geometric one\n\n");
  table_begin(&t, "lrrrrrrrrr");
  table_row(&t, "checkpoint", "layer", "head", "state", "utilization", "at the end", "stable rank", "entropy rank",
            "condition", "similarity");
  for (size_t i = 0; i < count; ++i) checkpoint_rows(&t, &m[i], r->heads);
  table_end(&t, 0);
}

// ---------------------------------------------------------------- JSON

static json_t *means_json(struct means s) {
  return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "utilization", number_json(s.utilization), "utilization_last",
                   number_json(s.last), "stable_rank", number_json(s.stable_rank), "entropy_rank",
                   number_json(s.entropy_rank), "condition", number_json(s.condition), "similarity",
                   number_json(s.similarity));
}

static json_t *layer_json(const struct measured *m, const struct layer_ranks *l) {
  json_t *heads = json_array();
  for (int32_t h = 0; h < l->heads; ++h) json_array_append_new(heads, means_json(means_of(m, l, h)));
  return json_pack("{s:i, s:i, s:i, s:o, s:o}", "layer", (int)l->layer, "key_size", (int)l->key_size, "value_size",
                   (int)l->value_size, "mean", means_json(means_of(m, l, -1)), "heads", heads);
}

static json_t *checkpoint_json(const struct measured *m) {
  json_t *layers = json_array(), *documents = json_array();
  for (size_t i = 0; i < m->layer_count; ++i) json_array_append_new(layers, layer_json(m, &m->layers[i]));
  for (size_t i = 0; i < m->mark_count; ++i) json_array_append_new(documents, json_integer((json_int_t)m->marks[i]));
  return json_pack("{s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o, s:o}", "name", text_json(m->name), "model",
                   text_json(m->path), "device", text_json(m->device), "tokens", (json_int_t)m->tokens, "states",
                   (json_int_t)m->times, "documents_begin", documents, "mean", means_json(means_of_all(m)),
                   "similarity_entropy", number_json(similarity_entropy(m)), "layers", layers, "seconds",
                   number_json(m->seconds));
}

int ranks_json(const struct measured *m, size_t count) {
  json_t *list = json_array();
  for (size_t i = 0; i < count; ++i) json_array_append_new(list, checkpoint_json(&m[i]));
  return json_finish(json_pack("{s:o}", "checkpoints", list));
}

// ---------------------------------------------------------------- CSV

static void write_layer(FILE *file, const struct measured *m, const struct layer_ranks *l) {
  for (size_t t = 0; t < m->times; ++t)
    for (int32_t h = 0; h < l->heads; ++h) {
      const struct sample *s = &l->samples[t * (size_t)l->heads + (size_t)h];
      fprintf(file, "%s,%d,%d,%.0f,%.9g,%.9g,%.9g,%.9g,%d,", m->name, l->layer, h, m->at[t], s->rank.stable_rank,
              s->rank.utilization, s->rank.entropy_rank, s->rank.condition, s->rank.rank);
      if (!isnan(s->similarity)) fprintf(file, "%.9g", s->similarity);
      fputc('\n', file);
    }
}

int ranks_csv(const struct measured *m, size_t count, const char *path) {
  struct new_file file;
  int code = output_begin(&file, path);
  if (code) return code;
  fprintf(file.stream, "checkpoint,layer,head,token,stable_rank,utilization,entropy_rank,condition,rank,similarity\n");
  for (size_t i = 0; i < count; ++i)
    for (size_t l = 0; l < m[i].layer_count; ++l) write_layer(file.stream, &m[i], &m[i].layers[l]);
  return output_end(&file, path, EXIT_OK);
}
