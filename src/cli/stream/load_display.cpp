#include "cli/stream/load_display.h"

#include <fmt/core.h>

#include <chrono>

#include "contract/json.h"

namespace llorch::cli::stream {
namespace {

constexpr std::int64_t kBarCells = 20;
// A load takes seconds, and one that is over before the first question needs no bar.
constexpr std::chrono::milliseconds kPollEvery{400};
constexpr std::string_view kWipe = "\r\x1b[K";

std::string bar(std::int64_t percent) {
  const auto full = static_cast<std::size_t>(percent * kBarCells / 100);
  return fmt::format("{}loading the model [{}{}] {} %", kWipe, std::string(full, '#'),
                     std::string(static_cast<std::size_t>(kBarCells) - full, '.'), percent);
}

}  // namespace

void LoadDisplay::show(const std::optional<contract::WaitReason>& reason) {
  const std::lock_guard lock(mutex_);
  const auto percent = reason ? reason->load_percent : std::nullopt;
  if (finished_ || percent == shown_) return;
  if (!percent) return wipe();
  shown_ = percent;
  switch (form_) {
    case Form::kBar: return write_(bar(*percent));
    case Form::kLines: return write_(fmt::format("loading the model: {} %\n", *percent));
    case Form::kJson: return write_(fmt::format("{{\"event\":\"load_progress\",\"percent\":{}}}\n", *percent));
  }
}

void LoadDisplay::finish() {
  const std::lock_guard lock(mutex_);
  wipe();
  finished_ = true;
}

void LoadDisplay::wipe() {
  if (shown_ && form_ == Form::kBar) write_(kWipe);
  shown_.reset();
}

WaitWatch::WaitWatch(Api& api, const std::string& job_id, LoadDisplay& display)
    : api_(api), path_("/v2/tasks/" + job_id), display_(display), thread_([this] { run(); }) {}

WaitWatch::~WaitWatch() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void WaitWatch::run() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kPollEvery, [&] { return stopped_; })) return;
    }
    // An orchestratord that does not answer now may be a restart in progress.
    const auto body = api_.call("GET", path_);
    if (!body) continue;
    if (const auto job = contract::decode<contract::JobView>(*body)) display_.show(job->reason);
  }
}

}  // namespace llorch::cli::stream
