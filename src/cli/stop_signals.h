#pragma once
#include <atomic>
#include <csignal>

namespace llorch::cli {

// Turns SIGINT, SIGTERM and SIGHUP into a flag while it lives. One at a time. SIGHUP stays ignored where it is, as under nohup.
class StopSignals {
 public:
  // kEndsAtOnce: a second signal does what it does without this.
  enum class Second { kIgnored, kEndsAtOnce };
  explicit StopSignals(Second second = Second::kIgnored) {
    requested_ = false;
    struct sigaction action {};
    action.sa_handler = [](int) { requested_ = true; };
    if (second == Second::kEndsAtOnce) action.sa_flags = static_cast<int>(SA_RESETHAND);
    ::sigaction(SIGINT, &action, &old_int_);
    ::sigaction(SIGTERM, &action, &old_term_);
    ::sigaction(SIGHUP, nullptr, &old_hup_);
    if (old_hup_.sa_handler != SIG_IGN) ::sigaction(SIGHUP, &action, nullptr);
  }
  ~StopSignals() {
    ::sigaction(SIGINT, &old_int_, nullptr);
    ::sigaction(SIGTERM, &old_term_, nullptr);
    ::sigaction(SIGHUP, &old_hup_, nullptr);
  }
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;
  static bool requested() { return requested_; }

 private:
  static inline std::atomic<bool> requested_ = false;
  static_assert(std::atomic<bool>::is_always_lock_free);
  struct sigaction old_int_ {};
  struct sigaction old_term_ {};
  struct sigaction old_hup_ {};
};

}  // namespace llorch::cli
