#version 450
#extension GL_GOOGLE_include_directive : require
// y = act(gate) * x.
// y, gate, x (T, F). Workgroups (ceil(F / lanes), rows, layers of rows): an invocation computes one element. Any F.
#include "glu.h"
#include "stored.glsl"
layout(local_size_x_id = GLU_SPEC_LANES) in;
layout(set = 0, binding = GLU_Y) writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = GLU_GATE) readonly buffer gate_block { float gate[]; };
#ifdef X16
layout(set = 0, binding = GLU_X) readonly buffer x_block { float16_t x[]; };
#else
layout(set = 0, binding = GLU_X) readonly buffer x_block { float x[]; };
#endif
#include "activation.glsl"

void main() {
  uint f = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y + gl_WorkGroupID.z * gl_NumWorkGroups.y;
  if (f >= args.F || t >= args.T) return;
  float value = float(x[t * args.x_stride + args.x_from + f]);
  y[t * args.y_stride + f] = STORED(activate(args.activation, gate[t * args.gate_stride + f]) * value);
}
