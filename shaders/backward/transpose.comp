#version 450
#extension GL_GOOGLE_include_directive : require
// to = from transposed. Workgroups (tiles of `to` along its rows, along its columns): a tile passes through shared
// memory, so that reads and writes are both along rows.
#include "transpose.h"
layout(local_size_x_id = TRANSPOSE_SPEC_LANES) in;
layout(constant_id = TRANSPOSE_SPEC_TILE) const uint TILE = 16;
layout(set = 0, binding = TRANSPOSE_TO) writeonly buffer to_block { float to[]; };
layout(set = 0, binding = TRANSPOSE_FROM) readonly buffer from_block { float from[]; };

shared float tile[TILE * (TILE + 1)];

void main() {
  uint x = gl_LocalInvocationID.x % TILE, y = gl_LocalInvocationID.x / TILE;
  uint column = gl_WorkGroupID.x * TILE, row = gl_WorkGroupID.y * TILE; // of `from`
  bool inside = row + y < args.rows && column + x < args.cols;
  tile[y * (TILE + 1) + x] = inside ? from[(row + y) * args.from_stride + column + x] : 0.0;
  barrier();
  if (column + y < args.cols && row + x < args.to_stride)
    to[(column + y) * args.to_stride + row + x] = tile[x * (TILE + 1) + y];
}
