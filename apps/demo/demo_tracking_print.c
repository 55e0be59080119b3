// demo_tracking_print: prints the tables and the JSON of `deltaic demo state-tracking`.
#include "demo_tracking.h"
#include "print.h"

#include <math.h>
#include <stdio.h>

static double accuracy(const struct tracking_result *r) {
  uint64_t right = 0, total = 0;
  for (int i = 0; i < DECADES; ++i) {
    right += r->right[i];
    total += r->total[i];
  }
  return total ? (double)right / (double)total : NAN;
}

static struct text percent(double part) {
  struct text out;
  snprintf(out.text, sizeof out.text, isnan(part) ? "-" : part == 1 ? "100%%" : "%.2f%%", 100 * part);
  return out;
}

static struct text decade_percent(const struct tracking_result *r, int decade) {
  return percent(r->total[decade] ? (double)r->right[decade] / (double)r->total[decade] : NAN);
}

static struct text small(double value) {
  struct text out;
  snprintf(out.text, sizeof out.text, "%.1e", value);
  return out;
}

static void print_result(const struct tracking *d, const char *form, const struct tracking_result *r) {
  struct table table;
  uint64_t begin = 1, end = 10;
  printf("\n%s: %u word%s of %s steps, %s right, %s tokens/s\n", form, d->r->words, d->r->words == 1 ? "" : "s",
         text_count(d->r->length).text, percent(accuracy(r)).text,
         text_rate((double)d->r->words * (d->r->length + 1) / r->seconds).text);
  table_begin(&table, "rr");
  table_row(&table, "steps", "right");
  for (int i = 0; i < DECADES && r->total[i]; ++i, begin = end + 1, end *= 10) {
    char steps[100];
    snprintf(steps, sizeof steps, "%s-%s", text_count(begin).text,
             text_count(end < d->r->length ? end : d->r->length).text);
    table_row(&table, steps, decade_percent(r, i).text);
  }
  table_end(&table, 2);
  printf("\n  the state of the first word, against the exact one\n");
  table_begin(&table, "rrrrr");
  table_row(&table, "step", "shrunk", "error", "orthogonality", "least lead");
  for (size_t i = 0; i < r->sample_count; ++i) {
    const struct tracking_sample *s = &r->samples[i];
    char lead[32];
    snprintf(lead, sizeof lead, "%.4f", s->lead);
    table_row(&table, text_count(s->step).text, small(s->error.shrunk).text, small(s->error.distance).text,
              small(s->error.orthogonality).text, lead);
  }
  table_end(&table, 2);
}

static void print_design(const struct tracking *d, const char *folder) {
  const struct tracker *t = &d->tracker;
  printf("group        %s, %s, %u elements\n", d->group.name, d->group.what, d->group.order);
  printf("model        one layer, n_h %u, %u heads of %u x %u, beta in (0, %d), weights in %s\n", t->options.steps,
         t->options.heads, t->key_size, t->value_size, t->options.no_negatives ? 1 : 2,
         t->options.bf16 ? "bfloat16" : "float32");
  printf("readout      closest two elements are %.1f degrees apart\n", acos(1 - t->margin) * 180 / acos(-1));
  printf("device       %s\n", engine_device_text(&d->engine));
  if (folder) printf("checkpoint   %s\n", folder);
  printf("chance       %s\n", percent(1.0 / d->group.order).text);
}

static void print_variants(const struct tracking *d, const struct tracking_variant *variants, size_t count) {
  struct table table;
  printf("\nwhat is needed: the same words%s, as a prompt\n",
         d->r->length > COMPARED ? ", their first 1,000 steps" : "");
  table_begin(&table, "rlrrr");
  table_row(&table, "n_h", "beta", "steps 1-10", "11-100", "101-1,000");
  for (size_t i = 0; i < count; ++i) {
    const struct tracking_variant *v = &variants[i];
    char steps[16];
    snprintf(steps, sizeof steps, "%u", v->steps);
    table_row(&table, steps, v->no_negatives ? "(0, 1)" : "(0, 2)", decade_percent(&v->result, 0).text,
              decade_percent(&v->result, 1).text, decade_percent(&v->result, 2).text);
  }
  table_end(&table, 2);
}

static json_t *sample_json(const struct tracking_sample *s) {
  return json_pack("{s:I, s:o, s:o, s:o, s:o}", "step", (json_int_t)s->step, "shrunk", number_json(s->error.shrunk),
                   "error", number_json(s->error.distance), "orthogonality", number_json(s->error.orthogonality),
                   "least_lead", number_json(s->lead));
}

static json_t *result_json(const struct tracking *d, const char *form, const struct tracking_result *r) {
  json_t *decades = json_array(), *samples = json_array();
  for (int i = 0; i < DECADES && r->total[i]; ++i)
    json_array_append_new(decades,
                          json_pack("{s:I, s:I}", "steps", (json_int_t)r->total[i], "right", (json_int_t)r->right[i]));
  for (size_t i = 0; i < r->sample_count; ++i) json_array_append_new(samples, sample_json(&r->samples[i]));
  return json_pack("{s:s, s:o, s:o, s:o, s:o}", "form", form, "accuracy", number_json(accuracy(r)), "tokens_per_second",
                   number_json((double)d->r->words * (d->r->length + 1) / r->seconds), "decades", decades, "state",
                   samples);
}

int tracking_json(const struct tracking *d, const struct tracking_result *results,
                  const struct tracking_variant *variants, size_t count) {
  const struct tracker *t = &d->tracker;
  json_t *compared = json_array();
  for (size_t i = 0; i < count; ++i)
    json_array_append_new(compared, json_pack("{s:i, s:i, s:o}", "n_h", (int)variants[i].steps, "beta_most",
                                              variants[i].no_negatives ? 1 : 2, "accuracy",
                                              number_json(accuracy(&variants[i].result))));
  return json_finish(json_pack(
      "{s:s, s:i, s:i, s:i, s:i, s:i, s:f, s:s, s:I, s:i, s:i, s:[o, o], s:o}", "group", d->group.name, "order",
      (int)d->group.order, "n_h", (int)t->options.steps, "heads", (int)t->options.heads, "key_size", (int)t->key_size,
      "value_size", (int)t->value_size, "margin", t->margin, "device", engine_device_text(&d->engine), "seed",
      (json_int_t)d->r->seed, "words", (int)d->r->words, "length", (int)d->r->length, "runs",
      result_json(d, "prompt", &results[0]), result_json(d, "tokens", &results[1]), "variants", compared));
}

void tracking_print(const struct tracking *d, const struct tracking_result *results,
                    const struct tracking_variant *variants, size_t count) {
  print_design(d, d->r->out);
  print_result(d, "as a prompt, in chunks where the device has them", &results[0]);
  print_result(d, "token by token", &results[1]);
  if (count) print_variants(d, variants, count);
}
