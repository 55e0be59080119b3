// store_address: reads redis://[user:password@]host[:port][/db].
#include "store_wire.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c |= 0x20;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Copies a part of the URL, %XX decoded. false: it is too long, or holds a NUL or half a %XX.
static bool take(char *out, size_t room, const char *from, size_t bytes) {
  size_t n = 0;
  for (size_t i = 0; i < bytes; i++) {
    char c = from[i];
    if (c == '%') {
      if (bytes - i < 3 || digit_of(from[i + 1]) < 0 || digit_of(from[i + 2]) < 0) return false;
      c = (char)(digit_of(from[i + 1]) * 16 + digit_of(from[i + 2]));
      i += 2;
    }
    if (!c || n + 1 >= room) return false;
    out[n++] = c;
  }
  out[n] = 0;
  return true;
}

// A whole number up to `most`, or -1.
static long number_of(const char *text, long most) {
  char *end;
  if (*text < '0' || *text > '9') return -1;
  const long value = strtol(text, &end, 10);
  return *end || value > most ? -1 : value;
}

const char *store_address_parse(const char *url, struct store_address *out) {
  struct store_address a = {.port = "6379"};
  if (!strncmp(url, "redis://", 8))
    url += 8;
  else if (!strncmp(url, "rediss://", 9))
    url += 9, a.tls = true;
  else
    return "the store's address begins with neither redis:// nor rediss://";
  const size_t whole = strcspn(url, "/?#");
  const char *host = url, *end = url + whole;
  for (const char *c = url; c < end; c++)
    if (*c == '@') host = c + 1;
  if (host > url) {
    const size_t bytes = (size_t)(host - 1 - url), user = strcspn(url, ":@");
    if (user >= bytes || !take(a.user, sizeof a.user, url, user) ||
        !take(a.password, sizeof a.password, url + user + 1, bytes - user - 1))
      return "the store's address needs user:password before the @, or :password, with %XX for special characters";
  }
  const char *port = NULL;
  size_t length = (size_t)(end - host);
  if (*host == '[') { // an IPv6 address
    const char *close = memchr(host, ']', length);
    if (!close) return "the store's address has a [ without a ]";
    if (close + 1 < end) port = close + 1;
    host++;
    length = (size_t)(close - host);
  } else {
    port = memchr(host, ':', length);
    if (port) length = (size_t)(port - host);
  }
  if (!length || !take(a.host, sizeof a.host, host, length)) return "the store's address has no usable host name";
  if (port && (*port != ':' || !take(a.port, sizeof a.port, port + 1, (size_t)(end - port - 1)) ||
               number_of(a.port, 65535) < 1))
    return "the store's address has no usable port";
  if (*end == '?' || *end == '#') return "the store's address has something behind its host that is no database";
  if (*end && end[1]) {
    const long db = number_of(end + 1, 1 << 20);
    if (db < 0) return "the store's database is no number";
    a.db = (uint32_t)db;
  }
  *out = a;
  return NULL;
}
