// serve_exchange.h: what the files share that answer requests.
#ifndef SERVE_EXCHANGE_H
#define SERVE_EXCHANGE_H
#include "serve_http.h"
#include "serve_route.h"

struct exchange { // a request and its answer
  enum route route;
  struct visitor *visitor;
  struct bytes body;
  size_t received, taken; // taken: of the memory for requests
  bool large, crowded, prepared, settled, left;
  double ended; // when its texts had ended and their turns began to be settled
  uint64_t client;
  const char *allow; // methods, where the request's is refused
  struct http *http;
  struct MHD_Connection *connection;
  struct job job;

  // Of a request for a state or a response that is kept: libmicrohttpd keeps both texts as long as the request.
  const char *method, *id; // method NULL: of another request
  struct reply reply;
  struct check check; // of a state that is put

  // Of a request for texts.
  struct call *call;
  struct problem problem; // why it is refused
  uint32_t retry;
};

// serve_send.c. Sends the reply, whose body it takes over.
enum MHD_Result exchange_queue(struct http *http, struct MHD_Connection *connection, struct exchange *x,
                               struct reply reply);
// A worker runs this while the connection waits, so that streams of the same thread are not held up. It ends with
// MHD_resume_connection().
void exchange_work(struct exchange *x, void (*run)(void *, bool));

// Requests for states: serve_exchange_state.c.
enum MHD_Result exchange_state(struct exchange *x, const char *method, const char *id);
enum MHD_Result exchange_state_answer(struct http *http, struct MHD_Connection *connection, struct exchange *x);
#endif
