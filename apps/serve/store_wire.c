// store_wire: bytes between this process and the store, with a limit on the time of all waits together.
#include "store_wire.h"
#include "platform.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { IN_BYTES = 1 << 18, OUT_BYTES = 1 << 16, LARGE_REPLY = 1 << 17, MOST_REPLY = 512 << 20 };

struct wire {
  int fd;
  SSL_CTX *context;
  SSL *ssl; // NULL: no TLS
  struct wire_time *time;
  redisReader *reader;
  size_t queued;      // bytes of `out`
  size_t taken, have; // of `in`: bytes that were taken, and that there are
  char error[WIRE_ERROR], out[OUT_BYTES], in[IN_BYTES];
};

__attribute__((format(printf, 2, 3))) static bool broken(struct wire *w, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(w->error, sizeof w->error, format, list);
  va_end(list);
  return false;
}

static bool broken_tls(struct wire *w, const char *what) {
  const char *reason = ERR_reason_error_string(ERR_peek_last_error());
  const long verified = SSL_get_verify_result(w->ssl);
  if (verified != X509_V_OK) reason = X509_verify_cert_error_string(verified);
  return broken(w, "%s: %s", what, reason ? reason : "the connection was closed");
}

// ---------------------------------------------------------------- bytes

struct wire_time wire_time_of(uint32_t milliseconds) {
  const uint64_t ns = milliseconds * UINT64_C(1000000);
  return (struct wire_time){ns, ns};
}

// Milliseconds that are left, rounded up.
static int left(const struct wire *w) { return (int)((w->time->left + 999999) / 1000000); }

static void take_time(struct wire *w, uint64_t ns) { w->time->left -= ns < w->time->left ? ns : w->time->left; }

static bool await(struct wire *w, short events, const char *what) {
  struct pollfd p = {.fd = w->fd, .events = events};
  int ready;
  do {
    const uint64_t begin = platform_clock_ns();
    ready = poll(&p, 1, left(w));
    take_time(w, platform_clock_ns() - begin);
  } while (ready < 0 && errno == EINTR);
  if (ready > 0) return true;
  if (!ready) return broken(w, "%s: it takes longer than --store-timeout allows", what);
  return broken(w, "%s: %s", what, strerror(errno));
}

// Large values may take longer.
static void moved(struct wire *w, size_t bytes) {
  struct wire_time *t = w->time;
  const uint64_t more = bytes * (UINT64_C(1000000000) >> 20) / WIRE_LEAST_MIB;
  t->left = more < t->most - t->left ? t->left + more : t->most;
}

// Waits for what TLS asks for; false: it failed.
static bool await_tls(struct wire *w, int result, const char *what) {
  const int code = SSL_get_error(w->ssl, result);
  if (code == SSL_ERROR_WANT_READ) return await(w, POLLIN, what);
  if (code == SSL_ERROR_WANT_WRITE) return await(w, POLLOUT, what);
  return broken_tls(w, what);
}

static bool write_all(struct wire *w, const char *data, size_t bytes) {
  while (bytes) {
    const size_t some = bytes < (1u << 30) ? bytes : 1u << 30;
    ssize_t n;
    if (w->ssl) {
      ERR_clear_error();
      n = SSL_write(w->ssl, data, (int)some);
      if (n <= 0 && !await_tls(w, (int)n, "writing")) return false;
    } else {
      n = send(w->fd, data, some, MSG_NOSIGNAL);
      if (n < 0 && errno != EINTR) {
        if (errno != EAGAIN && errno != EWOULDBLOCK) return broken(w, "writing: %s", strerror(errno));
        if (!await(w, POLLOUT, "writing")) return false;
      }
    }
    if (n > 0) data += n, bytes -= (size_t)n, moved(w, (size_t)n);
  }
  return true;
}

// Reads what there is, at least a byte. 0: broken.
static size_t read_any(struct wire *w, char *to, size_t most) {
  const size_t some = most < (1u << 30) ? most : 1u << 30;
  for (;;) {
    if (w->ssl) {
      ERR_clear_error();
      const int n = SSL_read(w->ssl, to, (int)some);
      if (n > 0) return (size_t)n;
      if (!await_tls(w, n, "reading")) return 0;
    } else {
      const ssize_t n = recv(w->fd, to, some, 0);
      if (n > 0) return (size_t)n;
      if (!n) return broken(w, "the store closed the connection");
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return broken(w, "reading: %s", strerror(errno));
      if (!await(w, POLLIN, "reading")) return 0;
    }
  }
}

static size_t read_some(struct wire *w, char *to, size_t most) {
  const size_t bytes = read_any(w, to, most);
  moved(w, bytes);
  return bytes;
}

// ---------------------------------------------------------------- commands

struct wire_arg wire_text(const char *text) {
  return (struct wire_arg){text, strlen(text)};
}

static bool flush(struct wire *w) {
  const size_t bytes = w->queued;
  w->queued = 0;
  return write_all(w, w->out, bytes);
}

static bool put(struct wire *w, const void *data, size_t bytes) {
  if (bytes > sizeof w->out - w->queued && !flush(w)) return false;
  if (bytes > sizeof w->out) return write_all(w, data, bytes);
  memcpy(w->out + w->queued, data, bytes);
  w->queued += bytes;
  return true;
}

// Of a command, hiredis formats all but values that are worth not copying.
bool wire_send(struct wire *w, const struct wire_arg *args, size_t count) {
  const char *values[WIRE_ARGS];
  size_t sizes[WIRE_ARGS];
  const bool large = count && args[count - 1].bytes > OUT_BYTES;
  if (w->error[0]) return false;
  if (!count || count > WIRE_ARGS) return broken(w, "a command of %zu arguments", count);
  if (large) { // the same form, without a copy of the last argument
    char head[64];
    int n = snprintf(head, sizeof head, "*%zu\r\n", count);
    if (!put(w, head, (size_t)n)) return false;
    for (size_t i = 0; i < count; i++) {
      n = snprintf(head, sizeof head, "$%zu\r\n", args[i].bytes);
      if (!put(w, head, (size_t)n) || !put(w, args[i].data, args[i].bytes) || !put(w, "\r\n", 2)) return false;
    }
    return true;
  }
  for (size_t i = 0; i < count; i++) values[i] = args[i].data, sizes[i] = args[i].bytes;
  char *command;
  const long long bytes = redisFormatCommandArgv(&command, (int)count, values, sizes);
  if (bytes < 0) return broken(w, "no memory for a command");
  const bool sent = put(w, command, (size_t)bytes);
  redisFreeCommand(command);
  return sent;
}

// The bytes of a string's reply with its line end, from what has come and what still comes.
static redisReply *read_large(struct wire *w, size_t bytes) {
  redisReply *reply = calloc(1, sizeof *reply);
  char *string = malloc(bytes + 2);
  size_t have = w->have - w->taken < bytes + 2 ? w->have - w->taken : bytes + 2;
  bool good = (reply && string) || broken(w, "no memory for a reply");
  if (good) memcpy(string, w->in + w->taken, have);
  w->taken += have;
  for (size_t n; good && have < bytes + 2; have += n) good = (n = read_some(w, string + have, bytes + 2 - have)) > 0;
  if (good && memcmp(string + bytes, "\r\n", 2) != 0) good = broken(w, "the store sent what is no reply");
  if (!good) {
    free(string);
    free(reply);
    return NULL;
  }
  string[bytes] = 0;
  *reply = (redisReply){.type = REDIS_REPLY_STRING, .str = string};
  reply->len += bytes; // its type differs between versions
  return reply;
}

// hiredis copies a reply several times, so a large string is read beside it, straight to where it stays. False: it is
// for hiredis to read.
static bool large_reply(struct wire *w, redisReply **reply) {
  const char *line = w->in + w->taken;
  const size_t n = w->have - w->taken;
  if (w->reader->ridx >= 0 || w->reader->pos < w->reader->len || n < 3 || line[0] != '$' || line[1] < '1' ||
      line[1] > '9')
    return false;
  const char *end = memchr(line, '\n', n < 16 ? n : 16);
  char *stop;
  const unsigned long bytes = end ? strtoul(line + 1, &stop, 10) : 0;
  if (bytes < LARGE_REPLY || bytes > MOST_REPLY || *stop != '\r' || stop + 1 != end) return false;
  w->taken += (size_t)(end + 1 - line);
  *reply = read_large(w, bytes);
  return true;
}

redisReply *wire_reply(struct wire *w) {
  redisReply *large;
  if (w->error[0] || !flush(w)) return NULL;
  for (;;) {
    void *reply = NULL;
    if (large_reply(w, &large)) return large;
    if (w->taken < w->have && redisReaderFeed(w->reader, w->in + w->taken, w->have - w->taken) != REDIS_OK) {
      broken(w, "no memory for a reply");
      return NULL;
    }
    w->taken = w->have = 0;
    if (redisReaderGetReply(w->reader, &reply) != REDIS_OK) {
      broken(w, "the store sent what is no reply: %s", w->reader->errstr);
      return NULL;
    }
    if (reply) return reply;
    w->have = read_some(w, w->in, sizeof w->in);
    if (!w->have) return NULL;
  }
}

redisReply *wire_command(struct wire *w, const struct wire_arg *args, size_t count) {
  return wire_send(w, args, count) ? wire_reply(w) : NULL;
}

const char *wire_error(const struct wire *w) { return w->error; }

// ---------------------------------------------------------------- opening

static bool connect_to(struct wire *w, const struct addrinfo *to) {
  w->fd = socket(to->ai_family, to->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, to->ai_protocol);
  if (w->fd < 0) return broken(w, "connecting: %s", strerror(errno));
  const int on = 1;
  setsockopt(w->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  int error = connect(w->fd, to->ai_addr, to->ai_addrlen) ? errno : 0;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof error;
    if (!await(w, POLLOUT, "connecting")) return false;
    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &size)) error = errno;
  }
  return !error || broken(w, "connecting: %s", strerror(error));
}

static bool connect_any(struct wire *w, const struct store_address *a) {
  const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
  struct addrinfo *list;
  const int code = getaddrinfo(a->host, a->port, &hints, &list);
  if (code) return broken(w, "%s: %s", a->host, gai_strerror(code));
  bool connected = false;
  struct wire_time *whole = w->time;
  unsigned addresses = 0;
  for (const struct addrinfo *at = list; at; at = at->ai_next) ++addresses;
  for (const struct addrinfo *at = list; at && !connected; at = at->ai_next, --addresses) {
    const uint64_t share = whole->left / addresses; // each has its share of the time
    struct wire_time time = {share, share};
    if (w->fd >= 0) close(w->fd);
    w->time = &time;
    connected = connect_to(w, at);
    whole->left -= share - time.left;
  }
  w->time = whole;
  freeaddrinfo(list);
  if (connected) w->error[0] = 0; // that of another address of the host
  return connected;
}

// The certificate must be the host's, by name or by address.
static bool start_tls(struct wire *w, const struct wire_options *o) {
  const char *host = o->address->host;
  unsigned char address[16];
  w->context = SSL_CTX_new(TLS_client_method());
  if (!w->context) return broken(w, "TLS cannot be started");
  SSL_CTX_set_min_proto_version(w->context, TLS1_2_VERSION);
  SSL_CTX_set_mode(w->context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  SSL_CTX_set_verify(w->context, SSL_VERIFY_PEER, NULL);
  if (o->ca ? !SSL_CTX_load_verify_locations(w->context, o->ca, NULL) : !SSL_CTX_set_default_verify_paths(w->context))
    return broken(w, "%s: no certificates can be read from it", o->ca ? o->ca : "the system's certificates");
  w->ssl = SSL_new(w->context);
  if (!w->ssl || !SSL_set_fd(w->ssl, w->fd)) return broken(w, "TLS cannot be started");
  const bool number = inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1;
  if (number ? !X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(w->ssl), host)
             : !SSL_set1_host(w->ssl, host) || !SSL_set_tlsext_host_name(w->ssl, host))
    return broken(w, "TLS cannot be started");
  for (;;) {
    ERR_clear_error();
    const int n = SSL_connect(w->ssl);
    if (n == 1) return true;
    if (!await_tls(w, n, "TLS")) return false;
  }
}

// Sends a command whose answer is OK.
static bool ask(struct wire *w, const struct wire_arg *args, size_t count) {
  redisReply *reply = wire_command(w, args, count);
  if (!reply) return false;
  const bool fine = reply->type != REDIS_REPLY_ERROR;
  if (!fine) broken(w, "the store refuses: %.150s", reply->str);
  freeReplyObject(reply);
  return fine;
}

static bool sign_in(struct wire *w, const struct store_address *a) {
  char db[16];
  snprintf(db, sizeof db, "%u", a->db);
  const struct wire_arg named[] = {wire_text("AUTH"), wire_text(a->user), wire_text(a->password)};
  const struct wire_arg plain[] = {wire_text("AUTH"), wire_text(a->password)};
  const struct wire_arg choose[] = {wire_text("SELECT"), wire_text(db)};
  if (a->password[0] && !(a->user[0] ? ask(w, named, 3) : ask(w, plain, 2))) return false;
  return !a->db || ask(w, choose, 2);
}

struct wire *wire_open(const struct wire_options *o, char *error) {
  struct wire *w = calloc(1, sizeof *w);
  if (!w) {
    snprintf(error, WIRE_ERROR, "no memory for a connection");
    return NULL;
  }
  w->fd = -1;
  w->time = o->time;
  w->reader = redisReaderCreate();
  if ((w->reader || broken(w, "no memory for a connection")) && connect_any(w, o->address) &&
      (!o->address->tls || start_tls(w, o)) && sign_in(w, o->address))
    return w;
  snprintf(error, WIRE_ERROR, "%s", w->error);
  wire_close(w);
  return NULL;
}

void wire_set_time(struct wire *w, struct wire_time *time) { w->time = time; }

void wire_close(struct wire *w) {
  if (!w) return;
  SSL_free(w->ssl);
  SSL_CTX_free(w->context);
  if (w->fd >= 0) close(w->fd);
  if (w->reader) redisReaderFree(w->reader);
  free(w);
}
