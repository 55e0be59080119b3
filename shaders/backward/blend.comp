#version 450
#extension GL_GOOGLE_include_directive : require
// to = x + factor y + plus. An invocation takes every n-th number.
#include "blend.h"
layout(local_size_x_id = BLEND_SPEC_LANES) in;
layout(constant_id = BLEND_SPEC_FLAT) const uint FLAT = 0;
layout(set = 0, binding = BLEND_TO) writeonly buffer to_block { float to[]; };
layout(set = 0, binding = BLEND_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = BLEND_Y) readonly buffer y_block { float y[]; };

void main() {
  for (uint e = gl_GlobalInvocationID.x; e < args.n; e += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uvec2 at = row_column(FLAT != 0, args.cols, e);
    float sum = x[place(args.x, at)] + args.plus;
    if (args.has_y != 0) sum += args.factor * y[place(args.y, at)];
    to[place(args.to, at)] = sum;
  }
}
