// eval_result: computes metrics and their standard errors from the scores of cases.
#include "eval.h"

#include <math.h>
#include <string.h>

// ---------------------------------------------------------------- metrics

static const struct eval_metric choice_metrics[] = {{"acc", EVAL_MEAN, false},
                                                    {"acc_norm", EVAL_MEAN, false},
                                                    {"acc_bytes", EVAL_MEAN, false},
                                                    {"acc_tokens", EVAL_MEAN, false}};
static const struct eval_metric cloze_metrics[] = {{"acc", EVAL_MEAN, false}, {"perplexity", EVAL_PERPLEXITY, false}};
static const struct eval_metric recall_metrics[] = {{"contains", EVAL_MEAN, false}, {"exact_match", EVAL_MEAN, false}};
static const struct eval_metric rolling_metrics[] = {{"word_perplexity", EVAL_PERPLEXITY, true},
                                                     {"byte_perplexity", EVAL_PERPLEXITY, true},
                                                     {"bits_per_byte", EVAL_BITS, true},
                                                     {"token_perplexity", EVAL_PERPLEXITY, true}};

#define COUNT_OF(array) (sizeof(array) / sizeof *(array))

size_t eval_metrics(const struct eval_task *task, const struct eval_metric **metrics) {
  switch (task->kind) {
  case EVAL_CHOICE: *metrics = choice_metrics; return COUNT_OF(choice_metrics);
  case EVAL_CLOZE: *metrics = cloze_metrics; return COUNT_OF(cloze_metrics);
  case EVAL_RECALL: *metrics = recall_metrics; return COUNT_OF(recall_metrics);
  case EVAL_ROLLING: *metrics = rolling_metrics; return COUNT_OF(rolling_metrics);
  }
  return 0;
}

const struct eval_metric *eval_metric_named(const char *name) {
  for (int kind = EVAL_CHOICE; kind <= EVAL_ROLLING; ++kind) {
    const struct eval_metric *metrics;
    size_t count = eval_metrics(&(struct eval_task){.kind = (enum eval_kind)kind}, &metrics);
    for (size_t m = 0; m < count; ++m)
      if (!strcmp(metrics[m].name, name)) return &metrics[m];
  }
  return NULL;
}

// ---------------------------------------------------------------- samples

// Whether the gold choice has the largest log-likelihood per unit; the first one wins a tie, like numpy's argmax.
static bool is_best(const struct eval_case *c, const struct case_score *s, size_t metric) {
  uint32_t best = 0;
  double most = -INFINITY;
  for (uint32_t i = 0; i < c->choices; ++i) {
    double units[] = {1, c->choice[i].characters, c->choice[i].bytes, s->choice[i].tokens};
    double value = s->choice[i].ll / units[metric];
    if (value > most) most = value, best = i;
  }
  return best == c->gold;
}

static char lower(char c) { return c >= 'A' && c <= 'Z' ? (char)(c + 32) : c; }

// Ignores case in ASCII.
static bool contains(const char *text, const char *part) {
  for (; *text; ++text) {
    size_t i = 0;
    while (part[i] && lower(text[i]) == lower(part[i])) ++i;
    if (!part[i]) return true;
  }
  return false;
}

// Compares the whole continuation without surrounding white space.
static bool matches(const char *text, const char *answer) {
  text += strspn(text, " \t\r\n");
  answer += strspn(answer, " \t\r\n");
  size_t n = strlen(answer);
  return !strncmp(text, answer, n) && !text[n + strspn(text + n, " \t\r\n")];
}

static bool is_answered(const struct eval_case *c, const struct case_score *s, size_t metric) {
  for (size_t i = 0; i < c->answer_count; ++i)
    if ((metric ? matches : contains)(s->made, c->answers[i])) return true;
  return false;
}

void eval_sample(const struct eval_task *task, const struct case_score *scores, size_t i, size_t metric, double *x,
                 double *w) {
  const struct eval_case *c = &task->cases[i];
  const struct case_score *s = &scores[i];
  *w = 1;
  switch (task->kind) {
  case EVAL_CHOICE: *x = is_best(c, s, metric); break;
  case EVAL_CLOZE: *x = metric ? s->choice[0].ll : s->choice[0].greedy; break;
  case EVAL_RECALL: *x = is_answered(c, s, metric); break;
  case EVAL_ROLLING:
    *x = s->choice[0].ll;
    *w = (double)(metric == 0 ? c->words : metric == 3 ? s->choice[0].tokens : c->bytes);
    break;
  }
}

// ---------------------------------------------------------------- means and errors

static double transformed(const struct eval_metric *metric, double mean) {
  switch (metric->transform) {
  case EVAL_MEAN: return mean;
  case EVAL_PERPLEXITY: return exp(-mean);
  case EVAL_BITS: return -mean / log(2);
  }
  return NAN;
}

// Returns the standard deviation of exp(-mean) over samples drawn with replacement, which the harness estimates with
// 100,000 draws: E exp(-k mean) = (1/n sum exp(-k x_i / n))^n.
static double bootstrap_error(const double *x, double mean, size_t n) {
  double log_moment[2];
  for (int k = 1; k <= 2; ++k) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += expm1(-k * (x[i] - mean) / (double)n);
    log_moment[k - 1] = (double)n * log1p(sum / (double)n);
  }
  double spread = expm1(log_moment[1] - 2 * log_moment[0]); // relative variance
  return exp(-mean + log_moment[0]) * sqrt(spread > 0 ? spread : 0);
}

struct eval_value eval_value_of(const struct eval_metric *metric, const double *x, const double *w, size_t n) {
  double sum = 0, weight = 0, squares = 0;
  struct eval_value v = {NAN, NAN, NAN, NAN};
  for (size_t i = 0; i < n; ++i) {
    sum += x[i];
    weight += w[i];
  }
  if (!n || weight <= 0) return v;
  v.mean = sum / weight;
  v.value = transformed(metric, v.mean);
  if (n < 2) return v;
  for (size_t i = 0; i < n; ++i) squares += (x[i] - v.mean * w[i]) * (x[i] - v.mean * w[i]);
  // The sample's standard deviation (n - 1) over sqrt(n); for a ratio of sums, its linear approximation.
  v.mean_error = sqrt(squares * (double)n / (double)(n - 1)) / weight;
  v.error = v.mean_error;
  if (metric->transform == EVAL_BITS) v.error = v.mean_error / log(2);
  if (metric->transform == EVAL_PERPLEXITY)
    v.error = metric->weighted ? v.value * v.mean_error : bootstrap_error(x, v.mean, n);
  return v;
}
