// trainer_lora.h: the products of LoRA, recorded into a walk.
#ifndef TRAINER_LORA_H
#define TRAINER_LORA_H
#include "trainer_items.h"

// dA = B^T dW,  dB = dW A^T
void lora_split(struct walk *w, const struct item *x);
// W = W0 + s B A
void lora_merge(struct walk *w, const struct item *x, float s);
#endif
