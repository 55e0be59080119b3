// serve_fields.h: single fields of a request's JSON. A field that is null is absent. Each function that returns whether
// the field is there sets *problem when its value is of the wrong kind.
#ifndef SERVE_FIELDS_H
#define SERVE_FIELDS_H
#include "serve_request.h"

const char *field_string(const json_t *object, const char *name);                  // NULL: none, or no string
const char *field_text(const json_t *object, const char *name, struct problem *p); // a string without NUL, or NULL
bool field_flag(const json_t *object, const char *name, bool *out, struct problem *p);
bool field_count(const json_t *object, const char *name, uint64_t most, uint64_t *out, struct problem *p);
bool field_number(const json_t *object, const char *name, double most, float *out, struct problem *p);
// Labels that an answer repeats: an object of a few short strings, as OpenAI limits them.
void field_metadata(const json_t *object, const char *name, struct problem *p);
// Refuses fields that ask for what is not supported.
void fields_refuse(enum api api, const json_t *root, uint32_t n, struct problem *p);
#endif
