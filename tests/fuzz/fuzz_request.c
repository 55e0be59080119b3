// fuzz_request: bodies of requests, for each interface (the first byte chooses it), and turns as bytes. What is taken
// must hold what the rest of the server relies on.
#include "serve_request.h"
#include "serve_turn.h"

#include <stdlib.h>
#include <string.h>

static void require(int holds) {
  if (!holds) abort();
}

static void check_request(const struct request *r) {
  require(r->n >= 1 && r->n <= REQUEST_CHOICES && r->likely <= REQUEST_LIKELY && r->stop_count <= REQUEST_STOPS);
  require(r->prompt_count * r->n <= REQUEST_TEXTS && r->message_count <= REQUEST_MESSAGES);
  require(r->api == API_COMPLETIONS ? r->prompt_count > 0 : r->message_count > 0);
  require(r->sampling.temperature >= 0 && r->sampling.top_p >= 0 && r->sampling.top_p <= 1);
  for (size_t i = 0; i < r->prompt_count; ++i)
    require(r->prompts[i].text ? strlen(r->prompts[i].text) <= r->prompts[i].bytes
                               : json_array_size(r->prompts[i].tokens) > 0);
  for (size_t i = 0; i < r->message_count; ++i)
    require(r->messages[i].text && !r->messages[i].text[r->messages[i].bytes]);
  for (size_t i = 0; i < r->stop_count; ++i) require(*r->stops[i] != 0);
}

static void check_turn(const uint8_t *data, size_t size) {
  struct turn turn;
  struct blob *blob = blob_create(size);
  if (!blob) return;
  if (size) memcpy(blob->bytes, data, size);
  if (turn_unpack(blob, 4096, &turn)) {
    struct blob *again = turn_pack(&turn);
    require(again && again->size == size && !memcmp(again->bytes, data, size));
    blob_drop(again);
  }
  blob_drop(blob);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct request request;
  struct problem problem;
  if (!size) return 0;
  if (request_read((enum api)(*data % 3), (const char *)data + 1, size - 1, &request, &problem)) {
    check_request(&request);
    request_free(&request);
  } else {
    require(problem.status == 400 || problem.status == 500);
    require(*problem.text != 0);
  }
  check_turn(data + 1, size - 1);
  return 0;
}
