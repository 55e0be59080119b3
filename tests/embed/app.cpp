// app_cpp FOLDER: as app.c, in C++17.
#include <cstdio>
#include <deltaic.h>
#include <memory>

extern "C" int fail(void);

int main(int argc, char **argv) {
  deltaic_context *made = nullptr;
  if (argc != 2 || fail() != 1 || deltaic_context_create(nullptr, &made)) return 1;
  std::unique_ptr<deltaic_context, decltype(&deltaic_context_free)> context(made, deltaic_context_free);
  auto cpu = DELTAIC_INIT(deltaic_device_options);
  cpu.index = DELTAIC_DEVICE_INDEX_CPU;
  deltaic_device *device = nullptr;
  deltaic_model *model = nullptr;
  deltaic_session *session = nullptr;
  int32_t token = 1;
  bool ran = !deltaic_device_open(context.get(), &cpu, &device) &&
             !deltaic_model_open(device, argv[1], nullptr, &model) &&
             !deltaic_session_create(model, nullptr, &session) &&
             !deltaic_session_eval(session, &token, 1, DELTAIC_LOGITS_NONE, nullptr) &&
             !deltaic_session_next(session, nullptr, &token, nullptr);
  if (ran)
    std::printf("%s: token %d\n", deltaic_version(), static_cast<int>(token));
  else
    std::fprintf(stderr, "%s\n", deltaic_last_error());
  deltaic_session_free(session);
  deltaic_model_close(model);
  deltaic_device_close(device);
  return ran ? 0 : 1;
}
