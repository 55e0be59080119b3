#version 450
#extension GL_GOOGLE_include_directive : require
// to = from transposed. Workgroups (tiles of `to` along its rows, along its columns): a tile passes through shared
// memory, so that reads and writes are both along rows.
#include "transpose.h"
layout(local_size_x_id = TRANSPOSE_SPEC_LANES) in;
layout(constant_id = TRANSPOSE_SPEC_TILE) const uint TILE = 16;
layout(set = 0, binding = TRANSPOSE_TO) writeonly buffer to_block { float to[]; };
#ifdef FROM_F16
layout(set = 0, binding = TRANSPOSE_FROM) readonly buffer from_block { uint from[]; }; // two elements each
float number(uint i) { return unpackHalf2x16(from[i / 2])[i % 2]; }
#else
layout(set = 0, binding = TRANSPOSE_FROM) readonly buffer from_block { float from[]; };
float number(uint i) { return from[i]; }
#endif

const uint PITCH = TILE + 1;
shared float tile[TILE * PITCH];

void main() {
  uint column = gl_WorkGroupID.x * TILE, row = gl_WorkGroupID.y * TILE; // of `from`
  for (uint i = gl_LocalInvocationID.x; i < TILE * TILE; i += gl_WorkGroupSize.x) {
    uint x = i % TILE, y = i / TILE;
    bool inside = row + y < args.rows && column + x < args.cols;
    tile[y * PITCH + x] = inside ? number((row + y) * args.from_stride + column + x) : 0.0;
  }
  barrier();
  for (uint i = gl_LocalInvocationID.x; i < TILE * TILE; i += gl_WorkGroupSize.x) {
    uint x = i % TILE, y = i / TILE;
    if (column + y < args.cols && row + x < args.to_stride)
      to[(column + y) * args.to_stride + row + x] = tile[x * PITCH + y];
  }
}
