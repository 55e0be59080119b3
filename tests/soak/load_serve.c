// load_serve: so many streams at once from a server with OpenAI's interface, and what they wait for. Prints JSON.
#define _GNU_SOURCE
#include "load_stream.h"

#include <getopt.h>
#include <math.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_CLIENTS = 1024, MOST_LENGTHS = 16, FIRST_TOKEN = 10 };

static const char help[] =
    "usage: load_serve [options] PORT\n\n"
    "Streams from a server with OpenAI's interface and prints tokens/s and times as JSON.\n\n"
    "  --host NAME        the server's address (127.0.0.1)\n"
    "  --key TEXT         the key that is shown\n"
    "  --clients N        streams at once; one that ends begins again (8)\n"
    "  --seconds X        counted, after a second that is not (10)\n"
    "  --tokens N         the most tokens of a stream (4000)\n"
    "  --begin N          tokens of a stream's prompt (16)\n"
    "  --prompt N         and every --every seconds a request with a prompt of N tokens (0: none)\n"
    "  --every X          (1)\n"
    "  --same N           instead: N tokens of one text alone and beside the other clients, compared\n"
    "  --turns LIST       instead: the first tokens of turns behind one of so many tokens, such as 1000,100000\n"
    "  --resend           --turns sends all tokens again instead of previous_response_id\n"
    "  --more N           tokens that each of these turns adds (1)\n"
    "  --tries N          of --turns and --same (11)\n"
    "  --vocabulary N     tokens of prompts are drawn below this (4000)\n";

struct values {
  double *items;
  size_t count, room;
};

struct load {
  struct target target;
  uint32_t clients, tokens, begin, prompt, same, more, tries, vocabulary;
  double seconds, every;
  size_t lengths[MOST_LENGTHS], length_count;
  bool resend;

  struct stream streams[MOST_CLIENTS + 1]; // the last one is beside the others
  uint64_t random;
  uint32_t seed;
  bool counting;
  struct values first, between, prompts;
  size_t parts, errors;
  char problem[256]; // of the first error
};

// ---------------------------------------------------------------- values

static void values_add(struct values *v, double value) {
  if (v->count == v->room) {
    v->room = 2 * v->room + 1024;
    v->items = realloc(v->items, v->room * sizeof *v->items);
    if (!v->items) exit(1);
  }
  v->items[v->count++] = value;
}

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// Of seconds, in milliseconds. The values are sorted, then forgotten.
static json_t *values_json(struct values *v) {
  double sum = 0;
  const size_t n = v->count;
  if (!n) return json_null();
  qsort(v->items, n, sizeof *v->items, compare);
  for (size_t i = 0; i < n; ++i) sum += v->items[i];
  json_t *out = json_object();
  const struct {
    const char *name;
    double value;
  } rows[] = {{"mean", sum / (double)n},
              {"p50", v->items[n / 2]},
              {"p99", v->items[n * 99 / 100]},
              {"min", v->items[0]},
              {"max", v->items[n - 1]}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; ++i)
    json_object_set_new(out, rows[i].name, json_real(round(1e6 * rows[i].value) / 1e3));
  json_object_set_new(out, "count", json_integer((json_int_t)n));
  v->count = 0;
  return out;
}

// ---------------------------------------------------------------- requests

static json_t *draw_tokens(struct load *l, size_t count) {
  json_t *list = json_array();
  for (size_t i = 0; i < count; ++i) {
    l->random = l->random * 6364136223846793005u + 1442695040888963407u;
    const uint64_t token = FIRST_TOKEN + (l->random >> 33) % (l->vocabulary - FIRST_TOKEN);
    json_array_append_new(list, json_integer((json_int_t)token));
  }
  return list;
}

// prompt: taken over.
static json_t *body_of(json_t *prompt, uint32_t tokens, uint32_t seed, bool store) {
  return json_pack("{s:o, s:I, s:I, s:b, s:b, s:i}", "prompt", prompt, "max_tokens", (json_int_t)tokens, "seed",
                   (json_int_t)seed, "ignore_eos", 1, "store", store, "temperature", 1);
}

static void count_part(void *user, struct stream *s, double seconds) {
  struct load *l = user;
  if (!l->counting) return;
  ++l->parts;
  if (s->parts) values_add(&l->between, seconds);
}

static void open_client(struct load *l, uint32_t i) {
  l->streams[i].part = count_part;
  l->streams[i].user = l;
  stream_open(&l->streams[i], &l->target, body_of(draw_tokens(l, l->begin), l->tokens, l->seed++, false));
}

static void note_error(struct load *l, const struct stream *s) {
  if (s->phase != STREAM_FAILED) return;
  if (!l->errors++) snprintf(l->problem, sizeof l->problem, "%s", s->problem);
}

// Waits for `seconds` at most, and works on what came. Ended clients begin again.
static void run_once(struct load *l, double seconds) {
  struct pollfd polls[MOST_CLIENTS + 1];
  const uint32_t n = l->clients + 1;
  for (uint32_t i = 0; i < n; ++i) {
    struct stream *s = &l->streams[i];
    polls[i] = (struct pollfd){.fd = stream_ended(s) ? -1 : s->socket, .events = stream_events(s)};
  }
  if (poll(polls, n, seconds > 0 ? (int)(1e3 * seconds) + 1 : 0) <= 0) return;
  for (uint32_t i = 0; i < n; ++i) {
    struct stream *s = &l->streams[i];
    if (!polls[i].revents) continue;
    const bool begun = s->first > 0;
    stream_work(s);
    if (!begun && s->first > 0) values_add(i < l->clients ? &l->first : &l->prompts, s->first - s->begun);
    if (!stream_ended(s)) continue;
    note_error(l, s);
    if (i == l->clients) continue; // its owner reads the answer
    const bool failed = s->phase == STREAM_FAILED;
    stream_close(s);
    if (failed) nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); // a server that refuses is asked less often
    open_client(l, i);
  }
}

static void close_all(struct load *l) {
  for (uint32_t i = 0; i <= l->clients; ++i) {
    stream_close(&l->streams[i]);
    l->streams[i].phase = STREAM_DONE;
  }
}

static void open_clients(struct load *l, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) open_client(l, i);
}

// The stream beside the others to its end, or for 600 s. False: it failed.
static bool run_beside(struct load *l, json_t *body) {
  struct stream *s = &l->streams[l->clients];
  const double end = load_now() + 600;
  s->part = NULL;
  stream_open(s, &l->target, body);
  while (!stream_ended(s) && load_now() < end) run_once(l, 1);
  return s->phase == STREAM_DONE;
}

static void add_errors(struct load *l, json_t *out) {
  json_object_set_new(out, "errors", json_integer((json_int_t)l->errors));
  if (l->errors) json_object_set_new(out, "first_error", json_string(l->problem));
}

// ---------------------------------------------------------------- streams

static json_t *run_streams(struct load *l) {
  struct stream *beside = &l->streams[l->clients];
  const double begin = load_now() + 1, end = begin + l->seconds;
  double next = begin, now, counted = 0, tokens = 0, steps = 0;
  size_t sent = 0, late = 0;
  open_clients(l, l->clients);
  while ((now = load_now()) < end) {
    if (!l->counting && now >= begin) {
      tokens = load_metric(&l->target, "generated_tokens_total");
      steps = load_metric(&l->target, "steps_total");
      counted = load_now();
      l->counting = true;
    }
    if (l->prompt && now >= next) {
      next += l->every;
      late += !stream_ended(beside); // the prompt before is not answered yet: this one is left out
      if (stream_ended(beside)) {
        stream_close(beside);
        stream_open(beside, &l->target, body_of(draw_tokens(l, l->prompt), 1, 1, false));
        ++sent;
      }
    }
    const double until = !l->counting ? begin : l->prompt && next < end ? next : end;
    run_once(l, until - now);
  }
  tokens = load_metric(&l->target, "generated_tokens_total") - tokens;
  steps = load_metric(&l->target, "steps_total") - steps;
  counted = load_now() - counted;
  close_all(l);
  json_t *out = json_pack("{s:I, s:f, s:f}", "clients", (json_int_t)l->clients, "seconds", counted, "parts_per_second",
                          round((double)l->parts / counted * 10) / 10);
  if (tokens > 0) { // /metrics of `deltaic serve`
    json_object_set_new(out, "tokens_per_second", json_real(round(tokens / counted * 10) / 10));
    json_object_set_new(out, "tokens_per_step", json_real(round(tokens / steps * 100) / 100));
  }
  json_object_set_new(out, "first_ms", values_json(&l->first));
  json_object_set_new(out, "between_ms", values_json(&l->between));
  if (l->prompt)
    json_object_set_new(out, "prompts",
                        json_pack("{s:I, s:I, s:I, s:o}", "tokens", (json_int_t)l->prompt, "sent", (json_int_t)sent,
                                  "left_out", (json_int_t)late, "first_ms", values_json(&l->prompts)));
  add_errors(l, out);
  return out;
}

// ---------------------------------------------------------------- the same tokens

// The text and the log-probabilities of the tokens.
static json_t *text_beside(struct load *l) {
  json_t *prompt = json_pack("[i, i, i, i]", 11, 23, 35, 47);
  json_t *body = body_of(prompt, l->same, 7, false);
  json_object_set_new(body, "logprobs", json_integer(0));
  const bool good = run_beside(l, body);
  struct stream *s = &l->streams[l->clients];
  json_t *out = good ? json_pack("{s:s, s:O}", "text", s->said.data ? s->said.data : "", "notes", s->notes) : NULL;
  stream_close(s);
  return out;
}

static json_t *run_same(struct load *l) {
  const uint32_t others = l->clients;
  l->clients = 0; // alone
  json_t *alone = text_beside(l);
  l->clients = others;
  l->streams[others] = (struct stream){.socket = -1, .phase = STREAM_DONE};
  open_clients(l, others);
  const double end = load_now() + 60;
  while (l->first.count < others && load_now() < end) run_once(l, 1);
  const bool all = l->first.count >= others;
  uint32_t equal = 0;
  for (uint32_t i = 0; i < l->tries; ++i) {
    json_t *beside = text_beside(l);
    equal += alone && json_equal(alone, beside);
    json_decref(beside);
  }
  close_all(l);
  json_t *out = json_pack("{s:I, s:I, s:I, s:I, s:b}", "others", (json_int_t)others, "tokens", (json_int_t)l->same,
                          "tries", (json_int_t)l->tries, "equal", (json_int_t)equal, "all_ran", all);
  json_decref(alone);
  add_errors(l, out);
  return out;
}

// ---------------------------------------------------------------- turns

// A conversation whose first turn has so many tokens; each later turn follows the one before it.
static json_t *run_turn(struct load *l, size_t length) {
  struct stream *s = &l->streams[0];
  json_t *history = draw_tokens(l, length);
  char state[sizeof s->state] = "";
  size_t least = length;
  l->clients = 0;
  bool good = run_beside(l, body_of(json_deep_copy(history), 1, 1, true));
  const double read = good ? s->first - s->begun : 0;
  snprintf(state, sizeof state, "%s", s->state);
  stream_close(s);
  l->prompts.count = 0;
  for (uint32_t i = 0; i < l->tries && good; ++i) {
    json_t *more = draw_tokens(l, l->more);
    json_array_extend(history, more);
    json_t *body = body_of(l->resend ? json_deep_copy(history) : json_incref(more), 1, 1, true);
    json_decref(more);
    if (!l->resend) json_object_set_new(body, "previous_response_id", json_string(state));
    good = run_beside(l, body);
    if (good && s->cached >= 0 && (size_t)s->cached < least) least = (size_t)s->cached;
    snprintf(state, sizeof state, "%s", s->state);
    stream_close(s);
  }
  json_decref(history);
  return json_pack("{s:I, s:f, s:o, s:I}", "behind", (json_int_t)length, "read_seconds", round(read * 1e3) / 1e3,
                   "first_ms", values_json(&l->prompts), "least_cached", (json_int_t)least);
}

static json_t *run_turns(struct load *l) {
  json_t *out = json_object(), *rows = json_array();
  for (size_t i = 0; i < l->length_count; ++i) json_array_append_new(rows, run_turn(l, l->lengths[i]));
  json_object_set_new(out, "turns", rows);
  add_errors(l, out);
  return out;
}

// ---------------------------------------------------------------- options

static int usage(const char *problem) {
  fprintf(stderr, "load_serve: %s\n%s", problem, help);
  return 2;
}

static double number(const char *text, double least, double most) {
  char *end;
  const double value = strtod(text, &end);
  if (*text && !*end && value >= least && value <= most) return value;
  fprintf(stderr, "load_serve: \"%s\" is no number from %g to %g\n", text, least, most);
  exit(2);
}

static uint32_t whole(const char *text, uint32_t least, uint32_t most) { return (uint32_t)number(text, least, most); }

static void lengths(struct load *l, char *list) {
  for (char *at = strtok(list, ","); at && l->length_count < MOST_LENGTHS; at = strtok(NULL, ","))
    l->lengths[l->length_count++] = whole(at, 1, 1 << 24);
}

int main(int argc, char **argv) {
  static struct load l = {.clients = 8,
                          .seconds = 10,
                          .tokens = 4000,
                          .begin = 16,
                          .every = 1,
                          .more = 1,
                          .tries = 11,
                          .vocabulary = 4000,
                          .random = 1,
                          .target = {.host = "127.0.0.1"}};
  static const struct option options[] = {
      {"host", 1, NULL, 'H'},   {"key", 1, NULL, 'k'},   {"clients", 1, NULL, 'c'},    {"seconds", 1, NULL, 's'},
      {"tokens", 1, NULL, 'n'}, {"begin", 1, NULL, 'b'}, {"prompt", 1, NULL, 'p'},     {"every", 1, NULL, 'e'},
      {"same", 1, NULL, 'S'},   {"turns", 1, NULL, 't'}, {"resend", 0, NULL, 'r'},     {"tries", 1, NULL, 'T'},
      {"more", 1, NULL, 'm'},   {"help", 0, NULL, 'h'},  {"vocabulary", 1, NULL, 'v'}, {0}};
  for (int c; (c = getopt_long(argc, argv, "h", options, NULL)) != -1;) switch (c) {
    case 'H': l.target.host = optarg; break;
    case 'k': l.target.key = optarg; break;
    case 'c': l.clients = whole(optarg, 0, MOST_CLIENTS); break;
    case 's': l.seconds = number(optarg, 0.1, 1e6); break;
    case 'n': l.tokens = whole(optarg, 1, 1 << 30); break;
    case 'b': l.begin = whole(optarg, 1, 1 << 20); break;
    case 'p': l.prompt = whole(optarg, 0, 1 << 24); break;
    case 'e': l.every = number(optarg, 0.01, 1e6); break;
    case 'S': l.same = whole(optarg, 1, 1 << 20); break;
    case 't': lengths(&l, optarg); break;
    case 'r': l.resend = true; break;
    case 'm': l.more = whole(optarg, 1, 1 << 20); break;
    case 'T': l.tries = whole(optarg, 1, 10000); break;
    case 'v': l.vocabulary = whole(optarg, FIRST_TOKEN + 1, 1 << 30); break;
    case 'h': fputs(help, stdout); return 0;
    default: return usage("this option is not known, or has no value");
    }
  if (argc - optind != 1) return usage("give the server's port");
  const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM};
  if (getaddrinfo(l.target.host, argv[optind], &wanted, &l.target.address)) return usage("this is no address");
  for (size_t i = 0; i <= MOST_CLIENTS; ++i) l.streams[i] = (struct stream){.socket = -1, .phase = STREAM_DONE};
  json_t *out = l.length_count ? run_turns(&l) : l.same ? run_same(&l) : run_streams(&l);
  char *text = json_dumps(out, JSON_INDENT(1) | JSON_REAL_PRECISION(8));
  puts(text);
  free(text);
  json_decref(out);
  free(l.first.items);
  free(l.between.items);
  free(l.prompts.items);
  freeaddrinfo(l.target.address);
  return l.errors ? 1 : 0;
}
