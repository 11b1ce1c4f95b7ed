#pragma once
// How much a server holds for its clients: bytes of bodies, and requests that are not answered. One budget for what they
// send; one for whole answers that they take slowly, where all bodies are on their way and none is in a handler's hands.
//
// A body on its way can give way; one that was handed to a handler cannot. So what is received may fill the
// whole budget, and when it does, the caller that holds the most gives way, with its largest body. Whoever holds less than
// its share is served, however many connections send slowly.
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "base/result.h"

namespace llorch::net::h1 {

struct BudgetLimits {
  std::size_t bytes_max = 256 << 20;
  std::size_t requests_max = 16384;
};

// A request in a handler's hands counts until it is answered or dropped, also when its client has gone. Thread-safe.
class RequestLease {
 public:
  struct Totals {
    const std::size_t bytes_max;
    std::atomic<std::size_t> bytes = 0;
    std::atomic<std::size_t> requests = 0;
  };

  RequestLease() = default;
  RequestLease(std::shared_ptr<Totals> totals, std::size_t bytes);
  RequestLease(RequestLease&& other) noexcept;
  RequestLease& operator=(RequestLease&&) = delete;
  ~RequestLease() { release(); }
  // The handler holds this much more, for what it made of the request. SERVER_BUSY: handlers hold as much as they may. Nothing
  // happens once it is released.
  base::Result<> grow(std::size_t bytes);
  void release();

 private:
  std::mutex mutex_;
  std::shared_ptr<Totals> totals_;  // null: released; guarded by mutex_
  std::size_t bytes_ = 0;           // guarded by mutex_
};

// On the io thread only.
class RequestBudget {
 public:
  explicit RequestBudget(BudgetLimits limits) : limits_(limits) {}

  // Of a body on its way.
  class Reader {
   public:
    virtual ~Reader() = default;
    // Drop the body now, and say so where the client can be told. Calls forget().
    virtual void give_way(const base::Error& error) = 0;

   private:
    friend class RequestBudget;
    std::string account_;
    std::size_t bytes_ = 0;  // 0: not known to the budget
  };

  // `reader` of the caller `account` takes this much memory now, more or less than before. Larger bodies give way if they
  // must. SERVER_BUSY: this one is the one to give way, and it is forgotten. REQUIRES: `account` is the same until then.
  base::Result<> hold(Reader& reader, const std::string& account, std::size_t bytes);
  // The reader's request was refused, or its connection closed.
  void forget(Reader& reader);
  // Its body is complete and goes to a handler; `reader` is forgotten in any case. SERVER_BUSY: handlers hold as much as
  // they may. Half of the bytes is theirs, the last quarter of that for bodies of at most 64 KiB; a handler that is the
  // only one may have any.
  base::Result<RequestLease> hand_over(Reader& reader);

  std::size_t received_bytes() const { return received_bytes_; }

 private:
  struct Account {
    std::size_t bytes = 0;
    std::set<std::pair<std::size_t, Reader*>> readers;  // by size
  };
  Reader& largest() const;

  const BudgetLimits limits_;
  const std::shared_ptr<RequestLease::Totals> handled_ = std::make_shared<RequestLease::Totals>(limits_.bytes_max);
  std::size_t received_bytes_ = 0;
  std::map<std::string, Account> accounts_;  // of those that send
};

}  // namespace llorch::net::h1
