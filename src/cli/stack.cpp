// llorch up and down: one supervisor, two daemons.
#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <thread>

#include "adapter/setup/plan.h"
#include "base/file.h"
#include "base/process.h"
#include "base/run_file.h"
#include "base/state_directory.h"
#include "cli/commands.h"
#include "cli/engines/llama_server.h"
#include "cli/model/tools.h"
#include "cli/stack/log_pump.h"
#include "cli/stack/processes.h"
#include "cli/stack/start_error.h"
#include "cli/stack/start_wait.h"
#include "cli/stream/request.h"
#include "cli/terminal_text.h"
#include "config/pool_credential.h"
#include "engine/io/model_layout.h"
#include "net/http/url.h"
#include "wire/catalog.h"
#include "wire/json.h"
#include "wire/model_name.h"

namespace llorch::cli {
namespace {

namespace bj = boost::json;
using base::ErrorCode;
using stack::running_processes;
using stack::RunningProcess;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStopTimeout{45'000};  // longer than the pool's grace for its workers
constexpr std::chrono::milliseconds kKillTimeout{5'000};
constexpr std::int64_t kRestartDelayMaxMs = 30'000;

constexpr const char* kSupervisor = "supervisor";

void remove_run_file(const std::filesystem::path& state_dir, const std::string& name) {
  std::error_code ec;  // a record left behind names a process that has ended, which readers see
  std::filesystem::remove(state_dir / "run" / (name + ".json"), ec);
}

sigset_t stop_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

// Takes a SIGINT or SIGTERM that has arrived. REQUIRES base::block_stop_signals().
bool stop_requested() {
  const sigset_t set = stop_signals();
  const timespec now{};
  return ::sigtimedwait(&set, nullptr, &now) > 0;
}

// True once the child has been reaped.
bool reaped_within(pid_t child, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (::waitpid(child, nullptr, WNOHANG) == 0) {
    if (Clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

// SIGTERM, after `limit` SIGKILL. False: it is still there.
bool end_child(pid_t child, std::chrono::milliseconds limit) {
  ::kill(child, SIGTERM);
  if (reaped_within(child, limit)) return true;
  ::kill(child, SIGKILL);
  return reaped_within(child, kKillTimeout);
}

base::Error interrupted() { return {ErrorCode::kCancelled, "interrupted; nothing was left running", {}}; }

struct Daemon {
  std::string name;
  std::vector<std::string> args;
  std::filesystem::path log;
  std::unique_ptr<stack::LogPump> pump;  // of this run's output into `log`
  std::int64_t log_offset = 0;           // where the log of this run begins
  pid_t pid = 0;
  Clock::time_point started{};
  std::int64_t restart_delay_ms = 250;
  std::optional<Clock::time_point> restart_at;
};

base::Result<> spawn(Daemon& daemon) {
  daemon.pump.reset();  // what the run before wrote comes first
  daemon.pump = TRY(stack::LogPump::start(daemon.log));
  const int log = daemon.pump->write_fd();
  struct stat st {};
  daemon.log_offset = ::stat(daemon.log.c_str(), &st) == 0 ? st.st_size : 0;
  std::vector<char*> argv;
  for (std::string& arg : daemon.args) argv.push_back(arg.data());
  argv.push_back(nullptr);
  const pid_t supervisor = ::getpid();
  const pid_t pid = ::fork();
  if (pid == 0) {
    // A daemon must not outlive its supervisor, and Ctrl-C goes to the supervisor, which stops them in order.
    ::prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (::getppid() != supervisor) ::_exit(1);
    ::setpgid(0, 0);
    const int null = ::open("/dev/null", O_RDONLY);
    ::dup2(null, STDIN_FILENO);
    ::dup2(log, STDOUT_FILENO);
    ::dup2(log, STDERR_FILENO);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  if (pid < 0)
    return base::fail(ErrorCode::kIoError, fmt::format("cannot start {}: {}", daemon.name, std::strerror(errno)));
  daemon.pid = pid;
  daemon.started = Clock::now();
  return {};
}

class Supervisor {
 public:
  Supervisor(std::filesystem::path state_dir, std::vector<Daemon> daemons, bool json)
      : state_dir_(std::move(state_dir)), daemons_(std::move(daemons)), json_(json) {}

  // Pairs the two with each other (`pairing`: the arguments of orchestratord that do), starts orchestratord, then
  // pool-managerd pointed at it, and waits until each has written its run file. A restart uses the port of the first start,
  // so that clients and the other daemon find it again.
  base::Result<> start(const std::vector<std::string>& pairing) {
    TRY(pair(pairing));
    std::string orchestrator;
    for (Daemon& daemon : daemons_) {
      remove_run_file(state_dir_, daemon.name);
      if (!orchestrator.empty())
        daemon.args.insert(daemon.args.end(), {"--orchestrator", net::http::local_url(orchestrator)});
      TRY(spawn(daemon));
      const std::string bind = TRY(wait_ready(daemon));
      daemon.args.insert(daemon.args.end(), {"--bind", bind});
      if (orchestrator.empty()) orchestrator = bind;
    }
    return {};
  }

  // Restarts what dies, with growing delays, until a stop signal. Returns the signal.
  int supervise() {
    sigset_t set = stop_signals();
    sigaddset(&set, SIGCHLD);  // blocked by up(); the tick only serves restarts that are due
    for (;;) {
      const timespec tick{.tv_sec = 0, .tv_nsec = 200'000'000};
      const int signal = ::sigtimedwait(&set, nullptr, &tick);
      if (signal == SIGINT || signal == SIGTERM) return signal;
      reap();
      for (Daemon& daemon : daemons_) {
        if (daemon.restart_at && Clock::now() >= *daemon.restart_at) restart(daemon);
      }
    }
  }

  void stop() {
    // In reverse: the pool first, so that workers end while their orchestrator still listens.
    for (auto it = daemons_.rbegin(); it != daemons_.rend(); ++it) {
      if (it->pid == 0) continue;
      if (!end_child(it->pid, kStopTimeout)) {
        print_text(stderr, "{} (pid {}) does not end\n", it->name, it->pid);
        continue;
      }
      it->pid = 0;
      remove_run_file(state_dir_, it->name);
    }
  }

 private:
  base::Result<> pair(const std::vector<std::string>& pairing) {
    const Daemon& first = daemons_.front();
    Daemon once{.name = first.name, .args = first.args, .log = first.log};
    once.args.insert(once.args.end(), pairing.begin(), pairing.end());
    TRY(spawn(once));
    int status = 0;
    const auto outcome = stack::wait_for_start({.is_ready = [] { return false; },
                                                .has_ended = [&] { return ::waitpid(once.pid, &status, WNOHANG) != 0; },
                                                .is_interrupted = stop_requested,
                                                .say_slow = [&] { say_slow(once); }});
    if (outcome == stack::StartOutcome::kInterrupted) {
      end_child(once.pid, kKillTimeout);
      return base::fail(interrupted());
    }
    once.pump.reset();  // its last words are in the file now
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    return base::fail(start_error_of(once, status));
  }

  static base::Error start_error_of(const Daemon& daemon, int status) {
    return stack::start_error({.name = daemon.name,
                               .exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status),
                               .log_tail = stack::read_log_tail(daemon.log, daemon.log_offset),
                               .log_path = daemon.log.string()});
  }

  // What a start that takes long waits for is in its log.
  void say_slow(const Daemon& daemon) const {
    if (json_) {
      print_text(
          stderr, "{}\n",
          bj::serialize(bj::object{{"event", "waiting"}, {"component", daemon.name}, {"log", daemon.log.string()}}));
    } else {
      print_text(
          stderr,
          "{} is not ready after 20 s and is waited for: it may migrate its store, or wait for a lock of another "
          "process. Its log: {}\n",
          daemon.name, daemon.log.string());
    }
  }

  // The address the daemon listens on.
  base::Result<std::string> wait_ready(Daemon& daemon) {
    std::string bind;
    int status = 0;
    std::optional<base::Error> unrecorded;
    const auto outcome =
        stack::wait_for_start({.is_ready =
                                   [&] {
                                     for (const RunningProcess& process : running_processes(state_dir_)) {
                                       if (process.name == daemon.name && process.pid == daemon.pid)
                                         return bind = process.bind, true;
                                     }
                                     return false;
                                   },
                               .has_ended =
                                   [&] {
                                     if (::waitpid(daemon.pid, &status, WNOHANG) == daemon.pid) return true;
                                     unrecorded = stack::record_error(daemon.name, daemon.pump->tail());
                                     return unrecorded.has_value();
                                   },
                               .is_interrupted = stop_requested,
                               .say_slow = [&] { say_slow(daemon); }});
    switch (outcome) {
      case stack::StartOutcome::kReady: return bind;
      case stack::StartOutcome::kInterrupted: return base::fail(interrupted());
      case stack::StartOutcome::kEnded: break;
    }
    if (unrecorded) return base::fail(*std::move(unrecorded));  // it serves until stop()
    daemon.pid = 0;
    daemon.pump.reset();  // its last words are in the file now
    return base::fail(start_error_of(daemon, status));
  }

  void reap() {
    for (Daemon& daemon : daemons_) {
      int status = 0;
      if (daemon.pid == 0 || ::waitpid(daemon.pid, &status, WNOHANG) != daemon.pid) continue;
      daemon.pid = 0;
      // A daemon that ran for a minute has earned a quick restart.
      if (Clock::now() - daemon.started > std::chrono::minutes(1)) daemon.restart_delay_ms = 250;
      daemon.restart_at = Clock::now() + std::chrono::milliseconds(daemon.restart_delay_ms);
      print_text(stderr, "{} ended ({}); starting it again in {} ms\n", daemon.name,
                 WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                     : fmt::format("exit {}", WEXITSTATUS(status)),
                 daemon.restart_delay_ms);
      daemon.restart_delay_ms = std::min(daemon.restart_delay_ms * 2, kRestartDelayMaxMs);
    }
  }

  void restart(Daemon& daemon) {
    daemon.restart_at.reset();
    if (const auto spawned = spawn(daemon); !spawned) {
      print_text(stderr, "{}\n", spawned.error().message);
      daemon.restart_at = Clock::now() + std::chrono::milliseconds(daemon.restart_delay_ms);
    }
  }

  std::filesystem::path state_dir_;
  std::vector<Daemon> daemons_;
  const bool json_;
};

// What both daemons get on their command lines: the user's settings and what the flags of `up` mean.
struct Launch {
  std::vector<std::string> set;
  std::vector<std::string> model_roots;
  std::string offered;                                       // the alias to try
  std::map<std::string, std::string> named;                  // paths by the names they were given
  std::vector<std::pair<std::string, std::string>> renamed;  // name and path, where the file is called otherwise
  std::vector<std::string> pairing;                          // of orchestratord with the pool of this stack
  bool console = false;                                      // orchestratord serves the web console
};

// A name that was given at run time, before: the daemons have it.
bool is_kept_name(const std::string& model, const std::filesystem::path& state_dir) {
  const auto text = base::read_file(state_dir / "models.json", 16 << 20);
  if (!text) return false;
  const auto kept = wire::decode<wire::NamedModels>(*text);
  return kept && std::any_of(kept->models.begin(), kept->models.end(),
                             [&](const wire::NamedModel& named) { return named.model_id == model; });
}

base::Result<> offer(const std::string& model, const config::Config& config, const std::filesystem::path& state_dir,
                     Launch& out) {
  std::error_code ec;
  if (std::filesystem::is_regular_file(model, ec) ||
      std::filesystem::is_regular_file(std::filesystem::path(model) / "config.json", ec)) {
    const auto path = std::filesystem::canonical(model, ec);
    if (ec) return base::fail(base::io_error("cannot resolve", model, ec.value()));
    const bool is_directory = std::filesystem::is_directory(path, ec);
    TRY(model::check_model(path.string()));  // or it would be the first job that finds out
    const std::string stem = (is_directory ? path.filename() : path.stem()).string();
    const std::string name = wire::model_name_from(stem);
    const auto [other, is_new] = out.named.emplace(name, path.string());
    if (!is_new && other->second != path.string()) {
      return base::fail(ErrorCode::kConflict,
                        fmt::format("{} and {} would both have the name {}; rename one of them, or name them in "
                                    "models.aliases",
                                    other->second, path.string(), name));
    }
    if (name != stem) out.renamed.emplace_back(name, path.string());
    out.set.push_back(fmt::format("models.aliases.{}=file:{}", name, path.string()));
    out.model_roots.push_back(path.parent_path().string());
    if (out.offered.empty()) out.offered = name;
    return {};
  }
  if (!config.models.aliases.contains(model) && !is_kept_name(model, state_dir)) {
    TRY(stream::check_path(model));
    if (engine::io::has_gguf_name(model) && model.find(':') == std::string::npos)
      return base::fail(ErrorCode::kModelNotFound, fmt::format("there is no file {}", model));
    return base::fail(
        ErrorCode::kModelNotFound,
        fmt::format(
            "{} is neither a model file, a Hugging Face directory, an alias of models.aliases nor a model that was "
            "pulled here; start the stack without it, then: llorch pull {}",
            model, model));
  }
  if (out.offered.empty()) out.offered = model;
  return {};
}

// A program of the catalogue of engines is installed, where it is not and the command line says that it may be.
base::Result<> have_installed(const UpOptions& options, const GlobalOptions& global, const config::EngineConfig& engine,
                              const config::InstallPolicyConfig& policy, const std::string& setting) {
  if (adapter::setup::find_installation(adapter::setup::directory_of(engine, policy))) return {};
  if (!options.install_engine) {
    return base::fail(
        ErrorCode::kNotFound,
        "there is no llama-server: add --install-engine to install the one that llama-orch knows (a package, "
        "pinned), install llama.cpp, or name its program with --engine-binary");
  }
  GlobalOptions with = global;
  with.set.insert(with.set.end(), {setting, "pool-managerd.provisioning.allow_package_installs=true"});
  if (install_engine(with, engine.name) == kOk) return {};
  return base::fail(ErrorCode::kWorkerStartFailed, "the engine could not be installed");
}

// The model of `up --engine`: said before anything starts.
base::Result<> offer_engine(const UpOptions& options, const config::Config& config, const GlobalOptions& global,
                            Launch& out) {
  if (options.models.size() != 1) {
    return base::fail(ErrorCode::kInvalidParams, "--engine runs one model: give one --model FILE");
  }
  if (!config.pool_managerd.engines.empty()) {
    return base::fail(ErrorCode::kInvalidParams, "the configuration names engines already; add this one there");
  }
  const std::string model = wire::model_name_from(std::filesystem::path(options.models[0]).stem().string());
  std::string name = model.substr(0, 64);  // of the engine
  std::replace_if(
      name.begin(), name.end(), [](char c) { return c == '.' || c == ':'; }, '-');
  const char* path = std::getenv("PATH");
  const auto engine =
      TRY(engines::llama_server({.binary = options.engine_binary,
                                 .model = options.models[0],
                                 .name = name,
                                 .cpu = options.cpu,
                                 .context_tokens = config.orchestratord.worker_context_tokens.value_or(4096),
                                 .slots = config.orchestratord.worker_slots},
                                path == nullptr ? "" : path));
  const std::string setting = engines::as_setting(engine);
  const adapter::setup::Machine machine{.policy = config.pool_managerd.provisioning,
                                        .path_variable = path == nullptr ? "" : path};
  if (adapter::setup::is_installed_here(engine)) {
    TRY(have_installed(options, global, engine, machine.policy, setting));
  }
  if (!global.json) {
    for (const auto& step : adapter::setup::plan(engine, machine)) print_text("{:<14} {}\n", step.kind, step.detail);
    std::fflush(stdout);  // else a supervisor that is left behind says it again
  }
  out.set.push_back(setting);
  out.set.push_back(fmt::format("models.aliases.{}=engine:{}", model, name));
  out.offered = model;
  return {};
}

base::Result<Launch> launch_of(const GlobalOptions& global, const UpOptions& options) {
  const config::Config config = TRY(load_config(global));
  Launch out{.set = global.set};
  out.console = config.orchestratord.gateways.console;
  out.pairing = {"--pair-pool", config.pool_managerd.pool_id, "--credential-file",
                 config::pool_credential_file(config, state_directory(global)).string()};
  std::error_code ec;
  if (const auto here = std::filesystem::current_path(ec); !ec) out.model_roots.push_back(here.string());
  if (options.cpu) out.set.push_back("devices.allow_cpu=true");
  if (!options.engine.empty()) {
    TRY(offer_engine(options, config, global, out));
    return out;
  }
  for (const std::string& model : options.models) TRY(offer(model, config, state_directory(global), out));
  return out;
}

std::vector<Daemon> daemons_of(const GlobalOptions& global, const Launch& launch,
                               const std::filesystem::path& state_dir) {
  std::vector<Daemon> daemons;
  for (const char* name : {"orchestratord", "pool-managerd"}) {
    Daemon daemon{.name = name,
                  .args = {base::executable_directory() + "/" + name, "--state-dir", state_dir.string()},
                  .log = state_dir / "logs" / fmt::format("{}.log", name)};
    if (!global.config_file.empty()) daemon.args.insert(daemon.args.end(), {"--config", global.config_file});
    for (const std::string& item : launch.set) daemon.args.insert(daemon.args.end(), {"--set", item});
    daemon.args.insert(daemon.args.end(), {"--set", "log.format=json"});  // `llorch logs` reads it
    for (const std::string& root : launch.model_roots) daemon.args.insert(daemon.args.end(), {"--model-root", root});
    daemons.push_back(std::move(daemon));
  }
  return daemons;
}

void announce(const GlobalOptions& global, const std::filesystem::path& state_dir, const Launch& launch) {
  bj::object event{{"event", "up"}};
  std::string console;
  for (const RunningProcess& process : running_processes(state_dir)) {
    if (process.bind.empty()) continue;
    const std::string url = net::http::local_url(process.bind);
    event[process.name] = url;
    if (!global.json) print_text("{:<14} {}\n", process.name, url);
    if (launch.console && process.name == "orchestratord") console = url + "/";
  }
  if (global.json) {
    event["model"] = launch.offered;
    if (!console.empty()) event["console"] = console;
    fmt::print("{}\n", bj::serialize(event));
  } else {
    if (!console.empty()) print_text("{:<14} {}\n", "console", console);
    for (const auto& [name, path] : launch.renamed) print_text("{:<14} {} is {}\n", "model", name, path);
    const std::string here =
        global.state_dir.empty() ? "" : fmt::format("--state-dir {} ", shell_word(global.state_dir));
    if (!launch.offered.empty())
      print_text("try            llorch {}run {} \"Once upon a time\"\n", here, launch.offered);
  }
  std::fflush(stdout);
}

// From before anything starts, so that `llorch down` meets a stack that is being started as well.
base::Result<> record_supervisor(const std::filesystem::path& state_dir) {
  return base::write_run_file(state_dir / "run" / fmt::format("{}.json", kSupervisor));
}

// Runs in the foreground, or as the process `up --detach` leaves behind. `started` is told how the start went.
int supervise(const GlobalOptions& global, const std::filesystem::path& state_dir, std::vector<Daemon> daemons,
              const Launch& launch, const std::function<void(int exit_code)>& started) {
  Supervisor supervisor(state_dir, std::move(daemons), global.json);
  // On failure whatever was started is stopped below.
  base::Result<> up = record_supervisor(state_dir);
  if (up) up = supervisor.start(launch.pairing);
  if (!up) {
    supervisor.stop();
    remove_run_file(state_dir, kSupervisor);
    const int code = report(up.error(), global.json);
    started(code);
    return code;
  }
  announce(global, state_dir, launch);
  started(kOk);
  supervisor.supervise();
  supervisor.stop();
  remove_run_file(state_dir, kSupervisor);
  return kOk;
}

// The exit code the supervisor reports, or kFailed if it ended without a word. A stop signal is passed on to it: it stops
// what it has started and reports that.
int wait_started(int pipe_fd, pid_t supervisor) {
  for (bool interrupted = false;;) {
    pollfd readable{.fd = pipe_fd, .events = POLLIN, .revents = 0};
    if (::poll(&readable, 1, 50) > 0) {
      unsigned char code = kFailed;
      const bool told = ::read(pipe_fd, &code, 1) == 1;
      return interrupted ? int{kInterrupted} : told ? code : int{kFailed};
    }
    if (stop_requested()) {
      interrupted = true;
      ::kill(supervisor, SIGTERM);
    }
  }
}

// Forks the supervisor into a session of its own and waits until it has started everything or failed.
int supervise_detached(const GlobalOptions& global, const std::filesystem::path& state_dir, std::vector<Daemon> daemons,
                       const Launch& launch) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return report(base::io_error("cannot create", "pipe", errno), global.json);
  const pid_t child = ::fork();
  if (child < 0) return report(base::io_error("cannot start", "supervisor", errno), global.json);
  if (child == 0) {
    ::setsid();
    ::close(pipe_fds[0]);
    auto pump = stack::LogPump::start(state_dir / "logs/supervisor.log");
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    const int code = supervise(global, state_dir, std::move(daemons), launch, [&](int start_code) {
      const auto byte = static_cast<char>(start_code);
      (void)!::write(pipe_fds[1], &byte, 1);
      ::close(pipe_fds[1]);
      // From here on nobody reads the terminal.
      for (const int fd : {STDOUT_FILENO, STDERR_FILENO}) ::dup2(pump ? (*pump)->write_fd() : null, fd);
    });
    std::fflush(nullptr);
    if (pump) pump->reset();
    ::_exit(code);
  }
  ::close(pipe_fds[1]);
  const int code = wait_started(pipe_fds[0], child);
  ::close(pipe_fds[0]);
  // One that failed holds the lock until it is gone: whoever tries again at once is to find the directory free.
  if (code != kOk) ::waitpid(child, nullptr, 0);
  return code;
}

base::Error already_runs(const RunningProcess& process) {
  return {ErrorCode::kAlreadyRunning,
          fmt::format("{} already runs here (pid {}); stop the stack with: llorch down", process.name, process.pid),
          {}};
}

// One supervisor per state directory. The descriptor is meant to live as long as this process.
base::Result<int> lock_state(const std::filesystem::path& state_dir) {
  const auto path = state_dir / "run" / "supervisor.lock";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return base::fail(base::io_error("cannot open", path, errno));
  if (::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  const int error = errno;
  ::close(fd);
  if (error != EWOULDBLOCK) return base::fail(base::io_error("cannot lock", path, error));
  for (const RunningProcess& process : running_processes(state_dir)) return base::fail(already_runs(process));
  return base::fail(ErrorCode::kAlreadyRunning, "another llorch up is starting the stack here");
}

}  // namespace

int up(const GlobalOptions& global, const UpOptions& options) {
  const std::filesystem::path state_dir = state_directory(global);
  if (auto made = base::ensure_state_directory(state_dir); !made) return report(made.error(), global.json);
  for (const auto& directory : {state_dir / "run", state_dir / "logs"}) {
    if (auto made = base::ensure_private_directory(directory); !made) return report(made.error(), global.json);
  }
  // Held by the supervisor until it ends, by whatever way; the kernel lets go of it then.
  const auto lock = lock_state(state_dir);
  if (!lock) return report(lock.error(), global.json);
  for (const RunningProcess& process : running_processes(state_dir)) return report(already_runs(process), global.json);
  if (const auto recorded = record_supervisor(state_dir); !recorded) return report(recorded.error(), global.json);
  const auto launch = launch_of(global, options);
  if (!launch) {
    remove_run_file(state_dir, kSupervisor);
    return report(launch.error(), global.json);
  }
  std::vector<Daemon> daemons = daemons_of(global, *launch, state_dir);
  // Read where `up` waits; children start with an empty mask.
  base::block_stop_signals();
  sigset_t child_ended;
  sigemptyset(&child_ended);
  sigaddset(&child_ended, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &child_ended, nullptr);
  if (options.detach) return supervise_detached(global, state_dir, std::move(daemons), *launch);
  return supervise(global, state_dir, std::move(daemons), *launch, [](int) {});
}

int down(const GlobalOptions& global) {
  const std::filesystem::path state_dir = state_directory(global);
  if (const auto looked = stack::check_records(state_dir); !looked) return report(looked.error(), global.json);
  std::vector<RunningProcess> processes = running_processes(state_dir);
  // The supervisor stops the daemons in order; what it could not stop is stopped here, the pool first.
  std::stable_sort(processes.begin(), processes.end(), [](const RunningProcess& a, const RunningProcess& b) {
    const auto rank = [](const RunningProcess& p) {
      return p.name == "supervisor" ? 0 : p.name == "pool-managerd" ? 1 : 2;
    };
    return rank(a) < rank(b);
  });
  bj::array stopped;
  for (const RunningProcess& process : processes) {
    const stack::StopLimits limits{.terminate = 2 * (kStopTimeout + kKillTimeout), .kill = kKillTimeout};
    if (const auto ended = stack::stop_process(process, limits); !ended) return report(ended.error(), global.json);
    stopped.push_back(bj::object{{"name", process.name}, {"pid", process.pid}});
    if (!global.json) print_text("stopped {} (pid {})\n", process.name, process.pid);
  }
  if (global.json) {
    fmt::print("{}\n", bj::serialize(bj::object{{"stopped", std::move(stopped)}}));
  } else if (processes.empty()) {
    print_text("nothing runs here\n");
  }
  return kOk;
}

}  // namespace llorch::cli
