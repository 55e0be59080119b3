// serve_route: see serve_route.h.
#include "serve_route.h"

#include <string.h>

// words: with a comma and a space between any two.
static bool has_word(const char *words, const char *word) {
  const size_t length = strlen(word);
  for (const char *at = words; length && (at = strstr(at, word)); at += length)
    if ((at == words || at[-1] == ' ') && (!at[length] || at[length] == ',')) return true;
  return false;
}

enum route route_of(const char *url, const char *method, const char **methods, bool *method_right, const char **rest) {
  static const struct {
    const char *url, *methods;
    enum route route;
  } routes[] = {
      {"/v1/completions", "POST", ROUTE_COMPLETIONS},
      {"/v1/chat/completions", "POST", ROUTE_CHAT},
      {"/v1/responses", "POST", ROUTE_RESPONSES},
      {"/v1/models", "GET", ROUTE_MODELS},
      {"/v1/states", "POST", ROUTE_STATES},
      {"/health", "GET, HEAD", ROUTE_HEALTH},
      {"/metrics", "GET", ROUTE_METRICS},
      {"/", "GET, HEAD", ROUTE_PAGE},
      {"/v1/models/", "GET", ROUTE_MODELS},
      {"/v1/responses/", "GET, DELETE", ROUTE_RESPONSE},
      {"/v1/states/", "GET, PUT, DELETE", ROUTE_STATES},
  };
  *rest = NULL;
  for (size_t i = 0; i < sizeof routes / sizeof *routes; ++i) {
    const size_t length = strlen(routes[i].url);
    const bool parent = length > 1 && routes[i].url[length - 1] == '/';
    if (parent ? strncmp(url, routes[i].url, length) != 0 || !url[length] : strcmp(url, routes[i].url) != 0) continue;
    if (parent) *rest = url + length;
    *methods = routes[i].methods;
    *method_right = has_word(routes[i].methods, method);
    return routes[i].route;
  }
  return ROUTE_NONE;
}
