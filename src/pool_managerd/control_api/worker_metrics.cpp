#include "pool_managerd/control_api/worker_metrics.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

namespace llorch::pool_managerd::control_api {
namespace {

constexpr std::size_t kTextBytesMax = 1 << 20;
constexpr std::string_view kPrefix = "worker_";
constexpr std::string_view kHelp = "# HELP ", kType = "# TYPE ";

struct Asking {
  std::vector<std::string> texts;
  std::size_t open_count = 0;
  std::function<void(std::vector<std::string> texts)> done;
};

struct Family {
  std::size_t described_by = 0;  // the index of the worker
  std::string head, series;
};

}  // namespace

std::vector<wire::WorkerInfo> asked_workers(std::vector<wire::WorkerInfo> workers,
                                            const std::function<bool(const base::WorkerId&)>& serves) {
  std::erase_if(workers, [&](const wire::WorkerInfo& worker) {
    return worker.uri.empty() || worker.status == wire::WorkerStatus::kFailed ||
           !serves(base::WorkerId(worker.worker_id));
  });
  return workers;
}

void ask_workers(net::Transport& client, std::vector<net::ClientRequest> requests,
                 std::function<void(std::vector<std::string> texts)> done) {
  if (requests.empty()) return done({});
  const auto asking = std::make_shared<Asking>();
  asking->texts.resize(requests.size());
  asking->open_count = requests.size();
  asking->done = std::move(done);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    client.request(std::move(requests[i]), [asking, i](base::Result<net::Response> answer) {
      if (answer && answer->status == 200 && answer->body.size() <= kTextBytesMax) {
        asking->texts[i] = std::move(answer->body);
      }
      if (--asking->open_count == 0) asking->done(std::move(asking->texts));
    });
  }
}

std::string with_workers(std::string own, const std::vector<std::string>& workers) {
  std::map<std::string, Family, std::less<>> families;
  for (std::size_t i = 0; i < workers.size(); ++i) {
    Family* family = nullptr;
    std::string_view name, rest = workers[i];
    while (!rest.empty()) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.starts_with(kHelp) || line.starts_with(kType)) {
        name = line.substr(kHelp.size());
        name = name.substr(0, name.find(' '));
        family = nullptr;
        if (!name.starts_with(kPrefix)) continue;
        family =
            &families.try_emplace(std::string(name), Family{.described_by = i, .head = {}, .series = {}}).first->second;
        if (family->described_by == i) family->head.append(line).append("\n");
      } else if (family != nullptr && line.starts_with(name)) {
        family->series.append(line).append("\n");
      }
    }
  }
  for (const auto& [name, family] : families) own.append(family.head).append(family.series);
  return own;
}

}  // namespace llorch::pool_managerd::control_api
