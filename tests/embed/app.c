// app FOLDER: the token that the model in FOLDER gives after token 1, on the CPU.
#include <deltaic.h>
#include <stdio.h>

int fail(void), pool_create(void), checkpoint_open(void), op_linear(void), tensor_rows(void);

int main(int argc, char **argv) {
  deltaic_context *context;
  deltaic_device *device;
  deltaic_model *model;
  deltaic_session *session;
  deltaic_device_options cpu = DELTAIC_INIT(deltaic_device_options);
  int32_t token = 1;
  cpu.index = DELTAIC_DEVICE_INDEX_CPU;
  if (fail() + pool_create() + checkpoint_open() + op_linear() + tensor_rows() != 15 || argc != 2) return 1;
  if (deltaic_context_create(NULL, &context) || deltaic_device_open(context, &cpu, &device) ||
      deltaic_model_open(device, argv[1], NULL, &model) || deltaic_session_create(model, NULL, &session) ||
      deltaic_session_eval(session, &token, 1, DELTAIC_LOGITS_NONE, NULL) ||
      deltaic_session_next(session, NULL, &token, NULL)) {
    fprintf(stderr, "%s\n", deltaic_last_error());
    return 1;
  }
  printf("%s: token %d\n", deltaic_version(), (int)token);
  deltaic_session_free(session);
  deltaic_model_close(model);
  deltaic_device_close(device);
  deltaic_context_free(context);
  return 0;
}
