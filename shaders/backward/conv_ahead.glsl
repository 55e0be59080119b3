// conv_ahead.glsl: the gradient of the input of token s, from the d of the tokens that read it. s + W - 1 = from; s < 0
// is of the history before the call.
float conv_ahead(sequence q, uint from, uint c) {
  float sum = 0.0;
  for (uint j = 0; j < args.W; j++) {
    uint t = from - j; // wraps below 0
    if (t < q.T) sum += weight[j * args.weight_stride + c] * d[(q.row + t) * args.C + c];
  }
  return sum;
}
