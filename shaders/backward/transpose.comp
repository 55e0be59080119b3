#version 450
#extension GL_GOOGLE_include_directive : require
// to = from transposed. Workgroups (tiles of `to` along its rows, along its columns): a tile passes through shared
// memory, so that reads and writes are both along rows.
#include "transpose.h"
layout(local_size_x_id = TRANSPOSE_SPEC_LANES) in;
layout(constant_id = TRANSPOSE_SPEC_TILE) const uint TILE = 16;
#ifdef TO_F16
layout(set = 0, binding = TRANSPOSE_TO) writeonly buffer to_block { uint to[]; };
#include "rounded.glsl"
const uint EACH = 2; // elements that an invocation writes at once
#else
layout(set = 0, binding = TRANSPOSE_TO) writeonly buffer to_block { float to[]; };
const uint EACH = 1;
#endif
#ifdef FROM_F16
layout(set = 0, binding = TRANSPOSE_FROM) readonly buffer from_block { uint from[]; };
float element(uint at) { return unpackHalf2x16(from[at / 2])[at % 2]; }
#else
layout(set = 0, binding = TRANSPOSE_FROM) readonly buffer from_block { float from[]; };
float element(uint at) { return from[at]; }
#endif

const uint PITCH = TILE + 1;
shared float tile[TILE * PITCH];

void main() {
  uint column = gl_WorkGroupID.x * TILE, row = gl_WorkGroupID.y * TILE; // of `from`
  for (uint i = gl_LocalInvocationID.x; i < TILE * TILE; i += gl_WorkGroupSize.x) {
    uint x = i % TILE, y = i / TILE;
    bool inside = row + y < args.rows && column + x < args.cols;
    tile[y * PITCH + x] = inside ? element((row + y) * args.from_stride + column + x) : 0.0;
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < TILE * TILE / EACH; i += gl_WorkGroupSize.x) {
    uint x = i % (TILE / EACH) * EACH, y = i / (TILE / EACH);
    if (column + y >= args.cols || row + x >= args.to_stride) continue;
    uint at = ((column + y) * args.to_stride + row + x) / EACH;
#ifdef TO_F16
    to[at] = rounded(tile[x * PITCH + y], tile[(x + 1) * PITCH + y]);
#else
    to[at] = tile[x * PITCH + y];
#endif
  }
}
