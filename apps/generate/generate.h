// generate.h: declares the request of `deltaic generate` and what generation of one and of many sequences share.
#ifndef GENERATE_H
#define GENERATE_H
#include "choice.h"
#include "engine.h"

#include <jansson.h>

struct generate_request {
  struct engine_options engine;
  const char *prompt, *file, *prompts, *state_in, *state_out;
  uint32_t tokens;
  struct text_list stops;
  struct choice choice;
  bool no_echo, no_bos, ignore_eos, as_json;
};

// Prints on standard error which sequences are about to be generated and on which device.
void generate_announce(const struct generate_request *request, const struct engine *engine,
                       const deltaic_sampling *sampling);
// Sets *ids to the prompt's tokens, at least one; the caller frees them. where: "" or "file:line: " for a message.
int generate_encode(const struct generate_request *request, const deltaic_tokenizer *tokenizer, const char *prompt,
                    size_t bytes, const char *where, int32_t **ids, size_t *count);
// Sets *finite to whether any of the sequence's last logits is finite. After an overflow no token is more likely than
// another, so the generated text is useless.
deltaic_status generate_finite(deltaic_session *session, uint32_t sequence, const struct engine *engine, bool *finite);

// The stop string that was found, or null.
json_t *generate_stop_json(const struct generate_request *request, const deltaic_stops *stops);

// Generates one sequence and writes its text as it is decoded. It returns an exit code.
int generate_one(const struct generate_request *request);
// Generates several sequences at once, one per line of request->prompts; prints JSON lines in order; exit code.
int generate_many(const struct generate_request *request);
#endif
