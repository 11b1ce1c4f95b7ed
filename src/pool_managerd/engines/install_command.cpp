#include "pool_managerd/engines/install_command.h"

#include <fmt/core.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <cstdio>
#include <thread>

#include "pool_managerd/engines/installer.h"
#include "wire/json.h"

namespace llorch::pool_managerd::engines {
namespace {

namespace bj = boost::json;
namespace setup = adapter::setup;

constexpr std::int64_t kBytesBetweenLines = 8 << 20;

void say(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}
int say_error(const base::Error& error) {
  say(fmt::format(R"({{"event":"error","error":{}}})", wire::encode(wire::error_body(error, {}))));
  return 1;
}

base::Result<const config::EngineConfig*> find(const config::Config& config, const std::string& name) {
  const auto& engines = config.pool_managerd.engines;
  const auto it = std::ranges::find(engines, name, &config::EngineConfig::name);
  if (it == engines.end()) {
    return base::fail(base::ErrorCode::kNotFound,
                      fmt::format("pool-managerd.engines has no entry {}; llorch engine list shows them", name));
  }
  if (!setup::is_installed_here(*it)) {
    return base::fail(base::ErrorCode::kInvalidParams,
                      fmt::format("{} is external: nothing is to be installed for it", name));
  }
  return &*it;
}

// Asks `stop` to stop when a signal says so, for as long as it lives.
class SignalWatch {
 public:
  explicit SignalWatch(provisioner::StopFlag& stop)
      : thread_([this, &stop] {
          sigset_t set;
          sigemptyset(&set);
          sigaddset(&set, SIGINT);
          sigaddset(&set, SIGTERM);
          const timespec tick{.tv_sec = 0, .tv_nsec = 100'000'000};
          while (!over_) {
            if (::sigtimedwait(&set, nullptr, &tick) > 0) stop.request();
          }
        }) {}
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;
  ~SignalWatch() {
    over_ = true;
    thread_.join();
  }

 private:
  std::atomic<bool> over_{false};
  std::thread thread_;  // last: it uses the other
};

}  // namespace

int install_command(const config::Config& config, const std::filesystem::path& state_directory,
                    const std::string& name) {
  const auto engine = find(config, name);
  if (!engine) return say_error(engine.error());
  auto options = installer_options(config, state_directory);
  if (!options) return say_error(options.error());
  const base::SystemClock clock;
  provisioner::StopFlag stop;
  std::int64_t told = 0;
  options->clock = &clock;
  options->stop = &stop;
  options->on_step = [&told](const setup::Step& step) {
    told = 0;
    say(bj::serialize(bj::object{{"event", "step"}, {"kind", step.kind}, {"detail", step.detail}}));
  };
  options->on_bytes = [&told](std::int64_t done, std::int64_t total) {
    if (done < told + kBytesBetweenLines && done < total) return;
    told = done;
    say(fmt::format(R"({{"event":"bytes","done":{},"total":{}}})", done, total));
  };
  const SignalWatch watch(stop);
  const auto installed = install(**engine, *options);
  if (!installed) return say_error(installed.error());
  say(fmt::format(R"({{"event":"done","installation":{}}})", setup::to_json(*installed)));
  return 0;
}

int remove_command(const config::Config& config, const std::string& name) {
  const config::InstallPolicyConfig& policy = config.pool_managerd.provisioning;
  std::filesystem::path directory = setup::installations_directory(policy) / std::filesystem::path(name).filename();
  if (const auto engine = find(config, name)) directory = setup::directory_of(**engine, policy);
  const auto bytes = uninstall(directory);
  if (!bytes) return say_error(bytes.error());
  say(fmt::format(R"({{"event":"removed","size_bytes":{}}})", *bytes));
  return 0;
}

}  // namespace llorch::pool_managerd::engines
