// serve_exchange: one request and its answer: checks who asks, and sends the request where it belongs.
#include "serve_exchange.h"
#include "common.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
  DISCARD = 4,     // a body that is too large is read up to so many times the limit
  SHORT = 16 << 10 // bytes of a body that is read at once
};

// ---------------------------------------------------------------- answers

__attribute__((format(printf, 5, 6))) static enum MHD_Result
refuse(struct http *http, struct MHD_Connection *connection, struct exchange *x, int status, const char *format, ...) {
  struct problem problem = {0};
  char text[sizeof problem.text];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  problem_set(&problem, status, "", "", "%s", text);
  return exchange_queue(http, connection, x, reply_refuse(&problem));
}

// ---------------------------------------------------------------- texts

// Time spent waiting for a worker counts. Otherwise texts that end together would each wait for a slow store, one after
// another.
static void settle(void *user, bool ending) {
  enum { TURN_MS = 1000, STATE_MS = 100 };
  struct exchange *x = user;
  struct store *store = x->http->server->store;
  (void)ending; // also while the server ends
  const double waited = 1e3 * (time_now() - x->ended);
  if (waited < TURN_MS) store_settle(store, STORE_TURN, (uint32_t)(TURN_MS - waited));
  if (waited < TURN_MS) store_settle(store, STORE_STATE, STATE_MS);
  MHD_resume_connection(x->connection);
}

// The store has the turn before the client is told that its text has ended, so a crash loses nothing that the client
// saw. The state too if that is quick; otherwise the next turn may have to compute it. Under the call's lock. True: the
// connection waits.
static bool settles(struct exchange *x) {
  const struct call *call = x->call;
  const bool needed = call->request.store && store_outlives(call->server->store);
  if (x->settled || !needed || call->unfinished || call->gone) return false;
  x->settled = true;
  x->ended = time_now();
  exchange_work(x, settle);
  return true;
}

static ssize_t stream(void *user, uint64_t position, char *to, size_t most) {
  struct exchange *x = user;
  struct call *call = x->call;
  size_t size = 0;
  ssize_t result = 0;
  (void)position;
  pthread_mutex_lock(&call->lock);
  if (call->out_sent == call->out.size) {
    const bool end = call->ended;
    call->out.size = call->out_sent = 0;
    if (!end && settles(x)) {
      pthread_mutex_unlock(&call->lock);
      return 0;
    }
    if (end || !stream_more(call)) result = end ? MHD_CONTENT_READER_END_OF_STREAM : MHD_CONTENT_READER_END_WITH_ERROR;
    if (call->ended) x->visitor->answered = time_now();
  }
  if (!result) {
    size = call->out.size - call->out_sent < most ? call->out.size - call->out_sent : most;
    memcpy(to, call->out.data ? call->out.data + call->out_sent : "", size);
    call->out_sent += size;
    result = (ssize_t)size;
    if (!size && !call->ended) {
      call->connection = x->connection;
      MHD_suspend_connection(x->connection);
    }
  }
  pthread_mutex_unlock(&call->lock);
  return result;
}

static enum MHD_Result queue_stream(struct http *http, struct MHD_Connection *connection, struct exchange *x) {
  struct MHD_Response *response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, 16384, stream, x, NULL);
  if (!response) return MHD_NO;
  MHD_add_response_header(response, "Content-Type", "text/event-stream; charset=utf-8");
  MHD_add_response_header(response, "Cache-Control", "no-cache");
  MHD_add_response_header(response, "X-Accel-Buffering", "no");
  metrics_add(&http->server->metrics, METRIC_REQUESTS, 1);
  enum MHD_Result result = MHD_queue_response(connection, 200, response);
  MHD_destroy_response(response);
  return result;
}

// The answer of a call whose texts are finished, or waits for them.
static enum MHD_Result finish(struct http *http, struct MHD_Connection *connection, struct exchange *x) {
  struct call *call = x->call;
  pthread_mutex_lock(&call->lock);
  if (call->unfinished && !call->gone) {
    call->connection = connection;
    MHD_suspend_connection(connection);
    pthread_mutex_unlock(&call->lock);
    return MHD_YES;
  }
  if (settles(x)) {
    pthread_mutex_unlock(&call->lock);
    return MHD_YES;
  }
  const bool gone = call->gone;
  struct reply reply = {0};
  if (!gone) reply = call->problem.status ? reply_refuse(&call->problem) : reply_json(200, reply_call(call));
  pthread_mutex_unlock(&call->lock);
  return gone ? MHD_NO : exchange_queue(http, connection, x, reply);
}

// Reads a request and queues its texts, or sets the problem.
static void prepare(struct exchange *x) {
  const enum api api = x->route == ROUTE_COMPLETIONS ? API_COMPLETIONS
                       : x->route == ROUTE_CHAT      ? API_CHAT
                                                     : API_RESPONSES;
  struct server *server = x->http->server;
  struct problem *p = &x->problem;
  struct request request;
  struct call *call = NULL;
  const double arrived = time_now();
  const bool good = request_read(api, x->body.data ? x->body.data : "", x->body.size, &request, p);
  free(x->body.data);
  x->body = (struct bytes){0};
  if (good) {
    const size_t texts = (request.prompt_count ? request.prompt_count : 1) * request.n;
    if (texts > server->options.queue)
      problem_set(p, 400, "n", "", "prompts times n are %zu texts; the queue has room for %u", texts,
                  server->options.queue);
    else
      call = call_create(server, &request, &x->taken, p);
    request_free(&request);
  }
  working_give(server, &x->taken);
  if (!call) return;
  call->arrived = arrived;
  call->client = x->client;
  call->socket = x->visitor->socket;
  x->call = call;
  enum admission admission = batch_submit(server->batch, call, &x->retry);
  if (admission == ADMIT_MISSED) {
    call_fetch_states(call);
    admission = batch_submit(server->batch, call, &x->retry);
    assert(admission != ADMIT_MISSED); // no text waits for a slot's state any more
  }
  switch (admission) {
  case ADMIT_QUEUED:
  case ADMIT_MISSED: break;
  case ADMIT_FULL: problem_set(p, 429, "", "queue_full", "the queue is full; try again in %u s", x->retry); break;
  case ADMIT_ENDING: problem_set(p, 503, "", "", "the server is ending"); break;
  }
}

static void prepare_later(void *user, bool ending) {
  struct exchange *x = user;
  if (ending)
    problem_set(&x->problem, 503, "", "", "the server is ending");
  else if (client_left(x->visitor->socket))
    x->left = true;
  else
    prepare(x);
  if (x->left) metrics_add(&x->http->server->metrics, METRIC_CANCELLED, 1);
  MHD_resume_connection(x->connection);
}

// After the request is prepared, and each time that the connection goes on.
static enum MHD_Result answer_call(struct http *http, struct MHD_Connection *connection, struct exchange *x) {
  if (x->left) return MHD_NO;
  if (x->problem.status) {
    struct reply reply = reply_refuse(&x->problem);
    if (x->retry) reply.retry = x->retry; // measured; else what the problem's kind says
    return exchange_queue(http, connection, x, reply);
  }
  return x->call->request.stream ? queue_stream(http, connection, x) : finish(http, connection, x);
}

// A long request takes long to read and encode, and a turn may have to come from the store.
static enum MHD_Result begin_call(struct http *http, struct MHD_Connection *connection, struct exchange *x) {
  x->prepared = true;
  if (x->body.size > SHORT || store_outlives(http->server->store)) {
    exchange_work(x, prepare_later);
    return MHD_YES;
  }
  prepare(x);
  return answer_call(http, connection, x);
}

// ---------------------------------------------------------------- requests

static const char *header(struct MHD_Connection *connection, const char *name) {
  return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

// Of a body. A state may be larger than what texts need; nothing may be larger than the memory for requests.
static size_t most_bytes(const struct http *http, const struct exchange *x) {
  const size_t most = (size_t)http->server->options.body_kib << 10;
  const size_t wanted = x->route == ROUTE_STATES ? most + http->server->state_bytes : most;
  return wanted < working_most(http->server) ? wanted : working_most(http->server);
}

// What can be refused before the body is read.
static enum MHD_Result begin(struct http *http, struct MHD_Connection *connection, struct exchange *x, const char *url,
                             const char *method) {
  const char *rest, *length = header(connection, "Content-Length");
  bool method_right = false;
  const char *methods = NULL;
  x->visitor->since = time_now(); // a connection that is used again was idle before
  x->route = route_of(url, method, &methods, &method_right, &rest);
  pthread_mutex_lock(&http->lock);
  const bool crowded = http->visitor_count > http->server->options.connections;
  pthread_mutex_unlock(&http->lock);
  if (crowded) return refuse(http, connection, x, 503, "there are too many connections");
  if (x->route == ROUTE_NONE) return refuse(http, connection, x, 404, "there is no %.10s %.100s", method, url);
  if (!method_right) x->allow = methods;
  if (!method_right) return refuse(http, connection, x, 405, "%.100s does not take %.10s", url, method);
  const char *name = x->route == ROUTE_HEALTH ? NULL : origin_foreign_name(http, connection);
  if (name)
    return refuse(http, connection, x, 403,
                  "without --keys the Host header takes an address, localhost or the name in --host, not \"%.100s\"",
                  name);
  if (origin_foreign(connection)) return refuse(http, connection, x, 403, "a page of another origin may not ask");
  const bool open = x->route == ROUTE_HEALTH || x->route == ROUTE_PAGE;
  const size_t key = http->keys.count ? keys_find(&http->keys, header(connection, "Authorization")) : 0;
  if (http->keys.count && !key && !open)
    return refuse(http, connection, x, 401, "the Authorization header shows no key of this server");
  x->client = key ? key : origin_hash(connection);
  if (length && strtoull(length, NULL, 10) > most_bytes(http, x))
    return refuse(http, connection, x, 413, "the body has more than %zu bytes", most_bytes(http, x));
  return MHD_YES;
}

// A body that turns out too large is read on for a while, because an answer can only follow it.
static enum MHD_Result receive(struct http *http, struct exchange *x, const char *data, size_t size) {
  x->received += size;
  if (x->received > DISCARD * most_bytes(http, x)) return MHD_NO;
  if (x->received > most_bytes(http, x)) x->large = true;
  if (!x->large && !x->crowded) x->crowded = !working_take(http->server, &x->taken, size);
  if (!x->large && !x->crowded && !bytes_add(&x->body, data, size)) return MHD_NO;
  return MHD_YES;
}

static enum MHD_Result dispatch(struct http *http, struct MHD_Connection *connection, struct exchange *x,
                                const char *url, const char *method) {
  const char *rest, *methods;
  bool right;
  x->visitor->since = 0;
  if (x->large) return refuse(http, connection, x, 413, "the body has more than %zu bytes", most_bytes(http, x));
  if (x->crowded) return refuse(http, connection, x, 429, "%s", working_full);
  route_of(url, method, &methods, &right, &rest);
  switch (x->route) {
  case ROUTE_HEALTH: return exchange_queue(http, connection, x, about_health());
  case ROUTE_METRICS: return exchange_queue(http, connection, x, about_metrics(http));
  case ROUTE_PAGE: return exchange_queue(http, connection, x, about_page());
  case ROUTE_MODELS: return exchange_queue(http, connection, x, about_models(http, rest));
  case ROUTE_STATES:
  case ROUTE_RESPONSE: return exchange_state(x, method, rest);
  default: return begin_call(http, connection, x);
  }
}

enum MHD_Result exchange_answer(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                                const char *version, const char *body, size_t *body_bytes, void **state) {
  struct http *http = user;
  struct exchange *x = *state;
  (void)version;
  if (!x) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    x = *state = calloc(1, sizeof *x);
    if (!x || !info || !info->socket_context) return MHD_NO;
    x->visitor = info->socket_context;
    x->connection = connection;
    x->http = http;
    return begin(http, connection, x, url, method);
  }
  if (x->prepared) return x->method ? exchange_state_answer(http, connection, x) : answer_call(http, connection, x);
  if (!*body_bytes) return dispatch(http, connection, x, url, method);
  enum MHD_Result result = receive(http, x, body, *body_bytes);
  *body_bytes = 0;
  return result;
}

void exchange_end(void *user, struct MHD_Connection *connection, void **state, enum MHD_RequestTerminationCode code) {
  struct http *http = user;
  struct exchange *x = *state;
  (void)connection, (void)code;
  if (!x) return;
  if (x->call) {
    pthread_mutex_lock(&x->call->lock);
    x->call->gone = true;
    x->call->connection = NULL;
    pthread_mutex_unlock(&x->call->lock);
    call_drop(x->call);
  }
  if (x->visitor) {
    x->visitor->since = time_now();
    x->visitor->answered = 0;
  }
  free(x->body.data);
  free(x->reply.body);
  blob_drop(x->check.turn);
  blob_drop(x->check.state);
  working_give(http->server, &x->taken);
  free(x);
  *state = NULL;
}
