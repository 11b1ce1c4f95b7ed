#pragma once
// A real PostgreSQL server of its own: in a directory of its own, on a unix socket, started and killed by tests.
#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>

namespace llorch::orchestratord::store::testing {

class PostgresServer {
 public:
  // The one of this process, started on first use; null with a reason if the server cannot run here (not installed, or
  // nobody to run it as). Dies with the process.
  static PostgresServer* instance();
  static const std::string& why_not();

  ~PostgresServer();

  // A new, empty database; its connection string.
  std::string create_database();
  // SIGKILL for the server and all its sessions, at once.
  void kill();
  void start();
  // SIGSTOP, SIGCONT for the sessions of clients.
  void freeze_sessions(bool frozen);
  const std::filesystem::path& directory() const { return directory_; }

 private:
  PostgresServer() = default;
  bool init();
  pid_t spawn(const std::string& program, const std::string& arguments);

  std::filesystem::path binaries_, directory_;
  uid_t uid_ = 0;
  gid_t gid_ = 0;
  pid_t pid_ = -1;
  int databases_ = 0;
};

}  // namespace llorch::orchestratord::store::testing
