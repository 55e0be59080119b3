// eval_lanes: lanes as sessions.
#include "eval_lanes.h"
#include "common.h"

#include <stdlib.h>
#include <string.h>

int lanes_open(struct lanes *lanes, const struct engine *engine, const struct engine_options *options, uint32_t count,
               uint64_t context) {
  struct engine_options o = *options;
  o.context = context < UINT32_MAX ? (uint32_t)context : UINT32_MAX;
  *lanes = (struct lanes){.sessions = must_resize(NULL, count * sizeof *lanes->sessions)};
  int code = EXIT_OK;
  while (lanes->count < count && !code) {
    code = session_create(engine, &o, &lanes->sessions[lanes->count]);
    lanes->count += !code;
  }
  if (!code) interrupt_watch(lanes->sessions[0]);
  return code;
}

void lanes_close(struct lanes *lanes) {
  interrupt_watch(NULL);
  for (uint32_t i = 0; i < lanes->count; ++i) deltaic_session_free(lanes->sessions[i]);
  free(lanes->sessions);
  free(lanes->state);
  *lanes = (struct lanes){0};
}

deltaic_status lanes_reset(struct lanes *lanes, uint32_t lane) { return deltaic_session_reset(lanes->sessions[lane]); }

deltaic_status lanes_copy(struct lanes *lanes, uint32_t to, uint32_t from) {
  size_t bytes;
  deltaic_status status = deltaic_session_state_size(lanes->sessions[from], &bytes);
  if (status) return status;
  if (bytes > lanes->state_capacity) {
    lanes->state = must_resize(lanes->state, bytes);
    lanes->state_capacity = bytes;
  }
  status = deltaic_session_save(lanes->sessions[from], lanes->state, bytes, NULL);
  return status ? status : deltaic_session_load(lanes->sessions[to], lanes->state, bytes);
}

deltaic_status lanes_eval(struct lanes *lanes, const struct lane_work *work, size_t count) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < count && !status; ++i)
    status = deltaic_session_eval(lanes->sessions[work[i].lane], work[i].ids, work[i].count,
                                  work[i].logits ? DELTAIC_LOGITS_ALL : DELTAIC_LOGITS_NONE, work[i].logits);
  return status;
}

deltaic_status lanes_next(struct lanes *lanes, const uint32_t *which, size_t count, int32_t *tokens) {
  deltaic_status status = DELTAIC_OK;
  for (size_t i = 0; i < count && !status; ++i)
    status = deltaic_session_next(lanes->sessions[which[i]], NULL, &tokens[i], NULL);
  return status;
}
