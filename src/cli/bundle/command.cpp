// llorch debug bundle: what somebody who looks into a fault needs, in one file.
#include <fmt/core.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <cstdlib>
#include <deque>
#include <thread>

#include "base/build_id.h"
#include "base/clock.h"
#include "base/file.h"
#include "cli/bundle/archive.h"
#include "cli/bundle/scrubber.h"
#include "cli/commands.h"
#include "cli/stack/log_reader.h"
#include "cli/stack/processes.h"
#include "cli/terminal_text.h"
#include "config/pool_credential.h"
#include "engine/compute/cpu/backend.h"
#include "net/http/url.h"
#include "wire/json.h"
#include "wire/pool.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;

constexpr std::size_t kLogBytesMax = 1 << 20;  // of one log, the newest lines
constexpr std::size_t kLineBytesMax = 64 << 10;
constexpr std::size_t kWorkersMax = 8;

// The parts as they come together, and the reasons of those that do not.
class Parts {
 public:
  void add(std::string name, base::Result<std::string> content) {
    if (content) {
      files_.push_back({std::move(name), *std::move(content)});
    } else {
      missing_.push_back(
          bj::object{{"name", name}, {"reason", std::string(content.error().name()) + ": " + content.error().message}});
    }
  }

  std::vector<bundle::ArchiveFile> finish(bundle::Scrubber& scrubber, std::int64_t unix_ms) {
    for (const bundle::ArchiveFile& file : files_) scrubber.learn(file.content);
    bj::array listed;
    for (bundle::ArchiveFile& file : files_) {
      file.content = scrubber.scrub(file.content);
      listed.push_back(bj::object{{"name", file.name}, {"bytes", file.content.size()}});
    }
    const bj::object manifest{{"schema_version", 1},        {"made_at", base::rfc3339(unix_ms)},
                              {"llorch", base::build_id()}, {"release", base::release_id()},
                              {"files", std::move(listed)}, {"missing", std::move(missing_)}};
    files_.insert(files_.begin(), {"manifest.json", scrubber.scrub(bj::serialize(manifest))});
    return std::move(files_);
  }

 private:
  std::vector<bundle::ArchiveFile> files_;
  bj::array missing_;
};

std::string machine_json() {
  utsname system{};
  ::uname(&system);
  std::string distribution;
  const std::string os_release = base::read_file("/etc/os-release", 1 << 16).value_or("");
  constexpr std::string_view kKey = "PRETTY_NAME=";
  if (const std::size_t at = os_release.find(kKey); at != std::string::npos) {
    distribution = os_release.substr(at + kKey.size(), os_release.find('\n', at) - at - kKey.size());
    std::erase(distribution, '"');
  }
  const auto isa = engine::compute::cpu::processor_isa();
  return bj::serialize(
      bj::object{{"system", system.sysname},
                 {"kernel", system.release},
                 {"architecture", system.machine},
                 {"distribution", distribution},
                 {"instruction_set", isa ? std::string(*isa) : isa.error().message},
                 {"processors", std::thread::hardware_concurrency()},
                 {"memory_bytes", static_cast<std::int64_t>(::sysconf(_SC_PHYS_PAGES)) * ::sysconf(_SC_PAGESIZE)}});
}

std::string newest_lines(const std::filesystem::path& file) {
  stack::LogReader reader(file);
  std::deque<std::string> lines;
  std::size_t bytes = 0;
  const auto keep = [&](std::string line) {
    line.resize(std::min(line.size(), kLineBytesMax));
    bytes += line.size() + 1;
    lines.push_back(std::move(line));
    while (bytes > kLogBytesMax) {
      bytes -= lines.front().size() + 1;
      lines.pop_front();
    }
  };
  while (auto line = reader.next()) keep(*std::move(line));
  if (std::string rest = reader.take_rest(); !rest.empty()) keep(std::move(rest));
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

void add_logs_of(const std::filesystem::path& directory, Parts& parts) {
  auto files = stack::find_logs(directory, {});
  if (!files) return parts.add("logs", base::fail(files.error()));
  const auto is_worker = [](const std::filesystem::path& file) {
    return file.filename().string().starts_with("worker-");
  };
  // Daemons first, then the workers that wrote last.
  const auto age = [&](const std::filesystem::path& file) {
    std::error_code ec;
    return std::pair(is_worker(file), -std::filesystem::last_write_time(file, ec).time_since_epoch().count());
  };
  std::ranges::stable_sort(*files, {}, age);
  std::size_t workers = 0;
  for (const std::filesystem::path& file : *files) {
    if (is_worker(file) && ++workers > kWorkersMax) break;
    const std::string name = "logs/" + file.filename().string();
    if (name.size() <= 100) parts.add(name, newest_lines(file));
  }
}

void add_orchestrator(const GlobalOptions& global, Parts& parts) {
  const auto api = Api::connect(global);
  if (!api) return parts.add("orchestratord", base::fail(api.error()));
  if (auto health = (*api)->call("GET", "/v2/health"); !health) {
    return parts.add("orchestratord", base::fail(health.error()));
  }
  for (const auto& [name, path] : {std::pair{"health.json", "/v2/health"},
                                   {"version.json", "/v2/meta/version"},
                                   {"capabilities.json", "/v2/meta/capabilities"},
                                   {"configuration.json", "/v2/meta/settings"},
                                   {"pools.json", "/v2/pools"},
                                   {"models.json", "/v2/catalog/models"},
                                   {"snapshot.json", "/v2/debug/snapshot"},
                                   {"metrics.txt", "/metrics"}}) {
    parts.add(std::string("orchestratord/") + name, (*api)->call("GET", path));
  }
}

// Of the pool manager in this state directory, as its orchestratord asks it; those of other machines are in pools.json.
void add_pool_manager(const GlobalOptions& global, const config::Config& config, Parts& parts) {
  const std::filesystem::path state_dir = state_directory(global);
  for (const stack::RunningProcess& process : stack::running_processes(state_dir)) {
    if (process.name != "pool-managerd" || process.bind.empty()) continue;
    const auto credential = config::load_pool_credential(config::pool_credential_file(config, state_dir));
    if (!credential) return parts.add("pool-managerd", base::fail(credential.error()));
    net::IoRuntime runtime;
    net::Client client{runtime};
    const auto ask = [&](const std::string& url) -> base::Result<std::string> {
      auto response = TRY(client.call({.url = url, .bearer = *credential ? (*credential)->control_token() : ""}));
      if (response.status >= 400) return base::fail(net::http::error_of(response));
      return std::move(response.body);
    };
    const std::string url = net::http::local_url(process.bind);
    const auto state = ask(url + "/v2/state");
    parts.add("pool-managerd/state.json", state);
    parts.add("pool-managerd/metrics.txt", ask(url + "/metrics"));
    const auto decoded = state ? wire::decode<wire::PoolState>(*state) : base::fail(state.error());
    if (!decoded) return;
    std::size_t workers = 0;
    for (const wire::WorkerInfo& worker : decoded->workers) {
      if (worker.uri.empty() || ++workers > kWorkersMax) continue;
      parts.add(fmt::format("pool-managerd/worker-{}-metrics.txt", workers), ask(worker.uri + "/metrics"));
    }
    return;
  }
  parts.add("pool-managerd", base::fail(base::ErrorCode::kUnreachable, "no pool manager of this state directory runs"));
}

std::string default_name(std::int64_t unix_ms) {
  std::string stamp = base::rfc3339(unix_ms).substr(0, 19);
  std::erase(stamp, '-');
  std::erase(stamp, ':');
  return "llorch-debug-" + stamp + "Z.tar.gz";
}

}  // namespace

int debug_bundle(const GlobalOptions& global, const std::string& file) {
  const std::int64_t unix_ms = base::SystemClock().now().unix_ms;
  const std::string name = file.empty() ? default_name(unix_ms) : file;
  std::error_code ec;
  if (std::filesystem::exists(name, ec)) {
    return report({base::ErrorCode::kInvalidParams, name + " is there already; name another file with --output", {}},
                  global.json);
  }
  Parts parts;
  parts.add("machine.json", machine_json());
  const auto config = load_config(global);
  parts.add("configuration.json", config ? base::Result<std::string>(config::redacted_json(*config))
                                         : base::Result<std::string>(base::fail(config.error())));
  parts.add("doctor.json", doctor_json(global));
  add_orchestrator(global, parts);
  if (config) add_pool_manager(global, *config, parts);
  add_logs_of(state_directory(global) / "logs", parts);
  const char* const home = std::getenv("HOME");
  bundle::Scrubber scrubber(home == nullptr ? "" : home);
  const std::vector<bundle::ArchiveFile> files = parts.finish(scrubber, unix_ms);
  const auto packed = bundle::tar_gz(files, unix_ms / 1000);
  if (!packed) return report(packed.error(), global.json);
  if (const auto written = base::write_file_atomic(name, *packed); !written)
    return report(written.error(), global.json);
  if (global.json) {
    bj::array listed;
    for (const bundle::ArchiveFile& part : files) listed.emplace_back(part.name);
    fmt::print("{}\n",
               bj::serialize(bj::object{{"file", name}, {"bytes", packed->size()}, {"parts", std::move(listed)}}));
  } else {
    print_text("{}: {} parts, {}. It names this machine's models and configuration; look at it before you send it.\n",
               name, files.size(), human_bytes(static_cast<std::int64_t>(packed->size())));
  }
  return kOk;
}

}  // namespace llorch::cli
