// threads: C++17. A thread of its own writes, hands the text over through a queue, and is cancelled from outside:
// threads MODEL PROMPT [TEXTS], where a token makes one text, or none
#include <deltaic.h>

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

void must(deltaic_status status) {
  if (status) throw std::runtime_error(deltaic_last_error());
}

template <auto free> struct freed {
  template <typename type> void operator()(type *object) const { free(object); }
};
template <typename type, auto free> using owned = std::unique_ptr<type, freed<free>>;
using context = owned<deltaic_context, deltaic_context_free>;
using device = owned<deltaic_device, deltaic_device_close>;
using model = owned<deltaic_model, deltaic_model_close>;
using session = owned<deltaic_session, deltaic_session_free>;
using tokenizer = owned<deltaic_tokenizer, deltaic_tokenizer_close>;
using decoder = owned<deltaic_decoder, deltaic_decoder_free>;

// What a call returns through its last argument, owned: made<model>(deltaic_model_open, device, path, options).
template <typename result, typename call, typename... arguments> result made(call function, arguments... given) {
  typename result::pointer object = nullptr;
  must(function(given..., &object));
  return result(object);
}

class queue {
public:
  void push(std::string text) {
    change([&] { texts.push_back(std::move(text)); });
  }
  void end(std::exception_ptr why = nullptr) {
    change([&] {
      ended = true;
      failure = why;
    });
  }
  // Waits for text; nothing when it has ended. Throws what the writer has thrown.
  std::optional<std::string> pop() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return ended || !texts.empty(); });
    if (texts.empty() && failure) std::rethrow_exception(failure);
    if (texts.empty()) return std::nullopt;
    std::string text = std::move(texts.front());
    texts.pop_front();
    return text;
  }

private:
  template <typename function> void change(function apply) {
    {
      std::lock_guard lock(mutex);
      apply();
    }
    changed.notify_one();
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::string> texts;
  std::exception_ptr failure;
  bool ended = false;
};

class writer {
public:
  explicit writer(const char *path)
      : context_(made<context>(deltaic_context_create, nullptr)),
        device_(made<device>(deltaic_device_open, context_.get(), nullptr)),
        model_(made<model>(deltaic_model_open, device_.get(), path, nullptr)),
        session_(made<session>(deltaic_session_create, model_.get(), nullptr)),
        tokenizer_(made<tokenizer>(deltaic_tokenizer_open, path)) {}

  void write(std::string_view prompt, int limit, queue &out) {
    try {
      run(prompt, limit, out);
      out.end();
    } catch (...) {
      out.end(std::current_exception());
    }
  }
  // Any thread may call this.
  void cancel() { deltaic_session_cancel(session_.get()); }

private:
  void run(std::string_view prompt, int limit, queue &out) {
    decoder decode = made<decoder>(deltaic_decoder_create, tokenizer_.get(), true);
    const char *text;
    size_t bytes;
    for (std::int32_t id : read(prompt)) must(deltaic_decoder_push(decode.get(), id, &text, &bytes));
    for (int i = 0; i < limit; ++i) {
      std::int32_t id;
      const deltaic_status status = deltaic_session_next(session_.get(), nullptr, &id, nullptr);
      if (status == DELTAIC_CANCELLED) break;
      must(status);
      if (deltaic_model_is_end(model_.get(), id)) break;
      must(deltaic_decoder_push(decode.get(), id, &text, &bytes));
      if (bytes) out.push(std::string(text, bytes));
    }
    must(deltaic_decoder_finish(decode.get(), &text, &bytes));
    if (bytes) out.push(std::string(text, bytes));
  }
  std::vector<std::int32_t> read(std::string_view prompt) {
    std::size_t count = 0;
    must(deltaic_tokenizer_encode(tokenizer_.get(), prompt.data(), prompt.size(), true, nullptr, 0, &count));
    std::vector<std::int32_t> ids(count);
    must(deltaic_tokenizer_encode(tokenizer_.get(), prompt.data(), prompt.size(), true, ids.data(), count, &count));
    must(deltaic_session_eval(session_.get(), ids.data(), count, DELTAIC_LOGITS_NONE, nullptr));
    return ids;
  }
  context context_;
  device device_;
  model model_;
  session session_;
  tokenizer tokenizer_;
};

int run(const char *path, const char *prompt, std::size_t most) {
  queue texts;
  writer writing(path);
  // There is no limit for the thread: this one cancels it, after so many texts.
  std::thread thread([&] { writing.write(prompt, 1 << 30, texts); });
  struct join {
    std::thread &thread;
    ~join() { thread.join(); }
  } joined{thread};
  std::size_t count = 0;
  while (std::optional<std::string> text = texts.pop()) {
    if (++count > most) continue; // written before the cancel arrived
    std::fwrite(text->data(), 1, text->size(), stdout);
    std::fflush(stdout);
    if (count == most) writing.cancel();
  }
  std::putchar('\n');
  return 0;
}

} // namespace

int main(int argc, char **argv) try {
  if (argc < 3) return std::fputs("usage: threads MODEL PROMPT [TEXTS]\n", stderr), 2;
  return run(argv[1], argv[2], argc > 3 ? std::stoul(argv[3]) : 64);
} catch (const std::exception &failure) {
  std::fprintf(stderr, "threads: %s\n", failure.what());
  return 1;
}
