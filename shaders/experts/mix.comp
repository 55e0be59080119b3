#version 450
#extension GL_GOOGLE_include_directive : require
// y[t] = [y[t] +] sum over j of weights[t, j] * x[t * k + j] + sigmoid(logits[t, gate_col]) * shared[t].
// Workgroups (ceil(D / lanes), T): an invocation computes one element. Any D, k.
#include "mix.h"
layout(local_size_x_id = MIX_SPEC_LANES) in;
layout(set = 0, binding = MIX_Y) buffer y_block { float y[]; };
layout(set = 0, binding = MIX_X) readonly buffer x_block { float x[]; };
layout(set = 0, binding = MIX_WEIGHTS) readonly buffer weights_block { float weights[]; };
layout(set = 0, binding = MIX_SHARED) readonly buffer shared_block { float one[]; };
layout(set = 0, binding = MIX_LOGITS) readonly buffer logits_block { float logits[]; };
#include "activation.glsl"

void main() {
  const uint i = gl_GlobalInvocationID.x, t = gl_WorkGroupID.y;
  if (i >= args.D) return;
  float sum = 0.0;
  for (uint j = 0; j < args.k; j++)
    sum += weights[t * args.weights_stride + j] * x[(t * args.k + j) * args.x_stride + i];
  if (args.has_shared != 0) {
    float gate = activate(ACT_SIGMOID, logits[t * args.logits_stride + args.gate_col]);
    sum += gate * one[t * args.shared_stride + i];
  }
  if (args.add != 0) sum += y[t * args.y_stride + i];
  y[t * args.y_stride + i] = sum;
}
