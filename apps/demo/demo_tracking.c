// demo_tracking: implements `deltaic demo state-tracking`: a DeltaProduct multiplies in a group; every step is checked.
#include "demo_tracking.h"
#include "checkpoint_writer.h"
#include "demo.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct usage usage = {
    .name = "demo state-tracking",
    .arguments = "[options]",
    .summary = "Builds a one-layer DeltaProduct that solves a group's word problem: after every element of a word it "
               "predicts the product so far. Runs it on random words, as a prompt and token by token, and compares "
               "every step with the group's multiplication table.",
    .text = "Groups: S2 to S6, A5, Z2 (parity) to Z1024, D3 to D512. An element is a product of reflections, which a "
            "token's Householder steps are; S4 and A5 are the rotations of a cube and of an icosahedron. Then the same "
            "construction with too few steps, and with beta in (0, 1), where there are no reflections: it fails. "
            "docs/demos.md has the equations.",
    .examples = "  deltaic demo state-tracking --group S5\n"
                "  deltaic demo state-tracking --group Z60 --length 100000 --words 1 --device cpu\n"
                "  deltaic demo state-tracking --group S3 --out s3\n"
                "  deltaic generate s3 --prompt '(213) (132)' -n 1 --greedy      the product of a word\n",
};

enum { PIECE = 512 };

// One run of one model over the words.
struct trial {
  const struct tracking *demo;
  const struct tracker *tracker;
  deltaic_session *session;
  bool by_token;
  uint32_t length;
  float *logits; // (PIECE, V)
  struct tracking_result *result;
  uint32_t product;         // product of the word so far
  double lead;              // smallest since the last sample
  struct state_error error; // error of the last probed state
};

// ---------------------------------------------------------------- a word

static int decade_of(uint64_t step) { // steps 1 to 10: 0; 11 to 100: 1
  int decade = 0;
  for (uint64_t end = 10; step > end && decade < DECADES - 1; end *= 10) ++decade;
  return decade;
}

static bool sampled(const struct trial *t, uint64_t step) {
  uint64_t power = 1;
  while (power < step) power *= 10;
  return step && (power == step || step == t->length);
}

static void check_step(struct trial *t, uint32_t word, uint64_t step, const float *logits) {
  const struct tracking *d = t->demo;
  uint32_t right = 0, best = 0;
  if (step) right = group_after(&d->group, d->words[(size_t)word * d->r->length + step - 1], t->product);
  float other = -HUGE_VALF;
  for (uint32_t v = 0; v <= d->group.order; ++v) {
    if (logits[v] > logits[best]) best = v;
    if (v && v != (uint32_t)tracker_token(right) && logits[v] > other) other = logits[v];
  }
  t->product = right;
  if (!step) return;
  t->lead = fmin(t->lead, (double)logits[tracker_token(right)] - (double)other);
  t->result->total[decade_of(step)] += 1;
  t->result->right[decade_of(step)] += best == (uint32_t)tracker_token(right);
}

static bool see_state(void *user, const deltaic_probed *probed) {
  struct trial *t = user;
  t->error = tracker_error(t->tracker, t->product, probed->data);
  return true;
}

static uint32_t piece_of(const struct trial *t, uint32_t at) {
  uint32_t n = 1, most = t->by_token ? 1 : PIECE;
  while (n < most && at + n <= t->length && !sampled(t, at + n - 1)) ++n;
  return n;
}

// Runs steps at ... at + n - 1. Step 0 is the token that begins the word.
static deltaic_status run_piece(struct trial *t, uint32_t word, uint32_t at, uint32_t n) {
  const struct tracking *d = t->demo;
  int32_t tokens[PIECE];
  uint32_t product = t->product, V = d->group.order + 1;
  for (uint32_t i = 0; i < n; ++i) {
    uint32_t element = at + i ? d->words[(size_t)word * d->r->length + at + i - 1] : 0;
    tokens[i] = at + i ? tracker_token(element) : 0;
    t->product = group_after(&d->group, element, t->product); // the probe compares the state with this product
  }
  bool look = !word && sampled(t, at + n - 1);
  deltaic_status status = DELTAIC_OK;
  if (look) status = deltaic_session_probe(t->session, DELTAIC_PROBE_STATE, see_state, t);
  if (!status) status = deltaic_session_eval(t->session, tokens, n, DELTAIC_LOGITS_ALL, t->logits);
  if (look && !status) status = deltaic_session_probe(t->session, 0, NULL, NULL);
  t->product = product;
  for (uint32_t i = 0; i < n && !status; ++i) check_step(t, word, at + i, t->logits + (size_t)i * V);
  if (status || !look) return status;
  t->result->samples[t->result->sample_count++] = (struct tracking_sample){at + n - 1, t->error, t->lead / 30};
  t->lead = HUGE_VAL;
  return status;
}

static deltaic_status run_word(struct trial *t, uint32_t word, struct progress *progress) {
  deltaic_status status = deltaic_session_reset(t->session);
  t->product = 0;
  t->lead = HUGE_VAL;
  for (uint32_t at = 0; at <= t->length && !status && !interrupted();) {
    uint32_t n = piece_of(t, at);
    status = run_piece(t, word, at, n);
    at += n;
    progress_show(progress, (uint64_t)word * t->length + at, (uint64_t)t->demo->r->words * t->length);
  }
  return status;
}

// ---------------------------------------------------------------- a model

static int run_model(struct tracking *d, const struct tracker *tracker, uint32_t length, bool by_token,
                     struct tracking_result *result) {
  struct trial t = {.demo = d, .tracker = tracker, .by_token = by_token, .length = length, .result = result};
  deltaic_session_options options = session_options(&d->r->engine);
  options.rule = by_token ? DELTAIC_RULE_RECURRENT : DELTAIC_RULE_CHUNK;
  deltaic_status status = deltaic_session_create(d->engine.model, &options, &t.session);
  if (status) return complain_status(status);
  t.logits = must_resize(NULL, sizeof(float) * PIECE * (d->group.order + 1));
  progress_begin(&d->progress, by_token ? "token by token" : "in chunks", "tokens", d->r->engine.quiet);
  interrupt_watch(t.session);
  double start = time_now();
  for (uint32_t w = 0; w < d->r->words && !status && !interrupted(); ++w) status = run_word(&t, w, &d->progress);
  result->seconds = time_now() - start;
  interrupt_watch(NULL);
  progress_clear();
  free(t.logits);
  deltaic_session_free(t.session);
  return complain_work(status);
}

static int open_model(struct tracking *d, const char *folder) {
  deltaic_model_close(d->engine.model);
  d->engine.model = NULL;
  return complain_status(deltaic_model_open(d->engine.device, folder, NULL, &d->engine.model));
}

// Runs a model with this number of steps, with or without negative eigenvalues, from a temporary folder.
static int run_variant(struct tracking *d, uint32_t steps, bool no_negatives, struct tracking_result *result) {
  struct tracker_options options = d->tracker.options;
  struct tracker tracker;
  char *folder = temporary_folder();
  if (!folder) return EXIT_FAILED;
  options.steps = steps;
  options.no_negatives = no_negatives;
  tracker_design(&d->group, &options, &tracker);
  int code = tracker_write(&tracker, folder);
  if (!code) code = open_model(d, folder);
  if (!code) code = run_model(d, &tracker, d->r->length < COMPARED ? d->r->length : COMPARED, false, result);
  checkpoint_delete(folder);
  free(folder);
  tracker_free(&tracker);
  return code;
}

// ---------------------------------------------------------------- the command

static int make_repeated(struct tracking *d) {
  uint32_t element = 0;
  size_t count = (size_t)d->r->words * d->r->length;
  while (element < d->group.order && strcmp(d->group.names[element], d->r->repeat) != 0) ++element;
  if (element == d->group.order)
    return complain(EXIT_USAGE, "--repeat %s: no element of %s; there are %s to %s", d->r->repeat, d->group.name,
                    d->group.names[0], d->group.names[d->group.order - 1]);
  d->words = must_resize(NULL, count * sizeof *d->words);
  for (size_t i = 0; i < count; ++i) d->words[i] = element;
  return EXIT_OK;
}

static void make_random(struct tracking *d) {
  size_t count = (size_t)d->r->words * d->r->length;
  uint64_t state = d->r->seed * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u; // separates the states of adjacent seeds
  d->words = must_resize(NULL, count * sizeof *d->words);
  for (size_t i = 0; i < count; ++i) d->words[i] = random_below(&state, d->group.order);
}

static int run_demo(struct tracking *d, const char *folder) {
  enum { MOST = 2 * GROUP_DIMENSION };
  struct tracking_result results[2] = {0};
  struct tracking_variant variants[MOST] = {0};
  size_t count = 0;
  int code = open_model(d, folder);
  for (int f = 0; f < 2 && !code; ++f) code = run_model(d, &d->tracker, d->r->length, f == 1, &results[f]);
  for (uint32_t v = 0; v < 2 * d->group.steps && !code && !d->r->alone; ++v) {
    variants[v] = (struct tracking_variant){.steps = v / 2 + 1, .no_negatives = v % 2 == 0};
    code = run_variant(d, variants[v].steps, variants[v].no_negatives, &variants[v].result);
    count = v + 1;
  }
  if (code) return code;
  if (d->r->as_json) return tracking_json(d, results, variants, count);
  tracking_print(d, results, variants, count);
  return EXIT_OK;
}

static int prepare(struct tracking *d, const struct tracking_request *r) {
  struct tracker_options options = r->tracker;
  if (!group_make(r->group, r->swaps, &d->group))
    return complain(EXIT_USAGE, "there is no group \"%s\" here; S2 to S6, A5, Z2 to Z1024, D3 to D512", r->group);
  if (!options.steps) options.steps = d->group.steps;
  tracker_design(&d->group, &options, &d->tracker);
  int code = EXIT_OK;
  if (r->repeat)
    code = make_repeated(d);
  else
    make_random(d);
  interrupt_catch();
  if (!code) code = context_open(&r->engine, &d->engine.context);
  return code ? code : engine_open_device(&r->engine, &d->engine);
}

static int state_tracking(const struct tracking_request *r) {
  struct tracking d = {.r = r};
  char *temporary = NULL;
  int code = prepare(&d, r);
  if (!code && !r->out && !(temporary = temporary_folder())) code = EXIT_FAILED;
  const char *folder = r->out ? r->out : temporary;
  if (!code && r->out) code = checkpoint_place(r->out, r->force);
  if (!code) code = tracker_write(&d.tracker, folder);
  if (!code) code = run_demo(&d, folder);
  if (temporary) checkpoint_delete(temporary);
  free(temporary);
  free(d.words);
  code = engine_close(&d.engine, code);
  tracker_free(&d.tracker);
  group_free(&d.group);
  return code;
}

int demo_state_tracking(int argc, char **argv) {
  struct tracking_request r = {.engine = ENGINE_EXACT, .group = "S5", .length = 1000, .words = 4, .seed = 1};
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("the model"),
      TEXT('g', "group", "G", &r.group, "whose word problem"),
      TEXT('o', "out", "DIR", &r.out, "keep the checkpoint there, for generate and others"),
      FLAG(0, "force", &r.force, "of --out: replace a checkpoint that is there"),
      COUNT(0, "steps", "N", &r.tracker.steps, 0, GROUP_DIMENSION,
            "Householder steps of a token; 0: as many as the group needs"),
      COUNT(0, "heads", "N", &r.tracker.heads, 0, TRACKER_HEADS, "heads; 0: as many as suit the group"),
      COUNT(0, "copies", "N", &r.tracker.copies, 0, 1024, "of every coordinate in a key; 0: 16"),
      FLAG(0, "positive", &r.tracker.no_negatives, "beta in (0, 1) in place of (0, 2)"),
      FLAG(0, "bf16", &r.tracker.bf16, "weights in bfloat16, to see what that does"),
      FLAG(0, "swaps", &r.swaps, "S4 by swaps, three steps, and not as the cube's rotations"),
      HEADING("the words"),
      COUNT('l', "length", "N", &r.length, 1, 100000000, "elements of a word"),
      COUNT('w', "words", "N", &r.words, 1, 10000, "random words"),
      COUNT64('s', "seed", "N", &r.seed, "of the words"),
      TEXT(0, "repeat", "ELEMENT", &r.repeat, "a word of this element alone: rounding errors then add up in one way"),
      FLAG(0, "alone", &r.alone, "only this model, not those that fail"),
      HEADING("output"),
      FLAG('q', "quiet", &r.engine.quiet, "no progress and no warnings"),
      FLAG(0, "json", &r.as_json, "print one JSON object"),
      DEMO_DEVICE_OPTIONS(&r.engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  if (!r.out && r.force) return complain(EXIT_USAGE, "--force goes with --out");
  if ((uint64_t)r.length * r.words > 1u << 30) return complain(EXIT_USAGE, "--length times --words is over 2^30");
  return state_tracking(&r);
}
