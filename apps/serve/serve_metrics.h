// serve_metrics.h: the figures that /metrics shows, which any thread may change.
#ifndef SERVE_METRICS_H
#define SERVE_METRICS_H
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

// X(name, kind, text of the metric, help). A counter grows, a gauge has a value.
#define METRICS_MAP(X)                                                                                                 \
  X(REQUESTS, counter, "requests_total", "requests that were answered, of any kind")                                   \
  X(REFUSED, counter, "requests_refused_total", "requests that were answered with 4xx")                                \
  X(FAILED, counter, "requests_failed_total", "requests that were answered with 5xx")                                  \
  X(CANCELLED, counter, "requests_cancelled_total", "requests whose client went away")                                 \
  X(QUEUED, gauge, "queue_length", "texts that wait for a slot")                                                       \
  X(RUNNING, gauge, "slots_busy", "slots that read or write a text")                                                   \
  X(SLOTS, gauge, "slots", "slots")                                                                                    \
  X(CONNECTIONS, gauge, "connections", "open connections")                                                             \
  X(WORKING, gauge, "request_bytes", "host memory that requests use, about")                                           \
  X(PROMPT_TOKENS, counter, "prompt_tokens_total", "tokens of prompts that were computed")                             \
  X(CACHED_TOKENS, counter, "cached_tokens_total", "tokens of prompts that came with a state")                         \
  X(TOKENS, counter, "generated_tokens_total", "tokens that were generated")                                           \
  X(STEPS, counter, "steps_total", "decode steps, each of one token of every text that is written")                    \
  X(SLICES, counter, "slices_total", "slices of prompts")                                                              \
  X(STEP_TIME, counter, "step_microseconds_total", "time that steps took on the device")                               \
  X(SLICE_TIME, counter, "slice_microseconds_total", "time that slices took on the device")                            \
  X(STATES_SAVED, counter, "states_saved_total", "states that were copied from the device")                            \
  X(STATES_RESIDENT, counter, "states_resident_total", "states that were still in their slot")                         \
  X(STATES_LOADED, counter, "states_loaded_total", "states that were copied to the device")                            \
  X(STATE_BYTES_SAVED, counter, "state_saved_bytes_total", "bytes that were copied from the device")                   \
  X(STATE_BYTES_LOADED, counter, "state_loaded_bytes_total", "bytes that were copied to the device")                   \
  X(STATE_PIECES, counter, "state_pieces_total", "pieces in which states were copied from or to the device")           \
  X(STATE_ROUNDS, counter, "state_rounds_total", "rounds in which states were copied from or to the device")           \
  X(PROMPT_RATE, gauge, "prompt_tokens_per_second", "speed of the last slices of prompts")                              \
  X(STATES_SKIPPED, counter, "states_not_fetched_total",                                                                \
    "states that were computed again because that was faster than to get them from the store")                         \
  X(STATES_COMPUTED, counter, "states_recomputed_total", "states that were computed again because they were gone")     \
  X(MEMORY_STATES, gauge, "memory_states", "states in host memory")                                                    \
  X(MEMORY_BYTES, gauge, "memory_bytes", "bytes of states and turns in host memory")                                   \
  X(MEMORY_EVICTED, counter, "memory_evicted_total", "states and turns that left host memory for others")              \
  X(STORE_PUTS, counter, "store_puts_total", "values written to the store")                                            \
  X(STORE_PUT_BYTES, counter, "store_put_bytes_total", "bytes of these")                                               \
  X(STORE_HITS, counter, "store_hits_total", "values read from the store")                                             \
  X(STORE_HIT_BYTES, counter, "store_hit_bytes_total", "bytes of these")                                               \
  X(STORE_MISSES, counter, "store_misses_total", "values that the store did not have")                                 \
  X(STORE_ERRORS, counter, "store_errors_total", "commands of the store that failed or took too long")                 \
  X(STORE_DROPPED, counter, "store_dropped_total", "values that were not written because too many waited")             \
  X(STORE_REFUSED, counter, "store_refused_total", "values of the store that were damaged, or another model's")       \
  X(STORE_EVICTED, counter, "store_evicted_total", "values that left the store for others (--store-size)")              \
  X(STORE_WAITING, gauge, "store_waiting_bytes", "bytes that wait to be written to the store")                           \
  X(STORE_UP, gauge, "store_up", "1: the store answers; 0: it does not, or there is none")

enum metric {
#define METRIC_ENUM(name, kind, text, help) METRIC_##name,
  METRICS_MAP(METRIC_ENUM)
#undef METRIC_ENUM
      METRICS
};

// Times in seconds, counted in buckets: to the first token, and between tokens.
enum metric_time { TIME_FIRST_TOKEN, TIME_BETWEEN_TOKENS, TIME_QUEUED, METRIC_TIMES };
enum { METRIC_BUCKETS = 18 };

struct metrics {
  atomic_int_least64_t values[METRICS];
  struct {
    atomic_uint_least64_t buckets[METRIC_BUCKETS + 1], nanoseconds;
  } times[METRIC_TIMES];
};
void metrics_add(struct metrics *metrics, enum metric metric, int64_t more);
void metrics_set(struct metrics *metrics, enum metric metric, int64_t value);
int64_t metrics_get(struct metrics *metrics, enum metric metric);
void metrics_time(struct metrics *metrics, enum metric_time time, double seconds);
// All of it in the text format of Prometheus. The caller frees it; NULL: no memory.
char *metrics_text(struct metrics *metrics, size_t *bytes);
#endif
