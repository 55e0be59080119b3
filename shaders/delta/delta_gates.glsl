// delta_gates.glsl: the gates and norms of a delta layer's inputs, for delta_inputs and conv_inputs.
//   beta[t,j] = beta_scale sigmoid(ba[t,j]);  g[t,j] = -e^A_log[j] softplus(ba[t, betas + j] + dt_bias[j])
// gates() computes those of rows t ... t + rows - 1, with the subgroup.
void gates(uint t, uint rows) {
  for (uint i = lane; i < rows * args.betas; i += width) {
    uint row = t + i / args.betas, j = i % args.betas;
    beta[row * args.beta_stride + j] =
        args.beta_scale * (args.has_beta != 0 ? sigmoid(ba[row * args.ba_stride + j]) : 1.0);
  }
  if (args.gated == 0) return;
  uint from = args.has_beta != 0 ? args.betas : 0;
  for (uint i = lane; i < rows * args.decays; i += width) {
    uint row = t + i / args.decays, j = i % args.decays;
    g[row * args.g_stride + j] =
        -accurate_exp(A_log[j]) * softplus(ba[row * args.ba_stride + from + j] + dt_bias[j]);
  }
}

//   L2: x / sqrt(sum x^2 + 1e-6);  SUM: x / sum x;  L1: x / sum |x|
float summand(uint norm, float x) { return norm == NORM_L2 ? x * x : norm == NORM_L1 ? abs(x) : x; }

// The factor of a head's norm, from the sum over its invocations.
float norm_factor(uint norm, float sum) {
  if (norm == NORM_NONE) return 1.0;
  sum = subgroupAdd(sum);
  return norm == NORM_L2 ? accurate_inversesqrt(sum + 1e-6) : sum != 0.0 ? 1.0 / sum : 0.0;
}
