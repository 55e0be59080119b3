// generate.h: what `deltaic generate` is asked for, and what one text and many have in common.
#ifndef GENERATE_H
#define GENERATE_H
#include "engine.h"

struct generate_request {
  struct engine_options engine;
  const char *prompt, *file, *prompts, *state_in, *state_out;
  uint32_t tokens;
  deltaic_sampling sampling;
  bool greedy, seed_given, no_echo, no_bos, ignore_eos, as_json;
};

// The sampling that is asked for, with a seed.
deltaic_sampling generate_sampling(const struct generate_request *request);
// Says once on standard error what is about to happen, for which text and where.
void generate_announce(const struct generate_request *request, const struct engine *engine,
                       const deltaic_sampling *sampling);
// The prompt's tokens, at least one, to free(). where: before a complaint: "" or "file:line: ". An exit code.
int generate_encode(const struct generate_request *request, const deltaic_tokenizer *tokenizer, const char *prompt,
                    size_t bytes, const char *where, int32_t **ids, size_t *count);
// Whether any of a text's last logits is: where numbers have overflowed no token is likelier than another, and the text
// is as good as none.
deltaic_status generate_finite(deltaic_session *session, uint32_t sequence, const struct engine *engine, bool *finite);

// The text is written as it is decoded. An exit code.
int generate_one(const struct generate_request *request);
// One prompt a line of request->prompts, several texts at once, a line of JSON for each in order. An exit code.
int generate_many(const struct generate_request *request);
#endif
