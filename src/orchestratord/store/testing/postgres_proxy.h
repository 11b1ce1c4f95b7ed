#pragma once
// Stands between a client and the PostgreSQL server and breaks the connection at a chosen moment.
#include <atomic>
#include <filesystem>
#include <string>
#include <thread>

namespace llorch::orchestratord::store::testing {

// What happens to a round trip: the server never hears of it, or nobody hears its answer.
enum class Loss { kRequest, kAnswer };

class PostgresProxy {
 public:
  // Listens in `directory` for what would reach the server in `server_directory`.
  PostgresProxy(const std::filesystem::path& directory, const std::filesystem::path& server_directory);
  ~PostgresProxy();

  // The round_trip-th from now on (1 is the next) is lost, its connection is closed, and no other gets through until
  // heal().
  void lose(int round_trip, Loss loss);
  void heal() { closed_ = false; }
  bool broken() const { return closed_; }

 private:
  void run();
  void relay(int client);

  std::string listen_path_, server_path_;
  int listener_ = -1;
  std::atomic<bool> stop_{false}, closed_{false};
  std::atomic<int> round_trips_left_{0};  // 0: lose nothing
  std::atomic<Loss> loss_{Loss::kRequest};
  std::thread thread_;
};

// Lets one client in and closes the connection when it asks anything.
class SilentServer {
 public:
  explicit SilentServer(const std::filesystem::path& directory);
  ~SilentServer();

 private:
  int listener_ = -1;
  std::thread thread_;
};

}  // namespace llorch::orchestratord::store::testing
