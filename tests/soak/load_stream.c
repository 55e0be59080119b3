// load_stream: HTTP/1.1 and server-sent events over a plain socket.
#define _GNU_SOURCE
#include "load_stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

double load_now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void add(struct text *to, const char *data, size_t size) {
  if (to->size + size + 1 > to->room) {
    to->room = 2 * (to->size + size + 1);
    to->data = realloc(to->data, to->room);
    if (!to->data) {
      fputs("load_serve: out of memory\n", stderr);
      exit(1);
    }
  }
  memcpy(to->data + to->size, data, size);
  to->size += size;
  to->data[to->size] = 0;
}

static void clear(struct text *text) {
  free(text->data);
  *text = (struct text){0};
}

__attribute__((format(printf, 2, 3))) static void fail(struct stream *s, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(s->problem, sizeof s->problem, format, args);
  va_end(args);
  s->phase = STREAM_FAILED;
}

bool stream_ended(const struct stream *s) { return s->phase == STREAM_DONE || s->phase == STREAM_FAILED; }

void stream_close(struct stream *s) {
  if (s->socket >= 0) close(s->socket);
  s->socket = -1;
  json_decref(s->notes);
  s->notes = NULL;
  clear(&s->out);
  clear(&s->line);
  clear(&s->said);
}

// ---------------------------------------------------------------- the request

static void add_string(struct text *to, const char *string) { add(to, string, strlen(string)); }

static void write_head(struct text *out, const struct target *target, const char *line, size_t body) {
  char length[100];
  add_string(out, line);
  add_string(out, " HTTP/1.1\r\nConnection: close\r\nHost: ");
  add_string(out, target->host);
  if (target->key) {
    add_string(out, "\r\nAuthorization: Bearer ");
    add_string(out, target->key);
  }
  snprintf(length, sizeof length, "\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n", body);
  add_string(out, body ? length : "\r\n\r\n");
}

void stream_open(struct stream *s, const struct target *target, json_t *body) {
  void (*part)(void *, struct stream *, double) = s->part;
  void *user = s->user;
  *s = (struct stream){.socket = -1, .part = part, .user = user, .cached = -1, .tokens = -1};
  json_object_set_new(body, "stream", json_true());
  json_object_set_new(body, "stream_options", json_pack("{s:b}", "include_usage", 1));
  char *text = json_dumps(body, JSON_COMPACT);
  json_decref(body);
  write_head(&s->out, target, "POST /v1/completions", strlen(text));
  add_string(&s->out, text);
  free(text);
  s->notes = json_array();
  s->begun = s->last = load_now();
  const struct addrinfo *a = target->address;
  s->socket = socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (s->socket < 0 || (connect(s->socket, a->ai_addr, a->ai_addrlen) && errno != EINPROGRESS))
    fail(s, "no connection: %s", strerror(errno));
}

short stream_events(const struct stream *s) { return s->phase == STREAM_SENDING ? POLLOUT : POLLIN; }

static void send_more(struct stream *s) {
  const ssize_t n = send(s->socket, s->out.data + s->sent, s->out.size - s->sent, MSG_NOSIGNAL);
  if (n < 0 && errno != EAGAIN && errno != EINTR) fail(s, "the request could not be sent: %s", strerror(errno));
  if (n > 0) s->sent += (size_t)n;
  if (s->sent == s->out.size) s->phase = STREAM_HEAD;
}

// ---------------------------------------------------------------- the answer

static void take_choice(struct stream *s, const json_t *choice, double now) {
  const json_t *text = json_object_get(choice, "text");
  const char *state = json_string_value(json_object_get(choice, "state"));
  const json_t *notes = json_object_get(json_object_get(choice, "logprobs"), "token_logprobs");
  if (state) snprintf(s->state, sizeof s->state, "%s", state);
  if (notes) json_array_extend(s->notes, (json_t *)notes);
  if (choice && !s->first) s->first = now;
  if (!json_string_length(text)) return;
  add(&s->said, json_string_value(text), json_string_length(text));
  if (s->part) s->part(s->user, s, now - s->last);
  ++s->parts;
  s->last = now;
}

static void take_event(struct stream *s, const char *data) {
  const double now = load_now();
  json_t *event = json_loads(data, JSON_ALLOW_NUL, NULL);
  const json_t *error = json_object_get(event, "error"), *usage = json_object_get(event, "usage");
  const json_t *cached = json_object_get(json_object_get(usage, "prompt_tokens_details"), "cached_tokens");
  const json_t *tokens = json_object_get(usage, "completion_tokens");
  const char *message = json_string_value(json_object_get(error, "message"));
  if (!event) fail(s, "an event is not JSON: %.150s", data);
  if (error) fail(s, "%.200s", message ? message : "an error without a message");
  if (cached) s->cached = (long)json_integer_value(cached);
  if (tokens) s->tokens = (long)json_integer_value(tokens);
  take_choice(s, json_array_get(json_object_get(event, "choices"), 0), now);
  json_decref(event);
}

// Whole lines of the head, or of the body.
static void take_line(struct stream *s) {
  struct text *line = &s->line;
  while (line->size && strchr("\r\n", line->data[line->size - 1])) line->data[--line->size] = 0;
  const char *text = line->data;
  if (s->phase == STREAM_HEAD) {
    if (!s->status && sscanf(text, "HTTP/%*s %d", &s->status) != 1) fail(s, "this is no HTTP: %.100s", text);
    if (!strcasecmp(text, "Transfer-Encoding: chunked")) s->chunk = CHUNK_SIZE;
    if (!line->size && s->status != 100) s->phase = STREAM_BODY;
    if (!line->size && s->status == 100) s->status = 0; // another head follows
  } else if (s->status != 200) {
    fail(s, "%d: %.200s", s->status, text);
  } else if (!strcmp(text, "data: [DONE]")) {
    s->phase = STREAM_DONE;
  } else if (!strncmp(text, "data: ", 6)) {
    take_event(s, text + 6);
  }
  line->size = 0;
}

static void take_byte(struct stream *s, char c) {
  add(&s->line, &c, 1);
  if (c == '\n') take_line(s);
}

// A byte behind the head, of which some are the frames of chunks.
static void take_chunked(struct stream *s, char c) {
  const int digit = c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
  switch (s->chunk) {
  case CHUNK_NONE: take_byte(s, c); break;
  case CHUNK_SIZE:
    if (digit >= 0) s->chunk_left = 16 * s->chunk_left + (size_t)digit;
    if (c == '\n') s->chunk = s->chunk_left ? CHUNK_DATA : CHUNK_END;
    break;
  case CHUNK_DATA:
    take_byte(s, c);
    if (!--s->chunk_left) s->chunk = CHUNK_END;
    break;
  case CHUNK_END:
    if (c == '\n') s->chunk = CHUNK_SIZE;
    break;
  }
}

static void end_of_input(struct stream *s) {
  if (s->line.size && s->phase == STREAM_BODY) take_line(s); // an error's body has no line end
  if (!stream_ended(s)) fail(s, "the answer ended early");
}

static void receive_more(struct stream *s) {
  char buffer[65536];
  const ssize_t n = recv(s->socket, buffer, sizeof buffer, 0);
  if (n < 0 && errno != EAGAIN && errno != EINTR) fail(s, "the answer could not be read: %s", strerror(errno));
  if (!n) end_of_input(s);
  for (ssize_t i = 0; i < n && !stream_ended(s); ++i)
    if (s->phase == STREAM_HEAD)
      take_byte(s, buffer[i]);
    else
      take_chunked(s, buffer[i]);
}

void stream_work(struct stream *s) {
  if (s->phase == STREAM_SENDING)
    send_more(s);
  else
    receive_more(s);
}

// ---------------------------------------------------------------- figures of the server

double load_metric(const struct target *target, const char *name) {
  const struct addrinfo *a = target->address;
  struct text text = {0};
  char buffer[4096], line[128];
  ssize_t n = -1;
  double value = -1;
  const int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  write_head(&text, target, "GET /metrics", 0);
  if (fd >= 0 && !connect(fd, a->ai_addr, a->ai_addrlen)) n = send(fd, text.data, text.size, MSG_NOSIGNAL);
  text.size = 0;
  while (n > 0 && (n = recv(fd, buffer, sizeof buffer, 0)) > 0) add(&text, buffer, (size_t)n);
  if (fd >= 0) close(fd);
  snprintf(line, sizeof line, "\ndeltaic_%s ", name);
  const char *found = text.size ? strstr(text.data, line) : NULL;
  if (found) value = strtod(found + strlen(line), NULL);
  clear(&text);
  return value;
}
