#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
// With c the target, t the teacher's logits:
//   ce = logsumexp z - z_c,                     dz = factor (softmax z - onehot c)
//   kd = tau^2 KL(softmax t/tau || softmax z/tau),  dz += kd_factor (softmax z/tau - softmax t/tau)
// Workgroups (n): one row each.
#include "loss_back.h"
layout(local_size_x_id = LOSS_BACK_SPEC_LANES) in;
layout(set = 0, binding = LOSS_BACK_Z) buffer z_block { float z[]; };
layout(set = 0, binding = LOSS_BACK_TAUGHT) readonly buffer taught_block { float taught[]; };
layout(set = 0, binding = LOSS_BACK_TARGETS) readonly buffer targets_block { int targets[]; };
layout(set = 0, binding = LOSS_BACK_LOSSES) writeonly buffer losses_block { float losses[]; };
#include "accurate.glsl"
#include "reduce.glsl"

void main() {
  uint row = gl_WorkGroupID.x, lane = gl_LocalInvocationID.x;
  uint from = row * args.z_stride, theirs = row * args.taught_stride;
  int target = targets[args.first + row]; // below 0: the row does not count
  bool teaches = args.taught != 0;
  float most = -1e38, most_taught = -1e38;
  for (uint i = lane; i < args.V; i += gl_WorkGroupSize.x) {
    most = max(most, z[from + i]);
    if (teaches) most_taught = max(most_taught, taught[theirs + i]);
  }
  most = workgroup_max(most);
  most_taught = workgroup_max(most_taught);
  float sum = 0.0, sum_mine = 0.0, sum_taught = 0.0;
  for (uint i = lane; i < args.V; i += gl_WorkGroupSize.x) {
    sum += accurate_exp(z[from + i] - most);
    if (teaches) {
      sum_mine += accurate_exp((z[from + i] - most) / args.tau);
      sum_taught += accurate_exp((taught[theirs + i] - most_taught) / args.tau);
    }
  }
  sum = workgroup_sum(sum);
  sum_mine = workgroup_sum(sum_mine);
  sum_taught = workgroup_sum(sum_taught);
  float ce = target < 0 ? 0.0 : (most - z[from + target]) + accurate_log(sum), kd = 0.0;
  float log_ratio = teaches ? accurate_log(sum_mine) - accurate_log(sum_taught) : 0.0;
  barrier(); // z[target] has been read
  for (uint i = lane; i < args.V; i += gl_WorkGroupSize.x) {
    float mine = z[from + i] - most, dz = args.factor * (accurate_exp(mine) / sum);
    if (int(i) == target) dz -= args.factor;
    if (teaches) {
      float other = taught[theirs + i] - most_taught;
      float p = accurate_exp(mine / args.tau) / sum_mine, q = accurate_exp(other / args.tau) / sum_taught;
      kd += q * ((other - mine) / args.tau + log_ratio);
      dz += args.kd_factor * (p - q);
    }
    z[from + i] = target < 0 ? 0.0 : dz;
  }
  kd = workgroup_sum(kd);
  if (lane == 0) {
    losses[2 * (args.first + row)] = ce;
    losses[2 * (args.first + row) + 1] = target < 0 ? 0.0 : args.tau * args.tau * kd;
  }
}
