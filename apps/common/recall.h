// recall.h: the default sizes of recall, the same where a model learns it (tune --task recall) and where it is asked
// (eval --task mqar).
#ifndef RECALL_H
#define RECALL_H
enum { RECALL_PAIRS = 8, RECALL_KEYS = 64, RECALL_VALUES = 32 };
#endif
