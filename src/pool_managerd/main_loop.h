#pragma once
// The event loop of the main thread: the only thread that touches the cores and the worker processes.
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace llorch::pool_managerd {

class MainLoop {
 public:
  MainLoop();
  MainLoop(const MainLoop&) = delete;
  MainLoop& operator=(const MainLoop&) = delete;
  ~MainLoop();

  // Runs `fn` on the loop's thread; from any thread. What is left when the loop ends is dropped.
  void post(std::function<void()> fn);

  // The rest: loop's thread only.
  // Calls `fn` whenever `fd` is readable or hung up, until unwatch(). `fn` may watch and unwatch.
  void watch(int fd, std::function<void()> fn);
  void unwatch(int fd);
  // Runs until stop(). `turn` is called after everything that happened, and says when to be called again at the
  // latest (milliseconds from now; nothing = no need).
  void run(const std::function<std::optional<std::int64_t>()>& turn);
  void stop() { stopped_ = true; }
  // Destroys what was posted and never ran, with what it holds on to. From any thread.
  void drop_posted();

 private:
  void run_posted();

  int wake_fd_ = -1;
  std::mutex mutex_;
  std::vector<std::function<void()>> posted_;
  std::map<int, std::function<void()>> watched_;
  bool stopped_ = false;
};

}  // namespace llorch::pool_managerd
