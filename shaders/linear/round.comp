#version 450
#extension GL_GOOGLE_include_directive : require
// to = from, rounded to f16. Workgroups (ceil(to_stride / 8 / lanes), rows): an invocation rounds eight numbers of every
// gl_NumWorkGroups.y-th row.
#include "round.h"
layout(local_size_x_id = ROUND_SPEC_LANES) in;
layout(constant_id = ROUND_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = ROUND_TO) writeonly buffer to_block { uvec4 to[]; };
layout(set = 0, binding = ROUND_FROM) readonly buffer from_block { float from[]; };
layout(set = 0, binding = ROUND_FROM) readonly buffer from4_block { vec4 from4[]; };
#include "rounded.glsl"

float at(uint row, uint i) { return i < args.cols ? from[row * args.from_stride + i] : 0.0; }

void main() {
  uint i = 8 * gl_GlobalInvocationID.x;
  if (i >= args.to_stride) return;
  for (uint t = gl_WorkGroupID.y; t < args.rows; t += gl_NumWorkGroups.y) {
    uvec4 v;
    if (ALIGNED != 0) {
      vec4 low = from4[(t * args.from_stride + i) / 4], high = from4[(t * args.from_stride + i) / 4 + 1];
      v = uvec4(rounded(low.x, low.y), rounded(low.z, low.w), rounded(high.x, high.y), rounded(high.z, high.w));
    } else {
      for (uint j = 0; j < 4; j++) v[j] = rounded(at(t, i + 2 * j), at(t, i + 2 * j + 1));
    }
    to[(t * args.to_stride + i) / 8] = v;
  }
}
