// load_stream.h: one request to a server with OpenAI's interface, and its streamed answer as it comes.
#ifndef LOAD_STREAM_H
#define LOAD_STREAM_H
#include <jansson.h>
#include <netdb.h>
#include <stdbool.h>
#include <stddef.h>

struct target {
  struct addrinfo *address;
  const char *host, *key; // key: NULL: none
};

enum stream_phase { STREAM_SENDING, STREAM_HEAD, STREAM_BODY, STREAM_DONE, STREAM_FAILED };
enum chunk_phase { CHUNK_NONE, CHUNK_SIZE, CHUNK_DATA, CHUNK_END };

struct text { // ended by a NUL
  char *data;
  size_t size, room;
};

struct stream {
  enum stream_phase phase;
  int socket; // -1: closed
  struct text out, line, said;
  json_t *notes; // log-probabilities of the tokens, as many as came
  size_t sent, chunk_left;
  enum chunk_phase chunk;
  int status;                // of HTTP
  double begun, first, last; // times; first: of the first event; last: of the last part
  size_t parts;              // with text
  long cached, tokens;       // of the usage; -1: none came
  char state[80];            // the id of the finished turn; "": none came
  char problem[256];         // why it failed
  // Called with each part of the text. seconds: since the part before, or since the request.
  void (*part)(void *user, struct stream *stream, double seconds);
  void *user;
};

double load_now(void); // seconds
// Takes over the body, to which it adds what streams need. path: NULL: /v1/completions.
void stream_open(struct stream *stream, const struct target *target, json_t *body);
short stream_events(const struct stream *stream); // for poll()
void stream_work(struct stream *stream);          // after poll() reported one of these
void stream_close(struct stream *stream);         // at any time
bool stream_ended(const struct stream *stream);
// The value of a metric of GET /metrics, without "deltaic_"; -1: there is none.
double load_metric(const struct target *target, const char *name);
#endif
