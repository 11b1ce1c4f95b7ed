#pragma once
// How much of its clients' requests a server holds: bytes of bodies, and requests that are not answered.
//
// A body that is being received can give way; one that was handed to a handler cannot. So what is received may fill the
// whole budget, and when it does, the caller that holds the most gives way, with its largest body. Whoever holds less than
// its share is served, however many connections send slowly.
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
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
    std::atomic<std::size_t> bytes = 0;
    std::atomic<std::size_t> requests = 0;
  };

  RequestLease() = default;
  RequestLease(std::shared_ptr<Totals> totals, std::size_t bytes);
  RequestLease(RequestLease&& other) noexcept;
  RequestLease& operator=(RequestLease&&) = delete;
  ~RequestLease() { release(); }
  void release();

 private:
  std::shared_ptr<Totals> totals_;
  std::size_t bytes_ = 0;
  std::atomic<bool> held_ = false;
};

// On the io thread only.
class RequestBudget {
 public:
  explicit RequestBudget(BudgetLimits limits) : limits_(limits) {}

  // A body on its way.
  class Reader {
   public:
    virtual ~Reader() = default;
    // Refuse the request and drop its body now. Calls forget().
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
  base::Error bytes_error(std::size_t held, std::size_t max) const;

  const BudgetLimits limits_;
  const std::shared_ptr<RequestLease::Totals> handled_ = std::make_shared<RequestLease::Totals>();
  std::size_t received_bytes_ = 0;
  std::map<std::string, Account> accounts_;  // of those that send
};

}  // namespace llorch::net::h1
