/* deltaic.h: run delta-rule linear-attention language models through Vulkan or on the CPU.
 *
 * Objects, each borrowing the one before it (free them in reverse order):
 *
 *   deltaic_context   log callback; finds devices
 *   deltaic_device    one Vulkan device, or the CPU
 *   deltaic_model     a checkpoint's weights on a device; immutable, shared by any number of sessions
 *   deltaic_session   one text in progress, or several: recurrent states, caches, positions, last logits
 *   deltaic_tokenizer text <-> ids; needs no device
 *
 * Conventions. Every function that can fail returns a deltaic_status; deltaic_last_error() then has one sentence
 * that names what was wrong. Outputs are written only on success, except where a function says otherwise. Options
 * structs carry their own size (set it with DELTAIC_INIT, or to sizeof by hand) and are read only during the call;
 * every other field's zero is its default. The library never prints, exits or aborts.
 *
 * NULL. Options may be NULL: defaults. Freeing or closing NULL does nothing. Getters without a status have zeros, "",
 * NULL or -1 for it; functions with one return DELTAIC_INVALID_ARGUMENT, but where they say that a pointer may be NULL.
 *
 * Thread-safety. Any function may run in any thread beside any other, with two exceptions:
 *   - one session, decoder, statistics or pruning is used by one thread at a time, but for deltaic_session_cancel();
 *   - an object is freed when no call on it is in progress, and after all that borrow from it.
 * So threads may open devices and models together, create, use and free sessions of one model, and share a tokenizer.
 *
 * Callbacks. The log may be called by any thread, by several at once, with locks of the library held: it must not call
 * the library. Progress and probe functions are called by the thread that waits for the work; they may call functions
 * on other objects, and deltaic_session_cancel().
 *
 * Stack and signals. A call takes up to 256 KiB of its thread's stack, and what a Vulkan driver takes beside. The
 * library's own threads (the CPU device's) leave signals to the program's.
 *
 * Binaries. Options structs may grow at their ends; structs that the library fills in carry no size and may change with
 * the minor version (after 1.0: the major one). The shared library's SONAME is of that version: libdeltaic.so.0.1.
 */
#ifndef DELTAIC_H
#define DELTAIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sets the size field of an options struct and zeros the rest. */
#ifdef __cplusplus
extern "C++" {
template <typename type> inline type deltaic_init() {
  type options = type();
  options.size = sizeof(type);
  return options;
}
}
#define DELTAIC_INIT(type) (deltaic_init<type>())
extern "C" {
#else
#define DELTAIC_INIT(type) ((type){.size = sizeof(type)})
#endif

#if defined(DELTAIC_BUILD) && defined(__GNUC__)
#define DELTAIC_API __attribute__((visibility("default")))
#else
#define DELTAIC_API
#endif

#define DELTAIC_VERSION_MAJOR 0
#define DELTAIC_VERSION_MINOR 1
#define DELTAIC_VERSION_PATCH 0
#define DELTAIC_VERSION "0.1.0"

/* The library's version, "major.minor.patch", to compare with DELTAIC_VERSION. */
DELTAIC_API const char *deltaic_version(void);

/* ---------------------------------------------------------------- status */

/* name, value, text */
#define DELTAIC_STATUS_MAP(X)                                                                                          \
  X(OK, 0, "success")                                                                                                  \
  X(INVALID_ARGUMENT, -1, "invalid argument")                                                                          \
  X(NOT_FOUND, -2, "not found")                                                                                        \
  X(IO, -3, "input or output failed")                                                                                  \
  X(BAD_FILE, -4, "malformed file")                                                                                    \
  X(BAD_SHAPE, -5, "tensor has the wrong shape")                                                                       \
  X(UNSUPPORTED, -6, "not supported")                                                                                  \
  X(OUT_OF_MEMORY, -7, "out of memory")                                                                                \
  X(NO_DEVICE, -8, "no such device")                                                                                   \
  X(DEVICE_LOST, -9, "device lost")                                                                                    \
  X(CONTEXT_FULL, -10, "context is full")                                                                              \
  X(CANCELLED, -11, "cancelled")                                                                                       \
  X(BAD_STATE, -12, "object is not in a state that allows this")                                                       \
  X(BUFFER_TOO_SMALL, -13, "buffer too small")                                                                         \
  X(INTERNAL, -14, "internal error")

typedef enum deltaic_status {
#define DELTAIC_STATUS_ENUM(name, value, text) DELTAIC_##name = value,
  DELTAIC_STATUS_MAP(DELTAIC_STATUS_ENUM)
#undef DELTAIC_STATUS_ENUM
} deltaic_status;

/* "DELTAIC_BAD_FILE" and "malformed file"; "unknown status" for a value outside the list. */
DELTAIC_API const char *deltaic_status_name(deltaic_status status);
DELTAIC_API const char *deltaic_status_text(deltaic_status status);

/* The sentence of the calling thread's last failure; "" when there was none. Valid until its next failure. */
DELTAIC_API const char *deltaic_last_error(void);

/* ---------------------------------------------------------------- context */

typedef struct deltaic_context deltaic_context;

typedef enum deltaic_log_level { DELTAIC_LOG_ERROR, DELTAIC_LOG_WARNING, DELTAIC_LOG_INFO } deltaic_log_level;

typedef struct deltaic_context_options {
  size_t size;
  /* Called with one line, without a newline. NULL: quiet. The file that the environment's DELTAIC_LOG names gets every
     context's lines too. */
  void (*log)(void *user, deltaic_log_level level, const char *line);
  void *log_user;
  /* Enables the Vulkan validation layer when it is installed; its messages go to the log as errors and are counted. */
  bool validate;
  /* Folder for compiled pipelines, made when missing. NULL: $XDG_CACHE_HOME/deltaic or ~/.cache/deltaic. "": none. */
  const char *cache_dir;
} deltaic_context_options;

/* Loads the Vulkan loader when there is one; its absence is not an error. */
DELTAIC_API deltaic_status deltaic_context_create(const deltaic_context_options *options, deltaic_context **out);
DELTAIC_API void deltaic_context_free(deltaic_context *context);
/* Errors that the validation layer has reported so far. */
DELTAIC_API uint64_t deltaic_context_validation_errors(const deltaic_context *context);

/* ---------------------------------------------------------------- devices */

typedef struct deltaic_device deltaic_device;

typedef enum deltaic_device_kind {
  DELTAIC_DEVICE_DISCRETE,   /* a graphics card with memory of its own */
  DELTAIC_DEVICE_INTEGRATED, /* shares memory with the processor */
  DELTAIC_DEVICE_VIRTUAL,
  DELTAIC_DEVICE_SOFTWARE, /* Vulkan on the processor: lavapipe */
  DELTAIC_DEVICE_CPU       /* this library's own C code; no Vulkan */
} deltaic_device_kind;

typedef struct deltaic_device_info {
  int32_t index;            /* what deltaic_device_options.index takes: 1, 2, ...; the CPU's is -1 */
  deltaic_device_kind kind; /* */
  bool usable;              /* false: `reason` says what is missing */
  char name[256];           /* "NVIDIA H200", "CPU (2 threads)" */
  char driver[256];         /* "NVIDIA 580.159.04"; "" for the CPU */
  char reason[256];         /* "" when usable */
  uint64_t memory_bytes;    /* largest device-local heap; main memory for the CPU */
  uint64_t free_bytes;      /* of it, what no program uses at the time of the call; 0 where the system does not tell */
} deltaic_device_info;

/* Lists the Vulkan devices, best first, then the CPU. Opens nothing.
 * infos: room for `capacity` entries, or NULL with capacity 0. count: how many there are, also when more than capacity.
 */
DELTAIC_API deltaic_status deltaic_devices(deltaic_context *context, deltaic_device_info *infos, size_t capacity,
                                           size_t *count);

/* The limits and the plan (tile sizes, workgroups, memory types) of one device as readable text.
 * text: room for `capacity` bytes, always ended by NUL; needed: bytes including the NUL (may be NULL). */
DELTAIC_API deltaic_status deltaic_device_describe(deltaic_context *context, int32_t index, char *text, size_t capacity,
                                                   size_t *needed);

enum { DELTAIC_DEVICE_BEST = 0, DELTAIC_DEVICE_INDEX_CPU = -1 };

typedef struct deltaic_device_options {
  size_t size;
  int32_t
      index; /* DELTAIC_DEVICE_BEST (0): a GPU, else the CPU; 1, 2, ...: a Vulkan device; DELTAIC_DEVICE_INDEX_CPU */
  uint32_t threads; /* CPU only: worker threads; 0: all cores */
} deltaic_device_options;

/* A device that fails, or that does not answer for two minutes (Vulkan on the processor: an hour), is lost: every call
 * that needs it returns DELTAIC_DEVICE_LOST, and what belongs to it can only be freed. */
DELTAIC_API deltaic_status deltaic_device_open(deltaic_context *context, const deltaic_device_options *options,
                                               deltaic_device **out);
DELTAIC_API void deltaic_device_close(deltaic_device *device);
DELTAIC_API void deltaic_device_get_info(const deltaic_device *device, deltaic_device_info *info);

/* ---------------------------------------------------------------- model */

typedef struct deltaic_model deltaic_model;

/* Progress of long work: done of total (bytes, tokens: the function says). Return false to stop: DELTAIC_CANCELLED. */
typedef bool (*deltaic_progress)(void *user, uint64_t done, uint64_t total);

typedef struct deltaic_model_options {
  size_t size;
  deltaic_progress progress; /* bytes of weights uploaded */
  void *progress_user;
  uint32_t attention_window; /* every softmax-attention layer sees this many positions, its own among them, whatever the
                                config says; 0: as the config says. Experimental. */
} deltaic_model_options;

typedef struct deltaic_model_info {
  char architecture[64]; /* "gated_deltanet" */
  char layers_text[256]; /* "2 delta_net, 2 attention (window 48)"; "6 delta_net; keys of 9 to 20" */
  int32_t vocabulary;    /* token ids are 0 ... vocabulary - 1 */
  int32_t width;         /* D, hidden size */
  int32_t layers;        /* */
  int32_t heads;         /* query and key heads of the linear-attention layers */
  int32_t value_heads;   /* */
  int32_t key_size;      /* d_k of the first linear-attention layer */
  int32_t value_size;    /* d_v of the same */
  int32_t mlp_width;     /* */
  uint64_t parameters;   /* */
  bool grows;            /* has global attention: the state grows with the text */
  int32_t bos_token;     /* -1 when there is none */
  int32_t eos_token;     /* -1 when there is none */
  uint64_t fingerprint;  /* of config.json and every tensor's name, shape and data; 0 from deltaic_model_inspect() */
} deltaic_model_info;

typedef struct deltaic_memory {
  uint64_t weights_bytes;   /* on the device, once per model */
  uint64_t state_bytes;     /* per session: recurrent states, convolution tails, attention caches, token marks, last
                               logits, of all its texts */
  uint64_t scratch_bytes;   /* per session: activations */
  uint64_t cache_per_token; /* part of state_bytes that each token of context costs (global attention), else 0 */
} deltaic_memory;

/* How prompts go through the delta rule. Both give the same numbers but for rounding; for comparisons. */
typedef enum deltaic_rule { DELTAIC_RULE_AUTO, DELTAIC_RULE_RECURRENT, DELTAIC_RULE_CHUNK } deltaic_rule;

/* Arithmetic. FAST: products go through the device's matrix units where it has some that Vulkan offers as
 * cooperative matrices; their operands are rounded to float16 (relative error 2^-11 each), sums stay in float32, as do
 * states and the residual stream; weights stored as float32 stay so. Logits then differ from FLOAT32's by 3e-4 to 4e-4
 * (relative RMS over a text), those of the worst token by 2e-3 to 5e-3, and the worst logit by up to 1e-2 of its
 * token's RMS; with Head-in-Head masks made from the input by about ten times that (four small models, 160 tokens
 * each). FLOAT32: float32 everywhere, and the sums of a prompt's products are made of short ones, whose roundings are
 * smaller: it takes about a tenth longer. Devices without such units compute in float32 either way, and so do single
 * tokens of one text or two at once. */
typedef enum deltaic_precision { DELTAIC_PRECISION_FAST, DELTAIC_PRECISION_FLOAT32 } deltaic_precision;

typedef struct deltaic_session_options {
  size_t size;
  uint32_t context;  /* most tokens of one text, for models with global attention; 0: 4096. Others: 2^31 - 1 */
  uint32_t batch;    /* tokens computed at once in prefill, of all texts together; 0: 512, or 2048 on a large
                        GPU; less than `sequences` is raised to it, more than 4096 lowered */
  deltaic_rule rule; /* experimental */
  deltaic_precision precision;
  uint32_t sequences; /* texts held at once, each with a state of its own; 0: 1; at most 256. Experimental */
} deltaic_session_options;

/* Reads config.json and the weights' headers in folder `path`: what the model is and needs, before anything is
 * allocated on a device. device: whose plan decides the scratch; NULL: the CPU. session: NULL for defaults. info,
 * memory: either may be NULL. */
DELTAIC_API deltaic_status deltaic_model_inspect(const deltaic_device *device, const char *path,
                                                 const deltaic_session_options *session, deltaic_model_info *info,
                                                 deltaic_memory *memory);

/* path: a folder with config.json and model.safetensors (or its shards and their index). The file is read during the
 * call only. */
DELTAIC_API deltaic_status deltaic_model_open(deltaic_device *device, const char *path,
                                              const deltaic_model_options *options, deltaic_model **out);
DELTAIC_API void deltaic_model_close(deltaic_model *model);
DELTAIC_API void deltaic_model_get_info(const deltaic_model *model, deltaic_model_info *info);
/* What the model takes and a session of it would, with the windows it was opened with. session: NULL for defaults. */
DELTAIC_API deltaic_status deltaic_model_get_memory(const deltaic_model *model, const deltaic_session_options *session,
                                                    deltaic_memory *memory);

/* ---------------------------------------------------------------- session */

typedef struct deltaic_session deltaic_session;

/* Sampling of the next token from its logits, in this order: repetition penalty, temperature, top-k, top-p, min-p.
 * All zeros: the most likely token (ties: the lowest id). */
typedef struct deltaic_sampling {
  size_t size;
  float temperature;        /* 0: greedy */
  float top_p;              /* keep the fewest tokens whose probabilities sum to at least this; 0 or 1: off */
  float min_p;              /* drop tokens less likely than this times the likeliest; 0: off */
  float repetition_penalty; /* logits of tokens already in the text: positive ones divided, negative multiplied; 0, 1:
                               off */
  uint32_t top_k;           /* keep the k likeliest; 0: all */
  uint64_t seed;            /* same seed, text and device: the same tokens */
} deltaic_sampling;

DELTAIC_API deltaic_status deltaic_session_create(deltaic_model *model, const deltaic_session_options *options,
                                                  deltaic_session **out);
DELTAIC_API void deltaic_session_free(deltaic_session *session);

typedef enum deltaic_logits { DELTAIC_LOGITS_NONE, DELTAIC_LOGITS_LAST, DELTAIC_LOGITS_ALL } deltaic_logits;

/* Evaluates n tokens and advances the session.
 * tokens: n ids in [0, vocabulary); n >= 1
 * logits: which to return; with ALL, row t predicts the token after tokens[t]
 * out: vocabulary floats (LAST), n * vocabulary (ALL), or NULL with NONE. The last logits are always kept on the device
 *   for deltaic_session_next().
 *   With ALL a failure may leave the first rows written.
 * Bad arguments, a full context and a cancel that came before the call leave the session as it was. After any other
 * failure (a cancel during the call too) it must be reset, loaded or freed. */
DELTAIC_API deltaic_status deltaic_session_eval(deltaic_session *session, const int32_t *tokens, size_t n,
                                                deltaic_logits logits, float *out);

/* Draws the next token from the session's last logits, advances the session by it, and computes the logits after it:
 * one submission to the device, with nothing recorded after the first call.
 * sampling: NULL for greedy. The draw depends on the seed and on the position in the text alone.
 * logits: vocabulary floats for the logits after the token, or NULL.
 * Failures are as those of deltaic_session_eval(), but a cancel always leaves the session as it was before or after. */
DELTAIC_API deltaic_status deltaic_session_next(deltaic_session *session, const deltaic_sampling *sampling,
                                                int32_t *token, float *logits);

/* The logits that deltaic_session_next() would draw from: vocabulary floats. DELTAIC_BAD_STATE before the first eval.
 */
DELTAIC_API deltaic_status deltaic_session_logits(deltaic_session *session, float *out);

/* Tokens evaluated since the start or the last reset. */
DELTAIC_API uint64_t deltaic_session_position(const deltaic_session *session);
/* Every text of the session is empty again. Also mends it after a failure, except DELTAIC_DEVICE_LOST. */
DELTAIC_API deltaic_status deltaic_session_reset(deltaic_session *session);
/* A new session of the same model, options and contents. */
DELTAIC_API deltaic_status deltaic_session_fork(deltaic_session *session, deltaic_session **out);

/* The state as bytes: valid for this model (a fingerprint is checked), any device, any session options that hold it.
 * Restoring and continuing on the same device gives the same bits as continuing. */
DELTAIC_API deltaic_status deltaic_session_state_size(deltaic_session *session, size_t *bytes);
/* written: may be NULL. DELTAIC_BUFFER_TOO_SMALL when capacity is less than deltaic_session_state_size(). */
DELTAIC_API deltaic_status deltaic_session_save(deltaic_session *session, void *buffer, size_t capacity,
                                                size_t *written);
/* A malformed buffer leaves the session as it was. */
DELTAIC_API deltaic_status deltaic_session_load(deltaic_session *session, const void *buffer, size_t bytes);
/* The same through a file; an interrupted save leaves an older file whole. What is no file (a device, a pipe) is
 * written straight into. */
DELTAIC_API deltaic_status deltaic_session_save_file(deltaic_session *session, const char *path);
DELTAIC_API deltaic_status deltaic_session_load_file(deltaic_session *session, const char *path);

/* Several texts in one session (deltaic_session_options.sequences): sequences 0, 1, ..., each with its own state,
 * position and last logits. A call computes tokens of many with one pass over the weights. Functions without a sequence
 * mean sequence 0, except deltaic_session_reset(), deltaic_session_fork() and deltaic_session_cancel(), which are about
 * all. What a text becomes does not depend on the texts beside it, but for rounding (deltaic_precision). Experimental.
 */

/* How likely a token was. */
typedef struct deltaic_score {
  float log_probability; /* natural logarithm */
  bool likeliest;        /* greedy drawing would have taken it */
} deltaic_score;

/* Tokens that continue one text. */
typedef struct deltaic_piece {
  uint32_t sequence;     /* which text */
  const int32_t *tokens; /* ids in [0, vocabulary) */
  size_t count;          /* at least 1 */
  deltaic_logits logits; /* which to return */
  float *out;            /* vocabulary floats (LAST), count * vocabulary (ALL), or NULL with NONE */
  /* With scores, targets[t] is an id whose likelihood after tokens[t] is wanted (of a text's own tokens: tokens + 1),
   * or -1: of this row none. count of each. Computed on the device, so that no row of logits travels; NULL: no scores.
   */
  const int32_t *targets;
  deltaic_score *scores; /* entries without a target are left as they are */
} deltaic_piece;

/* Evaluates n pieces, of n different texts and of any lengths, in slices of at most deltaic_session_options.batch
 * tokens; a slice takes some of each of several pieces.
 * Bad arguments, a full context and a cancel that came before the call leave the session as it was. After any other
 * failure every text of the call must be reset, loaded or copied over; the others are as they were. */
DELTAIC_API deltaic_status deltaic_session_eval_batch(deltaic_session *session, const deltaic_piece *pieces, size_t n);

/* deltaic_session_next() for n texts at once: one submission, nothing recorded after the first call with this n.
 * sequences: n different ones, in any order; NULL: 0 ... n - 1
 * sampling: n of them, each for its text; NULL for greedy. A text alone with the same options draws the same tokens:
 *   texts that are to differ need different seeds.
 * tokens: n ids. logits: n * vocabulary floats for the logits after each token, or NULL.
 * Failures are as those of deltaic_session_eval_batch(). */
DELTAIC_API deltaic_status deltaic_session_next_batch(deltaic_session *session, const uint32_t *sequences, size_t n,
                                                      const deltaic_sampling *sampling, int32_t *tokens, float *logits);

/* As the functions of one text above, for one of several. */
DELTAIC_API uint64_t deltaic_sequence_position(const deltaic_session *session, uint32_t sequence);
DELTAIC_API deltaic_status deltaic_sequence_logits(deltaic_session *session, uint32_t sequence, float *out);
DELTAIC_API deltaic_status deltaic_sequence_reset(deltaic_session *session, uint32_t sequence);
/* Makes text `to` the same as text `from`: a fork within the session, on the device, without new memory. */
DELTAIC_API deltaic_status deltaic_sequence_copy(deltaic_session *session, uint32_t to, uint32_t from);
/* The same bytes as deltaic_session_save() gives for this text alone; either loads what the other has saved. */
DELTAIC_API deltaic_status deltaic_sequence_state_size(deltaic_session *session, uint32_t sequence, size_t *bytes);
DELTAIC_API deltaic_status deltaic_sequence_save(deltaic_session *session, uint32_t sequence, void *buffer,
                                                 size_t capacity, size_t *written);
DELTAIC_API deltaic_status deltaic_sequence_load(deltaic_session *session, uint32_t sequence, const void *buffer,
                                                 size_t bytes);

/* Makes the eval in progress return DELTAIC_CANCELLED soon: after the part of the work that the device has already been
 * given. What is one step, a next or an eval of one token for each text (without targets or a probe), comes to its end
 * and succeeds, and so does an eval whose last part the device has already. A cancel that no call has returned makes
 * the next eval or next return DELTAIC_CANCELLED at once and compute nothing: the session is as it was, and goes on.
 * deltaic_session_reset() drops such a cancel, and so does resetting or loading a session's only text. Any thread, also
 * a signal handler, at any time before deltaic_session_free(). */
DELTAIC_API void deltaic_session_cancel(deltaic_session *session);

/* Looking inside. Experimental. While a probe is set, every eval hands the activations asked for to the callback, layer
 * by layer, slice by slice (at most the session's batch of tokens at once): slower, and the same numbers; in FAST
 * precision with roundings left out. deltaic_session_next() shows nothing. */
typedef enum deltaic_probe_kind {
  DELTAIC_PROBE_RESIDUAL = 1,      /* rows x width: the residual stream before the layer */
  DELTAIC_PROBE_MIXER_INPUT = 2,   /* rows x width: after the norm, what the projections read */
  DELTAIC_PROBE_QKV = 4,           /* rows x (q, then k of every step, then v of every step): after convolution and
                                      activation, before normalisation; heads in order */
  DELTAIC_PROBE_BETA = 8,          /* rows x (steps * value heads) */
  DELTAIC_PROBE_DECAY = 16,        /* rows x value heads: natural logarithms, at most 0; gated layers only */
  DELTAIC_PROBE_HEADS = 32,        /* rows x (value heads * value size): what the output projection reads */
  DELTAIC_PROBE_MIXER_OUTPUT = 64, /* rows x width: what is added to the residual stream */
  DELTAIC_PROBE_STATE = 128        /* (value heads * key size) x value size: the state after the slice */
} deltaic_probe_kind;

typedef struct deltaic_probed {
  deltaic_probe_kind kind;
  int32_t layer;
  uint64_t position; /* of the first row's token; STATE: of the slice's last token */
  size_t rows, cols; /* */
  const float *data; /* rows * cols, valid during the call */
  /* Of a linear-attention layer, else 0: */
  int32_t heads, key_size, steps, value_heads, value_size;
} deltaic_probed;

/* Return false to stop: the eval then returns DELTAIC_CANCELLED. */
typedef bool (*deltaic_probe_function)(void *user, const deltaic_probed *probed);

/* kinds: deltaic_probe_kind values or'ed; 0 with NULL: no probe. Kinds that a layer does not have are passed over.
 * DELTAIC_UNSUPPORTED for a session of several texts. */
DELTAIC_API deltaic_status deltaic_session_probe(deltaic_session *session, uint32_t kinds, deltaic_probe_function probe,
                                                 void *user);

/* What the session's recordings have asked of the device so far. Experimental. Transfers are no recordings and are
   not counted: saving and loading states, probes, and logits to the caller take vkQueueSubmit calls of their own
   where the host cannot map the device's memory. deltaic_session_next without logits transfers nothing. */
typedef struct deltaic_counters {
  uint64_t submits;    /* vkQueueSubmit calls of recordings; 0 on the CPU */
  uint64_t recordings; /* command buffers recorded */
  uint64_t dispatches; /* dispatches recorded */
} deltaic_counters;
/* All zeros for a session that is NULL. */
DELTAIC_API void deltaic_session_get_counters(const deltaic_session *session, deltaic_counters *counters);

/* Time on the device by kernel. Experimental. Off until begun; slows the work. */
typedef struct deltaic_kernel_time {
  char name[64];       /* "matmul_bf16" */
  uint64_t dispatches; /* */
  double seconds;      /* */
  uint64_t bytes;      /* read and written, as the kernel's tensors say: each byte once a dispatch */
  uint64_t operations; /* multiplications and additions */
} deltaic_kernel_time;
DELTAIC_API deltaic_status deltaic_session_profile_begin(deltaic_session *session);
/* times: room for `capacity` kernels; count: how many there are. Ends profiling. */
DELTAIC_API deltaic_status deltaic_session_profile_end(deltaic_session *session, deltaic_kernel_time *times,
                                                       size_t capacity, size_t *count);
/* For how long the device had work of the session between these two calls: time stamps at the ends of each submission,
 * which slow nothing; on the CPU, the time of its kernels. Experimental. Not while profiling. */
DELTAIC_API deltaic_status deltaic_session_busy_begin(deltaic_session *session);
DELTAIC_API deltaic_status deltaic_session_busy_end(deltaic_session *session, double *seconds);
/* Bytes read plus bytes written per second of a large copy kernel on this device, measured now (under a second). */
DELTAIC_API deltaic_status deltaic_device_copy_bandwidth(deltaic_device *device, double *bytes_per_second);

/* One operator by itself, (gated) delta rule, product or Head-in-Head, over `sequences` texts of `tokens` random tokens
 * each. With CHUNK and FAST, where the device's matrices take it, q, k, v and the output are float16, q and k padded to
 * multiples of 8 numbers as in a model. One token with RECURRENT is timed as a layer's step, over several states. What
 * takes a GPU less than 50 microseconds is timed in a chain of many, each waiting for the one before it: time stamps
 * around each would add to so short a time. Experimental. */
typedef struct deltaic_operator {
  size_t size;
  uint32_t sequences, tokens;
  uint32_t heads, value_heads; /* value_heads 0: heads */
  uint32_t key, value;         /* numbers of a head: d_k, d_v */
  uint32_t steps;              /* a token; 0: 1 */
  uint32_t blocks;             /* r of Head-in-Head; 0: 1 */
  bool gated;
  bool plain; /* of the device's matrices only what every vendor has */
  deltaic_rule rule;
  deltaic_precision precision;
  uint32_t repeat; /* timed runs; 0: 20 */
} deltaic_operator;
typedef struct deltaic_operator_result {
  double seconds, least, most;      /* on the device: the median run, the fastest, the slowest */
  double error_output, error_state; /* of the last text, relative RMS, against the recurrence in float32 */
  uint64_t bytes;                   /* every input and output once */
  uint64_t operations;              /* multiplications and additions of the recurrence */
  deltaic_kernel_time kernels[8];   /* sums over runs with time stamps around every kernel */
  size_t kernel_count;
} deltaic_operator_result;
DELTAIC_API deltaic_status deltaic_device_measure_operator(deltaic_device *device, const deltaic_operator *op,
                                                           deltaic_operator_result *result);

/* One product of matrices by itself, as a layer asks for it: (rows, inputs) by bfloat16 weights (outputs, inputs),
 * float32 results. Each product waits for the one before it and, up to 64 rows on a GPU, finds its weights in no cache.
 * Experimental. */
typedef struct deltaic_matmul {
  size_t size;
  uint32_t rows, outputs, inputs; /* inputs: a multiple of 8 */
  deltaic_precision precision;
  uint32_t repeat; /* timed runs; 0: 20 */
} deltaic_matmul;
typedef struct deltaic_matmul_result {
  double seconds, least, most; /* of one product: the median run, the fastest, the slowest */
  double error;                /* of some thousand results, relative RMS, against float64 */
  uint64_t bytes;              /* every input and output once */
  uint64_t operations;         /* multiplications and additions */
  char kernel[64];
} deltaic_matmul_result;
DELTAIC_API deltaic_status deltaic_device_measure_matmul(deltaic_device *device, const deltaic_matmul *matmul,
                                                         deltaic_matmul_result *result);

/* Multiplications and additions per second of this library's product of large matrices on the device, float16 operands
 * where it has matrices; measured now (under a second). Experimental. */
DELTAIC_API deltaic_status deltaic_device_matrix_rate(deltaic_device *device, double *operations_per_second);

/* ---------------------------------------------------------------- files of tensors, and matrices */

/* The named tensors of a safetensors file, or of a folder with model.safetensors or shards. Experimental. */
typedef struct deltaic_tensors deltaic_tensors;
typedef struct deltaic_tensor_info {
  const char *name;  /* valid until the file is closed */
  const char *dtype; /* "BF16": as the file says, so long too */
  int32_t rank;      /* dimensions, at most 8 */
  uint64_t shape[8]; /* outermost first */
  uint64_t count;    /* product of the shape */
} deltaic_tensor_info;

DELTAIC_API deltaic_status deltaic_tensors_open(const char *path, deltaic_tensors **out);
DELTAIC_API void deltaic_tensors_close(deltaic_tensors *tensors);
DELTAIC_API uint64_t deltaic_tensors_count(const deltaic_tensors *tensors);
/* The tensors by name, i below deltaic_tensors_count(). */
DELTAIC_API deltaic_status deltaic_tensors_at(const deltaic_tensors *tensors, uint64_t i, deltaic_tensor_info *info);
/* Whether there is such a tensor. info: may be NULL. */
DELTAIC_API bool deltaic_tensors_find(const deltaic_tensors *tensors, const char *name, deltaic_tensor_info *info);
/* A string of the file's __metadata__, or NULL. Valid until the file is closed. */
DELTAIC_API const char *deltaic_tensors_metadata(const deltaic_tensors *tensors, const char *key);
/* Elements first ... first + count - 1 of a tensor of floats (F64 is rounded), or of one of integers that fit into 32
 * bits. */
DELTAIC_API deltaic_status deltaic_tensors_read(const deltaic_tensors *tensors, const char *name, uint64_t first,
                                                uint64_t count, float *out);
DELTAIC_API deltaic_status deltaic_tensors_read_integers(const deltaic_tensors *tensors, const char *name,
                                                         uint64_t first, uint64_t count, int32_t *out);

/* How much of a matrix is used, from its singular values s_1 >= s_2 >= ... The zero matrix has 0 everywhere.
 * Experimental. */
typedef struct deltaic_rank {
  double stable_rank;  /* sum s_i^2 / s_1^2, the papers' effective rank */
  double utilization;  /* stable rank / min(rows, cols) */
  double entropy_rank; /* exp(- sum p_i ln p_i), p_i = s_i / sum s */
  double condition;    /* s_1 / the smallest s_i that counts */
  int32_t rank;        /* singular values that count */
} deltaic_rank;
/* Not in a library that was built without DELTAIC_PRUNER, since it needs LAPACK.
 * a: rows * cols numbers, row after row. zero: s_i counts when it is above zero * s_1. values: the min(rows, cols)
 * singular values, or NULL. */
DELTAIC_API deltaic_status deltaic_matrix_rank(const float *a, size_t rows, size_t cols, double zero,
                                               deltaic_rank *rank, double *values);

/* ---------------------------------------------------------------- tokenizer */

typedef struct deltaic_tokenizer deltaic_tokenizer;

/* path: a folder with tokenizer.json, or the file itself. A feature of the file that is not supported is refused by
 * name. */
DELTAIC_API deltaic_status deltaic_tokenizer_open(const char *path, deltaic_tokenizer **out);
DELTAIC_API void deltaic_tokenizer_close(deltaic_tokenizer *tokenizer);
/* Ids are 0 ... size - 1, with holes possible. */
DELTAIC_API int32_t deltaic_tokenizer_size(const deltaic_tokenizer *tokenizer);
/* "byte-level BPE", "BPE with byte fallback". */
DELTAIC_API const char *deltaic_tokenizer_kind(const deltaic_tokenizer *tokenizer);
/* The id of a token's exact text ("</s>"), or -1. */
DELTAIC_API int32_t deltaic_tokenizer_find(const deltaic_tokenizer *tokenizer, const char *token);

/* text: `bytes` bytes of UTF-8. special: apply the file's post-processor (add <s> and the like).
 * ids: room for `capacity`, or NULL with 0. count: how many there are, also when more than capacity (then
 * DELTAIC_BUFFER_TOO_SMALL is returned, unless ids is NULL). */
DELTAIC_API deltaic_status deltaic_tokenizer_encode(const deltaic_tokenizer *tokenizer, const char *text, size_t bytes,
                                                    bool special, int32_t *ids, size_t capacity, size_t *count);
/* Text of n ids, all of it at once: in parts, spaces between words and characters of several tokens get lost. For a
 * stream use deltaic_decoder. skip_special: leave special tokens out. text: room for `capacity` bytes, not ended by
 * NUL, or NULL with 0. bytes: how many there are, also when more than capacity (then as in deltaic_tokenizer_encode()).
 */
DELTAIC_API deltaic_status deltaic_tokenizer_decode(const deltaic_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                                    bool skip_special, char *text, size_t capacity, size_t *bytes);

/* Text token by token: what has been returned never changes and never ends inside a UTF-8 character. Push the prompt's
 * ids too, if only to drop their text: what follows may depend on them. */
typedef struct deltaic_decoder deltaic_decoder;
DELTAIC_API deltaic_status deltaic_decoder_create(const deltaic_tokenizer *tokenizer, bool skip_special,
                                                  deltaic_decoder **out);
DELTAIC_API void deltaic_decoder_free(deltaic_decoder *decoder);
/* text, bytes: the new text, possibly none; valid until the decoder's next call. */
DELTAIC_API deltaic_status deltaic_decoder_push(deltaic_decoder *decoder, int32_t id, const char **text, size_t *bytes);
/* What is left at the end: bytes that never became a character come out as U+FFFD. */
DELTAIC_API deltaic_status deltaic_decoder_finish(deltaic_decoder *decoder, const char **text, size_t *bytes);

#ifdef __cplusplus
}
#endif
#endif
