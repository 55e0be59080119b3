#version 450
#extension GL_GOOGLE_include_directive : require
#extension GL_KHR_shader_subgroup_arithmetic : require
#extension GL_EXT_control_flow_attributes : require
// With c the target, t the teacher's logits:
//   ce = logsumexp z - z_c,                     dz = factor (softmax z - onehot c)
//   kd = tau^2 KL(softmax t/tau || softmax z/tau),  dz += kd_factor (softmax z/tau - softmax t/tau)
// Workgroups (n): one row each. An invocation keeps HELD units in registers, first as logits, then as e^(z - most). It
// reads the other units twice; the first pass scales their sum to the largest logit so far. With TEACHES, find_sums() and
// distilled() each read z and the teacher's logits once more.
#include "loss_back.h"
layout(local_size_x_id = LOSS_BACK_SPEC_LANES) in;
layout(constant_id = LOSS_BACK_SPEC_ALIGNED) const uint ALIGNED = 0;
layout(constant_id = LOSS_BACK_SPEC_HELD) const uint HELD = 1;
layout(constant_id = LOSS_BACK_SPEC_TEACHES) const uint TEACHES = 0;
#include "units.glsl"
UNITS(, LOSS_BACK_Z, z)
UNITS(readonly, LOSS_BACK_TAUGHT, taught)
layout(set = 0, binding = LOSS_BACK_TARGETS) readonly buffer targets_block { int targets[]; };
layout(set = 0, binding = LOSS_BACK_LOSSES) writeonly buffer losses_block { float losses[]; };
#include "accurate.glsl"
#include "reduce.glsl"

const float LOWEST = -1e38;
uint lane = gl_LocalInvocationID.x, units = args.V / UNIT, from = gl_WorkGroupID.x * args.z_stride / UNIT;
uint theirs = gl_WorkGroupID.x * args.taught_stride / UNIT;
int target = targets[args.first + gl_WorkGroupID.x]; // below 0: the row does not count

float largest(vec4 v) {
  float most = v.x;
  [[unroll]] for (uint k = 1; k < UNIT; k++) most = max(most, v[k]);
  return most;
}

vec4 exps(vec4 v, float most, float tau) {
  vec4 e = vec4(0.0);
  [[unroll]] for (uint k = 0; k < UNIT; k++) e[k] = accurate_exp((v[k] - most) / tau);
  return e;
}

float total(vec4 v) { return (v.x + v.y) + (v.z + v.w); }

// Of the largest logit and of the sum of exponentials, both of z and of the teacher's.
vec2 most, sums;

void find_sums() {
  vec2 tops = vec2(LOWEST), all = vec2(0.0);
  for (uint i = lane; i < units; i += gl_WorkGroupSize.x) tops.y = max(tops.y, largest(LOAD(taught, theirs + i)));
  most.y = workgroup_max(tops.y);
  for (uint i = lane; i < units; i += gl_WorkGroupSize.x)
    all += vec2(total(exps(LOAD(z, from + i), most.x, args.tau)),
                total(exps(LOAD(taught, theirs + i), most.y, args.tau)));
  sums.x = workgroup_sum(all.x);
  sums.y = workgroup_sum(all.y);
}

// The gradient of unit i's distillation, whose loss is added to kd.
vec4 distilled(uint i, inout float kd) {
  vec4 mine = LOAD(z, from + i), other = LOAD(taught, theirs + i);
  vec4 p = exps(mine, most.x, args.tau) / sums.x, q = exps(other, most.y, args.tau) / sums.y;
  kd += dot(q, ((other - most.y) - (mine - most.x)) / args.tau + (accurate_log(sums.x) - accurate_log(sums.y)));
  return args.kd_factor * (p - q);
}

// e: the exponentials of unit i.
void give(uint i, vec4 e, float factor, inout float kd) {
  vec4 dz = factor * e;
  if (TEACHES != 0) dz += distilled(i, kd);
  [[unroll]] for (uint k = 0; k < UNIT; k++)
    if (i * UNIT + k == target) dz[k] -= args.factor;
  STORE(z, from + i, dz)
}

void end(float ce, float kd) {
  uint at = 2 * (args.first + gl_WorkGroupID.x);
  if (lane != 0) return;
  losses[at] = ce;
  losses[at + 1] = kd;
}

void main() {
  if (target < 0) {
    for (uint i = lane; i < units; i += gl_WorkGroupSize.x) STORE(z, from + i, vec4(0.0))
    end(0.0, 0.0);
    return;
  }
  uint rest = lane + HELD * gl_WorkGroupSize.x;
  float at_target = LOAD(z, from + target / UNIT)[target % UNIT], top = LOWEST, past = LOWEST, sum = 0.0, kd = 0.0;
  vec4 held[HELD];
  [[unroll]] for (uint k = 0; k < HELD; k++)
    held[k] = LOAD(z, from + min(lane + k * gl_WorkGroupSize.x, units - 1));
  [[unroll]] for (uint k = 0; k < HELD; k++) top = max(top, largest(held[k]));
  for (uint i = rest; i < units; i += gl_WorkGroupSize.x) {
    vec4 v = LOAD(z, from + i);
    float larger = max(past, largest(v));
    if (larger > past) sum *= accurate_exp(past - larger);
    past = larger;
    sum += total(exps(v, past, 1.0));
  }
  most.x = workgroup_max(max(top, past));
  sum *= accurate_exp(past - most.x);
  [[unroll]] for (uint k = 0; k < HELD; k++) {
    held[k] = exps(held[k], most.x, 1.0);
    if (lane + k * gl_WorkGroupSize.x < units) sum += total(held[k]);
  }
  sum = workgroup_sum(sum);
  if (TEACHES != 0) find_sums();
  float factor = args.factor / sum;
  // z[target] has been read
  memoryBarrierBuffer();
  barrier();
  [[unroll]] for (uint k = 0; k < HELD; k++)
    if (lane + k * gl_WorkGroupSize.x < units) give(lane + k * gl_WorkGroupSize.x, held[k], factor, kd);
  for (uint i = rest; i < units; i += gl_WorkGroupSize.x)
    give(i, exps(LOAD(z, from + i), most.x, 1.0), factor, kd);
  if (TEACHES != 0) kd = args.tau * args.tau * workgroup_sum(kd);
  end((most.x - at_target) + accurate_log(sum), kd);
}
