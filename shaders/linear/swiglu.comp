#version 450
#extension GL_GOOGLE_include_directive : require
// y = act(gate) * up.
// y (T, F), gate_up (T, 2 F). Workgroups (ceil(F / lanes), T): an invocation computes one element. Any F.
#include "stored.glsl"
#include "swiglu.h"
layout(local_size_x_id = SWIGLU_SPEC_LANES) in;
layout(set = 0, binding = SWIGLU_Y) writeonly buffer y_block { stored y[]; };
layout(set = 0, binding = SWIGLU_GATE_UP) readonly buffer gate_up_block { float gate_up[]; };
#include "activation.glsl"

void main() {
  uint f = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y;
  if (f >= args.F) return;
  uint from = t * args.gate_up_stride + f;
  y[t * args.y_stride + f] = STORED(activate(args.activation, gate_up[from]) * gate_up[from + args.F]);
}
