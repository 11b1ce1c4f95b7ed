#include "base/file_reads.h"

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/assert.h"
#include "base/error_detail.h"
#include "base/exceptions.h"
#include "base/log.h"

namespace llorch::base {
namespace {

constexpr std::int64_t kRetryAfterMs = 1'000;
constexpr const char* kFilesMax = "files_max";

thread_local std::atomic<bool>* goes_on_here = nullptr;  // of the read that this thread runs

bool runs_without_exception(const std::function<void()>& call) {
  try {
    call();
    return true;
  } catch (const std::exception&) {
    log_event(LogLevel::kError, "task.failed", {}, "A task failed inside a library; the process goes on without it.",
              {{"type", current_exception_type()}});
    return false;
  }
}

}  // namespace

struct FileReads::State : std::enable_shared_from_this<State> {
  // While something reads it or waits for it.
  struct File {
    std::uint64_t id = 0;                        // of the read that runs; 0: none
    std::shared_ptr<std::atomic<bool>> goes_on;  // it does, since the last look at it
    bool is_slow = false;
    bool refuses = false;  // who waits for that read
    Done done;             // of that read; null after stop()
    std::deque<Read> waiting;
  };
  struct Begun {
    std::string file;
    std::uint64_t id = 0;
    std::function<void()> read;
    std::shared_ptr<std::atomic<bool>> goes_on;
  };
  struct Timer {
    std::int64_t delay_ms = 0;
    void (State::*method)(const std::string& file, std::uint64_t id) = nullptr;
    std::string file;
    std::uint64_t id = 0;
  };
  // What is done without the lock.
  struct Effects {
    std::vector<std::pair<Done, Error>> refused;
    std::vector<Timer> timers;
    std::size_t new_threads = 0;
  };

  explicit State(Options wanted) : options(std::move(wanted)) {}

  const Options options;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  std::size_t acting = 0;  // threads in act() or in a `done`
  std::uint64_t ids = 0;
  std::size_t running = 0, quick = 0;  // reads that run; those of them that are not slow
  std::size_t idle = 0;                // threads that wait for `begun`
  std::map<std::string, File> files;
  std::deque<std::string> turns;  // files that nobody reads and somebody waits for
  std::deque<Begun> begun;        // for the next threads

  bool has_room() const { return quick < options.at_once && running < options.files_max; }
  bool is_full() const { return quick == 0 && running >= options.files_max; }

  Error refusal(const std::string& file, std::string message) const {
    return Error{ErrorCode::kPoolUnready, std::move(message), {}}
        .with("retry_after_ms", kRetryAfterMs)
        .with("reason", options.reason)
        .with("file", file);
  }
  Error still_read(const std::string& file) const {
    return refusal(file, fmt::format("{} is still being read, or its disk does not answer; try again", file));
  }
  // Names none of the others, which may be somebody else's.
  Error too_many(const std::string& file) const {
    return refusal(file,
                   fmt::format(
                       "{} is not read now: {} other files are still being read, or their disks do not answer; the log "
                       "names them; try again",
                       file, options.files_max))
        .with(kFilesMax, static_cast<std::int64_t>(options.files_max));
  }

  // The three below: with the lock.
  void begin_waiting(Effects& out) {
    for (; has_room() && !turns.empty(); turns.pop_front()) {
      const std::string& name = turns.front();
      File& file = files.at(name);
      file.id = ++ids;
      file.goes_on = std::make_shared<std::atomic<bool>>(false);
      file.is_slow = file.refuses = false;
      file.done = std::move(file.waiting.front().done);
      begun.push_back(
          {.file = name, .id = file.id, .read = std::move(file.waiting.front().read), .goes_on = file.goes_on});
      file.waiting.pop_front();
      ++running;
      ++quick;
      out.timers.push_back({options.slow_ms, &State::look, name, file.id});
      if (options.refuse_ms > 0) out.timers.push_back({options.refuse_ms, &State::has_taken_too_long, name, file.id});
      if (begun.size() > idle + out.new_threads) ++out.new_threads;
    }
    changed.notify_all();
  }
  void refuse_waiting(const std::string& name, bool is_own_fault, Effects& out) {
    for (Read& read : files.at(name).waiting) {
      out.refused.emplace_back(std::move(read.done), is_own_fault ? still_read(name) : too_many(name));
    }
    files.at(name).waiting.clear();
  }
  void ends(const std::string& name, Effects& out) {
    const auto it = files.find(name);
    --running;
    if (!it->second.is_slow) --quick;
    it->second.id = 0;
    if (it->second.waiting.empty() || stopped) {
      files.erase(it);
    } else {
      turns.push_back(name);
    }
    if (!stopped) begin_waiting(out);
    changed.notify_all();
  }
  void set(const Timer& timer) {
    runs_without_exception([&] {
      options.after(timer.delay_ms, [weak = weak_from_this(), timer] {
        if (const auto state = weak.lock()) (state.get()->*timer.method)(timer.file, timer.id);
      });
    });
  }

  // With the lock at its begin and at its end, and without it meanwhile.
  void act(std::unique_lock<std::mutex>& lock, Effects effects) {
    ++acting;
    while (!effects.refused.empty() || !effects.timers.empty() || effects.new_threads > 0) {
      lock.unlock();
      for (auto& [done, error] : effects.refused) {
        if (done) runs_without_exception([&] { done(std::move(error)); });
      }
      for (const Timer& timer : effects.timers) set(timer);
      std::size_t missing = effects.new_threads;
      try {
        for (; missing > 0; --missing) std::thread([self = shared_from_this()] { self->run(); }).detach();
      } catch (const std::exception&) {  // the system gives no thread
      }
      effects = {};
      lock.lock();
      for (; missing > 0 && !begun.empty(); --missing) {
        const std::string name = std::move(begun.back().file);
        begun.pop_back();
        effects.refused.emplace_back(std::exchange(files.at(name).done, nullptr), still_read(name));
        ends(name, effects);
      }
    }
    --acting;
    changed.notify_all();
  }

  void add(const std::string& name, Read read) {
    std::unique_lock lock(mutex);
    if (stopped) return;
    Effects effects;
    File& file = files[name];
    file.waiting.push_back(std::move(read));
    if (file.id != 0) {
      if (file.refuses) refuse_waiting(name, true, effects);
    } else if (is_full()) {
      refuse_waiting(name, false, effects);
      files.erase(name);
    } else if (file.waiting.size() == 1) {
      turns.push_back(name);
      begin_waiting(effects);
    }
    act(lock, std::move(effects));
  }

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      if (begun.empty() && idle >= options.at_once) return;  // others took the place of those that were slow
      ++idle;
      changed.wait(lock, [this] { return stopped || !begun.empty(); });
      --idle;
      if (begun.empty()) return;
      Begun next = std::move(begun.front());
      begun.pop_front();
      lock.unlock();
      goes_on_here = next.goes_on.get();
      const bool has_result = runs_without_exception(next.read);
      goes_on_here = nullptr;
      next.read = nullptr;  // what it owns goes before anybody hears that it has ended
      lock.lock();
      Done done = std::exchange(files.at(next.file).done, nullptr);
      ++acting;
      lock.unlock();
      if (has_result && done) runs_without_exception([&] { done(std::nullopt); });
      done = nullptr;
      lock.lock();
      --acting;
      Effects effects;
      ends(next.file, effects);
      act(lock, std::move(effects));
    }
  }

  void look(const std::string& name, std::uint64_t id) {
    std::unique_lock lock(mutex);
    const auto it = files.find(name);
    if (stopped || it == files.end() || it->second.id != id) return;
    Effects effects;
    if (it->second.goes_on->exchange(false)) {
      effects.timers.push_back({options.slow_ms, &State::look, name, id});
      return act(lock, std::move(effects));
    }
    it->second.is_slow = true;
    --quick;
    changed.notify_all();
    if (options.refuse_ms == 0) {
      it->second.refuses = true;
      refuse_waiting(name, true, effects);
    }
    begin_waiting(effects);
    std::string held;
    if (is_full()) {
      for (const std::string& waits : turns) {
        refuse_waiting(waits, false, effects);
        files.erase(waits);
      }
      turns.clear();
      for (const auto& [each, file] : files) held += fmt::format("{}{}", held.empty() ? "" : ", ", each);
    }
    act(lock, std::move(effects));
    lock.unlock();
    log_event(LogLevel::kInfo, "file_read_slow", {}, "A read of a file makes no progress; others are read beside it.",
              {{"file", name}});
    if (held.empty()) return;
    log_event(LogLevel::kWarn, "file_reads_full", {},
              "Other files are refused until one of these has been read. Check their disks.", {{"files", held}});
  }

  void has_taken_too_long(const std::string& name, std::uint64_t id) {
    std::unique_lock lock(mutex);
    const auto it = files.find(name);
    if (stopped || it == files.end() || it->second.id != id) return;
    Effects effects;
    effects.refused.emplace_back(std::exchange(it->second.done, nullptr), still_read(name));
    it->second.refuses = true;
    refuse_waiting(name, true, effects);
    act(lock, std::move(effects));
  }

  void stop() {
    std::vector<Read> dropped;  // destroyed without the lock, as the others
    std::vector<Done> untold;
    std::unique_lock lock(mutex);
    if (std::exchange(stopped, true)) return;
    for (auto& [name, file] : files) {
      for (Read& read : file.waiting) dropped.push_back(std::move(read));
      file.waiting.clear();
      untold.push_back(std::exchange(file.done, nullptr));
    }
    turns.clear();
    changed.notify_all();
    changed.wait(lock, [this] { return acting == 0; });
    changed.wait_for(lock, std::chrono::milliseconds(options.stop_wait_ms), [this] { return quick == 0; });
    lock.unlock();
  }
};

FileReads::FileReads(Options options) : state_(std::make_shared<State>(std::move(options))) {
  const Options& chosen = state_->options;
  ASSERT(chosen.after != nullptr && chosen.at_once > 0 && chosen.files_max >= chosen.at_once);
}

bool FileReads::is_for_others(const Error& refusal) { return has_detail(refusal, kFilesMax); }

void FileReads::progressed() {
  if (goes_on_here != nullptr) *goes_on_here = true;
}

void FileReads::stop() { state_->stop(); }

void FileReads::post(const std::string& file, Read read) { state_->add(file, std::move(read)); }

}  // namespace llorch::base
