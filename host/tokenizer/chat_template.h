// chat_template.h: the chat templates that the library knows, as data, and their rendering into parts.
#ifndef CHAT_TEMPLATE_H
#define CHAT_TEMPLATE_H
#include "chat_parts.h"

// What an assistant's message that no user's message follows looks like. Earlier ones are bare.
enum chat_trailing {
  TRAILING_BARE,  // as the earlier ones
  TRAILING_THINK, // <think> part, text; without a part only the last message gets an empty one
  TRAILING_ALWAYS // the same, with an empty part in every one
};

// Texts are the template's own, so their special tokens count.
struct deltaic_template {
  const char *name, *models;
  const char *start[3];         // before a message's text, by deltaic_role
  const char *system_end;       // appended to a system text; NULL: nothing
  const char *end;              // the token that ends a message
  const char *after;            // what follows it
  const char *last;             // ends an assistant's message that is the last; NULL: end and after
  const char *fallback;         // system text without a system message; NULL: no message
  const char *think, *no_think; // follow the start of an answer; NULL: it cannot be had
  bool thinks;                  // by default
  bool fallback_unless_any;     // the fallback is for a conversation without any system message, not one that begins
                                // with another
  bool drops_thinking;          // of earlier answers
  bool trims;                   // white space around every text
  bool strict;                  // a system message only at the beginning, at least one user's message
  enum chat_trailing trailing;
};

// The template with this name, or NULL.
const deltaic_template *chat_template_find(const char *name);
// The template whose published text this is, or NULL. White space at the end does not count.
const deltaic_template *chat_template_recognize(const char *text, size_t bytes);
// Lays out messages[options->first ...]. Messages must be valid; a template may still refuse them.
deltaic_status chat_template_parts(const deltaic_template *t, const deltaic_message *messages, size_t n,
                                   const deltaic_render_options *options, struct chat_parts *out);
#endif
