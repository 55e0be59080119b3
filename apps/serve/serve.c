// serve: implements `deltaic serve`: options, opening, and the end.
#include "serve.h"
#include "command.h"
#include "common.h"
#include "options.h"
#include "platform.h"

#include <stdio.h>

static const struct usage usage = {
    .name = "serve",
    .arguments = "[options] [MODEL]",
    .summary = "Answers requests over HTTP, many at once, with OpenAI's interface.",
    .text = "It listens on this machine only unless --host says otherwise. Ctrl-C and SIGTERM let running texts end.",
    .examples = "  deltaic serve\n"
                "  deltaic serve Qwen3.5-4B-Q4_K_M.gguf --slots 64 --port 8000\n"
                "  curl -s localhost:8080/v1/completions -d '{\"prompt\": \"The old house\", \"max_tokens\": 40}'\n",
    .most_arguments = 1,
};

static int run(struct server *server, const char *path) {
  struct http *http = NULL;
  const struct store_options store = {
      .bytes = {(uint64_t)server->options.memory_mib << 18, (uint64_t)server->options.memory_mib << 20},
      .seconds = server->options.expiry,
  };
  int code = tokenizer_open(path, &server->tokenizer);
  if (!code) code = engine_open(&server->options.engine, &server->engine);
  if (code) return code;
  if (server->options.choice.check)
    return store_check(&server->options.choice, &server->engine, server->tokenizer);
  server->store = store_open(&store, &server->metrics);
  if (!server->store) return complain(EXIT_FAILED, "out of memory");
  code = store_choice_open(&server->options.choice, &server->engine, server->store, &server->metrics);
  if (!code) code = http_start(server, &http);
  if (!code && !server->options.engine.quiet)
    fprintf(stderr, "listening on http://%s:%u\n", server->options.host, server->options.port);
  while (!code && !interrupted()) platform_sleep_ns(50000000);
  http_stop(http);
  return code;
}

int command_serve(int argc, char **argv) {
  static struct server server = {
      .options = {.engine = ENGINE_DEFAULTS,
                  .host = "127.0.0.1",
                  .port = 8080,
                  .queue = 1024,
                  .stall = 100,
                  .connections = 1024,
                  .body_kib = 16384,
                  .timeout = 60,
                  .drain = 30,
                  .memory_mib = 1024,
                  .expiry = 3600,
                  .choice = STORE_CHOICE_DEFAULTS},
  };
  struct serve_options *o = &server.options;
  struct arguments arguments;
  int code;
  const struct option options[] = {
      HEADING("the server"),
      TEXT(0, "host", "ADDRESS", &o->host, "the address to listen on; 0.0.0.0: on every one"),
      COUNT('p', "port", "N", &o->port, 1, 65535, "the port"),
      FLAG('q', "quiet", &o->engine.quiet, "nothing on standard error but failures"),
      STORE_OPTIONS(&o->choice),
      ENGINE_OPTIONS(&o->engine),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  code = store_choice_check(&o->choice);
  if (code) return code;
  if (arguments.count) o->engine.model = arguments.items[0];
  const char *path = model_path(o->engine.model);
  if (!path) return EXIT_USAGE;
  o->engine.model = path;
  code = run(&server, path);
  store_close(server.store);
  deltaic_tokenizer_close(server.tokenizer);
  return engine_close(&server.engine, code);
}
