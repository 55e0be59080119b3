// serve_origin: where a request comes from: a browser's page of another origin, and the client's address.
#include "serve_http.h"

#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <strings.h>

// Whether the Host is an address, localhost, or what --host says.
static bool is_own_name(const struct http *http, const char *host) {
  const char *const names[] = {"localhost", http->server->options.host};
  const size_t length = strcspn(host, ":");
  for (int i = 0; i < 2; i++)
    if (strlen(names[i]) == length && !strncasecmp(host, names[i], length)) return true;
  return host[0] == '[' || (length && strspn(host, "0123456789.") == length);
}

static const char *header(struct MHD_Connection *connection, const char *name) {
  return MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
}

// Whoever owns a name can let it point to this machine; then a page of that name is of the server's own origin for a
// browser, which sends no Origin when such a page only reads. Browsers always send Host; some health checks do not.
const char *origin_foreign_name(const struct http *http, struct MHD_Connection *connection) {
  const char *host = header(connection, "Host");
  return http->keys.count || !host || is_own_name(http, host) ? NULL : host;
}

// A browser's page of another origin may not use the server of whoever looks at it.
bool origin_foreign(struct MHD_Connection *connection) {
  const char *origin = header(connection, "Origin"), *host = header(connection, "Host");
  const char *name = origin ? strstr(origin, "://") : NULL;
  return origin && (!name || !host || strcmp(name + 3, host) != 0);
}

uint64_t origin_hash(struct MHD_Connection *connection) {
  const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  char host[NI_MAXHOST] = "";
  if (info)
    getnameinfo(info->client_addr,
                info->client_addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in),
                host, sizeof host, NULL, 0, NI_NUMERICHOST);
  uint64_t hash = 14695981039346656037u;
  for (const char *c = host; *c; ++c) hash = (hash ^ (uint8_t)*c) * 1099511628211u;
  return hash | (uint64_t)1 << 63;
}
