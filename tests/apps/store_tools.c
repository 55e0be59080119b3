// store_tools: see store_tools.h.
#include "store_tools.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const kinds[KINDS] = {TINY "tiny_gated_deltanet", TINY "tiny_delta_net_swa", TINY "tiny_delta_net_global"};
int32_t text[TEXT];
int port;
pid_t server;

static deltaic_context *context;
static deltaic_device *device;

// ---------------------------------------------------------------- the store

struct wire *open_wire(int at, bool tls, struct wire_time *time) {
  char url[128], error[WIRE_ERROR];
  snprintf(url, sizeof url, "redis%s://:secret@127.0.0.1:%d", tls ? "s" : "", at);
  struct store_address address;
  assert_null(store_address_parse(url, &address));
  const struct wire_options options = {&address, tls ? "store_cert.pem" : NULL, time};
  return wire_open(&options, error);
}

static bool answers(int at, bool tls) {
  struct wire_time time = wire_time_of(2000);
  struct wire *wire = open_wire(at, tls, &time);
  wire_close(wire);
  return wire;
}

void start(int at, const char *const *more) {
  char number[16];
  const char *args[32] = {"redis-server", "--bind",     "127.0.0.1", "--save",    "",          "--daemonize",
                          "no",           "--loglevel", "warning",   "--logfile", "store.log", "--requirepass",
                          "secret"};
  size_t n = 13;
  snprintf(number, sizeof number, "%d", at);
  bool tls = false;
  for (; more && *more; more++) tls |= !strcmp(*more, "--tls-port"), args[n++] = *more;
  if (!tls) args[n++] = "--port", args[n++] = number;
  server = fork();
  if (!server) {
    execvp(args[0], (char *const *)args);
    _exit(127);
  }
  for (int i = 0; i < 400 && !answers(at, tls); i++) usleep(50000);
  assert_true(answers(at, tls));
}

void end(int with) {
  if (server > 0) kill(server, with), waitpid(server, NULL, 0);
  server = 0;
}

int stop_server(void **state) {
  end(SIGKILL);
  return 0;
}

double since(uint64_t begin) { return (double)(platform_clock_ns() - begin) * 1e-9; }

// ---------------------------------------------------------------- models and states

struct replica open_replica(const char *path) {
  struct replica r;
  const deltaic_session_options options = {.size = sizeof options, .context = TEXT};
  assert_int_equal(deltaic_model_open(device, path, NULL, &r.model), DELTAIC_OK);
  assert_int_equal(deltaic_session_create(r.model, &options, &r.session), DELTAIC_OK);
  deltaic_model_get_info(r.model, &r.info);
  assert_true(state_layout_read(r.session, r.info.fingerprint, &r.layout));
  return r;
}

void close_replica(struct replica *r) {
  state_layout_free(&r->layout);
  deltaic_session_free(r->session);
  deltaic_model_close(r->model);
}

struct blob *read_to(struct replica *r, size_t first, size_t stop) {
  size_t bytes;
  assert_int_equal(deltaic_session_eval(r->session, text + first, stop - first, DELTAIC_LOGITS_NONE, NULL), DELTAIC_OK);
  assert_int_equal(deltaic_session_state_size(r->session, &bytes), DELTAIC_OK);
  struct blob *blob = blob_create(bytes);
  assert_int_equal(deltaic_session_save(r->session, blob->bytes, bytes, NULL), DELTAIC_OK);
  return blob;
}

char *flat_state(const struct blob *state) {
  char *flat = malloc(state->size);
  blob_copy(state, 0, state->size, flat);
  assert_int_equal(deltaic_state_seal(flat, state->size), DELTAIC_OK);
  return flat;
}

struct blob *blob_of(const char *bytes) {
  struct blob *blob = blob_create(strlen(bytes));
  memcpy(blob->bytes, bytes, blob->size);
  return blob;
}

// ---------------------------------------------------------------- the program

bool store_tools_open(const char *name) {
  const deltaic_context_options options = {.size = sizeof options, .cache_dir = ""};
  const deltaic_device_options cpu = {.size = sizeof cpu, .index = DELTAIC_DEVICE_INDEX_CPU, .threads = 1};
  uint32_t x = 1;
  for (int i = 0; i < TEXT; i++) text[i] = 3 + (int32_t)((x = x * 1664525u + 1013904223u) >> 16) % 256;
  port = 10000 + 2 * (int)(platform_process() * 7 % 11000); // below those that clients' sockets get
  complain_as(name);
  return !deltaic_context_create(&options, &context) && !deltaic_device_open(context, &cpu, &device);
}

void store_tools_close(void) {
  deltaic_device_close(device);
  deltaic_context_free(context);
  remove("store.log");
}
