#version 450
#extension GL_GOOGLE_include_directive : require
// dtable[token] += dx, token after token. Workgroups (ceil(D / lanes), ceil(rows / each)): an invocation adds one column
// of `each` rows of the table.
#include "embed_back.h"
layout(local_size_x_id = EMBED_BACK_SPEC_LANES) in;
layout(set = 0, binding = EMBED_BACK_DTABLE) buffer dtable_block { float dtable[]; };
layout(set = 0, binding = EMBED_BACK_DX) readonly buffer dx_block { float dx[]; };
layout(set = 0, binding = EMBED_BACK_TOKENS) readonly buffer tokens_block { uint tokens[]; };

void main() {
  uint c = gl_GlobalInvocationID.x;
  if (c >= args.D) return;
  uint begin = gl_WorkGroupID.y * args.each, end = min(begin + args.each, args.rows);
  for (uint t = 0; t < args.T; t++) {
    uint row = tokens[t] - args.first;
    if (row >= begin && row < end) dtable[row * args.dtable_stride + c] += dx[t * args.dx_stride + c];
  }
}
