// store_choice: reads the store's options and opens it.
#include "store_choice.h"
#include "store_redis.h"
#include "store_wire.h"

#include <stdlib.h>

static const char *url_of(const struct store_choice *choice) {
  const char *url = choice->url ? choice->url : getenv("DELTAIC_STORE");
  return url && *url ? url : NULL;
}

int store_choice_check(const struct store_choice *choice) {
  struct store_address address;
  const char *url = url_of(choice), *wrong = url ? store_address_parse(url, &address) : NULL;
  if (choice->bits != 32 && choice->bits != 16 && choice->bits != 8)
    return complain(EXIT_USAGE, "--store-bits takes 32, 16 or 8, not %u", choice->bits);
  if (wrong) return complain(EXIT_USAGE, "%s", wrong);
  if (choice->ca && (!url || !address.tls)) return complain(EXIT_USAGE, "--store-ca goes with --store rediss://...");
  return EXIT_OK;
}

int store_choice_open(const struct store_choice *choice, const struct engine *engine, struct store *store,
                      struct metrics *metrics) {
  const char *url = url_of(choice);
  if (!url) return EXIT_OK;
  const struct store_redis_options options = {.url = url,
                                              .password = getenv("DELTAIC_STORE_PASSWORD"),
                                              .ca = choice->ca,
                                              .bits = choice->bits,
                                              .seconds = choice->expiry,
                                              .timeout_ms = choice->timeout_ms,
                                              .bytes = (uint64_t)choice->size_mib << 20,
                                              .queue_bytes = (uint64_t)choice->queue_mib << 20,
                                              .fingerprint = engine->model_info.fingerprint};
  deltaic_session_options small = {.size = sizeof small, .context = 16, .batch = 16, .sequences = 1};
  deltaic_session *session;
  struct store_behind behind;
  const deltaic_status status = deltaic_session_create(engine->model, &small, &session);
  if (status != DELTAIC_OK) return complain_status(status);
  const char *wrong = store_redis_open(&options, session, metrics, &behind);
  deltaic_session_free(session);
  if (wrong) return complain(EXIT_FAILED, "%s", wrong);
  store_set_behind(store, behind);
  return EXIT_OK;
}
