#version 450
#extension GL_GOOGLE_include_directive : require
// x[t] = table[tokens[t]].
// x (T, D), table (rows, D), tokens (T). Workgroups (ceil(D / 8 / lanes), T): an invocation copies 8 elements of one
// row. Any D. A table too large for one descriptor takes several dispatches, each for its rows.
#include "embed.h"
layout(local_size_x_id = EMBED_SPEC_LANES) in;
layout(set = 0, binding = EMBED_X) writeonly buffer x_block { float x[]; };
layout(set = 0, binding = EMBED_TOKENS) readonly buffer tokens_block { uint tokens[]; };
#define WEIGHTS_BINDING EMBED_WEIGHTS
#define WEIGHTS_SPEC_FORMAT EMBED_SPEC_FORMAT
#include "weights.glsl"

void main() {
  uint d = gl_GlobalInvocationID.x * 8;
  uint t = gl_WorkGroupID.y;
  uint row = tokens[t] - args.first; // wraps to a large number below `first`
  if (d >= args.D || row >= args.rows) return;
  vec4 part[2];
  weight8((row * args.table_stride + d) / 8, part[0], part[1]);
  for (uint i = 0; i < min(8, args.D - d); i++) x[t * args.x_stride + d + i] = part[i / 4][i % 4];
}
