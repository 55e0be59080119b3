#version 450
#extension GL_GOOGLE_include_directive : require
// y = act(gate) * x.
// y, gate, x (T, F). Workgroups (ceil(F / lanes), rows, layers of rows): an invocation computes one element,
// with ALIGNED four. Any F.
#include "glu.h"
#include "stored.glsl"
layout(local_size_x_id = GLU_SPEC_LANES) in;
layout(constant_id = GLU_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(set = 0, binding = GLU_Y) writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = GLU_Y) writeonly buffer y4_block { stored4 y4[]; };
layout(set = 0, binding = GLU_GATE) readonly buffer gate_block { float gate[]; };
layout(set = 0, binding = GLU_GATE) readonly buffer gate4_block { vec4 gate4[]; };
#ifdef X16
layout(set = 0, binding = GLU_X) readonly buffer x_block { float16_t x[]; };
layout(set = 0, binding = GLU_X) readonly buffer x4_block { uvec2 x4[]; };
#define WIDE(v) vec4(unpackHalf2x16((v).x), unpackHalf2x16((v).y))
#else
layout(set = 0, binding = GLU_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = GLU_X) readonly buffer x4_block { vec4 x4[]; };
#define WIDE(v) (v)
#endif
#include "activation.glsl"

void main() {
  uint f = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y + gl_WorkGroupID.z * gl_NumWorkGroups.y;
  if (t >= args.T) return;
  uint to = t * args.y_stride, from = t * args.gate_stride, beside = t * args.x_stride + args.x_from;
  if (ALIGNED != 0) {
    if (f >= args.F / 4) return;
    vec4 g = gate4[from / 4 + f];
    for (uint k = 0; k < 4; k++) g[k] = activate(args.activation, g[k]);
    y4[to / 4 + f] = STORED4(g * WIDE(x4[beside / 4 + f]));
  } else if (f < args.F) {
    y[to + f] = STORED(activate(args.activation, gate[from + f]) * float(x[beside + f]));
  }
}
