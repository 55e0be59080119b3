// serve_route: what a URL asks for.
#ifndef SERVE_ROUTE_H
#define SERVE_ROUTE_H
#include <stdbool.h>

enum route {
  ROUTE_NONE,
  ROUTE_COMPLETIONS,
  ROUTE_CHAT,
  ROUTE_RESPONSES,
  ROUTE_MODELS,
  ROUTE_STATES,
  ROUTE_RESPONSE, // one that is kept
  ROUTE_HEALTH,
  ROUTE_METRICS,
  ROUTE_PAGE
};

// methods: those that the URL takes, as Allow has them. method_right: whether the method is one. rest: what follows a
// URL that ends with '/'; NULL: nothing.
enum route route_of(const char *url, const char *method, const char **methods, bool *method_right, const char **rest);
#endif
