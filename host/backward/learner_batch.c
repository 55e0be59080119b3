// learner_batch: the memory of a batch, and its tokens.
#include "learner_inside.h"

void learner_batch_free(struct learner *l) {
  const struct backend_functions *f = l->backend->functions;
  arena_free(&l->states, l->backend);
  l->states = (struct arena){0};
  f->buffer_free(l->backend, &l->state_gradients);
  f->buffer_free(l->backend, &l->streams);
  f->buffer_free(l->backend, &l->sequences);
  f->buffer_free(l->backend, &l->tokens);
  f->buffer_free(l->backend, &l->targets);
  f->buffer_free(l->backend, &l->losses);
  l->rows = l->T = 0;
}

// Memory that the host writes, with `count` numbers. To read it may cost a trip over the bus for each number.
static deltaic_status make_shared(struct learner *l, struct buffer *b, uint64_t count, const char *what) {
  return l->backend->functions->buffer_create(l->backend, MEMORY_SHARED, count * sizeof(float), what, b);
}

// All layers' states are in one block, for the walk finds a state's gradient by its place.
static deltaic_status make_states(struct learner *l) {
  const struct model_spec *s = &l->model.spec;
  const struct state_shape shape = {l->rows, l->T, l->T};
  for (uint32_t i = 0; i < s->L; i++) {
    struct state_list ignored;
    s->layers[i].mixer->state(s->layers[i].spec, &shape, &l->states, l->mixer_states[i], &ignored);
  }
  l->states.block_bytes = l->backend->max_buffer_bytes;
  deltaic_status status = arena_allocate(&l->states, l->backend, MEMORY_DEVICE, "the states");
  if (!status && l->states.block_count > 1)
    status = fail(DELTAIC_OUT_OF_MEMORY, "the states of %u texts do not fit into one buffer", l->rows);
  if (!status) status = learner_room(l, &l->state_gradients, l->states.blocks[0].bytes, "the states' gradients");
  return status;
}

enum { MOST_ROWS = 65535 }; // of a dispatch's grid

deltaic_status learner_batch_take(struct learner *l, const struct learner_batch *batch) {
  const struct model_spec *s = &l->model.spec;
  const uint64_t N = (uint64_t)batch->rows * batch->T;
  if (!batch->rows || !batch->T || N > INT32_MAX)
    return fail(DELTAIC_INVALID_ARGUMENT, "a batch of %u texts of %u tokens", batch->rows, batch->T);
  if (l->backend->replays && N > MOST_ROWS)
    return fail(DELTAIC_INVALID_ARGUMENT,
                "a batch of %u texts of %u tokens; on a Vulkan device it has at most %d tokens", batch->rows, batch->T,
                MOST_ROWS);
  for (uint64_t i = 0; i < batch->rows * (uint64_t)(batch->T + 1); i++)
    if (batch->tokens[i] < 0 || (uint32_t)batch->tokens[i] >= s->V)
      return fail(DELTAIC_INVALID_ARGUMENT, "token %d is not in the vocabulary of %u", batch->tokens[i], s->V);
  for (uint64_t i = 0; batch->targets && i < N; i++)
    if (batch->targets[i] >= 0 && (uint32_t)batch->targets[i] >= s->V)
      return fail(DELTAIC_INVALID_ARGUMENT, "target %d is not in the vocabulary of %u", batch->targets[i], s->V);
  deltaic_status status = DELTAIC_OK;
  if (l->rows != batch->rows || l->T != batch->T) {
    learner_batch_free(l);
    l->rows = batch->rows;
    l->T = batch->T;
    status = make_states(l);
    const uint64_t streams = (s->L + 2) * round_up(N * s->D * sizeof(float), TENSOR_ALIGN);
    if (!status) status = learner_room(l, &l->streams, streams, "the residual streams");
    if (!status) status = make_shared(l, &l->sequences, 4ull * l->rows, "sequences");
    if (!status) status = make_shared(l, &l->tokens, N, "tokens");
    if (!status) status = make_shared(l, &l->targets, N, "targets");
    if (!status) status = learner_room(l, &l->losses, 2 * N * sizeof(float), "losses");
    if (status) learner_batch_free(l);
  }
  for (uint32_t r = 0; r < batch->rows && !status; r++) {
    ((struct sequence *)l->sequences.mapped)[r] = (struct sequence){r * l->T, l->T, 0, r};
    const int32_t *text = batch->tokens + (uint64_t)r * (l->T + 1);
    memcpy((int32_t *)l->tokens.mapped + (uint64_t)r * l->T, text, l->T * sizeof(int32_t));
    memcpy((int32_t *)l->targets.mapped + (uint64_t)r * l->T,
           batch->targets ? batch->targets + (uint64_t)r * l->T : text + 1, l->T * sizeof(int32_t));
  }
  return status;
}
