// llorch run: submit, stream, reconnect with the last event id, cancel on Ctrl-C.
#include <fmt/core.h>

#include "base/process.h"
#include "cli/commands.h"
#include "cli/stream/finished_job.h"
#include "cli/stream/run_job.h"

namespace llorch::cli {
int run_prompt(const GlobalOptions& global, const RunOptions& options) {
  const auto request = stream::make_request(options);
  if (!request) return report(request.error(), global.json);
  // From here on there may be a job to cancel. Until now Ctrl-C ended the process, and no thread has started yet.
  base::block_stop_signals();
  stream::InterruptWatch interrupt;
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  stream::WaitDisplay display(stream::WaitDisplay::form(global.json), [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  });
  const auto print = [&](std::string_view text) {
    return global.json || (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0);
  };
  const auto job = stream::run_job(**api, *request, interrupt, print, &display);
  if (!job) {
    // The answer's last line has no end yet.
    if (job.error().code == base::ErrorCode::kCancelled && !global.json) std::fputs("\n", stderr);
    return report(job.error(), global.json);
  }
  if (global.json) {
    fmt::print("{}\n", stream::as_json(*job));
  } else {
    std::fputs("\n", stdout);
    if (options.stats) fmt::print(stderr, "\n{}\n", stream::stats(*job));
  }
  return kOk;
}

}  // namespace llorch::cli
