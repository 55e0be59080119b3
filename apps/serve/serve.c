// serve: implements `deltaic serve`: options, opening, and the end.
#include "command.h"
#include "common.h"
#include "options.h"
#include "platform.h"
#include "serve_batch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const struct usage usage = {
    .name = "serve",
    .arguments = "[options] [MODEL]",
    .summary = "Answers requests over HTTP, many at once, with OpenAI's interface.",
    .text = "It listens on this machine only, unless --host names another address. Ctrl-C and SIGTERM let running "
            "texts end.",
    .examples = "  deltaic serve\n"
                "  deltaic serve Qwen3.5-4B-Q4_K_M.gguf --slots 64 --port 8000\n"
                "  curl -s localhost:8080/v1/completions -d '{\"prompt\": \"The old house\", \"max_tokens\": 40}'\n",
    .most_arguments = 1,
};

static void announce(const struct server *s) {
  if (s->options.engine.quiet) return;
  const deltaic_model_info *m = &s->engine.model_info;
  fprintf(stderr, "model   %s: %s, %.0f M parameters, on %s\n", s->name, m->layers_text, (double)m->parameters * 1e-6,
          engine_device_text(&s->engine));
  const double compiling = deltaic_device_compile_seconds(s->engine.device);
  if (compiling >= 0.5) fprintf(stderr, "compile %s for this device\n", text_seconds(compiling).text);
  fprintf(stderr, "server  http://%s:%u, %lld slots\n", s->options.host, s->options.port,
          (long long)metrics_get((struct metrics *)&s->metrics, METRIC_SLOTS));
}

// The model's template, unless it has none that is known.
static int find_template(struct server *s, const char *path) {
  s->chat_end = -1;
  const char *name = s->options.template;
  const deltaic_status status =
      name ? deltaic_template_find(name, &s->template) : deltaic_template_read(path, &s->template);
  if (status && name) return complain_status(status);
  if (status && status != DELTAIC_NOT_FOUND && status != DELTAIC_UNSUPPORTED) return complain_status(status);
  if (status) return EXIT_OK;
  deltaic_template_get_info(s->template, &s->chat);
  s->chat_end = deltaic_tokenizer_find(s->tokenizer, s->chat.end);
  return EXIT_OK;
}

static void find_sampling(struct server *s) {
  s->sampling = DELTAIC_INIT(deltaic_sampling);
  if (!deltaic_model_sampling(s->engine.model, &s->sampling)) s->sampling.temperature = 1;
}

static int find_state_bytes(struct server *s) {
  deltaic_session_options o = session_options(&s->options.engine);
  deltaic_memory memory = {0};
  o.sequences = 1;
  const deltaic_status status = deltaic_model_get_memory(s->engine.model, &o, &memory);
  s->state_bytes = memory.state_bytes;
  return complain_status(status);
}

enum { TICK_MS = 50 };

// Until somebody wants it to end: then running texts may end, within --drain seconds. *end: when these are over.
static int wait_for_end(struct server *s, struct http *http, double *end) {
  enum { EXPIRE_TICKS = 200 };
  int code = EXIT_OK;
  for (int tick = 0; !interrupted() && !batch_failed(s->batch, &code); ++tick) {
    platform_sleep_ns(TICK_MS * 1000000u);
    http_tick(http);
    if (tick % EXPIRE_TICKS == 0) store_expire(s->store);
  }
  if (code) return code;
  if (!s->options.engine.quiet && !batch_idle(s->batch)) fprintf(stderr, "ending when running texts have ended\n");
  batch_drain(s->batch, s->options.drain);
  *end = time_now() + s->options.drain;
  while (!batch_idle(s->batch) && !batch_failed(s->batch, &code) && time_now() < *end) {
    platform_sleep_ns(TICK_MS * 1000000u);
    http_tick(http);
  }
  return code;
}

// Answers are sent until `end`, and for two seconds in any case: texts may have been cut just now.
static void wait_for_answers(struct http *http, double end) {
  const double least = time_now() + 2;
  if (end < least) end = least;
  while (http && http_answers(http) && time_now() < end) {
    platform_sleep_ns(TICK_MS * 1000000u);
    http_tick(http);
  }
}

// Texts end before the connections that wait for them. A device that does not come back cannot be waited for: then the
// program ends here, because its threads still use what would be freed.
static void end_texts(struct server *s) {
  enum { SETTLE_MS = 1000 };
  if (!s->batch) return;
  batch_drain(s->batch, 0);
  for (const double late = time_now() + s->options.timeout; !batch_idle(s->batch); platform_sleep_ns(1000000)) {
    if (time_now() < late) continue;
    store_settle(s->store, STORE_TURN, SETTLE_MS);
    store_settle(s->store, STORE_STATE, SETTLE_MS);
    _Exit(complain(EXIT_FAILED, "the device has not answered for %u s; running texts are lost", s->options.timeout));
  }
}

static int run(struct server *s, const char *path) {
  struct http *http = NULL;
  double end = 0;
  const struct store_options store = {
      .bytes = {(uint64_t)s->options.memory_mib << 18, (uint64_t)s->options.memory_mib << 20},
      .seconds = s->options.expiry,
  };
  int code = tokenizer_open(path, &s->tokenizer);
  if (!code) code = find_template(s, path);
  if (!code) code = engine_open(&s->options.engine, &s->engine);
  if (code) return code;
  find_sampling(s);
  if (s->options.choice.check) return store_check(&s->options.choice, &s->engine, s->tokenizer);
  code = find_state_bytes(s);
  if (code) return code;
  s->store = store_open(&store, &s->metrics);
  if (!s->store) return complain(EXIT_FAILED, "out of memory");
  code = store_choice_open(&s->options.choice, &s->engine, s->store, &s->metrics);
  if (code) return code;
  code = batch_start(s, &s->batch);
  s->engine.keeps_on = true;
  if (!code) code = http_start(s, &http);
  if (!code) {
    announce(s);
    code = wait_for_end(s, http, &end);
  }
  end_texts(s);
  wait_for_answers(http, end);
  http_stop(http);
  const int stopped = batch_stop(s->batch);
  return code ? code : stopped;
}

// The last name of the path, without .gguf.
static const char *model_name(const char *path, char *name, size_t room) {
  size_t length = strlen(path);
  while (length > 1 && platform_separator(path[length - 1])) --length;
  size_t from = length;
  while (from && !platform_separator(path[from - 1])) --from;
  if (length - from > 5 && !strncmp(path + length - 5, ".gguf", 5)) length -= 5;
  snprintf(name, room, "%.*s", (int)(length - from), path + from);
  return text_clean(name);
}

int command_serve(int argc, char **argv) {
  static struct server server;
  static char name[200];
  server.options = (struct serve_options){.engine = ENGINE_DEFAULTS,
                                          .host = "127.0.0.1",
                                          .port = 8080,
                                          .queue = 1024,
                                          .stall = 100,
                                          .connections = 1024,
                                          .body_kib = 4096,
                                          .timeout = 60,
                                          .drain = 30,
                                          .memory_mib = 1024,
                                          .expiry = 3600,
                                          .working_mib = 1024,
                                          .tokens = 4096,
                                          .choice = STORE_CHOICE_DEFAULTS};
  struct serve_options *o = &server.options;
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("the server"),
      TEXT(0, "host", "ADDRESS", &o->host, "the address to listen on; 0.0.0.0: all addresses"),
      COUNT('p', "port", "N", &o->port, 0, 65535, "the port; 0: a free one, which is printed"),
      TEXT(0, "keys", "FILE", &o->keys,
           "file of keys, one a line; clients must send one of them. Without it, anyone can use the server"),
      TEXT(0, "name", "TEXT", &o->name, "the model's name for clients; without it, the name of its folder or file"),
      TEXT(0, "template", "NAME", &o->template,
           "the chat template (docs/models.md), such as chatml; without it, the model's own"),
      FLAG('q', "quiet", &o->engine.quiet, "print only failures on standard error"),
      HEADING("texts"),
      COUNT(0, "slots", "N", &o->slots, 0, 256,
            "texts computed at once; 0: 64 on a GPU, 8 on the CPU, fewer if their states would fill the memory"),
      COUNT(0, "queue", "N", &o->queue, 1, 1u << 20,
            "texts of a client that may wait for a slot, fewer if others wait too; more are refused with 429"),
      COUNT('n', "tokens", "N", &o->tokens, 1, 1u << 30, "most tokens of an answer; a request for more gets this many"),
      COUNT('c', "context", "N", &o->engine.context, 0, 0,
            "most tokens of a text, for models whose state grows with it; 0: 4096"),
      COUNT(0, "stall", "MS", &o->stall, 1, 60000,
            "about the longest time that running texts wait for the prompts and states of others"),
      COUNT(0, "slice", "N", &o->slice, 0, 4096, "most tokens of a slice; 0: --batch"),
      FLAG(0, "reproducible", &o->reproducible,
           "a text's tokens do not depend on the texts beside it; slower (docs/serve.md)"),
      HEADING("finished turns"),
      COUNT(0, "memory", "MIB", &o->memory_mib, 0, 1u << 24,
            "host memory for their states, and a quarter more for their tokens; the least recently used are removed "
            "first; 0: none, turns are only in the store"),
      COUNT(0, "expiry", "SECONDS", &o->expiry, 0, 0,
            "turns that nobody continued for this time are removed; 0: never"),
      STORE_OPTIONS(&o->choice),
      HEADING("limits"),
      COUNT(0, "connections", "N", &o->connections, 1, 65535, "open connections; more are refused with 503"),
      COUNT(0, "body", "KIB", &o->body_kib, 1, 1u << 22,
            "the largest body of a request; a body that carries a state may be larger by the state's size"),
      COUNT(0, "working", "MIB", &o->working_mib, 1, 1u << 24,
            "host memory for requests that are not answered yet; one gets a quarter, else 400; more than all: 429"),
      COUNT(
          0, "timeout", "SECONDS", &o->timeout, 1, 86400,
          "the longest time to send a request, to receive an answer once it is complete, or to go without reading from "
          "a stream"),
      COUNT(0, "drain", "SECONDS", &o->drain, 0, 86400, "how long running texts may continue after Ctrl-C or SIGTERM"),
      ENGINE_OPTIONS(&o->engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  code = store_choice_check(&o->choice);
  if (code) return code;
  if (o->reproducible && o->choice.bits != 32)
    return complain(EXIT_USAGE, "--reproducible needs states that are stored exactly: --store-bits 32");
  if (!o->memory_mib && !o->choice.url)
    return complain(EXIT_USAGE, "--memory 0 keeps no turns, so it needs --store");
  if (arguments.count && o->engine.model)
    return complain(EXIT_USAGE, "the model is given twice: --model and %s", arguments.items[0]);
  if (arguments.count) o->engine.model = arguments.items[0];
  const char *path = model_path(o->engine.model);
  if (!path) return EXIT_USAGE;
  o->engine.model = path;
  server.name = o->name ? o->name : model_name(path, name, sizeof name);
  server.started = time(NULL);
  code = run(&server, path);
  store_close(server.store);
  state_layout_free(&server.layout); // of states that the store had
  deltaic_tokenizer_close(server.tokenizer);
  return engine_close(&server.engine, code);
}
