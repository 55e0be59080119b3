// serve_http: listens, and sends each request where it belongs.
#include "common.h"
#include "serve.h"
#include "serve_page.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>

struct http {
  struct server *server;
  struct MHD_Daemon *daemon;
};

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type, const void *bytes,
                             size_t size) {
  struct MHD_Response *response =
      MHD_create_response_from_buffer(size, (void *)(uintptr_t)bytes, MHD_RESPMEM_MUST_COPY);
  if (!response) return MHD_NO;
  MHD_add_response_header(response, "Content-Type", type);
  enum MHD_Result result = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return result;
}

static enum MHD_Result reply_metrics(struct http *http, struct MHD_Connection *connection) {
  size_t bytes;
  char *text = metrics_text(&http->server->metrics, &bytes);
  if (!text) return MHD_NO;
  enum MHD_Result result = reply(connection, MHD_HTTP_OK, "text/plain; version=0.0.4", text, bytes);
  free(text);
  return result;
}

static enum MHD_Result answer(void *user, struct MHD_Connection *connection, const char *url, const char *method,
                              const char *version, const char *body, size_t *body_bytes, void **state) {
  struct http *http = user;
  static const char health[] = "{\"status\":\"ok\"}\n", nothing[] = "{\"error\":{\"message\":\"not found\"}}\n";
  (void)method, (void)version, (void)body, (void)body_bytes, (void)state;
  if (!strcmp(url, "/health")) return reply(connection, MHD_HTTP_OK, "application/json", health, sizeof health - 1);
  if (!strcmp(url, "/metrics")) return reply_metrics(http, connection);
  if (!strcmp(url, "/"))
    return reply(connection, MHD_HTTP_OK, "text/html; charset=utf-8", serve_page, sizeof serve_page);
  return reply(connection, MHD_HTTP_NOT_FOUND, "application/json", nothing, sizeof nothing - 1);
}

int http_start(struct server *server, struct http **out) {
  const struct serve_options *o = &server->options;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)o->port)};
  if (inet_pton(AF_INET, o->host, &address.sin_addr) != 1)
    return complain(EXIT_USAGE, "--host takes an IPv4 address, not \"%s\"", o->host);
  struct http *http = must_resize(NULL, sizeof *http);
  http->server = server;
  http->daemon =
      MHD_start_daemon(MHD_USE_INTERNAL_POLLING_THREAD | MHD_ALLOW_SUSPEND_RESUME, (uint16_t)o->port, NULL, NULL,
                       answer, http, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_END);
  *out = http;
  if (http->daemon) return EXIT_OK;
  free(http);
  return complain(EXIT_FAILED, "cannot listen on %s, port %u", o->host, o->port);
}

void http_stop(struct http *http) {
  if (!http) return;
  MHD_stop_daemon(http->daemon);
  free(http);
}
