// header.cpp: the public headers are C++17 too. Compiled for its warnings, never run.
#include "deltaic_tune.h"

deltaic_status use(deltaic_context **context, deltaic_device **device, deltaic_model **model,
                   deltaic_session **session);

deltaic_status use(deltaic_context **context, deltaic_device **device, deltaic_model **model,
                   deltaic_session **session) {
  deltaic_context_options c = DELTAIC_INIT(deltaic_context_options);
  deltaic_device_options d = DELTAIC_INIT(deltaic_device_options);
  deltaic_model_options m = DELTAIC_INIT(deltaic_model_options);
  deltaic_session_options s = DELTAIC_INIT(deltaic_session_options);
  d.index = DELTAIC_DEVICE_INDEX_CPU;
  s.precision = DELTAIC_PRECISION_FLOAT32;
  deltaic_status status = deltaic_context_create(&c, context);
  if (status == DELTAIC_OK) status = deltaic_device_open(*context, &d, device);
  if (status == DELTAIC_OK) status = deltaic_model_open(*device, "models/novelist", &m, model);
  if (status == DELTAIC_OK) status = deltaic_session_create(*model, &s, session);
  return status;
}

template <typename options> bool sized(const options &o) { return o.size == sizeof(options); }

bool every_options_struct();

bool every_options_struct() {
  return sized(DELTAIC_INIT(deltaic_sampling)) && sized(DELTAIC_INIT(deltaic_operator)) &&
         sized(DELTAIC_INIT(deltaic_matmul)) && sized(DELTAIC_INIT(deltaic_calibration_options)) &&
         sized(DELTAIC_INIT(deltaic_select_options)) && sized(DELTAIC_INIT(deltaic_refit_options)) &&
         sized(DELTAIC_INIT(deltaic_prune_write_options)) && sized(DELTAIC_INIT(deltaic_tune_options)) &&
         sized(DELTAIC_INIT(deltaic_tune_batch)) && sized(DELTAIC_INIT(deltaic_tune_schedule));
}
