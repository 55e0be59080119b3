// devices: prints every device with its limits and its execution plan.
#include "devices.h"
#include "command.h"
#include "common.h"
#include "print.h"

#include <stdio.h>
#include <stdlib.h>

static const struct usage usage = {
    .name = "devices",
    .arguments = "[options]",
    .summary = "Lists every Vulkan device and the CPU, with its limits and what this program plans to do on it.",
    .text = "--device of the other commands takes a number or a part of a name from this list. The star marks what "
            "--device best, the default, takes: a GPU if there is one, else the CPU.",
    .examples = "  deltaic devices\n"
                "  deltaic devices --brief\n"
                "  deltaic devices --check\n"
                "  deltaic devices --json | jq -r '.devices[] | select(.usable) | .name'\n",
};

struct list {
  deltaic_device_info *infos;
  size_t count;
  int32_t best; // DELTAIC_DEVICE_BEST: no device can be opened
};

static int list_devices(deltaic_context *context, struct list *list) {
  deltaic_status status = deltaic_devices(context, NULL, 0, &list->count);
  if (status) return complain_status(status);
  size_t capacity = list->count;
  list->infos = must_resize(NULL, capacity * sizeof *list->infos);
  status = deltaic_devices(context, list->infos, capacity, &list->count);
  if (list->count > capacity) list->count = capacity; // a device was added between the two calls
  return complain_status(status);
}

// Finds the best device by opening it.
static int32_t find_best(deltaic_context *context) {
  deltaic_device *device;
  deltaic_device_info info;
  if (deltaic_device_open(context, NULL, &device)) return DELTAIC_DEVICE_BEST;
  deltaic_device_get_info(device, &info);
  deltaic_device_close(device);
  return info.index;
}

static struct text index_text(int32_t index) {
  struct text out;
  if (index < 0)
    snprintf(out.text, sizeof out.text, "cpu");
  else
    snprintf(out.text, sizeof out.text, "%d", index);
  return out;
}

static void print_table(const struct list *list) {
  struct table table;
  table_begin(&table, "llllrl");
  table_row(&table, "", "#", "name", "kind", "memory", "driver");
  for (size_t i = 0; i < list->count; ++i) {
    const deltaic_device_info *d = &list->infos[i];
    table_row(&table, d->index == list->best ? "*" : "", index_text(d->index).text, d->name, device_kind_text(d->kind),
              text_bytes(d->memory_bytes).text, d->usable ? d->driver : "not usable");
  }
  table_end(&table, 0);
}

static void print_indented(const char *text) {
  while (*text) {
    size_t length = 0;
    while (text[length] && text[length] != '\n') ++length;
    printf("  %.*s\n", (int)length, text);
    text += length + (text[length] == '\n');
  }
}

static int print_descriptions(deltaic_context *context, const struct list *list) {
  for (size_t i = 0; i < list->count; ++i) {
    const deltaic_device_info *d = &list->infos[i];
    printf("\n%s: %s\n", index_text(d->index).text, d->name);
    if (!d->usable) printf("  not usable: %s\n", d->reason);
    char *text = devices_describe(context, d->index);
    if (!text) return EXIT_FAILED;
    print_indented(text);
    free(text);
  }
  return EXIT_OK;
}

static json_t *device_json(deltaic_context *context, const deltaic_device_info *d) {
  char *text = devices_describe(context, d->index);
  if (!text) return NULL;
  json_t *out = json_pack("{s:i, s:o, s:o, s:o, s:b, s:o, s:I, s:I, s:o, s:o, s:o}", "index", d->index, "name",
                          text_json(d->name), "kind", text_json(device_kind_text(d->kind)), "driver",
                          text_json(d->driver), "usable", d->usable, "reason", text_json(d->reason), "memory_bytes",
                          (json_int_t)d->memory_bytes, "free_bytes", (json_int_t)d->free_bytes, "uuid",
                          text_json(uuid_text(d->uuid).text), "pci", text_json(d->pci), "description", text_json(text));
  free(text);
  return out;
}

static int print_json(deltaic_context *context, const struct list *list) {
  json_t *devices = json_array();
  for (size_t i = 0; i < list->count; ++i) {
    if (!json_array_append_new(devices, device_json(context, &list->infos[i]))) continue;
    json_decref(devices);
    return EXIT_FAILED;
  }
  json_t *best = list->best == DELTAIC_DEVICE_BEST ? json_null() : json_integer(list->best);
  return json_finish(json_pack("{s:o, s:o}", "best", best, "devices", devices));
}

int command_devices(int argc, char **argv) {
  struct engine_options engine = ENGINE_DEFAULTS;
  struct arguments arguments;
  bool as_json = false, brief = false;
  struct devices_work work = {0};
  int code;
  const struct option options[] = {
      HEADING("options"),
      FLAG('b', "brief", &brief, "the list alone"),
      FLAG('c', "check", &work.check,
           "run every kernel of one device and compare it with the CPU; exit code 1 if one is wrong; on a GPU, time "
           "what no table can know, and keep the faster choices for later runs"),
      FLAG(0, "time", &work.time, "time these choices alone; also on a software device"),
      FLAG(0, "forget", &work.forget, "forget the choices of one device"),
      TEXT('d', "device", "WHICH", &engine.device, "of these three: best, a number, a part of a name or a UUID"),
      TEXT(0, "cache-dir", "DIR", &engine.cache_dir,
           "folder for compiled pipelines and these choices; \"\": none; without it, deltaic below $XDG_CACHE_HOME or "
           "~/.cache"),
      FLAG(0, "json", &as_json, "print one JSON object"),
      OPTIONS_END,
  };
  if (!options_parse(&usage, options, argc, argv, &arguments, &code)) return code;
  deltaic_context *context;
  struct list list = {0};
  if (work.check || work.time || work.forget) return devices_work(&engine, &work, as_json);
  if ((code = context_open(&engine, &context))) return code;
  code = list_devices(context, &list);
  if (!code) list.best = find_best(context);
  if (!code && as_json) {
    code = print_json(context, &list);
  } else if (!code) {
    print_table(&list);
    if (!brief) code = print_descriptions(context, &list);
  }
  free(list.infos);
  deltaic_context_free(context);
  return code;
}
