#version 450
#extension GL_GOOGLE_include_directive : require
// A step of AdamW (Loshchilov and Hutter 2019): m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g^2,
// p -= decay p + rate m / (sqrt(v) second + eps), with g times factor. An invocation takes every n-th number.
#include "adamw.h"
layout(local_size_x_id = ADAMW_SPEC_LANES) in;
layout(constant_id = ADAMW_SPEC_FLAT) const uint FLAT = 0;
layout(set = 0, binding = ADAMW_P) buffer p_block { float p[]; };
layout(set = 0, binding = ADAMW_G) readonly buffer g_block { float g[]; };
layout(set = 0, binding = ADAMW_M) buffer m_block { float m[]; };
layout(set = 0, binding = ADAMW_V) buffer v_block { float v[]; };

void main() {
  for (uint e = gl_GlobalInvocationID.x; e < args.n; e += gl_NumWorkGroups.x * gl_WorkGroupSize.x) {
    uvec2 at = row_column(FLAT != 0, args.cols, e);
    uint ip = place(args.p, at), im = place(args.m, at), iv = place(args.v, at);
    float d = args.factor * g[place(args.g, at)];
    float first = args.beta1 * m[im] + args.rest1 * d, second = args.beta2 * v[iv] + args.rest2 * d * d;
    m[im] = first;
    v[iv] = second;
    p[ip] -= args.decay * p[ip] + args.rate * first / (sqrt(second) * args.second + args.eps);
  }
}
