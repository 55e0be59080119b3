#version 450
#extension GL_GOOGLE_include_directive : require
// Sorts the choices of experts: order has the indices into ids (T, k) of expert 0, then of expert 1 and so on, in any
// order among them; those of expert e begin at starts[e]. One workgroup counts and places all of them.
#include "group.h"
layout(local_size_x_id = GROUP_SPEC_LANES) in;
layout(constant_id = GROUP_SPEC_EXPERTS) const uint EXPERTS = 8;
layout(set = 0, binding = GROUP_ORDER) writeonly buffer order_block { uint order[]; };
layout(set = 0, binding = GROUP_STARTS) writeonly buffer starts_block { uint starts[]; };
layout(set = 0, binding = GROUP_IDS) readonly buffer ids_block { uint ids[]; };
shared uint counts[EXPERTS]; // choices of an expert, then the place of its next one
shared uint sums[gl_WorkGroupSize.x];

uint id(uint i) { return ids[i / args.k * args.ids_stride + i % args.k]; }

void main() {
  const uint lane = gl_LocalInvocationID.x, lanes = gl_WorkGroupSize.x, each = (EXPERTS + lanes - 1) / lanes;
  for (uint e = lane; e < EXPERTS; e += lanes) counts[e] = 0;
  barrier();
  for (uint i = lane; i < args.T * args.k; i += lanes) atomicAdd(counts[id(i)], 1);
  barrier();
  // Each invocation places `each` experts after those of the invocations before it.
  uint own = 0;
  for (uint e = lane * each; e < min(lane * each + each, EXPERTS); e++) own += counts[e];
  sums[lane] = own;
  barrier();
  for (uint step = 1; step < lanes; step *= 2) {
    uint before = lane >= step ? sums[lane - step] : 0;
    barrier();
    sums[lane] += before;
    barrier();
  }
  uint place = sums[lane] - own;
  for (uint e = lane * each; e < min(lane * each + each, EXPERTS); e++) {
    uint count = counts[e];
    starts[e] = place;
    counts[e] = place;
    place += count;
  }
  if (lane == 0) starts[EXPERTS] = args.T * args.k;
  barrier();
  for (uint i = lane; i < args.T * args.k; i += lanes) order[atomicAdd(counts[id(i)], 1)] = i;
}
