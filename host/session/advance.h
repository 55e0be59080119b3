// advance: one layer at a time, for a caller that keeps the residual stream of a text itself. The session's own
// sequence becomes undefined: reset the session before it evaluates tokens again.
#ifndef ADVANCE_H
#define ADVANCE_H
#include "deltaic.h"
#include "status.h"

enum layer_half { HALF_MIXER, HALF_FFN };

// x (count, D): the residual stream before the first layer.
deltaic_status session_embed(deltaic_session *s, const int32_t *tokens, uint64_t count, float *x) INSIDE(session_embed);
// Passes the residual stream of a text, x (count, D), through half a layer: norm, mixer or FFN, and the sum with x. The
// layer begins with a zero state. y: the stream after it; may be x, or NULL if only the probe is of interest. The
// session's probe sees this layer alone. count: at most the session's context.
deltaic_status session_advance(deltaic_session *s, uint32_t layer, enum layer_half half, const float *x, float *y,
                               uint64_t count) INSIDE(session_advance);
#endif
