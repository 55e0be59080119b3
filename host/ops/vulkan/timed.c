// timed: choices from times that were measured on a device, and the file that keeps them.
#include "timed.h"

#include "cache.h"
#include "file.h"
#include "json.h"
#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 2, MOST_BYTES = 1 << 16, MOST_PERCENT = 10000 };

// ---------------------------------------------------------------- choices

static uint8_t faster_on_matrices(const struct timed_pair *p) {
  if (p->matrices <= 0 || p->scalar <= 0) return TIMED_UNKNOWN;
  return p->matrices < p->scalar ? TIMED_YES : TIMED_NO;
}

// Where the times of chunks and of tokens cross, on logarithmic scales. Chunks that are never slower keep to what was
// measured, but not to less than the plan's limit: where times are missing, the plan knows more. Chunks that are slower
// with the least work are not taken.
static uint16_t chunk_percent(const struct timed_times *t) {
  double before = 0, percent = 0;
  for (uint32_t i = 0; i < t->works; i++) {
    if (t->work[i].chunks <= 0 || t->work[i].tokens <= 0 || !t->work[i].percent) continue;
    const double ratio = log(t->work[i].chunks / t->work[i].tokens), at = log((double)t->work[i].percent);
    if (ratio > 0 && percent == 0) return PLAN_CHUNKS_NEVER;
    if (ratio > 0) {
      percent = exp(log(percent) + (at - log(percent)) * -before / (ratio - before));
      return (uint16_t)fmin(round(percent), MOST_PERCENT);
    }
    before = ratio;
    percent = (double)t->work[i].percent;
  }
  return percent < 100 ? 0 : (uint16_t)fmin(percent, MOST_PERCENT);
}

// The plan's tile stays unless another one is clearly faster: one shape is timed, and layers have many.
static uint8_t fastest_tile(const struct timed_times *t) {
  double least = 0.95 * t->usual_tile;
  uint8_t best = 0;
  for (uint8_t i = 0; i < PLAN_TILES; i++)
    if (t->tile[i] > 0 && t->tile[i] < least) {
      least = t->tile[i];
      best = i + 1;
    }
  return best;
}

struct timed_choices timed_choose(const struct timed_times *times) {
  return (struct timed_choices){.products = faster_on_matrices(&times->product),
                                .mixers = faster_on_matrices(&times->mixer),
                                .chunk_percent = chunk_percent(times),
                                .tile = fastest_tile(times)};
}

// ---------------------------------------------------------------- text

struct tile_name {
  char text[32];
};

static struct tile_name name_of(const struct plan_tile *t) {
  struct tile_name name;
  snprintf(name.text, sizeof name.text, "%ux%ux%u, %ux%u", t->tile_t, t->tile_n, t->tile_k, t->sub_t, t->sub_n);
  return name;
}

int timed_describe(const struct timed_choices *t, char *text, uint64_t capacity) {
  static const char *const on[] = {"", "without matrices", "on matrices"};
  char products[64] = "", mixers[64] = "", chunks[96] = "", tile[64] = "";
  if (t->products) snprintf(products, sizeof products, ", products %s", on[t->products]);
  if (t->mixers) snprintf(mixers, sizeof mixers, ", mixers %s", on[t->mixers]);
  if (t->chunk_percent)
    snprintf(chunks, sizeof chunks, ", chunks up to %u %% of the usual work", (unsigned)t->chunk_percent);
  if (t->tile) snprintf(tile, sizeof tile, ", tiles of %s", name_of(&plan_tiles[t->tile - 1]).text);
  char all[sizeof products + sizeof mixers + sizeof chunks + sizeof tile];
  const int length = snprintf(all, sizeof all, "%s%s%s%s", products, mixers, chunks, tile);
  return snprintf(text, capacity, "%s", length ? all + 2 : "nothing");
}

// ---------------------------------------------------------------- the file

struct identity {
  char text[24];
};

static struct identity identity_of(const struct device_caps *caps) {
  struct identity id;
  snprintf(id.text, sizeof id.text, "%016llx", (unsigned long long)cache_identity(caps));
  return id;
}

char *timed_path(const char *dir, const struct device_caps *caps) { return cache_path(dir, caps, "timed.json"); }

static uint8_t read_way(struct json_reader *r, const json_t *object, const char *key) {
  if (!json_present(object, key)) return TIMED_UNKNOWN;
  return json_bool(r, object, key, false) ? TIMED_YES : TIMED_NO;
}

static uint8_t read_tile(struct json_reader *r, const json_t *object) {
  const char *name = json_text(r, object, "tile", NULL);
  if (!name) return 0;
  for (uint8_t i = 0; i < PLAN_TILES; i++)
    if (!strcmp(name, name_of(&plan_tiles[i]).text)) return i + 1;
  if (!r->status) r->status = fail(DELTAIC_BAD_FILE, "%s: there is no tile \"%.40s\"", r->file, name);
  return 0;
}

static deltaic_status read_choices(struct json_reader *r, const json_t *object, const struct device_caps *caps,
                                   struct timed_choices *out) {
  if (!json_is_object(object)) return fail(DELTAIC_BAD_FILE, "%s: it is not a JSON object", r->file);
  const int64_t version = json_int(r, object, "version", 0, 0, INT32_MAX);
  if (!r->status && version != VERSION)
    return fail(DELTAIC_BAD_FILE, "%s: its version is %d, not %d", r->file, (int)version, VERSION);
  const char *identity = json_text(r, object, "identity", "");
  if (!r->status && strcmp(identity, identity_of(caps).text))
    return fail(DELTAIC_BAD_FILE, "%s: it is of another device or driver", r->file);
  *out = (struct timed_choices){.products = read_way(r, object, "products_on_matrices"),
                                .mixers = read_way(r, object, "mixers_on_matrices"),
                                .chunk_percent = (uint16_t)json_int(r, object, "chunk_percent", 0, 0, MOST_PERCENT),
                                .tile = read_tile(r, object)};
  return r->status;
}

deltaic_status timed_load(const char *path, const struct device_caps *caps, struct timed_choices *out) {
  struct file_view view;
  json_t *object = NULL;
  *out = (struct timed_choices){0};
  if (!path || !file_exists(path)) return DELTAIC_OK;
  struct json_reader r = {.file = path};
  deltaic_status status = file_map(path, &view);
  if (status) return status;
  if (view.bytes > MOST_BYTES)
    status = fail(DELTAIC_BAD_FILE, "%s: it has more than %d bytes", path, MOST_BYTES);
  else
    status = json_parse(path, view.data, view.bytes, &object);
  if (!status) status = read_choices(&r, object, caps, out);
  if (status) *out = (struct timed_choices){0};
  json_decref(object);
  file_unmap(&view);
  return status;
}

static json_t *way_json(uint8_t way) { return way ? json_boolean(way == TIMED_YES) : json_null(); }

deltaic_status timed_store(const char *path, const struct device_caps *caps, const struct timed_choices *t) {
  json_t *object = json_pack("{s:i, s:s, s:o, s:o, s:i}", "version", VERSION, "identity", identity_of(caps).text,
                             "products_on_matrices", way_json(t->products), "mixers_on_matrices", way_json(t->mixers),
                             "chunk_percent", t->chunk_percent);
  // Of interest to readers; a name that is not UTF-8 is left out.
  json_object_set_new(object, "device", json_string(caps->name));
  json_object_set_new(object, "driver", json_string(caps->driver));
  if (t->tile) json_object_set_new(object, "tile", json_string(name_of(&plan_tiles[t->tile - 1]).text));
  char *text = object ? json_dumps(object, JSON_INDENT(2)) : NULL;
  deltaic_status status = text ? cache_folders(path) : fail_memory("the timed choices", MOST_BYTES);
  if (!status) status = file_replace(path, text, strlen(text));
  free(text);
  json_decref(object);
  return status;
}
