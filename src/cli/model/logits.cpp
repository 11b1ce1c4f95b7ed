// llorch model logits
#include <fmt/core.h>

#include <boost/json.hpp>

#include "cli/model/commands.h"

namespace llorch::cli::model {
namespace {

base::Result<> write_logits(const LogitsOptions& options) {
  TRY(check_output_file(options.out, options.force, inputs_of(options.run)));
  const LoadedRun run = TRY(load_run(options.run));
  PartialFile file(options.out, options.force);
  TRY(file.check());
  TRY(run.engine->score(0, run.tokens, [&](std::size_t row, std::span<const float> logits) {
    file.out().write(reinterpret_cast<const char*>(logits.data()), static_cast<std::streamsize>(logits.size_bytes()));
    show_progress("logits", row + 1, run.tokens.size());
  }));
  return file.commit();
}

}  // namespace

int logits(const GlobalOptions& global, const LogitsOptions& options) {
  if (const auto written = write_logits(options); !written) return report(written.error(), global.json);
  if (global.json) fmt::print("{}\n", boost::json::serialize(boost::json::object{{"out", options.out}}));
  return kOk;
}

}  // namespace llorch::cli::model
