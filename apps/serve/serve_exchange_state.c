// serve_exchange_state: a request for a state, or for a response that is kept. Workers answer it: the store may take
// long, and so may a copy of the state. One that is put goes to the batcher in between, which checks it when a slot is
// free.
#include "serve_exchange.h"

#include <stdlib.h>
#include <string.h>

static const char ending_text[] = "the server is ending";

static void refuse(struct exchange *x, int status, const char *code, const char *text) {
  struct problem problem = {0};
  problem_set(&problem, status, "", code, "%s", text);
  x->reply = reply_refuse(&problem);
}

static void leave(struct exchange *x) {
  x->left = true;
  metrics_add(&x->http->server->metrics, METRIC_CANCELLED, 1);
}

// Also while the server ends: the state is there.
static void put_checked(void *user, bool ending) {
  struct exchange *x = user;
  (void)ending;
  x->reply = states_put_checked(x->http->server, x->id, &x->check);
  MHD_resume_connection(x->connection);
}

static void checked(struct check *check) {
  struct exchange *x = check->user;
  if (check->left) {
    leave(x);
    MHD_resume_connection(x->connection);
    return;
  }
  x->job = (struct job){.run = put_checked, .user = x};
  workers_add(x->http->workers, &x->job);
}

// True: the check has begun, and the connection waits for it.
static bool begin_put(struct exchange *x) {
  struct server *s = x->http->server;
  if (!states_put(s, x->id, &x->body, &x->check, &x->reply)) return false;
  free(x->body.data); // the check has a copy
  x->body = (struct bytes){0};
  x->check.socket = x->visitor->socket;
  x->check.done = checked;
  x->check.user = x;
  const enum admission admission = batch_check_state(s->batch, &x->check);
  if (admission == ADMIT_QUEUED) return true;
  if (admission == ADMIT_FULL)
    refuse(x, 429, "queue_full", "as many states wait to be checked as there are slots");
  else
    refuse(x, 503, "", ending_text);
  return false;
}

static void begin(void *user, bool ending) {
  struct exchange *x = user;
  if (ending)
    refuse(x, 503, "", ending_text);
  else if (!strcmp(x->method, "PUT") && begin_put(x))
    return;
  else if (!strcmp(x->method, "GET") && client_left(x->visitor->socket))
    leave(x); // what changes a state is done, whether its client waits or not
  else if (x->route == ROUTE_RESPONSE)
    x->reply = responses_answer(x->http->server, x->method, x->id, &x->taken);
  else if (strcmp(x->method, "PUT") != 0)
    x->reply = states_answer(x->http->server, x->method, x->id, &x->body, &x->taken);
  MHD_resume_connection(x->connection);
}

enum MHD_Result exchange_state(struct exchange *x, const char *method, const char *id) {
  x->prepared = true;
  x->method = method;
  x->id = id;
  exchange_work(x, begin);
  return MHD_YES;
}

enum MHD_Result exchange_state_answer(struct http *http, struct MHD_Connection *connection, struct exchange *x) {
  const struct reply reply = x->reply;
  if (x->left) return MHD_NO;
  x->reply = (struct reply){0};
  return exchange_queue(http, connection, x, reply);
}
