// llorch run and attach: stream a job, reconnect with the last event id.
#include <fmt/core.h>

#include <cerrno>
#include <functional>

#include "base/file.h"
#include "base/process.h"
#include "cli/commands.h"
#include "cli/models/pull.h"
#include "cli/stream/finished_job.h"
#include "cli/stream/run_job.h"
#include "cli/terminal_text.h"

namespace llorch::cli {
namespace {

using Follow = std::function<base::Result<stream::FinishedJob>(Api&, stream::InterruptWatch&, stream::JobStream::Print,
                                                               stream::WaitDisplay&)>;

// Prints what `follow` reads. REQUIRES: no thread has started yet; until now Ctrl-C ended the process.
int print_job(const GlobalOptions& global, bool stats, const Follow& follow) {
  base::block_stop_signals();
  stream::InterruptWatch interrupt;
  auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  stream::WaitDisplay display(stream::WaitDisplay::form(global.json), [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  });
  AnswerOutput answer;
  int write_error = 0;  // errno of the first part that could not be written
  const auto print = [&](std::string_view text) {
    if (global.json) return true;
    if (answer.print(text)) return true;
    write_error = errno;
    return false;
  };
  const auto job = follow(**api, interrupt, print, display);
  if (write_error == EPIPE) return kInterrupted;  // as `head` wants it: quietly
  if (write_error != 0) return report(base::io_error("cannot write", "standard output", write_error), global.json);
  answer.finish();
  if (!job) {
    // The answer's last line has no end yet.
    if (job.error().code == base::ErrorCode::kCancelled && !global.json) std::fputs("\n", stderr);
    return report(job.error(), global.json);
  }
  if (global.json) {
    fmt::print("{}\n", stream::as_json(*job));
  } else {
    std::fputs("\n", stdout);
    if (stats) print_text(stderr, "\n{}\n", stream::stats(*job));
  }
  return kOk;
}

}  // namespace

base::Result<std::string> model_to_run(const GlobalOptions& global, const RunOptions& options) {
  const auto api = TRY(Api::connect(global));
  return models::ensure_model(*api, options.model, options.pull, global.json);
}

int run_prompt(const GlobalOptions& global, const RunOptions& options) {
  auto request = stream::make_request(options);
  if (!request) return report(request.error(), global.json);
  auto model = model_to_run(global, options);
  if (!model) return report(model.error(), global.json);
  request->model = stream::model_reference(*model);
  return print_job(
      global, options.stats,
      [&](Api& api, stream::InterruptWatch& interrupt, stream::JobStream::Print print, stream::WaitDisplay& display) {
        return stream::run_job(api, *request, interrupt, std::move(print), &display);
      });
}

int attach_to_job(const GlobalOptions& global, const std::string& job_id) {
  return print_job(global, false,
                   [&](Api& api, stream::InterruptWatch& interrupt, stream::JobStream::Print print,
                       stream::WaitDisplay& display) -> base::Result<stream::FinishedJob> {
                     const std::string id = TRY(whole_job_id(api, job_id, global.json));
                     return stream::attach_job(api, id, interrupt, std::move(print), &display);
                   });
}

}  // namespace llorch::cli
