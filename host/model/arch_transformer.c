// arch_transformer: the family transformer of flash-linear-attention, with softmax attention in every layer. Its config
// has the keys of `attn` at the top level; everything outside the mixer is as in the other families.
#include "arch_common.h"

#include "mixer_attention.h"

static deltaic_status read_transformer(struct json_reader *r, const json_t *config, struct checkpoint *checkpoint,
                                       struct model_spec *out) {
  struct attention_spec spec = {0};
  deltaic_status status = arch_read_outside(r, config, checkpoint, 24, out);
  if (!status) status = arch_read_attention(r, config, 32, out->D, &spec);
  for (uint32_t i = 0; !status && i < out->L; i++)
    if (!out->layers[i].mixer) status = arch_set_layer(out, i, &mixer_attention, &spec, sizeof spec);
  return status;
}

const struct arch arch_transformer = {"transformer", read_transformer};
