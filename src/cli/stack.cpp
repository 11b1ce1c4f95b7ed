// llorch up and down: one supervisor, two daemons.
#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <chrono>
#include <cstring>
#include <functional>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/id.h"
#include "base/process.h"
#include "cli/commands.h"

namespace llorch::cli {
namespace {

using base::ErrorCode;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kReadyTimeout{20'000};
constexpr std::chrono::milliseconds kStopTimeout{45'000};  // longer than the pool's grace for its workers
constexpr std::int64_t kRestartDelayMaxMs = 30'000;

struct Daemon {
  std::string name;
  std::vector<std::string> args;
  std::filesystem::path log;
  pid_t pid = 0;
  Clock::time_point started{};
  std::int64_t restart_delay_ms = 250;
  std::optional<Clock::time_point> restart_at;
};

base::Result<> spawn(Daemon& daemon) {
  const int log = ::open(daemon.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  if (log < 0) return base::fail(base::io_error("cannot open", daemon.log, errno));
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
  ::close(log);
  if (pid < 0)
    return base::fail(ErrorCode::kIoError, fmt::format("cannot start {}: {}", daemon.name, std::strerror(errno)));
  daemon.pid = pid;
  daemon.started = Clock::now();
  return {};
}

// The last log line that carries an error, for the person who typed `up`.
std::string last_error(const std::filesystem::path& log) {
  const auto text = base::read_file(log, 64 << 20);
  if (!text) return "see " + log.string();
  const std::size_t at = text->rfind("\"level\":\"error\"");
  if (at == std::string::npos) return "see " + log.string();
  const std::size_t begin = text->rfind('\n', at) + 1;
  const std::size_t end = std::min(text->find('\n', at), text->size());
  boost::json::error_code ec;
  const auto line = boost::json::parse(boost::json::string_view(text->data() + begin, end - begin), ec);
  if (ec || !line.is_object()) return "see " + log.string();
  std::string out;
  for (const char* key : {"code", "message", "human"}) {
    if (const auto* part = line.get_object().if_contains(key); part != nullptr && part->is_string()) {
      if (!out.empty()) out += ": ";
      out += std::string(part->get_string());
      if (key == std::string_view("message")) break;
    }
  }
  return out;
}

class Supervisor {
 public:
  Supervisor(std::filesystem::path state_dir, std::vector<Daemon> daemons)
      : state_dir_(std::move(state_dir)), daemons_(std::move(daemons)) {}

  // Starts orchestratord, then pool-managerd pointed at it, and waits until each has written its run file. A restart
  // uses the port of the first start, so that clients and the other daemon find it again.
  base::Result<> start() {
    std::string orchestrator;
    for (Daemon& daemon : daemons_) {
      std::filesystem::remove(state_dir_ / "run" / (daemon.name + ".json"));
      if (!orchestrator.empty()) daemon.args.insert(daemon.args.end(), {"--orchestrator", "http://" + orchestrator});
      TRY(spawn(daemon));
      const std::string bind = TRY(wait_ready(daemon));
      daemon.args.insert(daemon.args.end(), {"--bind", bind});
      if (orchestrator.empty()) orchestrator = bind;
    }
    return {};
  }

  // Restarts what dies, with growing delays, until a stop signal. Returns the signal.
  int supervise() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
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
      ::kill(it->pid, SIGTERM);
      const auto deadline = Clock::now() + kStopTimeout;
      int status = 0;
      while (::waitpid(it->pid, &status, WNOHANG) == 0) {
        if (Clock::now() > deadline) ::kill(it->pid, SIGKILL);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      it->pid = 0;
      std::filesystem::remove(state_dir_ / "run" / (it->name + ".json"));
    }
  }

 private:
  // The address the daemon listens on.
  base::Result<std::string> wait_ready(Daemon& daemon) {
    const auto deadline = Clock::now() + kReadyTimeout;
    while (Clock::now() < deadline) {
      for (const RunningProcess& process : running_processes(state_dir_)) {
        if (process.name == daemon.name && process.pid == daemon.pid) return process.bind;
      }
      int status = 0;
      if (::waitpid(daemon.pid, &status, WNOHANG) == daemon.pid) {
        daemon.pid = 0;
        const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        return base::fail(code == kRefused ? ErrorCode::kNoGpu : ErrorCode::kIoError,
                          fmt::format("{} did not start (exit {}): {}", daemon.name, code, last_error(daemon.log)));
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return base::fail(ErrorCode::kTimeout, fmt::format("{} was not ready after {} s; see {}", daemon.name,
                                                       kReadyTimeout.count() / 1000, daemon.log.string()));
  }

  void reap() {
    for (Daemon& daemon : daemons_) {
      int status = 0;
      if (daemon.pid == 0 || ::waitpid(daemon.pid, &status, WNOHANG) != daemon.pid) continue;
      daemon.pid = 0;
      // A daemon that ran for a minute has earned a quick restart.
      if (Clock::now() - daemon.started > std::chrono::minutes(1)) daemon.restart_delay_ms = 250;
      daemon.restart_at = Clock::now() + std::chrono::milliseconds(daemon.restart_delay_ms);
      fmt::print(stderr, "{} ended ({}); starting it again in {} ms\n", daemon.name,
                 WIFSIGNALED(status) ? fmt::format("signal {}", WTERMSIG(status))
                                     : fmt::format("exit {}", WEXITSTATUS(status)),
                 daemon.restart_delay_ms);
      daemon.restart_delay_ms = std::min(daemon.restart_delay_ms * 2, kRestartDelayMaxMs);
    }
  }

  void restart(Daemon& daemon) {
    daemon.restart_at.reset();
    if (const auto spawned = spawn(daemon); !spawned) {
      fmt::print(stderr, "{}\n", spawned.error().message);
      daemon.restart_at = Clock::now() + std::chrono::milliseconds(daemon.restart_delay_ms);
    }
  }

  std::filesystem::path state_dir_;
  std::vector<Daemon> daemons_;
};

// --set pairs both daemons get: the user's, then what the flags of `up` mean.
base::Result<std::vector<std::string>> effective_settings(const GlobalOptions& global, const UpOptions& options,
                                                          std::string& offered) {
  std::vector<std::string> set = global.set;
  const contract::Config config = TRY(load_config(global));
  std::vector<std::string> roots = config.models.allowed_roots;
  roots.push_back(std::filesystem::current_path().string());
  if (options.cpu) set.push_back("devices.allow_cpu=true");
  if (!options.model.empty()) {
    std::error_code ec;
    if (std::filesystem::is_regular_file(options.model, ec)) {
      const auto path = std::filesystem::canonical(options.model);
      offered = path.stem().string();
      if (!base::is_valid_identifier(offered, 128)) {
        return base::fail(
            ErrorCode::kInvalidParams,
            fmt::format("{} cannot be an alias; name the model in models.aliases of the configuration", offered));
      }
      set.push_back(fmt::format("models.aliases.{}=file:{}", offered, path.string()));
      roots.push_back(path.parent_path().string());
    } else if (config.models.aliases.contains(options.model)) {
      offered = options.model;
    } else {
      return base::fail(ErrorCode::kModelNotFound,
                        fmt::format("{} is neither a file nor an alias of models.aliases", options.model));
    }
  }
  std::string joined;
  for (const std::string& root : roots) joined += (joined.empty() ? "" : ",") + root;
  set.push_back("models.allowed_roots=" + joined);
  return set;
}

std::vector<Daemon> daemons_of(const GlobalOptions& global, const std::vector<std::string>& set,
                               const std::filesystem::path& state_dir) {
  std::vector<Daemon> daemons;
  for (const char* name : {"orchestratord", "pool-managerd"}) {
    Daemon daemon{.name = name,
                  .args = {base::executable_directory() + "/" + name, "--state-dir", state_dir.string()},
                  .log = state_dir / "logs" / fmt::format("{}.log", name)};
    if (!global.config_file.empty()) daemon.args.insert(daemon.args.end(), {"--config", global.config_file});
    for (const std::string& item : set) daemon.args.insert(daemon.args.end(), {"--set", item});
    daemons.push_back(std::move(daemon));
  }
  return daemons;
}

base::Result<> write_supervisor_file(const std::filesystem::path& state_dir) {
  const auto ticks = TRY(base::process_start_ticks(::getpid()));
  return base::write_file_atomic(state_dir / "run" / "supervisor.json",
                                 fmt::format("{{\"pid\":{},\"start_ticks\":{}}}\n", ::getpid(), ticks));
}

void announce(const GlobalOptions& global, const std::filesystem::path& state_dir, const std::string& offered) {
  std::string binds;
  for (const RunningProcess& process : running_processes(state_dir)) {
    if (process.bind.empty()) continue;
    if (global.json) {
      binds += fmt::format("{}\"{}\":\"http://{}\"", binds.empty() ? "" : ",", process.name, process.bind);
    } else {
      fmt::print("{:<14} http://{}\n", process.name, process.bind);
    }
  }
  if (global.json) {
    fmt::print("{{\"event\":\"up\",{},\"model\":\"{}\"}}\n", binds, offered);
  } else if (!offered.empty()) {
    fmt::print("try            llorch run {} \"Once upon a time\"\n", offered);
  }
  std::fflush(stdout);
}

// Runs in the foreground, or as the process `up --detach` leaves behind. `started` is told how the start went.
int supervise(const GlobalOptions& global, const std::filesystem::path& state_dir, std::vector<Daemon> daemons,
              const std::string& offered, const std::function<void(int exit_code)>& started) {
  Supervisor supervisor(state_dir, std::move(daemons));
  // On failure whatever was started is stopped below.
  base::Result<> up = supervisor.start();
  if (up) up = write_supervisor_file(state_dir);
  if (!up) {
    supervisor.stop();
    const int code = report(up.error(), global.json);
    started(code);
    return code;
  }
  announce(global, state_dir, offered);
  started(kOk);
  supervisor.supervise();
  supervisor.stop();
  std::filesystem::remove(state_dir / "run" / "supervisor.json");
  return kOk;
}

// Forks the supervisor into a session of its own and waits until it has started everything or failed.
int supervise_detached(const GlobalOptions& global, const std::filesystem::path& state_dir, std::vector<Daemon> daemons,
                       const std::string& offered) {
  int pipe_fds[2];
  if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return report(base::io_error("cannot create", "pipe", errno), global.json);
  const pid_t child = ::fork();
  if (child < 0) return report(base::io_error("cannot start", "supervisor", errno), global.json);
  if (child == 0) {
    ::setsid();
    ::close(pipe_fds[0]);
    const int log =
        ::open((state_dir / "logs/supervisor.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    const int code = supervise(global, state_dir, std::move(daemons), offered, [&](int start_code) {
      const auto byte = static_cast<char>(start_code);
      (void)!::write(pipe_fds[1], &byte, 1);
      ::close(pipe_fds[1]);
      // From here on nobody reads the terminal.
      ::dup2(log, STDOUT_FILENO);
      ::dup2(log, STDERR_FILENO);
    });
    ::_exit(code);
  }
  ::close(pipe_fds[1]);
  char byte = kFailed;
  const ssize_t n = ::read(pipe_fds[0], &byte, 1);
  ::close(pipe_fds[0]);
  return n == 1 ? byte : int{kFailed};
}

}  // namespace

int up(const GlobalOptions& global, const UpOptions& options) {
  const std::filesystem::path state_dir = state_directory(global);
  for (const auto& folder : {state_dir, state_dir / "run", state_dir / "logs"}) {
    if (auto made = base::ensure_private_directory(folder); !made) return report(made.error(), global.json);
  }
  for (const RunningProcess& process : running_processes(state_dir)) {
    return report(base::Error{ErrorCode::kAlreadyRunning,
                              fmt::format("{} already runs here (pid {}); stop the stack with: llorch down",
                                          process.name, process.pid),
                              {}},
                  global.json);
  }
  std::string offered;
  const auto set = effective_settings(global, options, offered);
  if (!set) return report(set.error(), global.json);
  std::vector<Daemon> daemons = daemons_of(global, *set, state_dir);
  if (options.detach) return supervise_detached(global, state_dir, std::move(daemons), offered);
  return supervise(global, state_dir, std::move(daemons), offered, [](int) {});
}

int down(const GlobalOptions& global) {
  const std::filesystem::path state_dir = state_directory(global);
  std::vector<RunningProcess> processes = running_processes(state_dir);
  if (processes.empty()) {
    if (!global.json) fmt::print("nothing runs here\n");
    return kOk;
  }
  // The supervisor stops the daemons in order; without one they are stopped here, the pool first.
  std::stable_sort(processes.begin(), processes.end(), [](const RunningProcess& a, const RunningProcess& b) {
    const auto rank = [](const RunningProcess& p) {
      return p.name == "supervisor" ? 0 : p.name == "pool-managerd" ? 1 : 2;
    };
    return rank(a) < rank(b);
  });
  for (const RunningProcess& process : processes) {
    ::kill(process.pid, SIGTERM);
    const auto deadline = Clock::now() + 2 * kStopTimeout;
    const auto runs = [&] {
      for (const RunningProcess& now : running_processes(state_dir)) {
        if (now.pid == process.pid) return true;
      }
      return false;
    };
    while (runs()) {
      if (Clock::now() > deadline) ::kill(process.pid, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    std::filesystem::remove(state_dir / "run" / (process.name + ".json"));
    if (!global.json) fmt::print("stopped {} (pid {})\n", process.name, process.pid);
  }
  return kOk;
}

}  // namespace llorch::cli
