// serve_request.h: reads what a client asks for, and checks every field. It needs no model: tests and the fuzzer call
// it.
#ifndef SERVE_REQUEST_H
#define SERVE_REQUEST_H
#include "deltaic.h"

#include <jansson.h>

enum api { API_COMPLETIONS, API_CHAT, API_RESPONSES };

enum {
  REQUEST_DEPTH = 64,      // of JSON
  REQUEST_PROMPTS = 2048,  // of one request
  REQUEST_CHOICES = 128,   // n
  REQUEST_TEXTS = 4096,    // prompts times n
  REQUEST_STOPS = 16,      // stop strings
  REQUEST_LIKELY = 20,     // logprobs, top_logprobs
  REQUEST_MESSAGES = 65536 // of a conversation
};

// Why a request is refused, as OpenAI's error object has it.
struct problem {
  int status; // 0: none
  char param[64], code[48], text[512];
};
// Sets the problem unless there is one already. param, code: may be "".
__attribute__((format(printf, 5, 6))) void problem_set(struct problem *p, int status, const char *param,
                                                       const char *code, const char *format, ...);

struct prompt {
  const char *text; // NULL: tokens
  size_t bytes;
  const json_t *tokens; // an array of integers in [0, 2^31)
};

struct message {
  deltaic_role role;
  char *text;
  size_t bytes;
};

// Sampling: which fields the request has.
enum { GIVEN_TEMPERATURE = 1, GIVEN_TOP_P = 2, GIVEN_TOP_K = 4, GIVEN_MIN_P = 8, GIVEN_PENALTY = 16, GIVEN_SEED = 32 };

struct request {
  enum api api;
  json_t *root; // owns the strings below
  const char *model;
  struct prompt *prompts; // completions
  size_t prompt_count;
  struct message *messages; // chat; responses: instructions and input
  size_t message_count;
  bool plain;           // responses: the input is one string
  bool instructed;      // responses: the first message is the instructions
  const char *previous; // id of the turn to continue, or NULL
  deltaic_sampling sampling;
  unsigned given;
  uint32_t n;
  uint32_t most; // tokens of an answer; UINT32_MAX: as many as there is room for
  const char *stops[REQUEST_STOPS];
  size_t stop_count;
  int likely; // alternatives of each token to report; -1: no probabilities
  bool echo, stream, stream_usage, store, ignore_eos;
  deltaic_thinking thinking;
};

// Reads a body. False: *problem says why, and nothing is to be freed.
bool request_read(enum api api, const char *body, size_t bytes, struct request *out, struct problem *problem);
void request_free(struct request *request);
void request_forget(struct request *request); // what no answer repeats, except messages
// Reads JSON of bounded depth whose top is an object. NULL: *problem says why.
json_t *request_json(const char *body, size_t bytes, struct problem *problem);
// Adds messages of an array [{"role": ..., "content": ...}], such as a turn's.
void request_messages(struct request *r, const json_t *array, const char *param, struct problem *p);
#endif
