#include "cli/stream/wait_display.h"

#include <fmt/core.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>

#include "cli/terminal_text.h"
#include "wire/json.h"

namespace llorch::cli::stream {
namespace {

constexpr std::int64_t kBarCells = 20;
// A load takes seconds, and one that is over before the first question needs no bar.
constexpr std::chrono::milliseconds kPollEvery{400};
constexpr int kTimesBeforeTelling = 3;
constexpr std::string_view kWipe = "\r\x1b[K";

std::string bar(std::int64_t percent) {
  const auto full = static_cast<std::size_t>(percent * kBarCells / 100);
  return fmt::format("{}loading the model [{}{}] {} %", kWipe, std::string(full, '#'),
                     std::string(static_cast<std::size_t>(kBarCells) - full, '.'), percent);
}

}  // namespace

WaitDisplay::Form WaitDisplay::form(bool json) {
  if (json) return Form::kJson;
  return isatty(STDERR_FILENO) != 0 ? Form::kBar : Form::kLines;
}

void WaitDisplay::show(const std::optional<wire::WaitReason>& reason) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  // Beside a part of the answer there is no line to draw on.
  if (reason && reason->load_percent && !answered_) return draw_load(*reason->load_percent);
  wipe();
  if (reason) return tell(*reason);
  code_.clear();
}

void WaitDisplay::draw_load(std::int64_t percent) {
  code_.clear();
  if (percent == percent_) return;
  percent_ = percent;
  switch (form_) {
    case Form::kBar: return write_(bar(percent));
    case Form::kLines: return write_(fmt::format("loading the model: {} %\n", percent));
    case Form::kJson: return write_(fmt::format("{{\"event\":\"load_progress\",\"percent\":{}}}\n", percent));
  }
}

// Once per wait: its words may count down.
void WaitDisplay::tell(const wire::WaitReason& reason) {
  if (code_ != reason.code) {
    code_ = reason.code;
    times_shown_ = 0;
  }
  if (++times_shown_ != kTimesBeforeTelling) return;
  if (form_ == Form::kJson) {
    const boost::json::object object{{"event", "waiting"}, {"code", reason.code}, {"human", reason.human}};
    return write_(boost::json::serialize(object) + "\n");
  }
  write_(fmt::format("{}waiting: {}\n", answered_ ? "\n" : "", without_controls(reason.human)));
}

void WaitDisplay::answered() {
  const std::lock_guard lock(mutex_);
  wipe();
  code_.clear();
  answered_ = true;
}

void WaitDisplay::finish() {
  const std::lock_guard lock(mutex_);
  wipe();
  finished_ = true;
}

void WaitDisplay::wipe() {
  if (percent_ && form_ == Form::kBar) write_(kWipe);
  percent_.reset();
}

WaitWatch::WaitWatch(Api& api, const std::string& job_id, WaitDisplay& display)
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
    look();
  }
}

void WaitWatch::look() {
  const auto body = api_.call("GET", path_);
  if (!body && body.error().code == base::ErrorCode::kUnreachable) {
    return display_.show(
        wire::WaitReason{"UNREACHABLE",
                         "orchestratord does not answer; the job goes on when it is back, `llorch up` brings it back.",
                         {}});
  }
  if (!body) return;  // the stream says what is wrong
  if (const auto job = wire::decode<wire::JobView>(*body)) display_.show(job->reason);
}

}  // namespace llorch::cli::stream
