// calibrate.h: streams a text's tokens through a model and adds up what pruning methods need to know.
#ifndef CALIBRATE_H
#define CALIBRATE_H
#include "statistics.h"

// See deltaic_calibrate().
deltaic_status calibrate(struct deltaic_statistics *s, deltaic_model *model, const int32_t *tokens, uint64_t count,
                         deltaic_progress progress, void *user);
#endif
