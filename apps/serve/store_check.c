// store_check: what --store-bits costs: a text is read in turns, and between turns the state goes through a stored
// form.
#include "print.h"
#include "store_choice.h"
#include "store_pack.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FORMS = 3, TURNS = 8, LEAST = 64, MOST = 8192 };
static const uint32_t form_bits[FORMS] = {32, 16, 8};

struct check {
  deltaic_session *session;
  struct state_layout layout;
  int32_t *ids;
  size_t count;
  uint64_t bytes[FORMS]; // of all stored values behind the last turn
  double nats[FORMS], pack_seconds[FORMS], open_seconds[FORMS];
  size_t scored;
};

// Reads tokens first ... end - 1 with every sequence, and adds up the nats of those that follow a stored state.
static deltaic_status read_turn(struct check *c, size_t first, size_t end) {
  const size_t n = end - first;
  int32_t *targets = must_resize(NULL, n * sizeof *targets);
  deltaic_score *scores = must_resize(NULL, FORMS * n * sizeof *scores);
  deltaic_piece pieces[FORMS];
  for (size_t i = 0; i < n; i++) targets[i] = first + i + 1 < c->count ? c->ids[first + i + 1] : -1;
  for (uint32_t f = 0; f < FORMS; f++)
    pieces[f] = (deltaic_piece){
        .sequence = f, .tokens = c->ids + first, .count = n, .targets = targets, .scores = scores + f * n};
  const deltaic_status status = deltaic_session_eval_batch(c->session, pieces, FORMS);
  for (size_t i = 0; !status && first && i < n; i++) {
    if (targets[i] < 0) continue;
    for (int f = 0; f < FORMS; f++) c->nats[f] -= (double)scores[(size_t)f * n + i].log_probability;
    c->scored++;
  }
  free(scores);
  free(targets);
  return status;
}

// Converts the state to its stored form and back. NULL: one of the two failed.
static struct blob *through_store(struct check *c, uint32_t f, struct blob *state) {
  struct pack_state s = {.state = state, .bits = form_bits[f]};
  struct pack_blocks blocks = {.count = 0};
  struct pack_bytes grown = {0};
  const double begin = time_now();
  if (deltaic_state_position(state->bytes, state->size, &s.position)) return NULL;
  if (c->layout.grows) {
    blocks.items[blocks.count++] = (struct pack_block){.id = "check", .first = 0, .end = s.position};
    grown = pack_grown(&c->layout, &s, 0, s.position);
  }
  struct pack_bytes fixed = pack_fixed(&c->layout, &s, &blocks);
  const double packed = time_now();
  struct blob *back = fixed.data ? pack_open(&c->layout, fixed.data, fixed.bytes) : NULL;
  if (back && c->layout.grows && !(grown.data && pack_add(back, &blocks.items[0], &grown))) {
    blob_drop(back);
    back = NULL;
  }
  c->bytes[f] = fixed.bytes + grown.bytes;
  c->pack_seconds[f] = packed - begin;
  c->open_seconds[f] = time_now() - packed;
  free(fixed.data);
  free(grown.data);
  return back;
}

static int store_and_load(struct check *c, uint32_t f) {
  size_t bytes;
  deltaic_status status = deltaic_sequence_state_size(c->session, f, &bytes);
  if (status) return complain_status(status);
  struct blob *state = blob_create(bytes);
  if (!state) return complain(EXIT_FAILED, "out of memory");
  status = deltaic_sequence_save(c->session, f, state->bytes, bytes, NULL);
  struct blob *back = status ? NULL : through_store(c, f, state);
  int code = status ? complain_status(status) : EXIT_OK;
  if (!code && (!back || back->size != bytes))
    code = complain(EXIT_FAILED, "a state does not come back from its stored form");
  char *flat = code ? NULL : must_resize(NULL, bytes);
  if (!code) blob_copy(back, 0, bytes, flat);
  if (!code) status = deltaic_state_seal(flat, bytes);
  if (!code && !status && form_bits[f] == 32 && memcmp(state->bytes, flat, bytes) != 0)
    code = complain(EXIT_FAILED, "a state that is stored exactly comes back changed");
  if (!code && !status) status = deltaic_sequence_load(c->session, f, flat, bytes);
  if (!code && status) code = complain_status(status);
  free(flat);
  blob_drop(back);
  blob_drop(state);
  return code;
}

static void print_check(const struct check *c) {
  struct table table;
  printf("%zu tokens in %d turns; nats a token are of the %zu behind a stored state\n", c->count, TURNS, c->scored);
  table_begin(&table, "rrrrrr");
  table_row(&table, "bits", "stored", "nats/token", "loss", "to store", "to state");
  for (int f = 0; f < FORMS; f++) {
    char bits[24], bytes[24], nats[24], loss[24], pack[24], open[24];
    const double mean = c->nats[f] / (double)c->scored, exact = c->nats[0] / (double)c->scored;
    snprintf(bits, sizeof bits, "%u", form_bits[f]);
    snprintf(bytes, sizeof bytes, "%.1f KiB", (double)c->bytes[f] / 1024);
    snprintf(nats, sizeof nats, "%.6f", mean);
    snprintf(loss, sizeof loss, "%+.6f", mean - exact);
    snprintf(pack, sizeof pack, "%.2f ms", 1e3 * c->pack_seconds[f]);
    snprintf(open, sizeof open, "%.2f ms", 1e3 * c->open_seconds[f]);
    table_row(&table, bits, bytes, nats, loss, pack, open);
  }
  table_end(&table, 0);
}

static int check_text(struct check *c) {
  int code = EXIT_OK;
  for (size_t turn = 0; turn < TURNS && !code; turn++) {
    const deltaic_status status = read_turn(c, c->count * turn / TURNS, c->count * (turn + 1) / TURNS);
    code = status ? complain_work(status) : EXIT_OK;
    for (uint32_t f = 0; f < FORMS && !code; f++) code = store_and_load(c, f);
  }
  if (!code) print_check(c);
  return code;
}

int store_check(const struct store_choice *choice, const struct engine *engine, const deltaic_tokenizer *tokenizer) {
  struct check c = {.session = NULL};
  size_t bytes;
  char *text = file_read(choice->check, &bytes);
  if (!text) return EXIT_FAILED;
  int code = text_encode(tokenizer, text, bytes, choice->check, true, &c.ids, &c.count);
  free(text);
  if (code) return code;
  if (c.count > MOST) c.count = MOST;
  if (c.count < LEAST)
    code = complain(EXIT_FAILED, "%s: a text of at least %d tokens is needed, not %zu", choice->check, LEAST, c.count);
  const deltaic_session_options options = {
      .size = sizeof options, .context = (uint32_t)c.count + 1, .sequences = FORMS};
  deltaic_status status = code ? DELTAIC_OK : deltaic_session_create(engine->model, &options, &c.session);
  if (!code && !status && !state_layout_read(c.session, engine->model_info.fingerprint, &c.layout))
    status = DELTAIC_OUT_OF_MEMORY;
  if (status) code = complain_status(status);
  if (!code) code = check_text(&c);
  state_layout_free(&c.layout);
  deltaic_session_free(c.session);
  free(c.ids);
  return code;
}
