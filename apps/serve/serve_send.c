// serve_send: sends a reply, or lets a connection wait for a worker.
#include "common.h"
#include "serve_exchange.h"

#include <stdio.h>
#include <stdlib.h>

enum MHD_Result exchange_queue(struct http *http, struct MHD_Connection *connection, struct exchange *x,
                               struct reply reply) {
  struct MHD_Response *response = MHD_create_response_from_buffer(reply.bytes, reply.body, MHD_RESPMEM_MUST_FREE);
  struct metrics *m = &http->server->metrics;
  char number[16];
  if (!response) {
    free(reply.body);
    return MHD_NO;
  }
  MHD_add_response_header(response, "Content-Type", reply.type);
  if (reply.status == 429 && !reply.retry) reply.retry = 1;
  snprintf(number, sizeof number, "%u", reply.retry);
  if (reply.retry) MHD_add_response_header(response, "Retry-After", number);
  if (reply.status == 405) MHD_add_response_header(response, "Allow", x->allow);
  if (reply.status == 401) MHD_add_response_header(response, "WWW-Authenticate", "Bearer");
  metrics_add(m, METRIC_REQUESTS, 1);
  if (reply.status >= 400) metrics_add(m, reply.status >= 500 ? METRIC_FAILED : METRIC_REFUSED, 1);
  if (x) x->visitor->answered = time_now();
  enum MHD_Result result = MHD_queue_response(connection, reply.status, response);
  MHD_destroy_response(response);
  return result;
}

void exchange_work(struct exchange *x, void (*run)(void *, bool)) {
  x->job = (struct job){.run = run, .user = x};
  MHD_suspend_connection(x->connection);
  workers_add(x->http->workers, &x->job);
}
