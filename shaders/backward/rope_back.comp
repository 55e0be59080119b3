#version 450
#extension GL_GOOGLE_include_directive : require
// dx += dy, whose heads of q and k are rotated by minus their position: the transpose of the rotation. Workgroups
// (ceil(cols / lanes), tokens of the longest sequence, folded, B): an invocation computes elements of dx.
#include "rope_back.h"
layout(local_size_x_id = ROPE_BACK_SPEC_LANES) in;
layout(set = 0, binding = ROPE_BACK_DY) readonly buffer dy_block { float dy[]; };
layout(set = 0, binding = ROPE_BACK_DX) buffer dx_block { float dx[]; };
layout(set = 0, binding = ROPE_BACK_TABLE) readonly buffer table_block { float table[]; };
layout(set = 0, binding = ROPE_BACK_SEQUENCES) readonly buffer sequences_block { sequence sequences[]; };

// Element c of a row, rotated back together with its partner.
float rotated(uint from, uint c, uint position) {
  uint low = args.r / 2, i = c % args.d, j = i % low, at = from + c - i + j;
  float a = dy[at], b = dy[at + low];
  for (uint level = 0; level < 4; level++) {
    uint byte = position >> 8 * level & 255;
    if (byte == 0) continue;
    uint angle = (level * 256 + byte) * args.table_stride + j;
    float cosine = table[angle], sine = table[angle + args.r - low], turned = a * cosine + b * sine;
    b = b * cosine - a * sine;
    a = turned;
  }
  return i < low ? a : b;
}

void main() {
  sequence q = sequences[gl_WorkGroupID.z];
  uint c = gl_GlobalInvocationID.x;
  if (c >= args.cols) return;
  bool turns = c < args.heads * args.d && c % args.d < args.r / 2 * 2;
  for (uint t = gl_WorkGroupID.y; t < q.T; t += gl_NumWorkGroups.y) {
    uint from = (q.row + t) * args.dy_stride;
    dx[(q.row + t) * args.dx_stride + c] += turns ? rotated(from, c, q.pos + t) : dy[from + c];
  }
}
