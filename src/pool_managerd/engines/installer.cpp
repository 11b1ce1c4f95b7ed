#include "pool_managerd/engines/installer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/assert.h"
#include "base/build_id.h"
#include "base/descriptor.h"
#include "base/file.h"
#include "base/log.h"
#include "base/run_command.h"
#include "base/sha256.h"
#include "pool_managerd/engines/unpack.h"
#include "pool_managerd/provisioner/download/download.h"
#include "pool_managerd/provisioner/provisioner.h"
#include "pool_managerd/provisioner/room.h"

extern char** environ;

namespace llorch::pool_managerd::engines {
namespace {

namespace fs = std::filesystem;
namespace setup = adapter::setup;
namespace sources = provisioner::sources;
namespace web = provisioner::web;
using base::Descriptor;
using base::Error;
using base::ErrorCode;
using base::write_all;
using config::EngineConfig;

constexpr std::size_t kCopyBytes = 1 << 20;

// Keeps other processes from the installation; the kernel lets go of it when this one ends, however that happens.
base::Result<Descriptor> lock(const fs::path& directory) {
  const fs::path file = directory.string() + ".lock";
  Descriptor fd(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (fd.get() < 0) return base::fail(base::io_error("cannot open", file, errno));
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  return base::fail(ErrorCode::kConflict, "another process installs or removes this engine; wait for it");
}

// Whether a worker holds the installation's entry (worker-adapterd --installation).
bool is_used(const fs::path& directory) {
  const Descriptor fd(::open((directory / "engine.json").c_str(), O_RDONLY | O_CLOEXEC));
  return fd.get() >= 0 && ::flock(fd.get(), LOCK_EX | LOCK_NB) != 0;
}

std::int64_t bytes_in(const fs::path& directory) {
  std::int64_t bytes = 0;
  std::error_code ec;
  for (fs::recursive_directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec)) {
    std::error_code size_ec;
    if (it->is_regular_file(size_ec) && !it->is_symlink(size_ec))
      bytes += static_cast<std::int64_t>(it->file_size(size_ec));
  }
  return bytes;
}

class Installing {
 public:
  Installing(const EngineConfig& engine, const InstallerOptions& options, fs::path directory)
      : engine_(engine), options_(options), directory_(std::move(directory)), web_(options.web) {}

  base::Result<> run(const std::vector<setup::Step>& steps) {
    TRY(base::ensure_private_directory(options_.log_directory));
    const fs::path file = options_.log_directory / fmt::format("engine-{}.log", engine_.name);
    const Descriptor log(::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (log.get() < 0) return base::fail(base::io_error("cannot open", file, errno));
    log_fd_ = log.get();
    log_path_ = file;
    TRY(base::ensure_private_directory(directory_ / "downloads"));
    for (const setup::Step& step : steps) {
      if (options_.stop->requested()) return base::fail(ErrorCode::kCancelled, "the installation was stopped");
      if (options_.on_step) options_.on_step(step);
      TRY(write_all(log_fd_, fmt::format("== {}: {}\n", step.kind, step.detail), file));
      base::log_event(base::LogLevel::kInfo, "engine_install_step", {}, "A step of an engine's installation begins.",
                      {{"engine", engine_.name}, {"kind", step.kind}, {"detail", step.detail}});
      TRY(std::visit([this](const auto& action) { return carry_out(action); }, step.action));
    }
    std::error_code ec;
    fs::remove_all(directory_ / "downloads", ec);
    return {};
  }

 private:
  static base::Result<> carry_out(std::monostate) { return {}; }

  base::Result<> carry_out(const setup::FetchFile& fetch) {
    constexpr std::string_view kFile = "file:";
    if (fetch.url.starts_with(kFile)) {
      std::string path = fetch.url.substr(kFile.size());
      path.erase(0, std::min(path.find_first_not_of('/'), path.size()));
      return copy("/" + path, fetch);
    }
    return download({.url = fetch.url}, fetch.sha256, fetch.name, std::nullopt);
  }

  base::Result<> carry_out(const setup::FetchWheel& wheel) {
    const auto file = TRY(sources::locate_wheel(
        wheel.project, wheel.sha256,
        {.web = web_, .settings = options_.sources, .stop = *options_.stop, .now = options_.clock->now()}));
    if (!file.name.ends_with(".whl")) {
      return base::fail(
          ErrorCode::kUntrustedArtifact,
          fmt::format("{} is no wheel: other files of an index run code while they are installed", file.name));
    }
    return download(file.request, file.sha256, file.name, file.size_bytes);
  }

  base::Result<> carry_out(const setup::Unpack& unpacked) {
    const auto run = [this](std::vector<std::string> command) {
      return carry_out(setup::RunCommand{std::move(command), false, {}});
    };
    const std::string tar = setup::find_program(variable("PATH"), "tar");
    return unpack(directory_ / "downloads" / unpacked.name, directory_, tar, run, *options_.stop);
  }

  base::Result<> carry_out(const setup::RunCommand& step) {
    // The command asks by itself: whether it may is for the same policy to say.
    if (step.asks_network) TRY(web::check_egress(options_.web.egress, TRY(web::address_of(step.url))));
    // How much a command writes nobody knows before, and what one writes that is ended may go with it.
    std::optional<Error> no_room;
    const auto has_room = [&] {
      const auto room = provisioner::check_room(
          {directory_, fmt::format("what {} writes", step.command[0]), provisioner::kRoomForEngines}, 1);
      if (!room && !no_room) no_room = room.error();
      return room.has_value();
    };
    const auto status = base::run_command({.argv = step.command,
                                           .environment = environment(),
                                           .directory = directory_,
                                           .output_fd = log_fd_,
                                           .timeout_ms = options_.policy.step_timeout_ms,
                                           .stop = [&] { return options_.stop->requested() || !has_room(); }});
    if (status && *status == 0) return {};
    if (!no_room && !options_.stop->requested()) has_room();
    if (no_room) return base::fail(*std::move(no_room));
    if (!status) return base::fail(status.error());
    return base::fail(ErrorCode::kWorkerStartFailed, fmt::format("{} failed with status {}; {} has what it said",
                                                                 step.command[0], *status, log_path_.string()));
  }

  static base::Result<> carry_out(const setup::CheckProgram& check) {
    if (setup::is_program(check.path)) return {};
    return base::fail(ErrorCode::kNotFound,
                      fmt::format("what was installed holds no program {}; correct `command`", check.path));
  }

  base::Result<> download(web::WebRequest request, const std::string& sha256, const std::string& name,
                          std::optional<std::int64_t> size_bytes) {
    const fs::path partial = directory_.parent_path() / ".partial";
    TRY(base::ensure_private_directory(partial));
    auto file = TRY(provisioner::download::download(web_,
                                                    {.request = std::move(request),
                                                     .stem = partial / sha256,
                                                     .sha256 = sha256,
                                                     .size_bytes = size_bytes,
                                                     .connections = options_.connections,
                                                     .room_advice = provisioner::kRoomForEngines},
                                                    *options_.stop, [this](std::int64_t done, std::int64_t total) {
                                                      if (options_.on_bytes) options_.on_bytes(done, total);
                                                    }));
    std::error_code ec;
    fs::create_hard_link(file.data_path(), directory_ / "downloads" / name, ec);
    if (ec) return base::fail(base::io_error("cannot link", directory_ / "downloads" / name, ec.value()));
    file.remove();
    return {};
  }

  // A file of this machine, hashed while it is copied: what is unpacked is what was hashed.
  base::Result<> copy(const fs::path& source, const setup::FetchFile& fetch) {
    const fs::path target = directory_ / "downloads" / fetch.name;
    const Descriptor from(::open(source.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat facts {};
    if (from.get() < 0 || ::fstat(from.get(), &facts) != 0) {
      return base::fail(base::io_error("cannot open", source, errno));
    }
    TRY(provisioner::check_room({directory_, fetch.name, provisioner::kRoomForEngines}, facts.st_size));
    const Descriptor to(::open(target.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (to.get() < 0) return base::fail(base::io_error("cannot open", target, errno));
    base::Sha256 hash;
    std::string buffer(kCopyBytes, '\0');
    for (;;) {
      const ssize_t got = ::read(from.get(), buffer.data(), buffer.size());
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return base::fail(base::io_error("cannot read", source, errno));
      if (got == 0) break;
      const std::string_view bytes = std::string_view(buffer).substr(0, static_cast<std::size_t>(got));
      hash.update(bytes);
      TRY(write_all(to.get(), bytes, target));
    }
    const std::string found = base::to_hex(hash.digest());
    if (found == fetch.sha256) return {};
    return base::fail(Error{ErrorCode::kUntrustedArtifact, "the file has another checksum than it should", {}}
                          .with("expected", fetch.sha256)
                          .with("found", found));
  }

  std::string variable(std::string_view name) const {
    for (const std::string& each : options_.environment) {
      if (each.starts_with(name) && each.size() > name.size() && each[name.size()] == '=')
        return each.substr(name.size() + 1);
    }
    return {};
  }

  // No tokens, no proxies and no switches of this process's own environment.
  std::vector<std::string> environment() const {
    std::vector<std::string> out{"LANG=C.UTF-8", "GIT_TERMINAL_PROMPT=0", "PIP_NO_INPUT=1",
                                 "PIP_CONFIG_FILE=/dev/null"};
    for (const char* name : {"PATH", "HOME", "TMPDIR", "CUDA_HOME", "CUDACXX", "XDG_RUNTIME_DIR", "DOCKER_HOST"}) {
      if (std::string value = variable(name); !value.empty()) out.push_back(fmt::format("{}={}", name, value));
    }
    if (!options_.web.proxy.empty()) out.push_back("https_proxy=" + options_.web.proxy);
    if (!options_.web.ca_file.empty()) out.push_back("GIT_SSL_CAINFO=" + options_.web.ca_file);
    return out;
  }

  const EngineConfig& engine_;
  const InstallerOptions& options_;
  const fs::path directory_;
  web::Web web_;
  fs::path log_path_;
  int log_fd_ = -1;
};

// What the plan lacks, before any of it runs.
base::Result<> check(const std::vector<setup::Step>& steps) {
  for (const setup::Step& step : steps) {
    if (!step.missing) continue;
    const ErrorCode code = step.refused ? ErrorCode::kForbidden : ErrorCode::kNotFound;
    return base::fail(
        Error{code, fmt::format("{} {}", step.detail, step.what_to_do), {}}.with("what_to_do", step.what_to_do));
  }
  return {};
}

base::Result<> sync_file_system(const fs::path& directory) {
  const Descriptor at(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (at.get() < 0 || ::syncfs(at.get()) != 0) return base::fail(base::io_error("cannot sync", directory, errno));
  return {};
}

}  // namespace

base::Result<InstallerOptions> installer_options(const config::Config& config, const fs::path& state_directory) {
  provisioner::ProvisionerOptions models = TRY(provisioner::provisioner_options(config));
  InstallerOptions out{.policy = config.pool_managerd.provisioning,
                       .web = std::move(models.web),
                       .sources = std::move(models.sources),
                       .connections = models.connections,
                       .log_directory = state_directory / "logs",
                       .environment = {},
                       .on_step = {},
                       .on_bytes = {}};
  for (char** at = environ; *at != nullptr; ++at) out.environment.emplace_back(*at);
  return out;
}

base::Result<setup::Installation> install(const EngineConfig& engine, const InstallerOptions& options) {
  ASSERT(setup::is_installed_here(engine));
  const fs::path directory = setup::directory_of(engine, options.policy);
  if (auto there = setup::find_installation(directory)) return *std::move(there);
  const char* path = std::getenv("PATH");
  const auto steps = setup::installation_plan(engine, {.policy = options.policy,
                                                       .path_variable = path == nullptr ? "" : path,
                                                       .cores = static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN))});
  TRY(check(steps));
  TRY(base::ensure_private_directory(directory.parent_path()));
  const Descriptor held = TRY(lock(directory));
  if (auto there = setup::find_installation(directory)) return *std::move(there);  // another process was first
  std::error_code ec;
  fs::remove_all(directory, ec);  // of an installation that was killed
  const auto done = [&]() -> base::Result<setup::Installation> {
    TRY(base::ensure_private_directory(directory));
    TRY(Installing(engine, options, directory).run(steps));
    setup::Installation out = setup::new_installation(engine, directory);
    out.build_id = base::build_id();
    out.installed_unix_ms = options.clock->now().unix_ms;
    out.size_bytes = bytes_in(directory);
    TRY(sync_file_system(directory));  // or a power cut leaves a record of programs that are empty
    TRY(base::write_file_atomic(directory / "engine.json", setup::to_json(out) + "\n"));
    return out;
  }();
  if (!done) fs::remove_all(directory, ec);
  if (done) {
    base::log_event(base::LogLevel::kInfo, "engine_installed", {}, "An engine is installed.",
                    {{"engine", engine.name}, {"directory", directory.string()}});
  }
  return done;
}

base::Result<std::int64_t> uninstall(const fs::path& directory) {
  const auto there = setup::find_installation(directory);
  if (!there) return 0;
  const Descriptor held = TRY(lock(directory));
  if (is_used(directory)) {
    return base::fail(ErrorCode::kConflict, "a worker runs this engine; it can be removed once its worker has ended");
  }
  // From here on it is none, whatever happens to the rest of it.
  std::error_code ec;
  fs::remove(directory / "engine.json", ec);
  fs::remove_all(directory, ec);
  if (ec) return base::fail(base::io_error("cannot remove", directory, ec.value()));
  return there->size_bytes;
}

}  // namespace llorch::pool_managerd::engines
