#include "orchestratord/store/testing/postgres_server.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "orchestratord/store/postgres/connection.h"

namespace llorch::orchestratord::store::testing {
namespace {

std::string g_why_not;

// Debian keeps the server's programs out of PATH, by version.
std::filesystem::path find_binaries() {
  std::filesystem::path best;
  std::error_code ignored;
  for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", ignored)) {
    if (std::filesystem::exists(version.path() / "bin/initdb") && version.path() > best) best = version.path();
  }
  return best.empty() ? best : best / "bin";
}

std::vector<pid_t> children_of(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{0}/task/{0}/children", pid));
  std::vector<pid_t> children;
  for (pid_t child = 0; in >> child;) children.push_back(child);
  return children;
}

std::string title_of(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/cmdline", pid));
  std::string title;
  std::getline(in, title, '\0');
  return title;
}

}  // namespace

const std::string& PostgresServer::why_not() { return g_why_not; }

PostgresServer* PostgresServer::instance() {
  static const std::unique_ptr<PostgresServer> server = [] {
    std::unique_ptr<PostgresServer> made(new PostgresServer);
    if (!made->init()) made.reset();
    return made;
  }();
  return server.get();
}

// As root the server refuses to run: somebody else has to.
bool PostgresServer::init() {
  binaries_ = find_binaries();
  if (binaries_.empty()) {
    g_why_not = "no PostgreSQL server is installed (tools/install_deps installs it)";
    return false;
  }
  uid_ = ::geteuid();
  gid_ = ::getegid();
  if (uid_ == 0) {
    const passwd* user = ::getpwnam("postgres");
    if (user == nullptr) user = ::getpwnam("nobody");
    if (user == nullptr) {
      g_why_not = "root may not run a PostgreSQL server, and there is neither a user postgres nor nobody";
      return false;
    }
    uid_ = user->pw_uid;
    gid_ = user->pw_gid;
  }
  directory_ = std::filesystem::path(::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp") /
               fmt::format("llorch-pg-{}", ::getpid());
  std::filesystem::create_directories(directory_);
  if (::chown(directory_.c_str(), uid_, gid_) != 0) return g_why_not = "cannot give the directory away", false;
  const pid_t initdb =
      spawn("initdb", fmt::format("-D {}/data -U llorch -A trust -E UTF8 --locale=C --no-sync", directory_.string()));
  int status = 0;
  if (::waitpid(initdb, &status, 0) != initdb || status != 0) {
    g_why_not = "initdb failed; see " + (directory_ / "log").string();
    return false;
  }
  start();
  return true;
}

PostgresServer::~PostgresServer() {
  if (pid_ > 0) kill();
  std::error_code ignored;
  if (!directory_.empty() && g_why_not.empty()) std::filesystem::remove_all(directory_, ignored);
}

pid_t PostgresServer::spawn(const std::string& program, const std::string& arguments) {
  const std::string command = fmt::format("exec {}/{} {}", binaries_.string(), program, arguments);
  const std::string log = (directory_ / "log").string();
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  ASSERT(child >= 0);
  if (child > 0) return child;
  const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
  ::dup2(fd, STDOUT_FILENO);
  ::dup2(fd, STDERR_FILENO);
  if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setgid(gid_) != 0 || ::setuid(uid_) != 0)) ::_exit(126);
  ::prctl(PR_SET_PDEATHSIG, SIGQUIT);  // after setuid, which clears it; an immediate shutdown
  if (::getppid() != parent || ::chdir(directory_.c_str()) != 0) ::_exit(126);
  ::execl("/bin/sh", "sh", "-c", command.c_str(), nullptr);
  ::_exit(127);
}

void PostgresServer::start() {
  ASSERT(pid_ == -1);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const std::string conninfo = fmt::format("host={} user=llorch dbname=postgres", directory_.string());
  while (true) {
    ASSERT(std::chrono::steady_clock::now() < deadline, "the server does not start; see {}/log", directory_.string());
    if (pid_ == -1) {
      pid_ = spawn("postgres", fmt::format("-D {0}/data -k {0} -c listen_addresses= -c shared_buffers=16MB "
                                           "-c max_connections=20 -c autovacuum=off",
                                           directory_.string()));
    }
    if (postgres::Connection::open({conninfo})) return;
    if (::waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;  // the memory of the killed one is still in use
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void PostgresServer::kill() {
  const std::vector<pid_t> sessions = children_of(pid_);
  ::kill(pid_, SIGKILL);
  for (const pid_t session : sessions) ::kill(session, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

void PostgresServer::freeze_sessions(bool frozen) {
  for (const pid_t child : children_of(pid_)) {
    if (title_of(child).find("postgres: llorch") == 0) ::kill(child, frozen ? SIGSTOP : SIGCONT);
  }
}

std::string PostgresServer::create_database() {
  const std::string name = fmt::format("store_{}", ++databases_);
  auto connection =
      postgres::Connection::open({fmt::format("host={} user=llorch dbname=postgres", directory_.string())});
  ASSERT(connection && connection->execute("CREATE DATABASE " + name));
  return fmt::format("host={} user=llorch dbname={}", directory_.string(), name);
}

}  // namespace llorch::orchestratord::store::testing
