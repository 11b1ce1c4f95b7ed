#include "orchestratord/app/brain_host/brain_thread.h"

#include <algorithm>
#include <chrono>

namespace llorch::orchestratord::app::brain_host {
namespace {

// Bounds one wait, so that "never" needs no special case.
constexpr std::int64_t kWaitMaxMs = 60'000;

}  // namespace

BrainThread::BrainThread(Options options) : options_(std::move(options)), brain_(options_.config, *options_.entropy) {}

void BrainThread::start(brain::Restored restored) {
  post(std::move(restored));
  thread_ = std::thread([this] { run(); });
}

void BrainThread::post(brain::Event event) {
  bool sleeps = false;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    sleeps = mailbox_.empty();
    mailbox_.push_back(std::move(event));
  }
  if (sleeps) wake_.notify_one();
}

void BrainThread::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
}

void BrainThread::run() {
  while (true) {
    std::vector<brain::Event> events = wait_for_events();
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
    }
    for (brain::Event& event : events) step(std::move(event));
  }
}

// What was posted, or a Tick when one is due.
std::vector<brain::Event> BrainThread::wait_for_events() {
  std::unique_lock lock(mutex_);
  const auto ready = [this] { return stopping_ || !mailbox_.empty(); };
  if (!ready()) {
    // Before the first event the brain has nothing to wait for; start() posts it ahead of the thread.
    const std::int64_t wait_ms = brain_.next_wakeup_ms() - options_.clock->now().mono_ms;
    wake_.wait_for(lock, std::chrono::milliseconds(std::clamp<std::int64_t>(wait_ms, 0, kWaitMaxMs)), ready);
  }
  std::vector<brain::Event> events;
  events.swap(mailbox_);
  if (events.empty()) events.emplace_back(brain::Tick{});
  return events;
}

void BrainThread::step(brain::Event event) {
  commands_.clear();
  const auto begin = std::chrono::steady_clock::now();
  brain_.step(std::move(event), options_.clock->now(), commands_);
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  const bool dispatched = std::any_of(commands_.begin(), commands_.end(), [](const brain::Command& command) {
    return std::holds_alternative<brain::Execute>(command);
  });
  if (dispatched) options_.on_dispatch_latency(took.count());
  for (brain::Command& command : commands_) options_.execute(std::move(command));
}

}  // namespace llorch::orchestratord::app::brain_host
