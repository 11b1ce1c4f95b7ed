// llorch top: queue, devices, workers and jobs as they are now.
#include <fmt/core.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "cli/commands.h"
#include "cli/top/view.h"
#include "wire/json.h"

namespace llorch::cli {
namespace {

base::Result<top::Look> look(Api& api) {
  top::Look out;
  const std::string jobs = TRY(api.call("GET", "/v2/tasks?limit=1000"));
  const std::string pools = TRY(api.call("GET", "/v2/pools"));
  out.jobs = TRY(wire::decode<wire::JobList>(jobs));
  out.pools = TRY(wire::decode<wire::PoolList>(pools));
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  out.at_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  return out;
}

// In place of what was there before.
void redraw(const top::View& view) {
  winsize size{};
  const bool is_known = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 1;
  const std::string text = top::to_text(view, is_known ? size.ws_col : 0, is_known ? size.ws_row - 1U : 0);
  fmt::print("\x1b[H\x1b[J{}", text);
  std::fflush(stdout);
}

}  // namespace

int watch_stack(const GlobalOptions& global, std::int64_t interval_ms) {
  const auto api = Api::connect(global);
  if (!api) return report(api.error(), global.json);
  const bool goes_on = !global.json && isatty(STDOUT_FILENO) != 0;
  auto before = look(**api);
  if (!before) return report(before.error(), global.json);
  do {
    std::this_thread::sleep_for(std::chrono::milliseconds(interval_ms));
    auto now = look(**api);
    if (!now) return report(now.error(), global.json);
    const top::View view = top::view_of(*before, *now);
    if (goes_on) {
      redraw(view);
    } else if (global.json) {
      fmt::print("{}\n", top::to_json(view));
    } else {
      fmt::print("{}", top::to_text(view, 0, 0));
    }
    before = std::move(now);
  } while (goes_on);
  return kOk;
}

}  // namespace llorch::cli
