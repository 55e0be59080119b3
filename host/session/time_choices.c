// time_choices: times on a device what no table can know, and keeps the choices for later opens of it. Times are taken
// on a device of its own, whose plan changes meanwhile; the caller's device keeps the plan that its models rely on.
#include "device_handle.h"
#include "file.h"
#include "measure.h"
#include "open.h"
#include "platform.h"
#include "timed.h"
#include "vulkan_backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REPEAT = 7, FAR = 20, MOST_PERCENT = 400, LEAST_PERCENT = 24, MOST_HEADS = 16 };
// Without compiling. What is not timed by then stays unknown; software has no such bound.
static const double MOST_SECONDS = 16;

// Sizes that are timed: of software small ones, since each shape is compiled for seconds.
struct sizes {
  uint32_t rows, size;             // of products; 0 rows: a slice of a prompt
  uint32_t key, tokens, work_step; // of the delta rule; each amount of work has so many times the heads of the last
};
static const struct sizes of_gpus = {0, 2048, 128, 512, 2}, small = {96, 256, 128, 128, 2},
                          of_software = {96, 128, 32, 64, 4};

struct timing_run {
  deltaic_device device; // of its own
  struct vulkan_backend *b;
  const struct sizes *sizes;
  double start;
  bool bounded; // by MOST_SECONDS
  struct timed_times times;
  bool (*report)(void *user, const deltaic_timing *timing);
  void *user;
  deltaic_status status;
};

// Plans as if these choices had been made.
static void apply(struct timing_run *t, const struct timed_choices *timed) {
  struct device *device = t->b->device;
  const bool background = device->plan.background;
  plan_make(&device->caps, &device->plan);
  device->plan.background = background;
  plan_use_timed(&device->plan, timed);
  vulkan_backend_plan(t->b);
}

static bool going(const struct timing_run *t) {
  const double compiling = t->device.backend->functions->compile_seconds(t->device.backend);
  return !t->status && (!t->bounded || t->device.collects || measure_now() - t->start - compiling < MOST_SECONDS);
}

// Takes a time that was measured, or 0 where the device could not or kernels are collected.
static double take(struct timing_run *t, deltaic_status status, double seconds, const char *name) {
  if (t->device.collects) return 0;
  t->device.awake = true;
  if (status == DELTAIC_DEVICE_LOST || status == DELTAIC_CANCELLED) t->status = status;
  if (status || seconds <= 0) return 0;
  if (t->report && !t->report(t->user, &(deltaic_timing){.name = name, .seconds = seconds}))
    t->status = fail(DELTAIC_CANCELLED, "timing the device was cancelled");
  return seconds;
}

// ---------------------------------------------------------------- products

static double product(struct timing_run *t, const struct sizes *s, bool matrices, const char *how) {
  const uint32_t rows = s->rows ? s->rows : t->b->products.batch;
  deltaic_matmul o = {.size = sizeof o,
                      .rows = rows,
                      .outputs = s->size,
                      .inputs = s->size,
                      .precision = matrices ? DELTAIC_PRECISION_FAST : DELTAIC_PRECISION_FLOAT32,
                      .repeat = REPEAT};
  deltaic_matmul_result r = {0};
  char name[96];
  if (!going(t)) return 0;
  const deltaic_status status = deltaic_device_measure_matmul(&t->device, &o, &r);
  if (!status && matrices && !strstr(r.kernel, "matrix")) return 0; // they do not take this shape
  snprintf(name, sizeof name, "product, %u x %u x %u, %s", rows, s->size, s->size, how);
  return take(t, status, r.least, name);
}

static struct timed_pair product_pair(struct timing_run *t, const struct sizes *s) {
  struct timed_pair p = {.scalar = product(t, s, false, "without matrices")};
  p.matrices = product(t, s, true, "on matrices");
  return p;
}

// All of one size. The plan's own tile need not be of the list: the plan makes it smaller where memory is short.
static void time_tiles(struct timing_run *t) {
  apply(t, &(struct timed_choices){0});
  const struct plan_products usual = t->b->products;
  t->times.usual_tile = product(t, t->sizes, false, "the plan's tiles");
  for (uint8_t i = 0; i < PLAN_TILES; i++) {
    const struct plan_tile *tile = &plan_tiles[i];
    char how[48];
    if (plan_has_tile(&usual, tile)) continue;
    apply(t, &(struct timed_choices){.tile = i + 1});
    snprintf(how, sizeof how, "tiles of %u x %u x %u by %u x %u", tile->tile_t, tile->tile_n, tile->tile_k, tile->sub_t,
             tile->sub_n);
    if (plan_has_tile(&t->b->products, tile)) t->times.tile[i] = product(t, t->sizes, false, how);
  }
}

// ---------------------------------------------------------------- the delta rule

static double rule(struct timing_run *t, const struct sizes *s, uint32_t heads, bool matrices, deltaic_rule form) {
  static const char *const forms[] = {"without matrices", "token by token", "by chunks"};
  const uint32_t each = heads < MOST_HEADS ? heads : MOST_HEADS;
  deltaic_operator o = {.size = sizeof o,
                        .sequences = heads / each,
                        .tokens = s->tokens,
                        .heads = each,
                        .key = s->key,
                        .value = s->key,
                        .gated = true,
                        .rule = form,
                        .precision = matrices ? DELTAIC_PRECISION_FAST : DELTAIC_PRECISION_FLOAT32,
                        .repeat = REPEAT};
  deltaic_operator_result r = {0};
  char name[96];
  if (!going(t)) return 0;
  const deltaic_status status = deltaic_device_measure_operator(&t->device, &o, &r);
  if (!status && matrices && !strstr(r.kernels[0].name, "matrix")) return 0;
  snprintf(name, sizeof name, "delta rule, %u heads of %u, %u tokens, %s", heads, s->key, s->tokens,
           matrices ? "on matrices" : forms[form]);
  return take(t, status, r.least, name);
}

static struct timed_pair mixer_pair(struct timing_run *t, const struct sizes *s, uint32_t heads) {
  struct timed_pair p = {.scalar = rule(t, s, heads, false, DELTAIC_RULE_AUTO)};
  p.matrices = rule(t, s, heads, true, DELTAIC_RULE_CHUNK);
  return p;
}

// Chunks and token by token, around the work at which the plan changes between them.
static void time_works(struct timing_run *t) {
  const struct sizes *s = t->sizes;
  struct plan_delta d;
  for (uint32_t heads = 1; heads <= UINT16_MAX && t->times.works < TIMED_WORKS; heads *= s->work_step) {
    if (!plan_chunk_sizes(&t->b->rules, s->key, s->key, 1, heads, &d)) return;
    const uint64_t percent = plan_chunk_percent(&t->b->rules, &d, s->key, s->key, 1, heads);
    const uint64_t numbers = 4ull * heads * s->tokens * s->key; // q, k, v and o
    if (percent > MOST_PERCENT || 8 * sizeof(float) * numbers > t->b->base.info.memory_bytes) break;
    if (percent < LEAST_PERCENT) continue;
    const uint32_t i = t->times.works++;
    t->times.work[i].percent = percent;
    t->times.work[i].chunks = rule(t, s, heads, false, DELTAIC_RULE_CHUNK);
    t->times.work[i].tokens = rule(t, s, heads, false, DELTAIC_RULE_RECURRENT);
  }
}

// ---------------------------------------------------------------- all

static bool far_apart(const struct timed_pair *p) { return p->scalar > 0 && p->matrices > FAR * p->scalar; }

static void time_mixers(struct timing_run *t, bool small_only) {
  const struct sizes *s = t->sizes;
  if (!t->b->device->plan.matrix_m) return;
  if (s == &of_gpus) t->times.mixer = mixer_pair(t, &small, MOST_HEADS);
  if (!small_only && !far_apart(&t->times.mixer)) t->times.mixer = mixer_pair(t, s, MOST_HEADS);
}

// Matrices that are far slower in a small size would take minutes in a large one.
static struct timed_choices time_all(struct timing_run *t) {
  const bool matrices = t->b->device->plan.matrix_m;
  const struct sizes *s = t->sizes;
  apply(t, &(struct timed_choices){.products = TIMED_YES, .mixers = TIMED_YES});
  if (matrices && s == &of_gpus) t->times.product = product_pair(t, &small);
  if (matrices && !far_apart(&t->times.product)) t->times.product = product_pair(t, s);
  const bool far = far_apart(&t->times.product);
  time_tiles(t);
  time_works(t);
  struct timed_choices timed = timed_choose(&t->times);
  timed.mixers = TIMED_YES;
  apply(t, &timed);
  time_mixers(t, far);
  return timed_choose(&t->times);
}

// Collects all kernels to be timed, so that all cores compile them first. Otherwise the device idles during each
// compilation and must be warmed up again. Mixers are collected twice: their inputs are f32 if products turn out slower
// on matrices.
static void collect_all(struct recorder *c, void *context) {
  struct timing_run *t = context;
  t->device.collects = c;
  time_all(t);
  apply(t, &(struct timed_choices){.products = TIMED_NO, .mixers = TIMED_YES});
  time_mixers(t, false);
  t->device.collects = NULL;
  t->times = (struct timed_times){0};
}

// The pipelines of the choices are kept too, beside their file: the next time nothing is compiled.
static deltaic_status open_own(const deltaic_device *d, struct timing_run *t) {
  const struct device *device = ((struct vulkan_backend *)d->backend)->device;
  struct device *own;
  char *folder = strdup(d->timed_path);
  if (!folder) return fail_memory("the cache folder's name", strlen(d->timed_path));
  folder[platform_folder(folder)] = 0;
  deltaic_status status = device_open(device->instance, device->physical, &device->caps, &device->plan, folder, &own);
  free(folder);
  if (status) return status;
  own->compiling = device->compiling;
  own->compiling_user = device->compiling_user;
  status = backend_open_vulkan(own, &t->device.backend);
  if (status) return status;
  t->device.backend->info = d->backend->info;
  t->b = (struct vulkan_backend *)t->device.backend;
  return DELTAIC_OK;
}

static deltaic_status check_device(const deltaic_device *d, const char *function) {
  if (!d) return fail(DELTAIC_INVALID_ARGUMENT, "%s: device is NULL", function);
  if (!d->backend->replays)
    return fail(DELTAIC_UNSUPPORTED, "%s: the CPU has nothing that must be timed", d->backend->info.name);
  if (!d->timed_path)
    return fail(DELTAIC_BAD_STATE, "%s: choices cannot be kept, since the context has no cache folder", function);
  return DELTAIC_OK;
}

deltaic_status deltaic_device_time_choices(deltaic_device *d, bool (*report)(void *user, const deltaic_timing *timing),
                                           void *user) {
  struct timing_run t = {.report = report, .user = user};
  deltaic_status status = check_device(d, "deltaic_device_time_choices");
  if (!status) status = open_own(d, &t);
  if (status) return status;
  const bool software = measure_software(d->backend);
  t.sizes = software ? &of_software : &of_gpus;
  t.bounded = !software;
  const deltaic_status compiled = t.device.backend->functions->compile(t.device.backend, collect_all, &t);
  if (compiled == DELTAIC_CANCELLED || compiled == DELTAIC_DEVICE_LOST) t.status = compiled; // the rest is told below
  t.start = measure_now() - t.device.backend->functions->compile_seconds(t.device.backend);
  const struct timed_choices timed = time_all(&t);
  if (!t.status) t.status = timed_store(d->timed_path, &t.b->device->caps, &timed);
  t.device.backend->functions->close(t.device.backend);
  return t.status;
}

deltaic_status deltaic_device_forget_choices(deltaic_device *d) {
  const deltaic_status status = check_device(d, "deltaic_device_forget_choices");
  if (status || !file_exists(d->timed_path)) return status;
  const int code = platform_remove(d->timed_path);
  return code ? fail_errno(d->timed_path, "removed", code) : DELTAIC_OK;
}
