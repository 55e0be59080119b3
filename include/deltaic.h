/* deltaic.h: run delta-rule linear-attention language models through Vulkan or on the CPU.
 *
 * Objects, each borrowing the one before it (free them in reverse order):
 *
 *   deltaic_context   log callback; finds devices
 *   deltaic_device    one Vulkan device, or the CPU
 *   deltaic_model     a checkpoint's weights on a device; immutable, shared by any number of sessions
 *   deltaic_session   one or more token sequences: recurrent states, caches, positions, last logits
 *   deltaic_tokenizer text <-> ids; needs no device
 *
 * Conventions. Every function that can fail returns a deltaic_status; deltaic_last_error() then returns one sentence
 * that describes the failure. Outputs are written only on success, unless a function says otherwise. Options structs
 * carry their own size (set it with DELTAIC_INIT, or to sizeof by hand) and are read only during the call; zero in any
 * other field selects its default. The library never prints, exits or aborts.
 *
 * NULL. Options may be NULL, which selects the defaults. Freeing or closing NULL does nothing. Given NULL, getters
 * without a status return zeros, "", NULL or -1, and functions with a status return DELTAIC_INVALID_ARGUMENT unless
 * they say that the pointer may be NULL.
 *
 * Thread-safety. Any function may run in any thread at the same time as any other, with two restrictions:
 *   - a session, decoder, stops, statistics or pruning is used by one thread at a time, except for
 *     deltaic_session_cancel();
 *   - an object is freed when no call on it is in progress and every object that borrows from it has been freed.
 * So threads may open devices and models together, create, use and free sessions of one model, and share a tokenizer.
 *
 * Callbacks. Any thread may call the log, also several at once, while it holds locks of the library, so the log must
 * not call the library. The thread that waits for the work calls progress and probe functions; they may call functions
 * on other objects, and deltaic_session_cancel().
 *
 * Stack and signals. A call uses up to 256 KiB of its thread's stack, plus what the Vulkan driver uses. The library's
 * own threads (the CPU device's) block signals, so the program's threads receive them.
 *
 * Binaries. Options structs may grow at their ends; structs that the library fills in carry no size and may change with
 * the minor version (after 1.0: the major one). The shared library's SONAME has that version: libdeltaic.so.0.2.
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

/* DELTAIC_BUILD: while the library itself is compiled. */
#if defined(DELTAIC_BUILD) && defined(_WIN32)
#define DELTAIC_API __declspec(dllexport)
#elif defined(DELTAIC_BUILD) && defined(__GNUC__)
#define DELTAIC_API __attribute__((visibility("default")))
#else
#define DELTAIC_API
#endif

#define DELTAIC_VERSION_MAJOR 0
#define DELTAIC_VERSION_MINOR 2
#define DELTAIC_VERSION_PATCH 0
#define DELTAIC_VERSION "0.2.0"

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

/* Describes the calling thread's last failure in one sentence; "" when there was none. Valid until its next failure. */
DELTAIC_API const char *deltaic_last_error(void);

/* ---------------------------------------------------------------- context */

typedef struct deltaic_context deltaic_context;

typedef enum deltaic_log_level { DELTAIC_LOG_ERROR, DELTAIC_LOG_WARNING, DELTAIC_LOG_INFO } deltaic_log_level;

typedef struct deltaic_context_options {
  size_t size;
  /* Called with one line, without a newline. NULL: no callback. The lines of every context also go to the file that
     the environment variable DELTAIC_LOG names, when it is set. */
  void (*log)(void *user, deltaic_log_level level, const char *line);
  void *log_user;
  /* Enables the Vulkan validation layer when it is installed; its messages go to the log as errors and are counted. */
  bool validate;
  /* Folder for compiled pipelines, created if missing. NULL: deltaic in $XDG_CACHE_HOME or ~/.cache, on
     Windows in %LOCALAPPDATA%. "": none. */
  const char *cache_dir;
} deltaic_context_options;

/* Loads the Vulkan loader when one is installed; its absence is not an error. When the environment variable
 * DELTAIC_NO_MATRICES is set, devices are taken to have no matrix units, to measure what others would do. */
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
  uint64_t free_bytes;      /* part of memory_bytes that is free at the time of the call; 0 when unknown */
  uint8_t uuid[16];         /* of the device, the same in Vulkan, OpenGL and CUDA; zeros for the CPU */
  uint8_t luid[8];          /* of the adapter on Windows, as DXGI gives it; zeros when there is none */
  char pci[16];             /* its address, "0000:01:00.0"; "" when unknown */
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

/* Reports progress of long work: `done` of `total`, in the unit that the function states. Return false to stop the
 * work, which then returns DELTAIC_CANCELLED. */
typedef bool (*deltaic_progress)(void *user, uint64_t done, uint64_t total);

typedef struct deltaic_device_options {
  size_t size;
  int32_t
      index; /* DELTAIC_DEVICE_BEST (0): a GPU, else the CPU; 1, 2, ...: a Vulkan device; DELTAIC_DEVICE_INDEX_CPU */
  uint32_t threads;    /* CPU only: worker threads; 0: all cores */
  const uint8_t *uuid; /* 16 bytes: the Vulkan device with this UUID; then index must be 0. NULL: the one of `index` */
  bool background;     /* where the driver allows it, the device prefers the work of other programs. Experimental */
  /* Called before each pipeline is compiled or taken from the cache, which a driver can take seconds for; the first
     evaluations of a kind need most of them. done: how many this device has made; total: 0, for it is not known.
     Called by the thread that waits for the work. NULL: none. */
  deltaic_progress compiling;
  void *compiling_user;
} deltaic_device_options;

/* A device is lost when it fails or does not answer for two minutes (Vulkan on the processor: an hour). Every call that
 * needs it then returns DELTAIC_DEVICE_LOST, and the objects that belong to it can only be freed. */
DELTAIC_API deltaic_status deltaic_device_open(deltaic_context *context, const deltaic_device_options *options,
                                               deltaic_device **out);
DELTAIC_API void deltaic_device_close(deltaic_device *device);
DELTAIC_API void deltaic_device_get_info(const deltaic_device *device, deltaic_device_info *info);
/* Seconds that the device has spent so far on making pipelines, which is part of the time of the first evaluations; 0
 * for the CPU. */
DELTAIC_API double deltaic_device_compile_seconds(const deltaic_device *device);

/* ---------------------------------------------------------------- model */

typedef struct deltaic_model deltaic_model;

/* Files from elsewhere than the file system: memory, an archive, a file that is open. The functions are called by the
 * thread that opens the model or tokenizer, and only meanwhile. Several files are open at once. */
typedef struct deltaic_source {
  size_t size;
  void *user;
  /* Opens file `name`. file: what the other functions get; bytes: its length. DELTAIC_NOT_FOUND: there is no such file,
     which is no failure where a model may lack it. */
  deltaic_status (*open)(void *user, const char *name, void **file, uint64_t *bytes);
  /* Reads `bytes` bytes from `offset` on, which are in the file, and returns how many it read; fewer are a failure. */
  uint64_t (*read)(void *user, void *file, uint64_t offset, void *to, uint64_t bytes);
  void (*close)(void *user, void *file); /* NULL: files need no closing */
} deltaic_source;

typedef struct deltaic_model_options {
  size_t size;
  deltaic_progress progress; /* bytes of weights uploaded */
  void *progress_user;
  uint32_t attention_window; /* every softmax-attention layer sees this many positions, including its own, instead of
                                the config's window; 0: as the config says. Experimental. */
  /* NULL: the file system. Else `path` is a GGUF file if it ends in .gguf, or a folder, in which PATH/config.json and
     the others are opened (without PATH/ when it is ""). Headers are kept in memory, tensors are read whole, each when
     its turn comes. */
  const deltaic_source *source;
  const char *adapter; /* NULL, or a folder of the file system with LoRA adapters in PEFT's format (adapter_config.json
                          and adapter_model.safetensors). Their tensors are named as those of the model's folder, for a
                          GGUF file too. A folder's weights are merged with them during the upload; those that change
                          must have 16 or 32 bits. A GGUF file's weights stay as they are, and A and B become separate
                          weights in f32. Experimental. */
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
  char formats[160];     /* of the weights' bytes on the device, most first: "62 % q4_k, 30 % q6_k, 8 % f32" */
  int32_t context;       /* tokens of the longest texts it was made for, as its config says; 0 when not known */
  bool grows;            /* has global attention: the state grows with the sequence */
  int32_t bos_token;     /* -1 when there is none */
  int32_t eos_token;     /* the first of deltaic_model_ends(); -1 when there is none */
  uint64_t fingerprint;  /* of config.json, every tensor's name, shape and data, and an adapter; 0 if only inspected */
  int32_t experts;            /* of the first layer with a mixture of experts; 0: there is none */
  int32_t experts_per_token;  /* that the router chooses */
  int32_t expert_width;       /* of one of them */
  uint64_t active_parameters; /* without those of the experts that a token does not choose */
  uint64_t expert_bytes;      /* of the weights of all experts on the device, in all layers; part of weights_bytes */
} deltaic_model_info;

typedef struct deltaic_memory {
  uint64_t weights_bytes;   /* on the device, once per model */
  uint64_t state_bytes;     /* per session: recurrent states, convolution tails, attention caches, token marks and last
                               logits of all its sequences */
  uint64_t scratch_bytes;   /* per session: activations */
  uint64_t cache_per_token; /* part of state_bytes that each token of context costs (global attention), else 0 */
} deltaic_memory;

/* Algorithm of the delta rule over prompts; for comparisons. Both give the same numbers except for rounding. */
typedef enum deltaic_rule { DELTAIC_RULE_AUTO, DELTAIC_RULE_RECURRENT, DELTAIC_RULE_CHUNK } deltaic_rule;

/* Arithmetic. FAST: matrix products use cooperative matrices where the device offers them. Their operands are rounded
 * to float16 (relative error 2^-11 each); sums, states and the residual stream stay in float32, and so do weights that
 * are stored as float32. Logits then differ from FLOAT32's by 3e-4 to 4e-4 (relative RMS over a sequence), those of the
 * worst token by 2e-3 to 5e-3, and the worst logit by up to 1e-2 of its token's RMS; Head-in-Head masks computed from
 * the input raise this about tenfold (four small models, 160 tokens each). FLOAT32: float32 everywhere, and the
 * products of a prompt add short partial sums, which lowers rounding errors and takes about a tenth longer. Devices
 * without cooperative matrices always compute in float32, and so do steps of one token of one or two sequences. The CPU
 * computes in float32 too, except that with FAST the inputs of products with quantized weights are rounded to integers
 * of 11 bits and a sign (blocks of 256) or 15 bits (blocks of 32), a scale a block; each product is then off by up to
 * 5e-4 (relative RMS). */
typedef enum deltaic_precision { DELTAIC_PRECISION_FAST, DELTAIC_PRECISION_FLOAT32 } deltaic_precision;

typedef struct deltaic_session_options {
  size_t size;
  uint32_t context;  /* most tokens of a sequence, for models with global attention; 0: 4096. Others: 2^31 - 1 */
  uint32_t batch;    /* tokens of all sequences together computed at once in prefill; 0: 512, or 2048 on a large GPU.
                        Raised to `sequences` when less, lowered to 4096 when more */
  deltaic_rule rule; /* experimental */
  deltaic_precision precision;
  uint32_t sequences; /* sequences held at once, each with its own state; 0: 1; at most 256. Experimental */
} deltaic_session_options;

/* Reads config.json and the weights' headers in folder `path`, or those of a GGUF file, and reports what the model is
 * and how much memory it needs. Allocates nothing on a device. device: its plan determines the scratch size, and
 * GPUs store blocks of weights in tiles; NULL: the CPU. session: NULL for defaults. info, memory: either may be NULL. */
DELTAIC_API deltaic_status deltaic_model_inspect(const deltaic_device *device, const char *path,
                                                 const deltaic_session_options *session, deltaic_model_info *info,
                                                 deltaic_memory *memory);
/* The same for a model that would be opened with these options, of which adapter, attention_window and source matter.
 * options: NULL for defaults. */
DELTAIC_API deltaic_status deltaic_model_inspect_with(const deltaic_device *device, const char *path,
                                                      const deltaic_model_options *options,
                                                      const deltaic_session_options *session, deltaic_model_info *info,
                                                      deltaic_memory *memory);

/* path: a folder with config.json and model.safetensors (or its shards and their index), or a GGUF file (of several
 * parts, the first). The files are read only during the call. DELTAIC_OUT_OF_MEMORY, before anything is loaded: the
 * device has less free memory than the weights take. */
DELTAIC_API deltaic_status deltaic_model_open(deltaic_device *device, const char *path,
                                              const deltaic_model_options *options, deltaic_model **out);
DELTAIC_API void deltaic_model_close(deltaic_model *model);
DELTAIC_API void deltaic_model_get_info(const deltaic_model *model, deltaic_model_info *info);
/* Memory that the model uses and that a session of it would use, with the attention window that the model was opened
 * with. session: NULL for defaults. */
DELTAIC_API deltaic_status deltaic_model_get_memory(const deltaic_model *model, const deltaic_session_options *session,
                                                    deltaic_memory *memory);

/* The tokens that end a text: eos_token_id of generation_config.json, or else that of config.json and the eos_token of
 * tokenizer_config.json; of a GGUF file those that its keys name and its control tokens <|im_end|> and <|endoftext|>.
 * There are at most 32.
 * ids: room for `capacity`, or NULL with 0. count: how many there are, also when more than capacity (then
 * DELTAIC_BUFFER_TOO_SMALL is returned, unless ids is NULL). */
DELTAIC_API deltaic_status deltaic_model_ends(const deltaic_model *model, int32_t *ids, size_t capacity, size_t *count);
DELTAIC_API bool deltaic_model_is_end(const deltaic_model *model, int32_t token);
/* deltaic_model_ends() of the folder or GGUF file `path`, without a device. */
DELTAIC_API deltaic_status deltaic_model_inspect_ends(const char *path, int32_t *ids, size_t capacity, size_t *count);

/* ---------------------------------------------------------------- session */

typedef struct deltaic_session deltaic_session;

/* Sampling of the next token from its logits, in this order: repetition penalty, temperature, top-k, top-p, min-p.
 * All zeros: the most likely token (ties: the lowest id). */
typedef struct deltaic_sampling {
  size_t size;
  float temperature;        /* 0: greedy */
  float top_p;              /* keep the fewest tokens whose probabilities sum to at least this; 0 or 1: off */
  float min_p;              /* drop tokens less likely than this times the likeliest; 0: off */
  float repetition_penalty; /* for tokens already in the sequence, positive logits are divided by this and negative ones
                               multiplied; 0, 1: off */
  uint32_t top_k;           /* keep the k likeliest; 0: all */
  uint64_t seed;            /* the same seed, sequence and device give the same tokens */
} deltaic_sampling;

/* The sampling that generation_config.json recommends (do_sample, temperature, top_k, top_p, min_p and
 * repetition_penalty; do_sample false: greedy). Set sampling->size before. Returns false and leaves *sampling as it is
 * when the file is missing or has no do_sample. */
DELTAIC_API bool deltaic_model_sampling(const deltaic_model *model, deltaic_sampling *sampling);

DELTAIC_API deltaic_status deltaic_session_create(deltaic_model *model, const deltaic_session_options *options,
                                                  deltaic_session **out);
DELTAIC_API void deltaic_session_free(deltaic_session *session);

typedef enum deltaic_logits { DELTAIC_LOGITS_NONE, DELTAIC_LOGITS_LAST, DELTAIC_LOGITS_ALL } deltaic_logits;

/* Evaluates n tokens and advances the session.
 * tokens: n ids in [0, vocabulary); n >= 1
 * logits: which logits to return; with ALL, row t predicts the token after tokens[t]
 * out: vocabulary floats (LAST), n * vocabulary (ALL), or NULL with NONE. The last logits always stay on the device for
 *   deltaic_session_next(). With ALL, a failure may leave the first rows written.
 * Bad arguments, a full context and a cancel before the call leave the session unchanged. After any other failure,
 * including a cancel during the call, the session must be reset, loaded or freed. */
DELTAIC_API deltaic_status deltaic_session_eval(deltaic_session *session, const int32_t *tokens, size_t n,
                                                deltaic_logits logits, float *out);

/* Draws the next token from the session's last logits, advances the session by it, and computes the logits after it.
 * This takes one submission to the device; only the first call records commands.
 * sampling: NULL for greedy. The random number of the draw depends only on the seed and the position in the sequence.
 * logits: vocabulary floats for the logits after the token, or NULL.
 * Fails like deltaic_session_eval(), except that a cancel leaves the session either unchanged or fully advanced. */
DELTAIC_API deltaic_status deltaic_session_next(deltaic_session *session, const deltaic_sampling *sampling,
                                                int32_t *token, float *logits);

/* Both in a limited time, for a program that draws frames in the same thread: they do as much as fits into
 * `milliseconds`, and at least one slice of tokens or one step. The session measures these as it goes: the first slices
 * are short, and then their length is the one that fits. A call takes longer where it makes pipelines, or where a single
 * token does. A cancel is reported between slices, and leaves the session as after the tokens that are done.
 * done, count: how many tokens are evaluated or drawn; also set after a failure that is not due to the arguments.
 * Experimental. */
/* The first tokens of n; call again with the others. Their slices, and so the rounding of the results, depend on the
 * time that they take. */
DELTAIC_API deltaic_status deltaic_session_eval_within(deltaic_session *session, const int32_t *tokens, size_t n,
                                                       double milliseconds, size_t *done);
/* tokens: room for `capacity`, at least 1. Stops behind a token that ends a text (deltaic_model_is_end()). */
DELTAIC_API deltaic_status deltaic_session_next_within(deltaic_session *session, const deltaic_sampling *sampling,
                                                       double milliseconds, int32_t *tokens, size_t capacity,
                                                       size_t *count);

/* The logits that deltaic_session_next() would draw from: vocabulary floats. DELTAIC_BAD_STATE before the first eval.
 */
DELTAIC_API deltaic_status deltaic_session_logits(deltaic_session *session, float *out);

/* Tokens evaluated since the start or the last reset. */
DELTAIC_API uint64_t deltaic_session_position(const deltaic_session *session);
/* Empties every sequence of the session. Makes the session usable again after any failure but DELTAIC_DEVICE_LOST. */
DELTAIC_API deltaic_status deltaic_session_reset(deltaic_session *session);
/* Creates a session with the same model, options and contents. */
DELTAIC_API deltaic_status deltaic_session_fork(deltaic_session *session, deltaic_session **out);

/* The state as bytes. It can be loaded for the same model (a fingerprint is checked) on any device, into a session
 * whose options leave room for it. Loading and continuing on the same device gives the same bits as continuing. */
DELTAIC_API deltaic_status deltaic_session_state_size(deltaic_session *session, size_t *bytes);
/* written: may be NULL. DELTAIC_BUFFER_TOO_SMALL when capacity is less than deltaic_session_state_size(). */
DELTAIC_API deltaic_status deltaic_session_save(deltaic_session *session, void *buffer, size_t capacity,
                                                size_t *written);
/* A malformed buffer leaves the session unchanged. */
DELTAIC_API deltaic_status deltaic_session_load(deltaic_session *session, const void *buffer, size_t bytes);
/* Save to and load from a file. An interrupted save leaves an existing file intact. A path that is not a regular file
 * (a device, a pipe) is written to directly. */
DELTAIC_API deltaic_status deltaic_session_save_file(deltaic_session *session, const char *path);
DELTAIC_API deltaic_status deltaic_session_load_file(deltaic_session *session, const char *path);

/* What a saved state consists of, in the order of its bytes, for programs that store states: which parts only get longer,
 * and which numbers may be rounded. Experimental. */
typedef struct deltaic_state_part {
  uint64_t bytes;     /* of the part, or of each position that it holds */
  uint64_t positions; /* 0: it holds none. Else a cache, of the last `positions` tokens, from the oldest to the newest;
                         UINT64_MAX: of all, so that a longer text only appends to it */
  bool numbers;       /* float32; false: bytes that must stay as they are */
  bool optional;      /* the last logits, which a session without tokens lacks */
} deltaic_state_part;

/* parts: room for `capacity` entries, or NULL with 0. count: how many there are, also when more than capacity (then
 * DELTAIC_BUFFER_TOO_SMALL is returned, unless parts is NULL). They are the same for every session of the model. */
DELTAIC_API deltaic_status deltaic_session_state_parts(deltaic_session *session, deltaic_state_part *parts,
                                                       size_t capacity, size_t *count);
/* Tokens that a saved state has behind it, as its header says. DELTAIC_BAD_FILE: it does not begin like one. */
DELTAIC_API deltaic_status deltaic_state_position(const void *state, size_t bytes, uint64_t *position);
/* Computes a saved state's checksum again, after its numbers were rounded. DELTAIC_BAD_FILE: as above. */
DELTAIC_API deltaic_status deltaic_state_seal(void *state, size_t bytes);

/* A session can hold several sequences (deltaic_session_options.sequences), numbered from 0, each with its own state,
 * position and last logits. One call computes tokens of many sequences with one pass over the weights. Functions
 * without a `sequence` argument act on sequence 0, except deltaic_session_reset(), deltaic_session_fork() and
 * deltaic_session_cancel(), which act on all. Except for rounding (deltaic_precision), a sequence's results do not
 * depend on the other sequences. Experimental. */

/* How likely a token was. */
typedef struct deltaic_score {
  float log_probability; /* natural logarithm */
  bool likeliest;        /* greedy sampling would have drawn it */
} deltaic_score;

/* Tokens that continue one sequence. */
typedef struct deltaic_piece {
  uint32_t sequence;     /* number of the sequence */
  const int32_t *tokens; /* ids in [0, vocabulary) */
  size_t count;          /* at least 1 */
  deltaic_logits logits; /* which logits to return */
  float *out;            /* vocabulary floats (LAST), count * vocabulary (ALL), or NULL with NONE */
  /* targets and scores have `count` entries each. scores[t] receives the likelihood of id targets[t] after tokens[t];
   * -1 requests none. To score the sequence's own tokens, pass tokens + 1. The device computes the scores, so no logits
   * are transferred. NULL: no scores. */
  const int32_t *targets;
  deltaic_score *scores; /* entries without a target are left unchanged */
} deltaic_piece;

/* Evaluates n pieces of any lengths, each for a different sequence, in slices of at most deltaic_session_options.batch
 * tokens; a slice may hold tokens of several pieces.
 * Bad arguments, a full context and a cancel before the call leave the session unchanged. After any other failure every
 * sequence of the call must be reset, loaded or overwritten by a copy; the others are unchanged. */
DELTAIC_API deltaic_status deltaic_session_eval_batch(deltaic_session *session, const deltaic_piece *pieces, size_t n);

/* deltaic_session_next() for n sequences at once: one submission; only the first call with this n records commands.
 * sequences: n different numbers, in any order; NULL: 0 ... n - 1
 * sampling: n entries, one for each sequence; NULL for greedy. A sequence draws the same tokens as it would alone, so
 *   equal sequences need different seeds to diverge.
 * tokens: n ids. logits: n * vocabulary floats for the logits after each token, or NULL.
 * Fails like deltaic_session_eval_batch(). */
DELTAIC_API deltaic_status deltaic_session_next_batch(deltaic_session *session, const uint32_t *sequences, size_t n,
                                                      const deltaic_sampling *sampling, int32_t *tokens, float *logits);

/* The functions above, for a given sequence. */
DELTAIC_API uint64_t deltaic_sequence_position(const deltaic_session *session, uint32_t sequence);
DELTAIC_API deltaic_status deltaic_sequence_logits(deltaic_session *session, uint32_t sequence, float *out);
DELTAIC_API deltaic_status deltaic_sequence_reset(deltaic_session *session, uint32_t sequence);
/* Copies sequence `from` to sequence `to` on the device, without allocating memory. */
DELTAIC_API deltaic_status deltaic_sequence_copy(deltaic_session *session, uint32_t to, uint32_t from);
/* Saves the same bytes as deltaic_session_save() of a session with only this sequence; each can load the other's. */
DELTAIC_API deltaic_status deltaic_sequence_state_size(deltaic_session *session, uint32_t sequence, size_t *bytes);
DELTAIC_API deltaic_status deltaic_sequence_save(deltaic_session *session, uint32_t sequence, void *buffer,
                                                 size_t capacity, size_t *written);
DELTAIC_API deltaic_status deltaic_sequence_load(deltaic_session *session, uint32_t sequence, const void *buffer,
                                                 size_t bytes);
/* Save and load a state in ranges, for a program that does other work between them, or that already has some of the
 * bytes (deltaic_state_part). These functions neither compute nor check the checksum. Before a state leaves the
 * program, call deltaic_state_seal(), which computes the checksum. To check bytes from outside the program, compare the
 * header before and after deltaic_state_seal(). If it differs, the bytes are damaged: discard them, because they now
 * have a valid checksum.
 * save_range: writes bytes offset ... offset + bytes - 1 of what deltaic_sequence_save() would write, in any order. No
 *   evaluation, reset, load or copy may change the sequence until the last range is saved.
 * load_range: takes ranges in the order of their bytes. The first range, at offset 0, has at least the header
 *   (deltaic_session_state_parts(), part 0). It empties the sequence. If deltaic_sequence_load() would refuse the
 *   header, so does load_range, and the sequence does not change. Until the last byte is loaded, the sequence can only
 *   take the next range, begin another load, be reset or be overwritten by a copy. deltaic_sequence_position() returns
 *   the position of the state from the first range on.
 *   DELTAIC_BAD_FILE: the first range is longer than the state. DELTAIC_INVALID_ARGUMENT: a later range does not begin
 *   where the previous one ended, or is longer than the rest of the state. */
DELTAIC_API deltaic_status deltaic_sequence_save_range(deltaic_session *session, uint32_t sequence, uint64_t offset,
                                                       void *buffer, size_t bytes);
DELTAIC_API deltaic_status deltaic_sequence_load_range(deltaic_session *session, uint32_t sequence, uint64_t offset,
                                                       const void *buffer, size_t bytes);

/* Makes the eval in progress return DELTAIC_CANCELLED once the device has finished the work already submitted. A single
 * step (a next, or an eval of one token for each sequence without targets or a probe) completes and succeeds, and so
 * does an eval whose last submission has been made. A cancel that no call has reported makes the following eval or next
 * return DELTAIC_CANCELLED at once without computing anything; the session is unchanged and remains usable.
 * deltaic_session_reset() drops such a cancel, as does resetting or loading a session's only sequence. May be called
 * from any thread and from a signal handler, at any time before deltaic_session_free(). */
DELTAIC_API void deltaic_session_cancel(deltaic_session *session);

/* Compiles, on all cores, the pipelines of calls of few and many tokens and sequences, so that later calls need not wait
 * for the driver's compiler; without it the first calls of a kind compile theirs. Leaves out scores and probes. It
 * changes no sequence, and does nothing on the CPU. Drivers that compile when a kernel first runs still do that then.
 * DELTAIC_CANCELLED: deltaic_device_options.compiling returned false. Experimental. */
DELTAIC_API deltaic_status deltaic_session_prepare(deltaic_session *session);

/* Probes. Experimental. While a probe is set, every eval passes the requested activations to the callback, layer by
 * layer and slice by slice (at most the session's batch of tokens at once). This is slower and gives the same numbers,
 * except that FAST precision omits some roundings. deltaic_session_next() does not call the probe. */
typedef enum deltaic_probe_kind {
  DELTAIC_PROBE_RESIDUAL = 1,      /* rows x width: the residual stream before the layer */
  DELTAIC_PROBE_MIXER_INPUT = 2,   /* rows x width: input of the projections, after the norm */
  DELTAIC_PROBE_QKV = 4,           /* rows x (q, k of every householder step, v of every step): after convolution. v is
                                      after SiLU, and so are q and k if that is their activation; they are before any
                                      other activation, and before their normalisation. Heads in order */
  DELTAIC_PROBE_BETA = 8,          /* rows x (steps * value heads) */
  DELTAIC_PROBE_DECAY = 16,        /* rows x value heads: natural logarithms, at most 0; gated layers only */
  DELTAIC_PROBE_HEADS = 32,        /* rows x (value heads * value size): input of the output projection */
  DELTAIC_PROBE_MIXER_OUTPUT = 64, /* rows x width: the mixer's addition to the residual stream */
  DELTAIC_PROBE_STATE = 128,       /* (value heads * key size) x value size: the state after the slice */
  DELTAIC_PROBE_EXPERTS = 256      /* rows x experts per token: the indices of the experts that the router chose */
} deltaic_probe_kind;

typedef struct deltaic_probed {
  deltaic_probe_kind kind;
  int32_t layer;
  uint64_t position; /* of the first row's token; STATE: of the slice's last token */
  size_t rows, cols; /* */
  const float *data; /* rows * cols, valid during the call */
  /* Shape of a linear-attention layer; 0 for other layers. */
  int32_t heads, key_size, steps, value_heads, value_size;
} deltaic_probed;

/* Return false to stop: the eval then returns DELTAIC_CANCELLED. */
typedef bool (*deltaic_probe_function)(void *user, const deltaic_probed *probed);

/* kinds: deltaic_probe_kind values or'ed; 0 with NULL: no probe. Kinds that a layer does not have are skipped.
 * DELTAIC_UNSUPPORTED for a session of several sequences. */
DELTAIC_API deltaic_status deltaic_session_probe(deltaic_session *session, uint32_t kinds, deltaic_probe_function probe,
                                                 void *user);

/* Counts the session's recorded and submitted work so far. Experimental. Transfers are not counted: saving and loading
   states, probes, and returning logits need their own vkQueueSubmit calls where the host cannot map the device's
   memory. deltaic_session_next() without logits transfers nothing. */
typedef struct deltaic_counters {
  uint64_t submits;    /* vkQueueSubmit calls of recordings; 0 on the CPU */
  uint64_t recordings; /* command buffers recorded */
  uint64_t dispatches; /* dispatches recorded */
} deltaic_counters;
/* Returns all zeros when session is NULL. */
DELTAIC_API void deltaic_session_get_counters(const deltaic_session *session, deltaic_counters *counters);

/* Measures the time on the device by kernel, between begin and end. Experimental. Slows the work. */
typedef struct deltaic_kernel_time {
  char name[64];       /* "matmul_bf16" */
  uint64_t dispatches; /* */
  double seconds;      /* */
  uint64_t bytes;      /* read and written, from tensor sizes: each byte counts once per dispatch */
  uint64_t operations; /* multiplications and additions */
} deltaic_kernel_time;
DELTAIC_API deltaic_status deltaic_session_profile_begin(deltaic_session *session);
/* times: room for `capacity` kernels; count: how many there are. Ends profiling. */
DELTAIC_API deltaic_status deltaic_session_profile_end(deltaic_session *session, deltaic_kernel_time *times,
                                                       size_t capacity, size_t *count);
/* Measures how long the device ran work of the session between these two calls, from time stamps at both ends of each
 * submission, which do not slow the work; on the CPU, from its kernels' times. Experimental. Not while profiling. */
DELTAIC_API deltaic_status deltaic_session_busy_begin(deltaic_session *session);
DELTAIC_API deltaic_status deltaic_session_busy_end(deltaic_session *session, double *seconds);
/* Bytes read plus bytes written per second of a large copy kernel on this device, measured now (under a second). */
DELTAIC_API deltaic_status deltaic_device_copy_bandwidth(deltaic_device *device, double *bytes_per_second);

/* What a device and the CPU make of the same operations. Experimental. */
typedef struct deltaic_check {
  const char *name;    /* "products, bf16, 1 x 24 tokens, fast"; like `kernels`, valid during the call */
  const char *kernels; /* that ran; where the result is wrong, those that are. "": the device has no time stamps */
  double error;        /* relative RMS of the worst tensor; of integers 1 where one differs */
  double limit;        /* of a right result */
  bool right;
  double worst, worst_limit; /* of an element, by its size plus the RMS of its row; and of a right one */
} deltaic_check;
/* Runs every operation in the forms and sizes that reach each kernel which this device's plan would choose, on the
 * device and on the CPU, and reports each comparison; `report` returns false to stop (DELTAIC_CANCELLED). Wrong results
 * are reported, too: the status says only whether all could be run. */
DELTAIC_API deltaic_status deltaic_device_check(deltaic_device *device,
                                                bool (*report)(void *user, const deltaic_check *check), void *user);

/* Choices that no table can know: whether products and the delta rule are faster on the device's matrix units, from how
 * much work in flight the delta rule is faster token by token than by chunks, and tiles of products. Times them, which
 * takes a GPU up to 20 seconds, and keeps the choices in a file of the cache folder, one for each device and driver.
 * They hold from the next time that the device is opened, in every program of this user; results then differ by
 * rounding. Models and sessions that are open go on as they are. A file that is damaged, or of another driver, is
 * ignored; deltaic_device_describe() says so and has the choices. Experimental. */
typedef struct deltaic_timing {
  const char *name; /* "product, 512 x 2048 x 2048, on matrices"; valid during the call */
  double seconds;
} deltaic_timing;
/* report: may be NULL; returns false to stop (DELTAIC_CANCELLED, and nothing is kept). DELTAIC_UNSUPPORTED for the CPU,
 * DELTAIC_BAD_STATE where the context has no cache folder. */
DELTAIC_API deltaic_status deltaic_device_time_choices(deltaic_device *device,
                                               bool (*report)(void *user, const deltaic_timing *timing), void *user);
/* Removes that file. */
DELTAIC_API deltaic_status deltaic_device_forget_choices(deltaic_device *device);

/* Measures one operator alone, a (gated) delta rule, DeltaProduct or Head-in-Head, over `sequences` sequences of
 * `tokens` random tokens each. With CHUNK and FAST, where the device's cooperative matrices support the shape, q, k, v
 * and the output are float16, and q and k are padded to multiples of 8 numbers as in a model. One token with RECURRENT
 * is timed as a layer's step, over several states. A run that takes a GPU less than 50 microseconds is timed in a chain
 * of dependent runs, since time stamps around each would distort so short a time. Experimental. */
typedef struct deltaic_operator {
  size_t size;
  uint32_t sequences, tokens;
  uint32_t heads, value_heads; /* value_heads 0: heads */
  uint32_t key, value;         /* numbers of a head: d_k, d_v */
  uint32_t steps;              /* householder steps per token; 0: 1 */
  uint32_t blocks;             /* r of Head-in-Head; 0: 1 */
  bool gated;
  bool plain; /* use only cooperative matrix features that every vendor has */
  deltaic_rule rule;
  deltaic_precision precision;
  uint32_t repeat; /* timed runs; 0: 20 */
} deltaic_operator;
typedef struct deltaic_operator_result {
  double seconds, least, most;      /* on the device: the median run, the fastest, the slowest */
  double error_output, error_state; /* of the last sequence, relative RMS against the recurrence in float32 */
  uint64_t bytes;                   /* every input and output once */
  uint64_t operations;              /* multiplications and additions of the recurrence */
  deltaic_kernel_time kernels[8];   /* sums over runs with time stamps around every kernel */
  size_t kernel_count;
} deltaic_operator_result;
DELTAIC_API deltaic_status deltaic_device_measure_operator(deltaic_device *device, const deltaic_operator *op,
                                                           deltaic_operator_result *result);

/* Measures one matrix product as a layer computes it: (rows, inputs) by bfloat16 weights (outputs, inputs) with float32
 * results. Each product waits for the previous one; with up to 64 rows on a GPU its weights are in no cache.
 * Experimental. */
typedef struct deltaic_matmul {
  size_t size;
  uint32_t rows, outputs, inputs; /* inputs: a multiple of 8 */
  deltaic_precision precision;
  uint32_t repeat; /* timed runs; 0: 20 */
} deltaic_matmul;
typedef struct deltaic_matmul_result {
  double seconds, least, most; /* of one product: the median run, the fastest, the slowest */
  double error;                /* relative RMS of some thousand results against float64 */
  uint64_t bytes;              /* every input and output once */
  uint64_t operations;         /* multiplications and additions */
  char kernel[64];
} deltaic_matmul_result;
DELTAIC_API deltaic_status deltaic_device_measure_matmul(deltaic_device *device, const deltaic_matmul *matmul,
                                                         deltaic_matmul_result *result);

/* Multiplications and additions per second of this library's product of large matrices on the device, with float16
 * operands where it has cooperative matrices; measured now (under a second). Experimental. */
DELTAIC_API deltaic_status deltaic_device_matrix_rate(deltaic_device *device, double *operations_per_second);

/* ---------------------------------------------------------------- files of tensors */

/* The named tensors of a safetensors file, or of a folder with model.safetensors or shards. Experimental. */
typedef struct deltaic_tensors deltaic_tensors;
typedef struct deltaic_tensor_info {
  const char *name;  /* valid until the file is closed */
  const char *dtype; /* "BF16", as the file spells it; valid until the file is closed */
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
/* Read elements first ... first + count - 1 of a tensor of floats (F64 is rounded) or of integers (8 to 64 bits,
 * signed or unsigned), which must fit into 32 bits. */
DELTAIC_API deltaic_status deltaic_tensors_read(const deltaic_tensors *tensors, const char *name, uint64_t first,
                                                uint64_t count, float *out);
DELTAIC_API deltaic_status deltaic_tensors_read_integers(const deltaic_tensors *tensors, const char *name,
                                                         uint64_t first, uint64_t count, int32_t *out);

/* ---------------------------------------------------------------- tokenizer */

typedef struct deltaic_tokenizer deltaic_tokenizer;

/* path: a folder with tokenizer.json, the file itself, or a GGUF file. A feature of the file that is not supported is
 * refused by name. */
DELTAIC_API deltaic_status deltaic_tokenizer_open(const char *path, deltaic_tokenizer **out);
/* The same from a source (deltaic_model_options): path ends in .gguf or .json, or is a folder. */
DELTAIC_API deltaic_status deltaic_tokenizer_open_from(const deltaic_source *source, const char *path,
                                                       deltaic_tokenizer **out);
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
/* Decodes n ids, which must be the whole text: decoding parts loses spaces between words and characters that span
 * tokens. For a stream use deltaic_decoder. skip_special: leave special tokens out. text: room for `capacity` bytes,
 * not ended by NUL, or NULL with 0. bytes: as `count` of deltaic_tokenizer_encode(). */
DELTAIC_API deltaic_status deltaic_tokenizer_decode(const deltaic_tokenizer *tokenizer, const int32_t *ids, size_t n,
                                                    bool skip_special, char *text, size_t capacity, size_t *bytes);
/* The bytes of one token: what deltaic_tokenizer_decode() makes of it alone, except that bytes of an unfinished
 * character stay as they are. bytes, capacity, count: as its text, capacity and bytes. */
DELTAIC_API deltaic_status deltaic_tokenizer_token_bytes(const deltaic_tokenizer *tokenizer, int32_t id, char *bytes,
                                                         size_t capacity, size_t *count);

/* Decodes text token by token. Returned text never changes and never ends inside a UTF-8 character. Push the prompt's
 * ids too, even if their text is dropped, since later text may depend on them. */
typedef struct deltaic_decoder deltaic_decoder;
DELTAIC_API deltaic_status deltaic_decoder_create(const deltaic_tokenizer *tokenizer, bool skip_special,
                                                  deltaic_decoder **out);
DELTAIC_API void deltaic_decoder_free(deltaic_decoder *decoder);
/* text, bytes: the new text, possibly none; valid until the decoder's next call. */
DELTAIC_API deltaic_status deltaic_decoder_push(deltaic_decoder *decoder, int32_t id, const char **text, size_t *bytes);
/* Returns the remaining text at the end; bytes that do not form a character become U+FFFD. */
DELTAIC_API deltaic_status deltaic_decoder_finish(deltaic_decoder *decoder, const char **text, size_t *bytes);

/* ---------------------------------------------------------------- chat templates */

/* How a family of models writes a conversation. A template lives as long as the library. Tools and images are not
 * supported. */
typedef struct deltaic_template deltaic_template;

typedef struct deltaic_template_info {
  const char *name;    /* "qwen3.5" */
  const char *models;  /* "Qwen3.5 of 4B and more, Qwen3.6" */
  const char *answer;  /* what an answer begins with: "<|im_start|>assistant\n" */
  const char *end;     /* the token that ends a message: "<|im_end|>" */
  bool thinks;         /* answers begin with thinking by default */
  bool thinking_on;    /* it can be turned on */
  bool thinking_off;   /* it can be turned off */
  bool drops_thinking; /* earlier answers lose their thinking */
} deltaic_template_info;

/* The templates that the library knows, by index from 0; NULL behind the last. */
DELTAIC_API const deltaic_template *deltaic_template_at(size_t index);
/* The template of this name. */
DELTAIC_API deltaic_status deltaic_template_find(const char *name, const deltaic_template **out);
/* The template whose published text (Jinja) this is. file: for the message. DELTAIC_UNSUPPORTED: none that is known. */
DELTAIC_API deltaic_status deltaic_template_recognize(const char *file, const char *text, size_t bytes,
                                                      const deltaic_template **out);
/* The template of the model at `path`: in a folder chat_template.jinja, or else tokenizer_config.json's chat_template;
 * in a GGUF file tokenizer.chat_template. DELTAIC_NOT_FOUND: there is none. */
DELTAIC_API deltaic_status deltaic_template_read(const char *path, const deltaic_template **out);
/* Returns empty texts when template is NULL. */
DELTAIC_API void deltaic_template_get_info(const deltaic_template *chat, deltaic_template_info *info);

typedef enum deltaic_role { DELTAIC_ROLE_SYSTEM, DELTAIC_ROLE_USER, DELTAIC_ROLE_ASSISTANT } deltaic_role;

typedef struct deltaic_message {
  deltaic_role role;
  const char *text; /* UTF-8. An answer may begin with its thinking, up to </think> */
  size_t bytes;
} deltaic_message;

typedef enum deltaic_thinking { DELTAIC_THINKING_DEFAULT, DELTAIC_THINKING_ON, DELTAIC_THINKING_OFF } deltaic_thinking;

typedef struct deltaic_render_options {
  size_t size;
  size_t first;              /* leave out the messages before this one (0-based), which only give the context: for a
                                conversation that continues. The text of [0, k) and that of [k, n) make that of [0, n),
                                except that whether an answer is an earlier one depends on n */
  bool answer;               /* add the beginning of an answer */
  bool earlier;              /* render answers as if a user's message followed */
  deltaic_thinking thinking; /* of the answer; DELTAIC_UNSUPPORTED where the template has no such form */
} deltaic_render_options;

/* The conversation as text. messages: n >= 1. text: room for `capacity` bytes, not ended by NUL, or NULL with 0.
 * bytes: as `count` of deltaic_tokenizer_encode(). */
DELTAIC_API deltaic_status deltaic_template_render(const deltaic_template *chat, const deltaic_message *messages,
                                                   size_t n, const deltaic_render_options *options, char *text,
                                                   size_t capacity, size_t *bytes);

typedef struct deltaic_ids {
  int32_t *ids; /* room for `capacity`, or NULL with 0 */
  size_t capacity;
  size_t *count; /* as `count` of deltaic_tokenizer_encode() */
} deltaic_ids;
/* The conversation as token ids. They are those of the text, except that messages cannot spell special tokens: only the
 * template's own text becomes special tokens, and answers may also have added tokens that are not special, such as
 * <think>. A tokenizer that lacks a token of the template spells it as text, which messages can then spell too. */
DELTAIC_API deltaic_status deltaic_template_encode(const deltaic_template *chat, const deltaic_tokenizer *tokenizer,
                                                   const deltaic_message *messages, size_t n,
                                                   const deltaic_render_options *options, const deltaic_ids *out);

/* ---------------------------------------------------------------- stop strings */

/* Finds stop strings in text that arrives in parts, such as a decoder's. Text that may be the beginning of a stop
 * string is held back; the text ends before the first stop string that is complete, wherever the parts end. Of several
 * that are complete at the same place the longest counts. */
typedef struct deltaic_stops deltaic_stops;
/* stops: n strings of UTF-8, none empty, at most 4096 bytes each; they are copied. n: 0 to 256. */
DELTAIC_API deltaic_status deltaic_stops_create(const char *const *stops, size_t n, deltaic_stops **out);
DELTAIC_API void deltaic_stops_free(deltaic_stops *stops);
/* out, out_bytes: the text that is no part of a stop string, possibly none; valid until the next call. It ends at whole
 * characters if the pushed text does. After a stop string has been found there is no more. */
DELTAIC_API deltaic_status deltaic_stops_push(deltaic_stops *stops, const char *text, size_t bytes, const char **out,
                                              size_t *out_bytes);
/* Returns the text that is held back, when the text has ended. */
DELTAIC_API deltaic_status deltaic_stops_finish(deltaic_stops *stops, const char **out, size_t *out_bytes);
/* Forgets all text. */
DELTAIC_API void deltaic_stops_reset(deltaic_stops *stops);
/* Index of the stop string that was found, or -1. */
DELTAIC_API int32_t deltaic_stops_found(const deltaic_stops *stops);
/* The text that was pushed behind the stop string; valid until the next call. */
DELTAIC_API const char *deltaic_stops_rest(const deltaic_stops *stops, size_t *bytes);

/* ---------------------------------------------------------------- quantizing */

/* Writes a model as a GGUF file whose weights have another storage format, and reports on it. The whole part is
 * experimental. */
typedef struct deltaic_quantization deltaic_quantization;

typedef struct deltaic_quantize_type {
  const char *name;  /* "q4_k_m" */
  const char *about; /* one line */
} deltaic_quantize_type;
/* Returns false beyond the last type. Types are in descending order of size. */
DELTAIC_API bool deltaic_quantize_type_at(int32_t i, deltaic_quantize_type *type);

typedef struct deltaic_quantize_options {
  size_t size;
  const char *type;          /* NULL: "q4_k_m" */
  bool force;                /* replace a file that exists */
  bool plan_only;            /* write nothing; the report says what would be written */
  uint32_t threads;          /* 0: all cores */
  deltaic_progress progress; /* bytes of tensors written */
  void *progress_user;
  const char *adapter; /* NULL, or a folder with adapters that are merged first, as in deltaic_model_options. A tensor
                          that they change is held whole. UNSUPPORTED for GGUF files. Experimental. */
} deltaic_quantize_options;

/* path: as for deltaic_model_open(). out: the file; it appears when it is complete, and a failure leaves what was
 * there. It must not be a file that the model is read from. Memory: that of some rows of one tensor. Models of qwen3_5,
 * qwen3_5_moe and qwen3_next become qwen35, qwen35moe and qwen3next, which llama.cpp reads; other models keep their
 * model_type, their tensors' names and their config.json, for deltaic_model_open(). DELTAIC_BAD_FILE: a weight is not
 * finite. DELTAIC_UNSUPPORTED: a weight is too large for the format. report: may be NULL. */
DELTAIC_API deltaic_status deltaic_quantize(const char *path, const char *out, const deltaic_quantize_options *options,
                                            deltaic_quantization **report);
DELTAIC_API void deltaic_quantization_free(deltaic_quantization *report);

typedef struct deltaic_quantization_info {
  char architecture[64]; /* general.architecture of the file */
  const char *type;      /* of the table of types */
  bool own_keys;         /* other programs do not run it: the architecture is one of Deltaic's own, or its keys and
                            values differ in length, which llama.cpp does not support */
  uint64_t tensors, elements, bytes;
  uint64_t left_out;          /* tensors of the model that are not written, because deltaic_model_open() does not use
                                 them: an extra head that predicts a second token, the part that reads images */
  const char *left_out_first; /* the name of the first of them, valid as long as the report; NULL: none */
} deltaic_quantization_info;
DELTAIC_API void deltaic_quantization_get_info(const deltaic_quantization *report, deltaic_quantization_info *info);

typedef struct deltaic_quantized_tensor {
  const char *name;   /* these texts are valid as long as the report */
  const char *type;   /* "q6_k" */
  const char *wanted; /* differs from `type` where that needs rows of whole blocks, and these have another length */
  uint64_t elements, columns, bytes;
} deltaic_quantized_tensor;
/* Returns false beyond the last tensor. */
DELTAIC_API bool deltaic_quantization_at(const deltaic_quantization *report, size_t i,
                                         deltaic_quantized_tensor *tensor);

#ifdef __cplusplus
}
#endif
#endif
