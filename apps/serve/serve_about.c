// serve_about: answers about the server itself: its health, figures, model and page.
#include "common.h"
#include "serve_http.h"
#include "serve_page.h"

#include <stdlib.h>
#include <string.h>

static struct reply copied(const char *type, const void *bytes, size_t size) {
  struct reply out = {200, type, malloc(size), size, 0};
  if (!out.body) return reply_json(500, NULL);
  memcpy(out.body, bytes, size);
  return out;
}

struct reply about_health(void) {
  static const char good[] = "{\"status\":\"ok\"}\n", ending[] = "{\"status\":\"ending\"}\n";
  if (!interrupted()) return copied("application/json", good, sizeof good - 1);
  struct reply out = copied("application/json", ending, sizeof ending - 1);
  out.status = 503;
  return out;
}

struct reply about_metrics(struct http *http) {
  struct reply out = {200, "text/plain; version=0.0.4", NULL, 0, 0};
  out.body = metrics_text(&http->server->metrics, &out.bytes);
  return out.body ? out : reply_json(500, NULL);
}

struct reply about_models(struct http *http, const char *name) {
  const struct server *s = http->server;
  json_t *model = json_pack("{s:s, s:s, s:I, s:s}", "id", s->name, "object", "model", "created", (json_int_t)s->started,
                            "owned_by", "deltaic");
  if (!name) model = json_pack("{s:s, s:[o]}", "object", "list", "data", model);
  char *text = json_dumps(model, JSON_COMPACT);
  json_decref(model);
  if (!name || !strcmp(name, s->name)) return reply_json(200, text);
  struct problem problem = {0};
  free(text);
  problem_set(&problem, 404, "model", "model_not_found", "there is no model \"%.100s\" here", name);
  return reply_refuse(&problem);
}

struct reply about_page(void) {
  return copied("text/html; charset=utf-8", serve_page, sizeof serve_page);
}
