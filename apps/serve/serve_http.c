// serve_http: listens, and bounds the connections and their time.
#include "serve_http.h"
#include "common.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>

enum { HEADER_BYTES = 32 << 10, SPARE_CONNECTIONS = 32, OTHER_FILES = 64, THREADS = 4 };

// The kernel closes a connection whose client reads nothing for this time. Otherwise the server would notice only when
// the kernel's send buffer is full, after megabytes.
static void bound_stall(int socket, unsigned milliseconds) {
  setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof milliseconds);
}

static void visit(void *user, struct MHD_Connection *connection, void **context,
                  enum MHD_ConnectionNotificationCode code) {
  struct http *http = user;
  struct visitor *v = *context;
  if (code == MHD_CONNECTION_NOTIFY_STARTED) {
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    v = *context = calloc(1, sizeof *v);
    if (!v) return;
    v->socket = info->connect_fd;
    v->since = time_now();
    bound_stall(v->socket, 1000 * http->server->options.timeout);
    pthread_mutex_lock(&http->lock);
    v->after = http->visitors;
    if (v->after) v->after->before = v;
    http->visitors = v;
    metrics_set(&http->server->metrics, METRIC_CONNECTIONS, (int64_t)++http->visitor_count);
    pthread_mutex_unlock(&http->lock);
  } else if (v) {
    pthread_mutex_lock(&http->lock);
    *(v->before ? &v->before->after : &http->visitors) = v->after;
    if (v->after) v->after->before = v->before;
    metrics_set(&http->server->metrics, METRIC_CONNECTIONS, (int64_t)--http->visitor_count);
    pthread_mutex_unlock(&http->lock);
    free(v);
    *context = NULL;
  }
}

// Ends connections that send their request, or take their answer, too slowly.
void http_tick(struct http *http) {
  const double now = time_now(), most = http->server->options.timeout;
  pthread_mutex_lock(&http->lock);
  for (struct visitor *v = http->visitors; v; v = v->after)
    if ((v->since > 0 && now - v->since > most) || (v->answered > 0 && now - v->answered > most))
      shutdown(v->socket, SHUT_RDWR);
  pthread_mutex_unlock(&http->lock);
}

bool http_answers(struct http *http) {
  bool some = false;
  pthread_mutex_lock(&http->lock);
  for (const struct visitor *v = http->visitors; v && !some; v = v->after) some = v->since == 0;
  pthread_mutex_unlock(&http->lock);
  return some;
}

// ---------------------------------------------------------------- begin and end

// What libmicrohttpd says, one line a second at most: clients cause most of it.
__attribute__((format(printf, 2, 0))) static void log_line(void *user, const char *format, va_list args) {
  struct http *http = user;
  const int64_t now = (int64_t)time_now();
  char text[256];
  if (atomic_exchange(&http->said, now) == now) return;
  vsnprintf(text, sizeof text, format, args);
  text[strcspn(text, "\n")] = 0;
  complain(EXIT_OK, "libmicrohttpd: %s", text);
}

static int listen_at(struct http *http, const struct sockaddr *address, bool six) {
  const struct serve_options *o = &http->server->options;
  unsigned flags =
      MHD_USE_AUTO_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME | (six ? MHD_USE_IPv6 : 0) | MHD_USE_ERROR_LOG;
  http->daemon = MHD_start_daemon(flags, 0, NULL, NULL, exchange_answer, http, MHD_OPTION_EXTERNAL_LOGGER, log_line,
                                  http, MHD_OPTION_SOCK_ADDR, address, MHD_OPTION_THREAD_POOL_SIZE, (unsigned)THREADS,
                                  MHD_OPTION_CONNECTION_LIMIT, o->connections + SPARE_CONNECTIONS,
                                  MHD_OPTION_CONNECTION_TIMEOUT, o->timeout, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
                                  (size_t)HEADER_BYTES, MHD_OPTION_NOTIFY_COMPLETED, exchange_end, http,
                                  MHD_OPTION_NOTIFY_CONNECTION, visit, http, MHD_OPTION_END);
  if (!http->daemon)
    return complain(EXIT_FAILED, "cannot listen on %s, port %u: %s", o->host, o->port, errno_text(errno));
  const union MHD_DaemonInfo *info = MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_BIND_PORT);
  if (info && info->port) http->server->options.port = info->port;
  return EXIT_OK;
}

// Raises the limit of open files to what the connections need.
static int allow_files(const struct serve_options *o) {
  const rlim_t need = (rlim_t)o->connections + SPARE_CONNECTIONS + OTHER_FILES;
  struct rlimit limit;
  if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= need) return EXIT_OK;
  const rlim_t most = limit.rlim_max;
  limit.rlim_cur = need;
  if (most >= need && !setrlimit(RLIMIT_NOFILE, &limit)) return EXIT_OK;
  return complain(EXIT_USAGE, "--connections %u needs %llu open files, and this process may have %llu (ulimit -n)",
                  o->connections, (unsigned long long)need, (unsigned long long)most);
}

int http_start(struct server *server, struct http **out) {
  const struct serve_options *o = &server->options;
  const struct addrinfo wanted = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
  struct addrinfo *found = NULL;
  char port[8];
  snprintf(port, sizeof port, "%u", o->port);
  struct http *http = must_resize(NULL, sizeof *http);
  *http = (struct http){.server = server};
  pthread_mutex_init(&http->lock, NULL);
  int code = allow_files(o);
  if (!code && o->keys) code = keys_read(o->keys, &http->keys);
  http->workers = workers_start();
  if (!code && !http->workers) code = complain(EXIT_FAILED, "no thread can be started");
  if (!code && getaddrinfo(o->host, port, &wanted, &found))
    code = complain(EXIT_USAGE, "--host: \"%s\" is no address of this machine", o->host);
  if (!code) code = listen_at(http, found->ai_addr, found->ai_family == AF_INET6);
  if (found) freeaddrinfo(found);
  *out = http;
  if (!code) return EXIT_OK;
  http_stop(http);
  *out = NULL;
  return code;
}

void http_stop(struct http *http) {
  if (!http) return;
  workers_stop(http->workers); // connections that wait for them could not be closed
  if (http->daemon) MHD_stop_daemon(http->daemon);
  workers_free(http->workers);
  keys_free(&http->keys);
  pthread_mutex_destroy(&http->lock);
  free(http);
}
