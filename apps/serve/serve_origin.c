// serve_origin: where a request comes from: a browser's page of another origin, and the client's address.
#include "serve_http.h"

#include <netdb.h>
#include <netinet/in.h>
#include <string.h>

// Whether the Host of a request is an address, localhost, or what --host says. Any other name is somebody's who can let
// it point to this machine.
static bool is_own_name(const struct http *http, const char *host) {
  const char *const names[] = {"localhost", http->server->options.host};
  const size_t length = strcspn(host, ":");
  for (int i = 0; i < 2; i++)
    if (strlen(names[i]) == length && !strncmp(host, names[i], length)) return true;
  return host[0] == '[' || (length && strspn(host, "0123456789.") == length);
}

// A browser's page of another origin may not use the server of whoever looks at it. Keys keep such pages out too.
bool origin_foreign(const struct http *http, struct MHD_Connection *connection) {
  const char *origin = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Origin");
  const char *host = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Host");
  if (!origin) return false;
  const char *name = strstr(origin, "://");
  return !name || !host || strcmp(name + 3, host) != 0 || (!http->keys.count && !is_own_name(http, host));
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
