#include "orchestratord/daemon/core_thread.h"

#include <algorithm>
#include <chrono>

namespace llorch::orchestratord::daemon {
namespace {

// Bounds one wait, so that "never" needs no special case.
constexpr std::int64_t kWaitMaxMs = 60'000;

}  // namespace

CoreThread::CoreThread(Options options) : options_(std::move(options)), core_(options_.config, *options_.entropy) {}

void CoreThread::start(core::Restored restored) {
  post(std::move(restored));
  thread_ = std::thread([this] { run(); });
}

void CoreThread::post(core::Event event) {
  bool sleeps = false;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    sleeps = mailbox_.empty();
    mailbox_.push_back(std::move(event));
  }
  if (sleeps) wake_.notify_one();
}

void CoreThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void CoreThread::run() {
  while (true) {
    std::vector<core::Event> events = wait_for_events();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    for (core::Event& event : events) step(std::move(event));
  }
}

// What was posted, or a Tick when one is due.
std::vector<core::Event> CoreThread::wait_for_events() {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return stopping_ || !mailbox_.empty(); };
  if (!ready()) {
    // Before the first event the core has nothing to wait for; start() posts it ahead of the thread.
    const std::int64_t wait_ms = core_.next_wakeup_ms() - options_.clock->now().mono_ms;
    wake_.wait_for(lock, std::chrono::milliseconds(std::clamp<std::int64_t>(wait_ms, 0, kWaitMaxMs)), ready);
  }
  std::vector<core::Event> events;
  events.swap(mailbox_);
  if (events.empty()) events.emplace_back(core::Tick{});
  return events;
}

void CoreThread::step(core::Event event) {
  commands_.clear();
  const auto begin = std::chrono::steady_clock::now();
  core_.step(std::move(event), options_.clock->now(), commands_);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  bool dispatched = false;
  for (core::Command& command : commands_) {
    auto* const execute = std::get_if<core::Execute>(&command);
    if (execute == nullptr) continue;
    execute->scheduling_ms = took.count();
    dispatched = true;
  }
  if (dispatched) options_.on_dispatch_latency(took.count());
  for (core::Command& command : commands_) options_.execute(std::move(command));
}

}  // namespace llorch::orchestratord::daemon
