#pragma once
// Runs posted calls one by one: RuntimeExecutor on a runtime's thread, a simulator in virtual time.
#include <cstdint>
#include <functional>
#include <utility>

#include "net/io_runtime.h"

namespace llorch::net {

// Thread-safe. Calls run one at a time, never within post() or post_after(); they must not block.
class Executor {
 public:
  virtual ~Executor() = default;
  // Runs `fn` in order of posting.
  virtual void post(std::function<void()> fn) = 0;
  // Runs `fn` once after `delay_ms`.
  virtual void post_after(std::int64_t delay_ms, std::function<void()> fn) = 0;
};

// On the thread of `runtime`. REQUIRES: `runtime` outlives it.
class RuntimeExecutor final : public Executor {
 public:
  explicit RuntimeExecutor(IoRuntime& runtime) : runtime_(runtime) {}
  void post(std::function<void()> fn) override { runtime_.post(std::move(fn)); }
  void post_after(std::int64_t delay_ms, std::function<void()> fn) override {
    runtime_.post_after(delay_ms, std::move(fn));
  }

 private:
  IoRuntime& runtime_;
};

}  // namespace llorch::net
