// desk_writer: runs the model in a thread. One session holds four sequences: the text, and a copy of it for each
// alternative, which are drawn with different seeds in one batch. The states behind the text and behind each
// alternative are kept, so a text that was read or written before, also one that undo brings back, is not computed
// again.
#include "desk_writer.h"

#include <deltaic.h>
#include <glib.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

enum { SEQUENCES = ALTERNATIVES + 1, REMEMBERED = 64, NICE = 10 };

// The state behind a text.
struct memory {
  char *text;
  void *state;
  size_t bytes;
  uint32_t tokens;
};

struct desk_writer {
  // Of the thread alone.
  char *path;
  int32_t device_index;
  uint32_t tokens;
  deltaic_context *context;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_tokenizer *tokenizer;
  GPtrArray *memories; // the oldest first
  deltaic_decoder *decoders[ALTERNATIVES];
  bool ended[ALTERNATIVES]; // by the model

  GThread *thread;
  GMutex lock; // of what follows
  GCond asked;
  deltaic_session *session; // NULL until it is open; cancelled by the page, used by the thread
  char *request;            // the text to continue
  uint64_t seed;
  bool stop, quit;
  struct desk_news news; // without texts
  GString *text[ALTERNATIVES];
  bool changed[ALTERNATIVES];
};

static void memory_free(void *pointer) {
  struct memory *memory = pointer;
  g_free(memory->text);
  g_free(memory->state);
  g_free(memory);
}

// ---------------------------------------------------------------- what the page sees

static void set_phase(struct desk_writer *w, enum desk_phase phase) {
  g_autoptr(GMutexLocker) locked = g_mutex_locker_new(&w->lock);
  w->news.phase = phase;
}

// Reports a failure. Returns whether there is none; a stop is none either.
static bool passed(struct desk_writer *w, deltaic_status status) {
  if (!status || status == DELTAIC_CANCELLED) return !status;
  g_autoptr(GMutexLocker) locked = g_mutex_locker_new(&w->lock);
  g_strlcpy(w->news.failure, deltaic_last_error(), sizeof w->news.failure);
  return false;
}

static bool stopped(struct desk_writer *w) {
  g_autoptr(GMutexLocker) locked = g_mutex_locker_new(&w->lock);
  return w->stop || w->quit;
}

static void add_text(struct desk_writer *w, int alternative, const char *text, size_t bytes) {
  if (!bytes) return;
  g_autoptr(GMutexLocker) locked = g_mutex_locker_new(&w->lock);
  g_string_append_len(w->text[alternative], text, (gssize)bytes);
  w->changed[alternative] = true;
}

// ---------------------------------------------------------------- states

// The longest text that is known and that `text` continues; a word is not continued, since its tokens may be others.
static struct memory *recall(struct desk_writer *w, const char *text) {
  struct memory *longest = NULL;
  for (guint i = 0; i < w->memories->len; ++i) {
    struct memory *memory = w->memories->pdata[i];
    size_t length = strlen(memory->text);
    if (strncmp(text, memory->text, length) || (text[length] && !g_ascii_isspace(text[length]))) continue;
    if (!longest || length > strlen(longest->text)) longest = memory;
  }
  return longest;
}

static bool remember(struct desk_writer *w, uint32_t sequence, const char *text) {
  struct memory *known = recall(w, text), *memory;
  size_t bytes;
  if (known && !strcmp(known->text, text)) return true;
  if (!passed(w, deltaic_sequence_state_size(w->session, sequence, &bytes))) return false;
  if (w->memories->len == REMEMBERED) g_ptr_array_remove_index(w->memories, 0);
  memory = g_new0(struct memory, 1);
  g_ptr_array_add(w->memories, memory);
  memory->text = g_strdup(text);
  memory->state = g_malloc(bytes);
  memory->tokens = (uint32_t)deltaic_sequence_position(w->session, sequence);
  bool saved = passed(w, deltaic_sequence_save(w->session, sequence, memory->state, bytes, &memory->bytes));
  if (!saved) g_ptr_array_remove(w->memories, memory);
  return saved;
}

// ---------------------------------------------------------------- a continuation

static bool read_text(struct desk_writer *w, const char *text) {
  struct memory *memory = recall(w, text);
  const char *rest = memory ? text + strlen(memory->text) : text;
  size_t count = 0, capacity = strlen(rest) + 16;
  g_autofree int32_t *ids = g_new(int32_t, capacity);
  double start = 1e-6 * (double)g_get_monotonic_time();
  bool good = passed(w, deltaic_session_reset(w->session)) && // drops a stop that came when nothing ran
              !stopped(w) && (!memory || passed(w, deltaic_sequence_load(w->session, 0, memory->state, memory->bytes)));
  if (good && *rest)
    good = passed(w, deltaic_tokenizer_encode(w->tokenizer, rest, strlen(rest), !memory, ids, capacity, &count));
  const deltaic_piece piece = {.tokens = ids, .count = count};
  if (good && count) good = passed(w, deltaic_session_eval_batch(w->session, &piece, 1));
  g_mutex_lock(&w->lock);
  w->news.read = (uint32_t)count;
  w->news.remembered = memory ? memory->tokens : 0;
  w->news.read_seconds = 1e-6 * (double)g_get_monotonic_time() - start;
  g_mutex_unlock(&w->lock);
  return good && remember(w, 0, text);
}

// A copy of the text for each alternative, and a decoder that knows that a text comes before: some tokenizers write a
// word's space only inside a text.
static bool fork_text(struct desk_writer *w) {
  int32_t before[16];
  size_t count, bytes;
  const char *text;
  bool good = passed(w, deltaic_tokenizer_encode(w->tokenizer, "a", 1, false, before, 16, &count));
  for (uint32_t i = 0; i < ALTERNATIVES && good; ++i) {
    deltaic_decoder_free(w->decoders[i]);
    w->decoders[i] = NULL;
    w->ended[i] = false;
    good = passed(w, deltaic_sequence_copy(w->session, i + 1, 0)) &&
           passed(w, deltaic_decoder_create(w->tokenizer, true, &w->decoders[i]));
    for (size_t j = 0; j < count && good; ++j)
      good = passed(w, deltaic_decoder_push(w->decoders[i], before[j], &text, &bytes));
  }
  return good;
}

// Draws a token of every alternative that has not ended. Returns false when there is none, or after a failure.
static bool step(struct desk_writer *w, uint64_t seed) {
  uint32_t sequences[ALTERNATIVES], n = 0;
  int32_t tokens[ALTERNATIVES];
  deltaic_sampling sampling[ALTERNATIVES];
  for (uint32_t i = 0; i < ALTERNATIVES; ++i) {
    if (w->ended[i]) continue;
    sampling[n] = DELTAIC_INIT(deltaic_sampling);
    sampling[n].temperature = 0.8f;
    sampling[n].repetition_penalty = 1.1f;
    deltaic_model_sampling(w->model, &sampling[n]); // what the model recommends, if it does
    sampling[n].seed = seed * ALTERNATIVES + i;
    sequences[n++] = i + 1;
  }
  bool good = n && passed(w, deltaic_session_next_batch(w->session, sequences, n, sampling, tokens, NULL));
  for (uint32_t j = 0; j < n && good; ++j) {
    const char *text;
    size_t bytes;
    int i = (int)sequences[j] - 1;
    w->ended[i] = deltaic_model_is_end(w->model, tokens[j]);
    if (w->ended[i]) continue;
    good = passed(w, deltaic_decoder_push(w->decoders[i], tokens[j], &text, &bytes));
    if (good) add_text(w, i, text, bytes);
  }
  return good;
}

static void write_texts(struct desk_writer *w, const char *before, uint64_t seed) {
  double start = 1e-6 * (double)g_get_monotonic_time();
  for (uint32_t t = 0; t < w->tokens && !stopped(w) && step(w, seed); ++t) {
    g_mutex_lock(&w->lock);
    w->news.written = t + 1;
    w->news.write_seconds = 1e-6 * (double)g_get_monotonic_time() - start;
    g_mutex_unlock(&w->lock);
  }
  for (int i = 0; i < ALTERNATIVES; ++i) {
    const char *text;
    size_t bytes;
    if (passed(w, deltaic_decoder_finish(w->decoders[i], &text, &bytes))) add_text(w, i, text, bytes);
    g_autofree char *whole = g_strconcat(before, w->text[i]->str, NULL);
    if (!w->ended[i]) remember(w, (uint32_t)i + 1, whole);
  }
}

static void continue_text(struct desk_writer *w, const char *text, uint64_t seed) {
  set_phase(w, DESK_READING);
  if (read_text(w, text) && fork_text(w)) {
    set_phase(w, DESK_WRITING);
    write_texts(w, text, seed);
  }
  g_autoptr(GMutexLocker) locked = g_mutex_locker_new(&w->lock);
  w->news.phase = DESK_IDLE;
  ++w->news.done;
}

// ---------------------------------------------------------------- the thread

// The first evaluations on a GPU may compile for seconds.
static bool count_kernels(void *user, uint64_t done, uint64_t total) {
  (void)total;
  struct desk_writer *w = user;
  g_autoptr(GMutexLocker) locked = g_mutex_locker_new(&w->lock);
  w->news.kernels = (uint32_t)done;
  return !w->quit;
}

static bool open_model(struct desk_writer *w) {
  deltaic_device_options device = DELTAIC_INIT(deltaic_device_options);
  deltaic_session_options options = DELTAIC_INIT(deltaic_session_options);
  deltaic_session *session = NULL;
  device.index = w->device_index;
  device.compiling = count_kernels;
  device.compiling_user = w;
  options.sequences = SEQUENCES;
  // On Linux this is the thread's own, and what the CPU device's threads begin with: drawing goes before computing.
  setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + NICE);
  bool good = passed(w, deltaic_context_create(NULL, &w->context)) &&
              passed(w, deltaic_device_open(w->context, &device, &w->device)) &&
              passed(w, deltaic_model_open(w->device, w->path, NULL, &w->model)) &&
              passed(w, deltaic_tokenizer_open(w->path, &w->tokenizer)) &&
              passed(w, deltaic_session_create(w->model, &options, &session));
  g_autoptr(GMutexLocker) locked = g_mutex_locker_new(&w->lock);
  w->session = session;
  if (good) w->news.phase = DESK_IDLE;
  return good;
}

static void close_model(struct desk_writer *w) {
  for (int i = 0; i < ALTERNATIVES; ++i) deltaic_decoder_free(w->decoders[i]);
  deltaic_session_free(w->session); // the page waits for the end of the thread
  deltaic_tokenizer_close(w->tokenizer);
  deltaic_model_close(w->model);
  deltaic_device_close(w->device);
  deltaic_context_free(w->context);
}

static void *run(void *user) {
  struct desk_writer *w = user;
  bool open = open_model(w);
  g_mutex_lock(&w->lock);
  while (!w->quit) {
    char *request = w->request;
    uint64_t seed = w->seed;
    w->request = NULL;
    if (!request || !open) {
      g_free(request);
      g_cond_wait(&w->asked, &w->lock);
      continue;
    }
    g_mutex_unlock(&w->lock);
    continue_text(w, request, seed);
    g_free(request);
    g_mutex_lock(&w->lock);
  }
  g_mutex_unlock(&w->lock);
  close_model(w);
  return NULL;
}

// ---------------------------------------------------------------- of the page

struct desk_writer *desk_writer_new(const char *model, int32_t device, uint32_t tokens) {
  struct desk_writer *w = g_new0(struct desk_writer, 1);
  w->path = g_strdup(model);
  w->device_index = device;
  w->tokens = tokens;
  w->memories = g_ptr_array_new_with_free_func(memory_free);
  for (int i = 0; i < ALTERNATIVES; ++i) w->text[i] = g_string_new(NULL);
  g_mutex_init(&w->lock);
  g_cond_init(&w->asked);
  w->thread = g_thread_new("writer", run, w);
  return w;
}

void desk_writer_free(struct desk_writer *w) {
  if (!w) return;
  g_mutex_lock(&w->lock);
  w->quit = true;
  if (w->session) deltaic_session_cancel(w->session);
  g_cond_signal(&w->asked);
  g_mutex_unlock(&w->lock);
  g_thread_join(w->thread);
  for (int i = 0; i < ALTERNATIVES; ++i) g_string_free(w->text[i], TRUE);
  g_ptr_array_unref(w->memories);
  g_mutex_clear(&w->lock);
  g_cond_clear(&w->asked);
  g_free(w->request);
  g_free(w->path);
  g_free(w);
}

void desk_writer_start(struct desk_writer *w, const char *text, uint64_t seed) {
  g_autoptr(GMutexLocker) locked = g_mutex_locker_new(&w->lock);
  g_free(w->request);
  w->request = g_strdup(text);
  w->seed = seed;
  w->stop = false;
  w->news.phase = DESK_READING;
  w->news.written = 0;
  w->news.failure[0] = 0;
  for (int i = 0; i < ALTERNATIVES; ++i) {
    g_string_truncate(w->text[i], 0);
    w->changed[i] = true;
  }
  g_cond_signal(&w->asked);
}

void desk_writer_stop(struct desk_writer *w) {
  g_autoptr(GMutexLocker) locked = g_mutex_locker_new(&w->lock);
  w->stop = true;
  if (w->session) deltaic_session_cancel(w->session);
}

bool desk_writer_collect(struct desk_writer *w, struct desk_news *news) {
  if (!g_mutex_trylock(&w->lock)) return false;
  *news = w->news;
  for (int i = 0; i < ALTERNATIVES; ++i) {
    news->text[i] = w->changed[i] ? g_strdup(w->text[i]->str) : NULL;
    w->changed[i] = false;
  }
  g_mutex_unlock(&w->lock);
  return true;
}
